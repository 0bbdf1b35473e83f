//! Adapters saved here load in PEFT with the same numbers, and vice versa.
//!
//! Runs if `TURNWISE_PYTHON` names a Python with `torch`, `transformers` and `peft`.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use turnwise_core::{Learner as _, Purpose, Seed, TokenSequence, TurnSpan};
use turnwise_model::{
    Adapter, AdapterBase, AdapterFile, LearnerConfig, LoraConfig, NativeLearner, Parameters, Weights,
    load_adapter, load_config, load_model, save_adapter, save_model,
};

use crate::distance;

const CONFIG: &str = r#"{
    "model_type": "qwen2", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "initializer_range": 0.2
}"#;

fn tokens() -> Vec<u32> {
    (0..48).map(|index| (index * 17 + index * index) % 61).collect()
}

fn logprobs(weights: impl Into<Weights>) -> Vec<f64> {
    let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
    let tokens = tokens();
    let end = tokens.len();
    let sequence = TokenSequence { tokens, spans: vec![TurnSpan { turn: 0, start: 1, end }] };
    learner.logprobs(&[&sequence]).unwrap().remove(0).into_iter().map(f64::from).collect()
}

#[test]
fn adapters_go_to_peft_and_come_from_it() {
    let Some(python) = std::env::var_os("TURNWISE_PYTHON") else {
        eprintln!("skipped: set TURNWISE_PYTHON to a Python with torch, transformers and peft");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("base")).unwrap();
    std::fs::write(at("base").join("config.json"), CONFIG).unwrap();
    let config = load_config(&at("base")).unwrap();
    let base = Arc::new(Parameters::init(config, Seed::derive(1, Purpose::Init, &[])).unwrap());
    save_model(&base, &at("base")).unwrap();
    let lora = LoraConfig { rank: 5, alpha: 9.0, ..LoraConfig::default() };
    let mut adapter = Adapter::init(&base.config, &lora, Seed::derive(1, Purpose::Init, &[1])).unwrap();
    let mut rng = Seed::derive(1, Purpose::Init, &[2]).rng();
    adapter.data.iter_mut().for_each(|value| *value += 0.1 * rng.normal() as f32);
    let name = AdapterBase { name: at("base").display().to_string(), revision: None };
    save_adapter(&adapter, &at("adapter"), &name).unwrap();
    let weights = Weights::adapted(Arc::clone(&base), adapter).unwrap();
    save_model(&weights.merged().unwrap(), &at("merged")).unwrap();
    std::fs::write(at("tokens.json"), serde_json::to_string(&tokens()).unwrap()).unwrap();

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lora/check.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();

    let (own, plain) = (logprobs(weights), logprobs(Arc::clone(&base)));
    assert!(distance(&plain, &found["base"]) < 2e-5);
    for name in ["adapter", "merged"] {
        assert!(distance(&own, &found[name]) < 5e-5, "{name}: {}", distance(&own, &found[name]));
        assert!(distance(&plain, &found[name]) > 1e-2, "{name}: the adapter matters");
    }
    for (name, expected) in found["theirs"].as_object().unwrap() {
        let path = at("theirs").join(name);
        let adapter = load_adapter(&path, &base.config).unwrap();
        let theirs = logprobs(Weights::adapted(Arc::clone(&base), adapter).unwrap());
        assert!(distance(&theirs, expected) < 5e-5, "{name}: {}", distance(&theirs, expected));
        assert!(distance(&plain, expected) > 1e-2, "{name}: the adapter matters");
        let named = AdapterFile::read(&path).unwrap().base.unwrap().name;
        assert_eq!(load_model(Path::new(&named)).unwrap(), *base);
    }
}
