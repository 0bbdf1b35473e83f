//! Vision models, and adapters on their decoders, load in `transformers` and PEFT with the same
//! numbers, and vice versa.
//!
//! Runs if `TURNWISE_PYTHON` names a Python with `torch`, `transformers` and `peft`.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use turnwise_core::{Learner as _, Purpose, Seed, TokenSequence, TurnSpan};
use turnwise_model::vision::{FIRST_PICTURE_TOKEN, Image};
use turnwise_model::{
    Adapter, AdapterBase, LearnerConfig, LoraConfig, ModelConfig, NativeLearner, Parameters, Weights,
    load_adapter, load_config, load_model, save_adapter, save_model,
};

use crate::distance;

const PICTURES: [[usize; 2]; 2] = [[24, 40], [16, 16]];

fn config_json(family: &str) -> Value {
    let vision = match family {
        "qwen2_vl" => {
            json!({ "depth": 2, "embed_dim": 16, "mlp_ratio": 2, "hidden_size": 32, "in_chans": 3 })
        }
        _ => json!({
            "depth": 2, "hidden_size": 16, "intermediate_size": 20, "out_hidden_size": 32, "in_chans": 3,
            "window_size": 16, "fullatt_block_indexes": [1],
        }),
    };
    let mut config = json!({
        "model_type": family, "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "rope_scaling": { "type": "mrope", "mrope_section": [1, 2, 1] }, "tie_word_embeddings": true,
        "initializer_range": 0.2, "vision_config": vision, "image_token_id": 60, "video_token_id": 57,
        "vision_start_token_id": 58, "vision_end_token_id": 59,
    });
    for (key, value) in [("num_heads", 2), ("patch_size", 4)] {
        config["vision_config"][key] = json!(value);
    }
    config
}

/// Returns the picture of `make.py`.
fn picture([height, width]: [usize; 2]) -> Image {
    let level = |y: usize, x: usize, c: usize| ((37 * y + 11 * x + 50 * c + 7 * ((x * y) % 23)) % 256) as u8;
    let rows = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| level(y, x, c))));
    Image { width, height, rgb: rows.collect() }
}

fn tokens(config: &ModelConfig) -> Vec<u32> {
    let vision = config.vision.as_ref().unwrap();
    let mut tokens = vec![3, 9];
    for (index, size) in (0..).zip(PICTURES) {
        let shown = vision.pictures.add(&picture(size), vision).unwrap();
        tokens.push(vision.tokens.start);
        tokens.extend(shown.ids());
        tokens.extend([vision.tokens.end, 5 + index, 17, 30 + index]);
    }
    tokens
}

fn logprobs(weights: impl Into<Weights>) -> Vec<f64> {
    let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
    let tokens = tokens(&learner.weights().base.config);
    let text = (1..tokens.len()).filter(|&at| tokens[at] < FIRST_PICTURE_TOKEN);
    let spans = text.enumerate().map(|(turn, at)| TurnSpan { turn, start: at, end: at + 1 }).collect();
    let found = learner.logprobs(&[&TokenSequence { tokens, spans }]).unwrap().remove(0);
    found.into_iter().map(f64::from).collect()
}

#[test]
fn models_with_pictures_and_their_adapters_go_to_peft_and_come_from_it() {
    let Some(python) = std::env::var_os("TURNWISE_PYTHON") else {
        eprintln!("skipped: set TURNWISE_PYTHON to a Python with torch, transformers and peft");
        return;
    };
    for family in ["qwen2_5_vl", "qwen2_vl"] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("base")).unwrap();
        std::fs::write(at("base").join("config.json"), config_json(family).to_string()).unwrap();
        let mut config = load_config(&at("base")).unwrap();
        // Disables resizing.
        config.vision.as_mut().unwrap().image.min_pixels = 64;
        let mut base = Parameters::init(config, Seed::derive(1, Purpose::Init, &[])).unwrap();
        let mut rng = Seed::derive(1, Purpose::Init, &[2]).rng();
        base.data.iter_mut().for_each(|value| *value += 0.05 * rng.normal() as f32);
        let base = Arc::new(base);
        save_model(&base, &at("base")).unwrap();
        let lora = LoraConfig { rank: 5, alpha: 9.0, ..LoraConfig::default() };
        let mut adapter = Adapter::init(&base.config, &lora, Seed::derive(1, Purpose::Init, &[1])).unwrap();
        adapter.data.iter_mut().for_each(|value| *value += 0.1 * rng.normal() as f32);
        let name = AdapterBase { name: at("base").display().to_string(), revision: None };
        save_adapter(&adapter, &at("adapter"), &name).unwrap();
        assert_eq!(load_adapter(&at("adapter"), &base.config).unwrap().data, adapter.data);
        let weights = Weights::adapted(Arc::clone(&base), adapter).unwrap();
        save_model(&weights.merged().unwrap(), &at("merged")).unwrap();
        let shown = tokens(&base.config);
        let shown: Vec<u32> =
            shown.iter().map(|&id| if id < FIRST_PICTURE_TOKEN { id } else { 60 }).collect();
        let input = json!({ "tokens": shown, "pictures": PICTURES });
        std::fs::write(at("input.json"), input.to_string()).unwrap();

        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/qwen2_5_vl/check.py");
        let output = Command::new(&python).arg(script).arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();

        let (own, plain) = (logprobs(weights), logprobs(Arc::clone(&base)));
        assert!(distance(&plain, &found["base"]) < 5e-5, "{family}: {}", distance(&plain, &found["base"]));
        for name in ["adapter", "merged"] {
            let distance = |own: &[f64]| distance(own, &found[name]);
            assert!(distance(&own) < 1e-4, "{family} {name}: {}", distance(&own));
            assert!(distance(&plain) > 1e-2, "{family} {name}: the adapter matters");
        }
        // The tower has layers of the same names, which get no adapter.
        let modules = found["modules"].as_array().unwrap();
        assert_eq!(modules.len(), 2 * 7);
        assert!(modules.iter().all(|name| name.as_str().unwrap().contains("language_model")), "{modules:?}");
        for (name, expected) in found["theirs"].as_object().unwrap() {
            let adapter = load_adapter(&at("theirs").join(name), &base.config).unwrap();
            let theirs = logprobs(Weights::adapted(Arc::clone(&base), adapter).unwrap());
            let distance = |own: &[f64]| distance(own, expected);
            assert!(distance(&theirs) < 1e-4, "{family} {name}: {}", distance(&theirs));
            assert!(distance(&plain) > 1e-2, "{family} {name}: the adapter matters");
        }
        assert_eq!(load_model(&at("base")).unwrap(), *base);
    }
}
