use std::collections::BTreeSet;
use std::fs;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Map, Value, json};

use super::config_json::CONFIG;
use super::*;
use crate::cpu::decoder::tests::{config, llama, parameters, qwen3};
use crate::{ModelConfig, RopeScaling, SpecialTokens, files};

fn saved(tied: bool) -> (tempfile::TempDir, Parameters<f32>) {
    saved_of(&config(4, 2, tied))
}

fn saved_of(config: &ModelConfig) -> (tempfile::TempDir, Parameters<f32>) {
    let folder = tempfile::tempdir().unwrap();
    let parameters: Parameters<f32> = parameters(config, 1).cast();
    save_model(&parameters, folder.path()).unwrap();
    (folder, parameters)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.into_iter().collect()
}

#[test]
fn what_is_written_is_read_to_the_bit() {
    for tied in [true, false] {
        let (folder, parameters) = saved(tied);
        assert_eq!(load_model(folder.path()).unwrap(), parameters);
        assert_eq!(names(folder.path()), [CONFIG, GENERATION_CONFIG, WEIGHTS], "nothing is left beside them");
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
        ("rope_scaling", json!({ "type": "dynamic" }), "rope_scaling.rope_type: rotary scaling `dynamic`"),
        ("rope_scaling", json!({ "rope_type": "llama3" }), "rope_scaling.factor: is missing"),
        ("rope_scaling", json!({ "rope_type": "linear", "factor": 0.5 }), "rope_scaling.factor: 0.5"),
        ("rope_scaling", json!("yarn"), "config.json: rope_scaling: \"yarn\" is not an object"),
        ("rope_parameters", json!([]), "config.json: rope_parameters: [] is not an object"),
        (
            "rope_scaling",
            json!({ "rope_type": "yarn", "factor": 2.0, "truncate": 0 }),
            "rope_scaling.truncate: 0 is not true or false",
        ),
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
    fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
    let error = load_model(folder.path()).unwrap_err().to_string();
    assert!(error.contains("pytorch_model.bin: is a pickle") && error.contains("save_pretrained"), "{error}");
    for (index, expected) in [
        (json!({}), "no `weight_map`"),
        (json!({ "weight_map": {} }), "`weight_map` is empty"),
        (json!({ "weight_map": { "a": "../model.safetensors" } }), "no plain file name"),
        (
            json!({ "weight_map": { "a": "model-00001-of-00002.safetensors" } }),
            "00001-of-00002.safetensors: is missing",
        ),
    ] {
        fs::write(folder.path().join(INDEX), index.to_string()).unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn half_precision_is_read() {
    let (folder, parameters) = saved(true);
    for dtype in [Dtype::BF16, Dtype::F16] {
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

#[test]
fn large_models_go_into_several_files() {
    let (folder, parameters) = saved(false);
    let folder = folder.path();
    let options = SaveOptions { shard_bytes: 4000, ..SaveOptions::default() };
    save_model_as(&parameters, folder, options).unwrap();
    let found = names(folder);
    let shards: Vec<&String> = found.iter().filter(|name| name.starts_with("model-")).collect();
    assert!(shards.len() > 2, "{found:?}");
    assert_eq!(found.len(), shards.len() + 3, "the single file is gone: {found:?}");
    assert_eq!(load_model(folder).unwrap(), parameters);
    let index: Value = serde_json::from_slice(&fs::read(folder.join(INDEX)).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], 4 * parameters.data.len());
    let map = index["weight_map"].as_object().unwrap();
    assert_eq!(map.len(), parameters.layout.tensors.len());
    for (tensor, file) in map {
        let path = folder.join(file.as_str().unwrap());
        let bytes = fs::read(path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert!(tensors.tensor(tensor).is_ok(), "{tensor} is not in {file}");
        // Only a single tensor may exceed the limit.
        let size: usize = tensors.tensors().iter().map(|(_, view)| view.data().len()).sum();
        assert!(size <= 4000 || tensors.len() == 1, "{file}: {size}");
    }

    let last = folder.join(shards[shards.len() - 1]);
    let bytes = fs::read(&last).unwrap();
    fs::remove_file(&last).unwrap();
    let error = load_model(folder).unwrap_err().to_string();
    assert!(error.contains(&format!("{}: is missing", last.display())), "{error}");
    fs::copy(folder.join(shards[0]), &last).unwrap();
    let error = load_model(folder).unwrap_err().to_string();
    assert!(error.contains("`model.embed_tokens.weight` is there twice"), "{error}");
    fs::write(&last, bytes).unwrap();
    assert_eq!(load_model(folder).unwrap(), parameters);

    save_model(&parameters, folder).unwrap();
    assert_eq!(names(folder), [CONFIG, GENERATION_CONFIG, WEIGHTS]);
    save_model_as(&parameters, folder, SaveOptions { shard_bytes: 6000, ..options }).unwrap();
    save_model_as(&parameters, folder, options).unwrap();
    assert_eq!(names(folder), found);
}

#[test]
fn half_the_size_is_half_the_precision() {
    let (folder, parameters) = saved(true);
    let options = SaveOptions { dtype: WeightType::Bf16, shard_bytes: 3000 };
    save_model_as(&parameters, folder.path(), options).unwrap();
    let loaded = load_model(folder.path()).unwrap();
    for (&exact, &half) in parameters.data.iter().zip(&loaded.data) {
        assert_eq!(half, half::bf16::from_f32(exact).to_f32());
        assert!((exact - half).abs() <= exact.abs() / 256.0);
    }
    assert_ne!(loaded.data, parameters.data);
    let config: Value = serde_json::from_slice(&fs::read(folder.path().join(CONFIG)).unwrap()).unwrap();
    assert_eq!(config["torch_dtype"], "bfloat16");
    let index: Value = serde_json::from_slice(&fs::read(folder.path().join(INDEX)).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], 2 * parameters.data.len());
}

fn with_tensors(
    tied: bool,
    change: impl FnOnce(&mut Vec<(String, Vec<usize>, Vec<f32>)>),
) -> Result<Parameters<f32>, ModelError> {
    let (folder, parameters) = saved(tied);
    let mut tensors = parameters
        .layout
        .tensors
        .iter()
        .map(|tensor| {
            (tensor.name.clone(), tensor.shape.clone(), parameters.data[tensor.range.clone()].to_vec())
        })
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, shape, values)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), files::bytes_of(values)).unwrap())
    });
    fs::write(folder.path().join(WEIGHTS), safetensors::serialize(views, None).unwrap()).unwrap();
    load_model(folder.path())
}

