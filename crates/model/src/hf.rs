//! Models in Hugging Face's layout: `config.json`, `model.safetensors`, `generation_config.json`.

use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Map, Value, json};

use crate::files::{self, bytes_of, floats_of, wrong};
use crate::{ModelConfig, ModelError, Parameters};

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const WEIGHTS: &str = "model.safetensors";

/// Reads `config.json` of a model folder and refuses what this crate would run wrongly.
///
/// Both spellings of the rotary base are known: `rope_theta` and, from version 5 of `transformers`
/// on, `rope_parameters.rope_theta`.
fn load_config(folder: &Path) -> Result<ModelConfig, ModelError> {
    let path = folder.join(CONFIG);
    let bytes = files::read(&path)?;
    let mut value: Value = serde_json::from_slice(&bytes).map_err(|error| wrong(&path, error))?;
    let Some(entries) = value.as_object_mut() else {
        return Err(wrong(&path, "is not a JSON object"));
    };
    check_family(entries)?;
    let scaling = ["rope_parameters", "rope_scaling"]
        .into_iter()
        .find_map(|key| entries.get(key).filter(|value| !value.is_null()).cloned().map(|value| (key, value)));
    if let Some((key, scaling)) = scaling {
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str);
        if !matches!(kind, None | Some("default")) {
            let reason = format!("rotary scaling `{}` is not supported", kind.unwrap_or_default());
            return Err(ModelError::Config { key: key.into(), reason });
        }
        if let Some(theta) = scaling.get("rope_theta") {
            entries.entry("rope_theta").or_insert_with(|| theta.clone());
        }
    }
    // What `transformers` leaves out where it is the default of the family.
    for (key, default) in [
        ("rope_theta", json!(10000.0)),
        ("rms_norm_eps", json!(1e-6)),
        ("max_position_embeddings", json!(32768)),
        ("tie_word_embeddings", json!(false)),
        ("num_key_value_heads", entries.get("num_attention_heads").cloned().unwrap_or(Value::Null)),
    ] {
        entries.entry(key).or_insert(default);
    }
    let config: ModelConfig = serde_json::from_value(value).map_err(|error| wrong(&path, error))?;
    config.check()?;
    Ok(config)
}

/// The config with the keys that `transformers` wants besides ours.
fn config_json(config: &ModelConfig, critic: bool) -> Value {
    let mut value = json!({
        "architectures": [if critic { "Qwen2ForTokenClassification" } else { "Qwen2ForCausalLM" }],
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": null,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "model_type": config.model_type,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": "float32",
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": config.vocab_size,
    });
    if critic {
        value["num_labels"] = json!(1);
        value["id2label"] = json!({ "0": "value" });
    }
    value
}

/// Refuses settings that change the computation in a way that is not implemented.
fn check_family(entries: &Map<String, Value>) -> Result<(), ModelError> {
    let fail = |key: &str, reason: String| Err(ModelError::Config { key: key.into(), reason });
    match entries.get("model_type").and_then(Value::as_str) {
        Some("qwen2") => {}
        Some(other) => return fail("model_type", format!("`{other}` is not supported; supported: qwen2")),
        None => return fail("model_type", "is missing; supported: qwen2".into()),
    }
    if let Some(act) = entries.get("hidden_act").and_then(Value::as_str).filter(|&act| act != "silu") {
        return fail("hidden_act", format!("`{act}` is not supported; supported: silu"));
    }
    if entries.get("use_sliding_window").and_then(Value::as_bool) == Some(true) {
        return fail("use_sliding_window", "sliding windows are not supported; set it to false".into());
    }
    let number = |key: &str| entries.get(key).and_then(Value::as_u64);
    if let (Some(width), Some(hidden), Some(heads)) =
        (number("head_dim"), number("hidden_size"), number("num_attention_heads"))
        && width.checked_mul(heads) != Some(hidden)
    {
        return fail(
            "head_dim",
            format!("{width} times {heads} heads is not hidden_size = {hidden}, which is not supported"),
        );
    }
    Ok(())
}

/// Reads a model from a folder. Weights may be `f32`, `bf16` or `f16`; they become `f32`.
///
/// # Errors
/// Name the file and the key or tensor: an unsupported family or setting, a missing tensor, a shape
/// that does not fit the config.
pub fn load_model(folder: &Path) -> Result<Parameters<f32>, ModelError> {
    load(folder, Parameters::zeros)
}

/// Reads a critic: a decoder with a value head, as [`save_model`] writes one.
pub fn load_critic(folder: &Path) -> Result<Parameters<f32>, ModelError> {
    load(folder, Parameters::critic)
}

fn load(
    folder: &Path,
    empty: impl FnOnce(ModelConfig) -> Parameters<f32>,
) -> Result<Parameters<f32>, ModelError> {
    let config = load_config(folder)?;
    let path = folder.join(WEIGHTS);
    if !path.exists() && folder.join("model.safetensors.index.json").exists() {
        return Err(wrong(
            &path,
            "is missing, but the weights are there in several files; save them as one with \
                 `save_pretrained(folder, max_shard_size=\"100GB\")`",
        ));
    }
    let bytes = files::read(&path)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(&path, error))?;
    let mut parameters = empty(config);
    for tensor in &parameters.layout.tensors {
        let view = tensors.tensor(&tensor.name).ok();
        let to = &mut parameters.data[tensor.range.clone()];
        floats_of(&path, &tensor.name, view.as_ref(), &tensor.shape, to)?;
    }
    Ok(parameters)
}

