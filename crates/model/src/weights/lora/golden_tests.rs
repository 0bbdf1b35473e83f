//! Compares adapters with PEFT on Qwen2; `tests/golden/lora/make.py` wrote the files.

use std::path::PathBuf;

use serde_json::Value;
use turnwise_core::{TokenSequence, TurnSpan};

use super::{Adapter, LoraConfig, Module};
use crate::backend::Network;
use crate::cpu::decoder::Workspace;
use crate::cpu::decoder::tests::{config, whole_backward};
use crate::packing::Packing;
use crate::{ModelConfig, Parameters, load_adapter};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lora")
}

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(folder().join("lora.json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|entry| entry.as_f64().unwrap()).collect()
}

fn formula(tensor: usize, index: usize) -> f64 {
    let i = index as f64;
    (0.37 * i + 1.7 * tensor as f64 + 0.3 * (0.011 * i).sin()).sin()
}

fn base() -> Parameters<f64> {
    let config = ModelConfig {
        vocab_size: 29,
        intermediate_size: 22,
        max_position_embeddings: 128,
        ..config(4, 2, true)
    };
    let mut parameters = Parameters::<f64>::zeros(config);
    let mut names: Vec<String> = parameters.layout.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    names.sort();
    for (tensor, name) in names.iter().enumerate() {
        for (index, value) in parameters.tensor_mut(name).unwrap().iter_mut().enumerate() {
            let base = formula(tensor, index);
            *value = if name.ends_with("norm.weight") { 1.0 + 0.2 * base } else { 0.25 * base };
        }
    }
    parameters
}

fn settings(case: &Value) -> LoraConfig {
    serde_json::from_value(case["lora"].clone()).unwrap()
}

fn adapter(base: &Parameters<f64>, settings: &LoraConfig, factor: f64) -> Adapter<f64> {
    let mut adapter = Adapter::<f64>::zeros(&base.config, settings).unwrap();
    let mut names: Vec<String> = adapter.layout.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    names.sort();
    for (tensor, name) in names.iter().enumerate() {
        for (index, value) in adapter.tensor_mut(name).unwrap().iter_mut().enumerate() {
            *value = 0.25 * formula(100 + tensor, index) * factor;
        }
    }
    adapter
}

fn distances(case: &Value, base: &Parameters<f64>, adapter: &Adapter<f64>) -> [f64; 3] {
    let spans = case["spans"].as_array().unwrap().iter().enumerate().map(|(turn, span)| TurnSpan {
        turn,
        start: span[0].as_u64().unwrap() as usize,
        end: span[1].as_u64().unwrap() as usize,
    });
    let sequence = TokenSequence {
        tokens: numbers(&case["tokens"]).into_iter().map(|token| token as u32).collect(),
        spans: spans.collect(),
    };
    let mut packing = Packing::default();
    packing.fill(std::iter::once(&sequence));
    let network = Network { adapter: Some(adapter), ..Network::from(base) };
    let mut workspace = Workspace::new(&base.config, false);
    let rows = workspace.forward(network, &packing, case["temperature"].as_f64().unwrap()).to_vec();
    let derivatives: Vec<[f64; 2]> =
        (0..rows.len()).map(|index| [(0.7 * index as f64).sin(), (0.3 * index as f64).cos()]).collect();
    let mut gradient = vec![0.0; adapter.data.len()];
    whole_backward(&mut workspace, network, &packing, &(0..1), &derivatives, &mut gradient);
    let loss: f64 =
        rows.iter().zip(&derivatives).map(|(row, [a, b])| a * row.logprob + b * row.entropy).sum();

    let most = |found: Vec<f64>, expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        found.iter().zip(expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
    };
    let logprobs = most(rows.iter().map(|row| row.logprob).collect(), &numbers(&case["logprobs"]));
    let entropies = most(rows.iter().map(|row| row.entropy).collect(), &numbers(&case["entropies"]));
    let mut gradients = 0.0f64;
    assert_eq!(adapter.layout.tensors.len(), case["gradients"].as_object().unwrap().len());
    for tensor in &adapter.layout.tensors {
        let expected = &case["gradients"][&tensor.name];
        let norm = expected["norm"].as_f64().unwrap();
        let found = &gradient[tensor.range.clone()];
        let own = found.iter().map(|g| g * g).sum::<f64>().sqrt();
        gradients = gradients.max((own / norm - 1.0).abs());
        for (index, value) in expected["entries"].as_object().unwrap() {
            let index: usize = index.parse().unwrap();
            gradients = gradients.max((found[index] - value.as_f64().unwrap()).abs() / norm);
        }
    }
    [logprobs.max(entropies), (loss - case["loss"].as_f64().unwrap()).abs(), gradients]
}

#[test]
fn logprobs_entropies_and_gradients_equal_peft() {
    let (golden, base) = (golden(), base());
    for (name, case) in golden.as_object().unwrap() {
        let settings = settings(case);
        let found = distances(case, &base, &adapter(&base, &settings, 1.0));
        assert!(found.iter().all(|&distance| distance < 1e-9), "{name}: {found:?}");
        let scaled = LoraConfig { alpha: settings.alpha * (1.0 + 1e-6), ..settings.clone() };
        for changed in [adapter(&base, &settings, 1.0 + 1e-6), adapter(&base, &scaled, 1.0)] {
            let [outputs, _, gradients] = distances(case, &base, &changed);
            assert!(outputs > 1e-8 && gradients > 1e-8, "{name}: {outputs} {gradients}");
        }
        let other = LoraConfig { rslora: !settings.rslora, ..settings };
        let [outputs, ..] = distances(case, &base, &adapter(&base, &other, 1.0));
        assert!(outputs > 1e-2, "{name}: {outputs}");
    }
}

#[test]
fn merged_weights_equal_pefts() {
    let (golden, base) = (golden(), base());
    for (name, case) in golden.as_object().unwrap() {
        let distance = |parameters: &Parameters<f64>| {
            let mut most = 0.0f64;
            for tensor in &parameters.layout.tensors {
                let found = &parameters.data[tensor.range.clone()];
                for (index, value) in case["merged"][&tensor.name].as_object().unwrap() {
                    let index: usize = index.parse().unwrap();
                    most = most.max((found[index] - value.as_f64().unwrap()).abs());
                }
            }
            most
        };
        let mut merged = base.clone();
        adapter(&base, &settings(case), 1.0).merge_into(&mut merged).unwrap();
        assert!(distance(&merged) < 1e-11, "{name}: {}", distance(&merged));
        assert!(distance(&base) > 1e-3, "{name}: without the adapter nothing differs");
    }
}

#[test]
fn a_folder_that_peft_wrote_is_read() {
    let (golden, base) = (golden(), base());
    let expected = adapter(&base, &settings(&golden["some, rslora"]), 1.0);
    let read = load_adapter(&folder().join("peft"), &base.config).unwrap();
    assert_eq!(read.config.modules().unwrap(), [Module::Query, Module::Value, Module::Up, Module::Down]);
    assert_eq!((read.config.rank, read.config.alpha, read.config.rslora), (2, 5.0, true));
    assert_eq!(read.layout, expected.layout);
    for (&read, &expected) in read.data.iter().zip(&expected.data) {
        assert!((f64::from(read) - expected).abs() < 1e-7);
    }
    let wide = ModelConfig { hidden_size: 32, num_attention_heads: 8, ..base.config };
    let error = load_adapter(&folder().join("peft"), &wide).unwrap_err().to_string();
    assert!(error.contains("q_proj.lora_A.weight` has shape [2, 16]"), "{error}");
}
