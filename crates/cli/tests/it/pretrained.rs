//! Compares a pretrained chat model, SmolLM2-135M-Instruct, with `transformers`; runs if
//! `TURNWISE_SMOLLM2` names its folder.
//!
//! Tokens, log-probs and greedy answers equal those of `transformers` (`tests/golden/smollm2.py`).
//! If `TURNWISE_PYTHON` names a Python with PEFT and `transformers`, exported models are loaded
//! there and compared, too.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]
#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use turnwise_core::{Learner as _, TokenBatch, TokenSequence, TurnSpan};
use turnwise_model::{LearnerConfig, NativeLearner, Parameters, load_model};

use crate::chat::turnwise;

/// One question with what `transformers` makes of it.
#[derive(Deserialize)]
struct Asked {
    question: String,
    prompt: Vec<u32>,
    answer: String,
    scored: Vec<Scored>,
}

#[derive(Deserialize)]
struct Scored {
    response: Vec<u32>,
    logprobs: Vec<f64>,
}

fn golden() -> Vec<Asked> {
    serde_json::from_str(include_str!("../golden/smollm2.json")).unwrap()
}

fn smollm2() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_SMOLLM2").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: TURNWISE_SMOLLM2 not set to a folder with SmolLM2");
    }
    folder
}

/// Standard output of a `turnwise` command, which must succeed.
fn printed(arguments: &[&str], input: &str) -> String {
    let output = turnwise(arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Largest distance of the learner's log-probabilities from the recorded ones, in nats.
fn distance(parameters: Parameters<f32>, golden: &[Asked]) -> f64 {
    let mut learner = NativeLearner::new(parameters, LearnerConfig::default()).unwrap();
    let scored: Vec<(&Asked, &Scored)> =
        golden.iter().flat_map(|asked| asked.scored.iter().map(move |scored| (asked, scored))).collect();
    let batch: Vec<TokenSequence> = scored
        .iter()
        .map(|(Asked { prompt, .. }, Scored { response, .. })| TokenSequence {
            tokens: [prompt.as_slice(), response].concat(),
            spans: vec![TurnSpan { turn: 0, start: prompt.len(), end: prompt.len() + response.len() }],
        })
        .collect();
    let found = learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
    let mut most = 0.0f64;
    for (found, (_, scored)) in found.iter().zip(scored) {
        assert_eq!(found.len(), scored.logprobs.len());
        for (found, expected) in found.iter().zip(&scored.logprobs) {
            most = most.max((f64::from(*found) - expected).abs());
        }
    }
    most
}

#[test]
fn log_probabilities_are_those_of_transformers() {
    let Some(folder) = smollm2() else { return };
    let golden = golden();
    let parameters = load_model(&folder).unwrap();
    let most = distance(parameters.clone(), &golden);
    assert!(most < 2e-4, "{most} nats");
    // The comparison notices another rotary base.
    let mut other = parameters;
    other.config.rope_theta *= 1.01;
    let most = distance(other, &golden);
    assert!(most > 2e-3, "{most} nats");
}

#[test]
fn greedy_answers_are_those_of_transformers() {
    let Some(folder) = smollm2() else { return };
    let model = folder.display().to_string();
    for Asked { question, answer, .. } in golden() {
        let arguments = ["chat", &model, "--temperature", "0", "--max-tokens", "24"];
        let printed = printed(&arguments, &format!("{question}\n"));
        assert!(printed.contains(&answer), "{question}\n{printed}\n{answer}");
    }
}

#[test]
fn an_adapter_is_trained_and_is_the_same_model_when_exported() {
    let Some(folder) = smollm2() else { return };
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name).display().to_string();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/smollm2/ezpoints.toml");
    let model = format!("policy.model={}", folder.display());
    let short =
        ["policy.compute=f32", "sft.steps=2", "sft.batch_tokens=400", "sft.warmup=1", "train.steps=1"];
    let short = short.iter().chain(&["rollout.tasks_per_step=1", "rollout.group_size=4", "eval.tasks=2"]);
    let (runs, run) = (at("runs"), at("runs/short"));
    let arguments = ["train", config, &model, "name=short", "--runs", &runs];
    printed(&arguments.into_iter().chain(short.copied()).collect::<Vec<_>>(), "");
    let merged = at("merged");
    printed(&["export", &run, &merged, "--merge"], "");
    // The merged model answers as the run does, and is another one than that it was made of.
    let greedy = |policy: &str| {
        printed(&["chat", policy, "--temperature", "0", "--max-tokens", "12"], "What is 2 + 2?\n")
    };
    assert_eq!(greedy(&run), greedy(&merged));
    let most = distance(load_model(merged.as_ref()).unwrap(), &golden());
    assert!(most > 2e-3, "{most} nats");

    let Some(python) = std::env::var_os("TURNWISE_PYTHON") else {
        eprintln!("skipped: TURNWISE_PYTHON not set (a Python with torch, transformers and peft)");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/real/smollm2_round_trip.py");
    let output = Command::new(python)
        .arg(script)
        .arg(folder)
        .args(["--run", &run, "--turnwise", env!("CARGO_BIN_EXE_turnwise")])
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
