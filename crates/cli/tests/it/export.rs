//! Tests a run with an adapter, from training to the exported folder.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

const TRAIN: &[&str] = &[
    "train",
    "--preset",
    "quickstart",
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "name=run",
    "policy.lora.rank=4",
    "policy.lora.alpha=8",
    "sft.steps=6",
    "train.steps=2",
];

fn turnwise(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_run_with_an_adapter_is_trained_evaluated_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let ok = |arguments: &[&str]| {
        let output = turnwise(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        text(&output)
    };
    let said = ok(TRAIN);
    assert!(said.contains("of rank 4 are trained"), "{said}");
    let said = ok(&["export", "runs/run", "adapter"]);
    assert!(said.contains("adapter written to adapter; it stands on"), "{said}");
    let said = ok(&["export", "runs/run/checkpoints/step-000002", "model", "--merge"]);
    assert!(said.contains("with its adapter merged in"), "{said}");
    assert!(folder.path().join("adapter/adapter_config.json").is_file());
    assert!(folder.path().join("model/model.safetensors").is_file());
    // A replaced folder has its card too. A policy that is not a run's is rejected.
    for force in [&[][..], &["--force"]] {
        ok(&[&["export", "runs/run", "with-card", "--merge", "--card"], force].concat());
        let card = std::fs::read_to_string(folder.path().join("with-card/README.md")).unwrap();
        for expected in [
            "library_name: transformers\n",
            "# run\n",
            "by grpo. This is checkpoint `step-000002` of a run of 2 steps of",
            "| valid_unseen | ",
            "rank = 4",
        ] {
            assert!(card.contains(expected), "{expected}: {card}");
        }
    }
    let refused = text(&turnwise(folder.path(), &["export", "model", "again", "--card"]));
    assert!(
        refused.contains("--card: model is neither a run nor its checkpoint; leave out --card"),
        "{refused}"
    );
    assert!(!folder.path().join("again").exists());
    // The tokenizer of a model from scratch is not one of those that llama.cpp knows.
    let refused = text(&turnwise(folder.path(), &["export", "runs/run", "model.gguf", "--gguf", "f16"]));
    assert!(refused.contains("model.gguf: the tokenizer cannot be written as GGUF"), "{refused}");
    assert!(!folder.path().join("model.gguf").exists());
    // Greedily the run, its adapter and the merged model play alike.
    let mut played = Vec::new();
    for policy in ["runs/run", "adapter", "model"] {
        let out = format!("played-{}.jsonl", played.len());
        let mut arguments = vec!["rollout", policy, "--output", &out, "--tasks", "2", "--temperature", "0"];
        if policy != "runs/run" {
            arguments.push("runs/run/config.toml");
        }
        ok(&arguments);
        let lines = std::fs::read_to_string(folder.path().join(&out)).unwrap();
        let responses: Vec<serde_json::Value> = lines
            .lines()
            .flat_map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                line["turns"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|turn| turn["response_ids"].clone())
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(!responses.is_empty());
        played.push(responses);
    }
    assert_eq!(played[0], played[1]);
    assert_eq!(played[0], played[2]);
    let output = turnwise(folder.path(), &["export", "runs/run", "model"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("--force"), "{}", text(&output));
    ok(&["export", "runs/run", "model", "--force"]);
    assert!(!folder.path().join("model/model.safetensors").exists());
    // A folder of other things that has a config.json as well.
    let project = folder.path().join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::write(project.join("config.json"), "{}").unwrap();
    let output = turnwise(folder.path(), &["export", "runs/run", "project", "--force"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("has `src`, which no export writes"), "{}", text(&output));
    assert!(project.join("src").is_dir());
}

/// With the feature, the folder is checked before anything is sent; the protocol's tests are in `turnwise-policy`.
#[test]
fn push_rejects_what_it_cannot_upload() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .args(["push", folder.path().to_str().unwrap(), "org/name"])
        .envs([("HF_TOKEN", "hf_secret"), ("HF_ENDPOINT", "http://127.0.0.1:9"), ("HF_HUB_OFFLINE", "")])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let expected = if cfg!(feature = "hub") { "lacks config.json" } else { "--features hub" };
    assert!(text(&output).contains(expected), "{}", text(&output));
}
