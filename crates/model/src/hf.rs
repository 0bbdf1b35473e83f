//! A model as a Hugging Face folder: `config.json`, `generation_config.json`, `model.safetensors`.
//!
//! What is written loads in `transformers` as `Qwen2ForCausalLM`; what `transformers` writes for that
//! family in one file loads here. A tied output layer is not stored, as there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

use crate::files::{self, bytes_of, failed, floats_of, wrong};
use crate::{Layout, ModelConfig, ModelError, Parameters};

/// Whether a setting changes nothing.
type Harmless = fn(&Value) -> bool;

/// Keys of `config.json` that change the computation in ways this crate does not do, and the values
/// under which they change nothing.
const UNSUPPORTED: [(&str, Harmless); 4] = [
    ("hidden_act", |value| value == "silu"),
    ("rope_scaling", Value::is_null),
    ("use_sliding_window", |value| value == false),
    ("attention_dropout", |value| value.as_f64() == Some(0.0)),
];

/// Writes the model into `folder`, which is made if need be. Each file is written aside and renamed.
pub fn save_model(parameters: &Parameters<f32>, folder: &Path) -> Result<(), ModelError> {
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join("config.json");
    files::write_aside(&path, &json_bytes(&path, &config_json(&path, &parameters.config)?)?)?;
    let path = folder.join("generation_config.json");
    files::write_aside(&path, &json_bytes(&path, &json!({ "do_sample": true, "temperature": 1.0 }))?)?;

    let path = folder.join("model.safetensors");
    let mut tensors = Vec::new();
    for tensor in &parameters.layout.tensors {
        let Some(values) = parameters.data.get(tensor.range.clone()) else {
            return Err(wrong(&path, format!("the weights end before tensor `{}`", tensor.name)));
        };
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes_of(values))
            .map_err(|error| wrong(&path, error))?;
        tensors.push((tensor.name.clone(), view));
    }
    let header = [("format".to_string(), "pt".to_string())].into();
    let bytes = safetensors::serialize(tensors, Some(header)).map_err(|error| wrong(&path, error))?;
    files::write_aside(&path, &bytes)
}

/// Reads a model from a folder; f32, bf16 and f16 weights become f32.
///
/// # Errors
/// Name the file and the key or tensor: an unsupported family or setting, a missing tensor, a shape
/// that does not fit the config.
pub fn load_model(folder: &Path) -> Result<Parameters<f32>, ModelError> {
    let config = load_config(&folder.join("config.json"))?;
    let path = folder.join("model.safetensors");
    if !path.is_file() && folder.join("model.safetensors.index.json").is_file() {
        return Err(wrong(&path, "the weights are in several files; models in one file are supported"));
    }
    let bytes = files::read(&path)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(&path, error))?;
    let views: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
    let layout = Layout::new(&config);
    let mut data = vec![0.0; layout.len];
    for tensor in &layout.tensors {
        let to = &mut data[tensor.range.clone()];
        floats_of(&path, &tensor.name, views.get(&tensor.name), &tensor.shape, to)?;
    }
    Ok(Parameters { config, layout, data })
}

fn load_config(path: &Path) -> Result<ModelConfig, ModelError> {
    let bytes = files::read(path)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| wrong(path, error))?;
    if let Some(family) = value.get("model_type").and_then(Value::as_str)
        && family != "qwen2"
    {
        return Err(wrong(path, format!("model_type `{family}` is not supported; supported: qwen2")));
    }
    for (key, harmless) in UNSUPPORTED {
        if let Some(setting) = value.get(key)
            && !harmless(setting)
        {
            return Err(wrong(path, format!("{key} = {setting} is not supported")));
        }
    }
    let mut value = value;
    let theta = value.pointer("/rope_parameters/rope_theta").cloned();
    if let (Some(theta), Some(object)) = (theta, value.as_object_mut()) {
        // transformers 5 keeps it there.
        object.entry("rope_theta").or_insert(theta);
    }
    let config: ModelConfig = serde_json::from_value(value).map_err(|error| wrong(path, error))?;
    config.check()?;
    Ok(config)
}

/// The config with the keys that `transformers` wants besides ours.
fn config_json(path: &Path, config: &ModelConfig) -> Result<Value, ModelError> {
    let mut value = serde_json::to_value(config).map_err(|error| wrong(path, error))?;
    let extra = json!({
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "use_cache": true,
        "use_sliding_window": false,
    });
    if let (Some(object), Value::Object(extra)) = (value.as_object_mut(), extra) {
        object.extend(extra);
    }
    Ok(value)
}

fn json_bytes(path: &Path, value: &Value) -> Result<Vec<u8>, ModelError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| wrong(path, error))?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Purpose, Seed};

    use super::*;

    fn model(tied: bool) -> Parameters<f32> {
        let config = ModelConfig {
            model_type: "qwen2".into(),
            vocab_size: 11,
            hidden_size: 8,
            intermediate_size: 12,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            num_key_value_heads: 1,
            max_position_embeddings: 16,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
            tie_word_embeddings: tied,
            initializer_range: 0.02,
        };
        Parameters::init(config, Seed::derive(1, Purpose::Init, &[])).unwrap()
    }

    #[test]
    fn a_model_comes_back_to_the_bit() {
        for tied in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let original = model(tied);
            save_model(&original, folder.path()).unwrap();
            assert_eq!(load_model(folder.path()).unwrap(), original);
            let bytes = fs::read(folder.path().join("model.safetensors")).unwrap();
            let names: Vec<String> = SafeTensors::deserialize(&bytes)
                .unwrap()
                .names()
                .iter()
                .map(|name| (*name).to_owned())
                .collect();
            assert_eq!(names.contains(&"lm_head.weight".to_owned()), !tied);
            assert!(names.contains(&"model.layers.1.self_attn.k_proj.bias".to_owned()));
        }
    }

    #[test]
    fn errors_name_the_file_and_the_mend() {
        let folder = tempfile::tempdir().unwrap();
        let message = || load_model(folder.path()).unwrap_err().to_string();
        assert!(message().contains("config.json"));
        save_model(&model(true), folder.path()).unwrap();
        let path = folder.path().join("config.json");
        let original = fs::read_to_string(&path).unwrap();
        let with = |key: &str, value: Value| {
            let mut config: Value = serde_json::from_str(&original).unwrap();
            config[key] = value;
            fs::write(&path, config.to_string()).unwrap();
            message()
        };
        assert!(with("model_type", json!("gemma")).contains("supported: qwen2"));
        assert!(with("rope_scaling", json!({ "type": "yarn" })).contains("rope_scaling"));
        assert!(with("num_hidden_layers", json!(3)).contains("`model.layers.2."));
        assert!(
            with("intermediate_size", json!(13)).contains("do config.json and this file belong together")
        );
        assert!(with("num_key_value_heads", json!(0)).contains("num_key_value_heads"));
    }
}
