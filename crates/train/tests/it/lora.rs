//! Runs that train an adapter: changed and unchanged weights, files, and readers.
#![allow(clippy::unwrap_used)]

use crate::common;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_core::{Learner as _, TokenSequence, TurnSpan};
use turnwise_model::{LearnerConfig, NativeLearner, WeightType, Weights, load_model};
use turnwise_policy::Policy;
use turnwise_train::config::Config;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::run::export::{ExportOptions, Exported, export};
use turnwise_train::{NoopObserver, Run, RunEnd};

const LORA: &[&str] = &[
    "policy.lora={rank=4, alpha=8.0}",
    "sft.steps=20",
    "sft.batch_tokens=600",
    "sft.learning_rate=2e-2",
    "sft.warmup=0",
];

fn config(more: &[&str]) -> Config {
    common::config(None, &[LORA, more].concat()).unwrap()
}

fn full(mut config: Config) -> Config {
    config.policy.lora = None;
    config
}

fn finish(config: Config, root: &Path) -> Run {
    let mut run = Run::builder(config).directory(root).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    run
}

fn logprobs(weights: Weights) -> Vec<f32> {
    let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
    let tokens: Vec<u32> = (0..40).map(|index| (index * 37 + 5) % 200).collect();
    let sequence = TokenSequence { tokens, spans: vec![TurnSpan { turn: 0, start: 1, end: 40 }] };
    learner.logprobs(&[&sequence]).unwrap().remove(0)
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn a_run_trains_its_adapter_and_leaves_its_base() {
    let folder = tempfile::tempdir().unwrap();
    // An adapter changes little on random weights.
    let start = folder.path().join("start");
    finish(full(config(&["train.steps=0", "name=start"])), &start);
    let root = folder.path().join("run");
    let start = format!("policy.model=\"{}\"", start.display());
    let run = finish(config(&[&start, "objective.kl.coef=0.01", "train.keep_last=0"]), &root);
    let weights = run.weights().unwrap();
    let adapter = weights.adapter.clone().unwrap();
    assert_eq!((adapter.config.rank, adapter.layout.layers.len()), (4, 1));
    assert!(!adapter.is_identity(), "the adapter moved");
    assert!(*weights.base == load_model(&root.join("base")).unwrap());
    let losses: Vec<f64> = read_metrics(&root.join("metrics.jsonl"))
        .unwrap()
        .iter()
        .filter_map(|line| line.metrics.get("loss/sft"))
        .collect();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert_eq!(losses.len(), 20);
    assert!(mean(&losses[15..]) < 0.95 * mean(&losses[..5]), "the warm start learns: {losses:?}");
    let checkpoint = root.join("checkpoints/step-000002");
    assert!(checkpoint.join("policy/adapter_model.safetensors").is_file());
    assert!(!checkpoint.join("policy/model.safetensors").exists());
    let moments = fs::metadata(checkpoint.join("optimizer.safetensors")).unwrap().len() as usize;
    let (trained, frozen) = (adapter.layout.len, weights.base.layout.len);
    assert!(moments < 8 * trained + 8000 && trained < frozen / 2, "{moments} bytes for {trained} numbers");
    let expected = logprobs(weights.clone());
    let moved = folder.path().join("moved");
    fs::rename(&root, &moved).unwrap();
    for path in
        [&moved, &moved.join("checkpoints/step-000002"), &moved.join("checkpoints/step-000002/policy")]
    {
        let policy = Policy::load(path).unwrap();
        assert!(policy.weights == weights, "{}", path.display());
        assert_eq!(logprobs(policy.weights), expected);
    }
    let path = moved.join("base/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = Policy::load(&moved).err().unwrap().to_string();
    assert!(error.contains("base") && error.contains("has changed since the adapter"), "{error}");
}

#[test]
fn what_is_saved_names_the_sampling_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let named = |folder: &Path| -> [serde_json::Value; 3] {
        let text = fs::read_to_string(folder.join("generation_config.json")).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        ["temperature", "top_k", "top_p"].map(|key| file[key].clone())
    };
    for (name, settings, expected) in [
        (
            "cut",
            &["rollout.temperature=0.7", "rollout.top_k=50", "rollout.top_p=0.9"][..],
            ["0.7", "50", "0.9"],
        ),
        ("whole", &[], ["1.0", "0", "1.0"]),
    ] {
        let root = folder.path().join(name);
        let more = [&["sft.steps=0", "train.steps=1"][..], settings].concat();
        finish(full(config(&more)), &root);
        let out = folder.path().join(format!("{name}-out"));
        assert_eq!(export(&root, &out, ExportOptions::default()).unwrap(), Exported::Model);
        for folder in [&root.join("checkpoints/step-000001/policy"), &out] {
            assert_eq!(named(folder).map(|value| value.to_string()), expected, "{}", folder.display());
        }
    }
}

#[test]
fn an_export_is_the_same_policy() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let run = finish(config(&[]), &root);
    let expected = logprobs(run.weights().unwrap());
    let base = logprobs(run.weights().unwrap().without_adapter());
    assert!(distance(&expected, &base) > 1e-3);
    let out = |name: &str| folder.path().join(name);
    let (merge, plain) = (ExportOptions { merge: true, ..Default::default() }, ExportOptions::default());
    assert_eq!(export(&root, &out("merged"), merge).unwrap(), Exported::Merged);
    let merged = Policy::load(&out("merged")).unwrap();
    assert!(merged.weights.adapter.is_none());
    assert!(distance(&logprobs(merged.weights), &expected) < 1e-4);
    let Exported::Adapter(name) = export(&root, &out("adapter"), plain).unwrap() else { panic!() };
    assert!(Path::new(&name).join("config.json").is_file(), "{name}");
    let adapter = Policy::load(&out("adapter")).unwrap();
    assert!(adapter.weights == run.weights().unwrap());
    for name in ["merged", "adapter"] {
        assert!(out(name).join("tokenizer.json").is_file());
    }
    let half = ExportOptions { dtype: WeightType::Bf16, ..merge };
    assert_eq!(export(&root, &out("half"), half).unwrap(), Exported::Merged);
    let size = |name: &str| fs::metadata(out(name).join("model.safetensors")).unwrap().len();
    assert!(size("half") * 10 < size("merged") * 6, "{} of {}", size("half"), size("merged"));
    let rounded = distance(&logprobs(Policy::load(&out("half")).unwrap().weights), &expected);
    assert!(rounded > 0.0 && rounded < 0.1, "{rounded}");
    let error = export(&root, &out("nothing"), ExportOptions { merge: false, ..half }).unwrap_err();
    assert!(error.to_string().contains("--merge"), "{error}");
    let hidden =
        fs::read_dir(folder.path()).unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(!hidden.into_iter().any(|name| name.starts_with('.')), "nothing is left beside them");

    let error = export(&root, &out("merged"), plain).unwrap_err().to_string();
    assert!(error.contains("--force"), "{error}");
    let force = ExportOptions { force: true, ..Default::default() };
    assert!(matches!(export(&root, &out("merged"), force).unwrap(), Exported::Adapter(_)));
    assert!(!out("merged").join("config.json").exists());
    let error = export(&root, &root, force).unwrap_err().to_string();
    assert!(error.contains("replaces nothing else"), "{error}");

    let start = format!("policy.model=\"{}\"", root.display());
    let next =
        Run::builder(config(&[&start, "name=next"])).directory(out("next")).start(&mut NoopObserver).unwrap();
    assert!(next.weights().unwrap().adapter.unwrap().is_identity());
    assert!(distance(&logprobs(next.weights().unwrap().without_adapter()), &expected) < 1e-4);
    assert!(out("next/base/config.json").is_file(), "the other run may drop its checkpoints");
    export(&root, &out("merged"), ExportOptions { merge: true, force: true, ..Default::default() }).unwrap();
    let start = format!("policy.model=\"{}\"", out("merged").display());
    let third = Run::builder(config(&[&start, "name=third"]))
        .directory(out("third"))
        .start(&mut NoopObserver)
        .unwrap();
    assert!(!out("third/base").exists());
    assert!(Policy::load(&out("third")).unwrap().weights == third.weights().unwrap());
    finish(full(config(&[&start, "sft.steps=0", "train.steps=0", "name=full"])), &out("full"));
    assert_eq!(export(&out("full"), &out("whole"), merge).unwrap(), Exported::Model);
    assert!(distance(&logprobs(Policy::load(&out("whole")).unwrap().weights), &expected) < 1e-4);
}

/// TurnRD's hidden states, STAPO's masked contexts with full KLs, and PPO's critic on the policy's
/// base.
#[test]
fn methods_train_with_an_adapter() {
    for (preset, more) in [
        ("ppo", &["critic.learning_rate=1e-2", "critic.lora={rank=2}"][..]),
        ("ppo", &["policy.lora.dropout=0.1"]),
        ("stapo", &["credit.outliers.locate=all"]),
        ("has-turnrd", &[]),
        ("so-grpo", &[]),
    ] {
        let lora = ["policy.lora={rank=4, alpha=8.0}"];
        let config = common::config(Some(preset), &[&lora[..], more].concat()).unwrap();
        let lines = common::train(config, preset);
        assert_eq!(lines.len(), 2, "{preset}");
    }
}
