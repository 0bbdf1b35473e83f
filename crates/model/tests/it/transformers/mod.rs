//! Exchanges models with `transformers` if `TURNWISE_PYTHON` names a Python that has it: each side
//! reads the other's files and computes the same.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]
#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use turnwise_core::{
    Learner as _, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed, TokenBatch, TokenSequence,
    TurnSpan,
};
use turnwise_model::engine::{EngineConfig, NativeEngine};
use turnwise_model::{
    Family, LearnerConfig, ModelConfig, NativeLearner, Parameters, RopeScaling, SaveOptions, WeightType,
    load_model, save_model_as,
};

/// Prompt of `peer.py`, and the number of generated tokens.
const TOKENS: [u32; 10] = [3, 17, 40, 8, 25, 61, 2, 33, 9, 50];
const NEW: usize = 12;
const VOCABULARY: usize = 64;

fn peer(arguments: &[&Path], command: &str) -> Option<Value> {
    let Some(python) = std::env::var_os("TURNWISE_PYTHON") else {
        eprintln!("skipped: TURNWISE_PYTHON not set (a Python with torch and transformers)");
        return None;
    };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/transformers/peer.py");
    let mut words = vec![OsString::from(script), command.into()];
    words.extend(arguments.iter().map(|path| path.as_os_str().to_owned()));
    let mut process = Command::new(python);
    process.args(words).env("HF_HUB_OFFLINE", "1").stderr(Stdio::piped());
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns the learner's log-probs of every next token after each prefix of the prompt,
/// `[prefix][token]`.
fn logprobs(parameters: &Parameters<f32>) -> Vec<Vec<f64>> {
    let mut learner = NativeLearner::new(parameters.clone(), LearnerConfig::default()).unwrap();
    (1..=TOKENS.len())
        .map(|length| {
            let batch: Vec<TokenSequence> = (0..VOCABULARY as u32)
                .map(|next| TokenSequence {
                    tokens: [&TOKENS[..length], &[next]].concat(),
                    spans: vec![TurnSpan { turn: 0, start: length, end: length + 1 }],
                })
                .collect();
            let found = learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
            found.iter().map(|logprobs| f64::from(logprobs[0])).collect()
        })
        .collect()
}

fn greedy(parameters: &Parameters<f32>) -> Vec<u32> {
    let config = EngineConfig { max_num_seqs: 1, max_model_len: 64 };
    let mut engine = NativeEngine::new(Arc::new(parameters.clone()), 0, config, None).unwrap();
    let params = SamplingParams { temperature: 0.0, max_tokens: NEW, ..SamplingParams::default() };
    let seed = Seed::derive(0, Purpose::Rollout, &[]);
    engine.submit(SampleRequest { session: 0, prompt: TOKENS.to_vec(), params, seed }).unwrap();
    engine.poll().unwrap().remove(0).tokens
}

/// Returns the largest difference from the log-probs of the peer's logits.
fn distance(parameters: &Parameters<f32>, found: &Value) -> f64 {
    let rows = found["logits"].as_array().unwrap();
    let own = logprobs(parameters);
    assert_eq!(rows.len(), own.len());
    let mut most = 0.0f64;
    for (row, own) in rows.iter().zip(&own) {
        let logits: Vec<f64> = row.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap()).collect();
        assert_eq!(logits.len(), own.len());
        let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        for (logit, own) in logits.iter().zip(own) {
            most = most.max((logit - log_sum - own).abs());
        }
    }
    most
}

fn tokens(found: &Value) -> Vec<u32> {
    found["greedy"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect()
}

fn check(name: &str, parameters: &Parameters<f32>, found: &Value) {
    let most = distance(parameters, found);
    assert!(most < 1e-4, "{name}: {most}");
    assert_eq!(greedy(parameters), tokens(found), "{name}");
    let mut other = parameters.clone();
    other.config.rope_theta *= 1.05;
    assert!(distance(&other, found) > 1e-4, "{name}");
    let mut other = parameters.clone();
    other.tensor_mut("model.layers.1.mlp.up_proj.weight").unwrap()[5] += 0.1;
    assert!(distance(&other, found) > 1e-4, "{name}");
}

fn random(config: ModelConfig, seed: u64) -> Parameters<f32> {
    let mut parameters = Parameters::<f32>::zeros(config);
    let mut rng = Seed::derive(seed, Purpose::Init, &[]).rng();
    for tensor in &parameters.layout.tensors {
        let norm = tensor.name.ends_with("norm.weight");
        for value in &mut parameters.data[tensor.range.clone()] {
            *value = if norm { 1.0 + 0.2 * rng.normal() } else { 0.25 * rng.normal() } as f32;
        }
    }
    parameters
}

#[test]
fn what_turnwise_writes_transformers_computes_alike() {
    let base = ModelConfig {
        vocab_size: VOCABULARY,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        max_position_embeddings: 256,
        ..ModelConfig::default()
    };
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 32,
    };
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        attention_factor: 1.2,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_max_position_embeddings: 64,
        truncate: true,
    };
    let of = |model_type: Family| ModelConfig { model_type, ..base.clone() };
    let models = [
        ("qwen2", ModelConfig { tie_word_embeddings: true, ..base.clone() }),
        ("qwen2-yarn", ModelConfig { rope_theta: 100.0, rope_scaling: yarn, ..base.clone() }),
        ("qwen3", ModelConfig { head_dim: 16, tie_word_embeddings: true, ..of(Family::Qwen3) }),
        ("qwen3-biased", ModelConfig { head_dim: 6, attention_bias: true, ..of(Family::Qwen3) }),
        ("llama", ModelConfig { rope_theta: 1000.0, rope_scaling: llama3, ..of(Family::Llama) }),
        (
            "llama-biased",
            ModelConfig {
                attention_bias: true,
                mlp_bias: true,
                rope_scaling: RopeScaling::Linear { factor: 2.0 },
                ..of(Family::Llama)
            },
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for (seed, (name, config)) in (0..).zip(models) {
        let parameters = random(config, seed);
        for (kind, dtype, shard_bytes) in [
            ("single", WeightType::F32, usize::MAX),
            ("shards", WeightType::F32, 20_000),
            ("bf16", WeightType::Bf16, 20_000),
        ] {
            let path = folder.path().join(format!("{name}-{kind}"));
            save_model_as(&parameters, &path, SaveOptions { dtype, shard_bytes }).unwrap();
            let kept = if dtype == WeightType::F32 { parameters.clone() } else { load_model(&path).unwrap() };
            written.push((path, kept));
        }
    }
    let paths: Vec<&Path> = written.iter().map(|(path, _)| path.as_path()).collect();
    let Some(found) = peer(&paths, "score") else { return };
    for (path, parameters) in &written {
        let name = path.file_name().unwrap().to_str().unwrap();
        check(name, parameters, &found[name]);
    }
}

#[test]
fn what_transformers_writes_turnwise_computes_alike() {
    let folder = tempfile::tempdir().unwrap();
    let Some(found) = peer(&[folder.path()], "write") else { return };
    let found = found.as_object().unwrap();
    assert!(found.len() >= 8);
    for (name, found) in found {
        let parameters = load_model(&folder.path().join(name)).unwrap();
        check(name, &parameters, found);
        let sharded = found["files"].as_array().unwrap().len() > 3;
        assert_eq!(sharded, !name.contains("single") && name != "qwen3-bf16", "{name}");
    }
}