/// Writes a model into a folder, which is made if need be, so that `transformers` loads it: weights in
/// `f32`, a tied output left out.
///
/// Each file appears whole or not at all, `config.json` last.
pub fn save_model(parameters: &Parameters<f32>, folder: &Path) -> Result<(), ModelError> {
    fs::create_dir_all(folder).map_err(files::failed(folder))?;
    let path = folder.join(WEIGHTS);
    let views: Vec<(&str, TensorView<'_>)> = parameters
        .layout
        .tensors
        .iter()
        .map(|tensor| {
            let bytes = bytes_of(&parameters.data[tensor.range.clone()]);
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes);
            view.map(|view| (tensor.name.as_str(), view)).map_err(|error| wrong(&path, error))
        })
        .collect::<Result<_, _>>()?;
    let header = [("format".to_string(), "pt".to_string())].into();
    let bytes = safetensors::serialize(views, Some(header)).map_err(|error| wrong(&path, error))?;
    files::write_aside(&path, &bytes)?;
    let write = |name: &str, value: &Value| {
        let path = folder.join(name);
        let mut text = serde_json::to_string_pretty(value).map_err(|error| wrong(&path, error))?;
        text.push('\n');
        files::write_aside(&path, text.as_bytes())
    };
    write(GENERATION_CONFIG, &json!({ "do_sample": true, "temperature": 1.0, "top_k": 0, "top_p": 1.0 }))?;
    write(CONFIG, &config_json(&parameters.config, parameters.layout.value.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::tests::{config, parameters};

    fn saved(tied: bool) -> (tempfile::TempDir, Parameters<f32>) {
        let folder = tempfile::tempdir().unwrap();
        let parameters: Parameters<f32> = parameters(&config(4, 2, tied), 1).cast();
        save_model(&parameters, folder.path()).unwrap();
        (folder, parameters)
    }

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        for tied in [true, false] {
            let (folder, parameters) = saved(tied);
            assert_eq!(load_model(folder.path()).unwrap(), parameters);
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, [CONFIG, GENERATION_CONFIG, WEIGHTS], "nothing is left beside them");
            let bytes = fs::read(folder.path().join(WEIGHTS)).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(tensors.tensor("lm_head.weight").is_err(), tied);
        }
    }

    /// Loads after a change of `config.json`.
    fn with_config(change: impl FnOnce(&mut Map<String, Value>)) -> Result<Parameters<f32>, ModelError> {
        let (folder, _) = saved(true);
        let path = folder.path().join(CONFIG);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(value.as_object_mut().unwrap());
        fs::write(&path, value.to_string()).unwrap();
        load_model(folder.path())
    }

    #[test]
    fn both_spellings_of_the_rotary_base_are_read() {
        let loaded = with_config(|entries| {
            entries.remove("rope_theta");
            entries.insert("rope_parameters".into(), json!({ "rope_type": "default", "rope_theta": 123.0 }));
        });
        assert_eq!(loaded.unwrap().config.rope_theta, 123.0);
    }

    #[test]
    fn what_would_run_wrongly_is_refused() {
        for (key, value, expected) in [
            ("model_type", json!("llama"), "model_type: `llama` is not supported"),
            ("hidden_act", json!("gelu"), "hidden_act"),
            ("use_sliding_window", json!(true), "use_sliding_window"),
            ("head_dim", json!(64), "head_dim"),
            ("rope_scaling", json!({ "type": "yarn" }), "`yarn` is not supported"),
            ("num_key_value_heads", json!(3), "num_key_value_heads"),
            ("vocab_size", json!(24), "tensor `model.embed_tokens.weight` has shape [23, 16]"),
            ("num_hidden_layers", json!(3), "tensor `model.layers.2.input_layernorm.weight` is missing"),
        ] {
            let error = with_config(|entries| {
                entries.insert(key.into(), value);
            });
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{key}: {error}");
        }
        let missing = with_config(|entries| {
            entries.remove("hidden_size");
        });
        assert!(missing.unwrap_err().to_string().contains("hidden_size"));
    }

    #[test]
    fn broken_files_are_named() {
        let (folder, _) = saved(true);
        let path = folder.path().join(WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        assert!(error.contains(WEIGHTS), "{error}");
        fs::remove_file(&path).unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        assert!(error.contains(WEIGHTS), "{error}");
        fs::write(folder.path().join("model.safetensors.index.json"), "{}").unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        assert!(error.contains("max_shard_size"), "{error}");
    }

    #[test]
    fn half_precision_is_read() {
        let (folder, parameters) = saved(true);
        for dtype in [Dtype::BF16, Dtype::F16] {
            // Powers of two, which both formats hold exactly.
            let value = |index: usize| 2f32.powi((index % 8) as i32 - 4);
            let encoded: Vec<(String, Vec<usize>, Vec<u8>)> = parameters
                .layout
                .tensors
                .iter()
                .map(|tensor| {
                    let bytes = tensor.range.clone().flat_map(|index| {
                        let bits = value(index).to_bits();
                        let half = if dtype == Dtype::BF16 { bits >> 16 } else { ((bits >> 23) - 112) << 10 };
                        (half as u16).to_le_bytes()
                    });
                    (tensor.name.clone(), tensor.shape.clone(), bytes.collect())
                })
                .collect();
            let views = encoded.iter().map(|(name, shape, bytes)| {
                (name.as_str(), TensorView::new(dtype, shape.clone(), bytes).unwrap())
            });
            let bytes = safetensors::serialize(views, None).unwrap();
            fs::write(folder.path().join(WEIGHTS), bytes).unwrap();
            let loaded = load_model(folder.path()).unwrap();
            for (index, &loaded) in loaded.data.iter().enumerate() {
                assert_eq!(loaded, value(index));
            }
        }
    }
}
