//! Tests of `turnwise sft MODEL DATA`: SFT on the user's conversations.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use turnwise_train::config::{ConfigSource, load};
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{NoopObserver, Position, Run};

use crate::chat::model;

fn turnwise(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ok(folder: &Path, arguments: &[&str]) -> String {
    let output = turnwise(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

/// Conversations of two turns that always say the same.
fn conversations(folder: &Path, count: usize) {
    let line = |index: usize| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{index}"}}, {{"role": "assistant", "content": "ping"}}, {{"role": "user", "content": "go"}}, {{"role": "assistant", "content": "pong"}}]}}"#
        )
    };
    let lines: Vec<String> = (0..count).map(line).collect();
    std::fs::write(folder.join("talks.jsonl"), lines.join("\n")).unwrap();
}

const KEYS: [&str; 5] = [
    "sft.data.epochs=12",
    "sft.data.held_out=0.2",
    "sft.learning_rate=0.02",
    "sft.batch_tokens=300",
    "name=talks",
];

#[test]
fn held_out_loss_falls_and_a_stopped_run_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = model(at, true);
    conversations(at, 10);
    let arguments = [&["sft", &model, "talks.jsonl"], &KEYS[..]].concat();
    let said = ok(at, &arguments);
    assert!(said.contains("8 conversations in 8 sequences of"), "{said}");
    assert!(said.contains("2 conversations are held out"), "{said}");
    let metrics = read_metrics(&at.join("runs/talks/metrics.jsonl")).unwrap();
    let losses: Vec<f64> = metrics.iter().filter_map(|line| line.metrics.get("loss/sft_held_out")).collect();
    let first: f64 =
        said.split("before training: ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(losses.len() >= 8 && *losses.last().unwrap() < first / 2.0, "{first} {losses:?}");
    // The same in two parts.
    let steps = metrics.len();
    ok(
        at,
        &[&["sft", &model, "talks.jsonl"], &KEYS[..4], &["name=parts", &format!("sft.steps={}", steps / 2)]]
            .concat(),
    );
    let half = format!("sft-{}", steps / 2);
    let all = format!("sft.steps={steps}");
    let said = ok(at, &["train", "--resume", "runs/parts", "--from", &half, &all]);
    assert!(said.contains("Done."), "{said}");
    let weights = |run: &str| {
        let position = Position { phase: turnwise_train::Phase::Sft, step: steps as u64 }.label();
        std::fs::read(at.join(format!("runs/{run}/checkpoints/{position}/policy/model.safetensors"))).unwrap()
    };
    assert!(weights("talks") == weights("parts"));
    // It is a policy for other commands.
    ok(at, &["export", "runs/talks", "model"]);
}

#[test]
fn changed_conversations_stop_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = model(at, true);
    conversations(at, 4);
    ok(at, &["sft", &model, "talks.jsonl", "name=talks", "sft.data.held_out=0"]);
    // The data may be named through a link, as at the start.
    #[cfg(unix)]
    {
        let (root, link) = (at.join("runs/talks"), at.join("link.jsonl"));
        std::os::unix::fs::symlink(at.join("talks.jsonl"), &link).unwrap();
        let mut config = load(&ConfigSource::of_run(&root)).unwrap();
        config.sft.data.as_mut().unwrap().path = link;
        Run::builder(config).directory(&root).resume(&mut NoopObserver).unwrap();
    }
    conversations(at, 5);
    let output = turnwise(at, &["train", "--resume", "runs/talks", "--from", "sft-1"]);
    let said = text(&output);
    assert!(
        !output.status.success() && said.contains("talks.jsonl: has changed since the run began"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_trained_on_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (chat, plain) = (model(at, true), model(at, false));
    conversations(at, 4);
    let bad =
        std::fs::read_to_string(at.join("talks.jsonl")).unwrap().replacen("\"assistant\"", "\"gpt\"", 1);
    std::fs::write(at.join("bad.jsonl"), bad).unwrap();
    for (arguments, reason) in [
        ([plain.as_str(), "talks.jsonl"], "it has none; take a chat model"),
        ([&chat, "bad.jsonl"], "bad.jsonl: line 1: `messages[1].role` is \"gpt\""),
        ([&chat, "none.jsonl"], "none.jsonl"),
    ] {
        let output = turnwise(at, &[&["sft"], &arguments[..]].concat());
        let said = text(&output);
        assert!(output.status.code() == Some(2) && said.contains(reason), "{said}");
    }
    let output = turnwise(
        at,
        &["sft", &chat, "talks.jsonl", "rollout.max_model_len=4", "rollout.max_response_tokens=1"],
    );
    assert!(text(&output).contains("no assistant message is left to train on"), "{}", text(&output));
}
