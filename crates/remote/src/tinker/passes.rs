//! Encodes passes as requests of limited size and parses their log-probs.

use std::collections::BTreeMap;

use prost::Message as _;
use serde_json::{Value, json};

use super::client::{Dialect, RemoteModel};
use super::example::Example;
use super::proto::{ForwardBackwardOutput, ForwardBackwardRequest};
use super::requests::Outcome;
use super::transport::Payload;

const MOST_EXAMPLES: usize = 1024;
const MOST_BYTES: usize = 5_000_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedLoss {
    pub(crate) name: &'static str,
    pub(crate) config: BTreeMap<String, f64>,
}

impl NamedLoss {
    pub(crate) fn plain(name: &'static str) -> Self {
        Self { name, config: BTreeMap::new() }
    }
}

pub(super) fn chunked(examples: &[Example]) -> Vec<&[Example]> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, example) in examples.iter().enumerate() {
        let full = index - start == MOST_EXAMPLES || bytes + example.bytes() > MOST_BYTES;
        if full && index > start {
            chunks.push(&examples[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += example.bytes();
    }
    if start < examples.len() {
        chunks.push(&examples[start..]);
    }
    chunks
}

/// Encodes a pass once, so that retries are identical.
pub(super) fn encode(
    dialect: Dialect,
    model: &RemoteModel,
    loss: &NamedLoss,
    examples: &[Example],
    forward_only: bool,
) -> Payload {
    let number = model.number();
    match dialect {
        Dialect::Protobuf => {
            let request = ForwardBackwardRequest {
                model_id: model.id.clone(),
                seq_id: number,
                data: examples.iter().map(Example::datum).collect(),
                loss_fn: loss.name.into(),
                loss_fn_config: loss.config.clone(),
                forward_only,
            };
            Payload::Protobuf(request.encode_to_vec())
        }
        Dialect::Json => {
            let config = if loss.config.is_empty() { Value::Null } else { json!(loss.config) };
            let data: Vec<Value> = examples.iter().map(Example::json).collect();
            let input = json!({ "data": data, "loss_fn": loss.name, "loss_fn_config": config });
            let key = if forward_only { "forward_input" } else { "forward_backward_input" };
            Payload::json(&json!({ "model_id": model.id, "seq_id": number, key: input }))
        }
    }
}

pub(super) fn logprobs_of(outcome: Outcome) -> Result<Vec<Vec<f32>>, String> {
    match outcome {
        Outcome::Protobuf(bytes) => {
            let output = ForwardBackwardOutput::decode(&*bytes).map_err(|error| error.to_string())?;
            let mut rows = Vec::new();
            for record in &output.loss_fn_outputs {
                rows.extend(record.fields.get("logprobs").ok_or("it has no log-probabilities")?.rows()?);
            }
            Ok(rows)
        }
        Outcome::Json(value) => {
            let outputs = value["loss_fn_outputs"].as_array().ok_or("it has no loss_fn_outputs")?;
            let row = |output: &Value| {
                let data = output["logprobs"]["data"].as_array().ok_or("it has no log-probabilities")?;
                Ok(data.iter().map(|value| value.as_f64().map_or(f32::NAN, |value| value as f32)).collect())
            };
            outputs.iter().map(row).collect()
        }
    }
}
