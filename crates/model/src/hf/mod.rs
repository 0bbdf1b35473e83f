//! Models in Hugging Face's layout: `config.json`, `model.safetensors`, `generation_config.json`.

use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

use crate::files::{self, bytes_of, floats_of, wrong};
use crate::{ModelConfig, ModelError, Parameters};

mod config_json;

#[cfg(test)]
pub(crate) use config_json::config_from_json;
use config_json::{CONFIG, config_json};
pub use config_json::{load_config, read_config};

const GENERATION_CONFIG: &str = "generation_config.json";
const WEIGHTS: &str = "model.safetensors";

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
    use serde_json::Map;

    use super::*;
    use crate::RopeScaling;
    use crate::decoder::tests::{config, llama, parameters, qwen3};

    fn saved(tied: bool) -> (tempfile::TempDir, Parameters<f32>) {
        saved_of(&config(4, 2, tied))
    }

    fn saved_of(config: &ModelConfig) -> (tempfile::TempDir, Parameters<f32>) {
        let folder = tempfile::tempdir().unwrap();
        let parameters: Parameters<f32> = parameters(config, 1).cast();
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

    #[test]
    fn every_family_is_read_as_it_was_written() {
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            attention_factor: 1.3,
            beta_fast: 16.0,
            beta_slow: 2.0,
            original_max_position_embeddings: 128,
            truncate: false,
        };
        let linear = RopeScaling::Linear { factor: 3.0 };
        for config in [
            qwen3(6, false),
            ModelConfig { rope_scaling: yarn, ..qwen3(2, true) },
            llama(),
            ModelConfig { mlp_bias: false, attention_bias: false, rope_scaling: linear, ..llama() },
            ModelConfig { head_dim: 8, rope_theta: 1e6, ..config(4, 2, false) },
        ] {
            let (folder, parameters) = saved_of(&config);
            assert_eq!(load_config(folder.path()).unwrap(), config);
            assert_eq!(load_model(folder.path()).unwrap(), parameters);
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
            ("model_type", json!("gpt2"), "config.json: model_type: `gpt2` is not supported"),
            ("model_type", json!(null), "supported: qwen2, qwen3, llama"),
            ("hidden_act", json!("gelu"), "hidden_act"),
            ("use_sliding_window", json!(true), "use_sliding_window"),
            ("head_dim", json!(64), "tensor `model.layers.0.self_attn.q_proj.weight` has shape [16, 16]"),
            ("head_dim", json!("4"), "head_dim: \"4\" is not a whole number"),
            (
                "rope_scaling",
                json!({ "type": "dynamic" }),
                "rope_scaling.rope_type: rotary scaling `dynamic`",
            ),
            ("rope_scaling", json!({ "rope_type": "llama3" }), "rope_scaling.factor: is missing"),
            ("rope_scaling", json!({ "rope_type": "linear", "factor": 0.5 }), "rope_scaling.factor: 0.5"),
            ("rope_parameters", json!({ "full_attention": {} }), "differ between layers"),
            ("rope_parameters", json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor"),
            ("layer_types", json!(["full_attention", "sliding_attention"]), "layer_types: sliding"),
            ("quantization_config", json!({ "quant_method": "gptq" }), "`gptq`"),
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
