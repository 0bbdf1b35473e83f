//! Messages of the double, in both dialects.

use prost::Message as _;
use serde_json::{Value, json};
use turnwise_model::{AdapterBase, save_adapter};
use turnwise_remote::tinker::proto::{
    ArrayRecord, BatchedTensor, FLOAT32, ForwardBackwardOutput, ForwardBackwardRequest, read_floats,
    read_tokens,
};

use crate::passes::Received;

/// A pass, read from either encoding.
pub(crate) struct Pass {
    pub(crate) model: String,
    pub(crate) number: i64,
    pub(crate) loss: String,
    pub(crate) config: Value,
    pub(crate) examples: Vec<Received>,
    pub(crate) forward_only: bool,
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().map(|number| number.as_f64().unwrap()).collect()
}

impl Pass {
    pub(crate) fn of_json(body: &Value, forward_only: bool) -> Self {
        let input = &body[if forward_only { "forward_input" } else { "forward_backward_input" }];
        let examples = input["data"].as_array().unwrap().iter().map(|datum| {
            let inputs = &datum["loss_fn_inputs"];
            let floats =
                |name: &str| numbers(&inputs[name]["data"]).iter().map(|&number| number as f32).collect();
            let mut tokens = numbers(&datum["model_input"]["chunks"][0]["tokens"]);
            let targets = numbers(&inputs["target_tokens"]["data"]);
            assert_eq!(tokens[1..], targets[..targets.len() - 1], "targets are the tokens after");
            tokens.push(targets[targets.len() - 1]);
            Received {
                tokens: tokens.iter().map(|&id| id as u32).collect(),
                weights: floats("weights"),
                logprobs: floats("logprobs"),
                advantages: floats("advantages"),
            }
        });
        Self {
            model: body["model_id"].as_str().unwrap().to_owned(),
            number: body["seq_id"].as_i64().unwrap_or(0),
            loss: input["loss_fn"].as_str().unwrap().to_owned(),
            config: input["loss_fn_config"].clone(),
            examples: examples.collect(),
            forward_only,
        }
    }

    pub(crate) fn of_message(request: &ForwardBackwardRequest) -> Self {
        let examples = request.data.iter().map(|datum| {
            let floats = |name: &str| {
                datum
                    .loss_fn_inputs
                    .get(name)
                    .map(|tensor| read_floats(&tensor.dense).unwrap())
                    .unwrap_or_default()
            };
            let text = datum.model_input[0].encoded_text.as_ref().unwrap();
            let mut tokens = read_tokens(&text.tokens).unwrap();
            let (targets, _) = datum.loss_fn_inputs["target_tokens"].dense.as_chunks::<8>();
            let last = targets.last().unwrap();
            tokens.push(i64::from_le_bytes(*last) as u32);
            Received {
                tokens,
                weights: floats("weights"),
                logprobs: floats("logprobs"),
                advantages: floats("advantages"),
            }
        });
        Self {
            model: request.model_id.clone(),
            number: i64::from(request.seq_id),
            loss: request.loss_fn.clone(),
            config: json!(request.loss_fn_config),
            examples: examples.collect(),
            forward_only: request.forward_only,
        }
    }
}

pub(crate) fn output_message(rows: &[Vec<f32>]) -> Vec<u8> {
    let data = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    let mut offsets = vec![0i64];
    for row in rows {
        offsets.push(offsets[offsets.len() - 1] + 4 * row.len() as i64);
    }
    let offsets = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
    let tensor = BatchedTensor { data, offsets, dtype: FLOAT32, trailing_shape: Vec::new() };
    let record = ArrayRecord {
        type_tag: String::new(),
        fields: [("logprobs".to_owned(), tensor)].into(),
        num_datums: rows.len() as i64,
    };
    let output = ForwardBackwardOutput {
        loss_fn_output_type: "scalar".into(),
        loss_fn_outputs: vec![record],
        ..ForwardBackwardOutput::default()
    };
    output.encode_to_vec()
}

pub(crate) fn output_json(rows: &[Vec<f32>]) -> Value {
    let output =
        |row: &Vec<f32>| json!({ "logprobs": { "data": row, "dtype": "float32", "shape": [row.len()] } });
    let outputs: Vec<Value> = rows.iter().map(output).collect();
    json!({ "loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {} })
}

/// An adapter as an archive, compressed with level 0.
pub(crate) fn packed(adapter: &turnwise_model::Adapter<f32>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let base = AdapterBase { name: "/srv/models/tiny".into(), revision: None };
    save_adapter(adapter, folder.path(), &base).unwrap();
    // As SkyRL on JAX leaves it.
    let path = folder.path().join("adapter_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["target_modules"] = Value::Null;
    std::fs::write(&path, config.to_string()).unwrap();
    let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    let mut archive = tar::Builder::new(packed);
    archive.append_dir_all(".", folder.path()).unwrap();
    archive.into_inner().unwrap().finish().unwrap()
}