#[test]
fn tensors_are_known_by_other_names_too() {
    let (_folder, parameters) = saved(false);
    for rename in [
        |name: &str| name.strip_prefix("model.").unwrap_or(name).to_owned(),
        |name: &str| format!("_orig_mod.{name}"),
        |name: &str| format!("module._orig_mod.{name}"),
    ] {
        let loaded = with_tensors(false, |tensors| {
            for (name, ..) in tensors.iter_mut() {
                *name = rename(name);
            }
        });
        assert_eq!(loaded.unwrap(), parameters);
    }
    // Old files contain frequencies, which are now computed.
    let loaded = with_tensors(false, |tensors| {
        tensors.push(("model.layers.0.self_attn.rotary_emb.inv_freq".into(), vec![2], vec![1.0, 0.5]));
    });
    assert_eq!(loaded.unwrap(), parameters);
}

#[test]
fn missing_and_unexpected_tensors_are_named() {
    let error = with_tensors(true, |tensors| tensors.retain(|(name, ..)| !name.contains("k_proj")));
    let error = error.unwrap_err().to_string();
    for expected in
        ["layers.0.self_attn.k_proj.weight` is missing", "layers.1.self_attn.k_proj.bias`", "[8, 16]"]
    {
        assert!(error.contains(expected), "{error}");
    }
    let error = with_tensors(true, |tensors| {
        tensors.push(("visual.blocks.0.attn.qkv.weight".into(), vec![1], vec![0.0]));
        tensors.extend((0..9).map(|index| (format!("other.{index}"), vec![1], vec![0.0])));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`other.0`") && error.contains("and 5 more"), "{error}");
    assert!(error.contains("silently"), "{error}");
}

#[test]
fn a_tied_output_in_the_file_must_be_the_embedding() {
    let (_folder, parameters) = saved(true);
    let with_output = |scale: f32| {
        with_tensors(true, |tensors| {
            let (_, shape, values) = tensors[0].clone();
            let values = values.into_iter().map(|value| value * scale).collect();
            tensors.push(("lm_head.weight".into(), shape, values));
        })
    };
    assert_eq!(with_output(1.0).unwrap(), parameters);
    let error = with_output(1.5).unwrap_err().to_string();
    assert!(error.contains("tie_word_embeddings"), "{error}");
}

#[test]
fn special_tokens_are_kept() {
    let special_tokens = SpecialTokens { bos: Some(1), eos: vec![5, 7], pad: Some(0) };
    let config = ModelConfig { special_tokens: special_tokens.clone(), ..config(4, 2, true) };
    let (folder, parameters) = saved_of(&config);
    assert_eq!(load_model(folder.path()).unwrap(), parameters);
    let path = folder.path().join(GENERATION_CONFIG);
    fs::write(&path, json!({ "eos_token_id": 9, "pad_token_id": -1 }).to_string()).unwrap();
    let found = load_config(folder.path()).unwrap().special_tokens;
    assert_eq!(found, SpecialTokens { eos: vec![9], ..special_tokens.clone() });
    fs::remove_file(&path).unwrap();
    assert_eq!(load_config(folder.path()).unwrap().special_tokens, special_tokens);
}
