//! Compares BERT with `transformers` through a golden file (from `tests/golden/bert/make.py`).

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::files::{TensorSlice, save_tensors};
use crate::{Compute, ComputePath};

fn golden() -> Value {
    let path = format!("{}/tests/golden/bert/bert.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn sequences(golden: &Value) -> Vec<Vec<u32>> {
    serde_json::from_value(golden["sequences"].clone()).unwrap()
}

fn write(case: &Value, folder: &Path, factor: f64) {
    std::fs::write(folder.join("config.json"), case["config"].to_string()).unwrap();
    let tensors: Vec<(String, Vec<usize>)> = serde_json::from_value(case["tensors"].clone()).unwrap();
    let values: Vec<Vec<f32>> = tensors
        .iter()
        .enumerate()
        .map(|(t, (name, shape))| {
            let norm = name.ends_with("LayerNorm.weight");
            (0..shape.iter().product::<usize>())
                .map(|i| {
                    let i = i as f64;
                    let sine = (0.37 * i + 1.7 * t as f64 + 0.3 * (0.011 * i).sin()).sin();
                    (factor * if norm { 1.0 + 0.2 * sine } else { 0.25 * sine }) as f32
                })
                .collect()
        })
        .collect();
    let slices: Vec<TensorSlice<'_>> = tensors
        .iter()
        .zip(&values)
        .map(|((name, shape), values)| TensorSlice { name: name.clone(), shape, values })
        .collect();
    save_tensors(&folder.join("model.safetensors"), &slices, []).unwrap();
}

fn difference(golden: &Value, case: &Value, folder: &Path, compute: Compute) -> f64 {
    let bert = Bert::load(folder, compute).unwrap();
    let found = bert.forward(&sequences(golden)).unwrap();
    let expected: Vec<f64> = case["hidden"].as_array().unwrap().iter().flat_map(floats).collect();
    assert_eq!(found.len(), expected.len());
    found
        .iter()
        .zip(expected)
        .map(|(&found, expected)| (f64::from(found) - expected).abs())
        .fold(0.0, f64::max)
}

#[test]
fn hidden_states_are_those_of_transformers() {
    let golden = golden();
    for (name, case) in golden["cases"].as_object().unwrap() {
        let folder = TempDir::new().unwrap();
        write(case, folder.path(), 1.0);
        let found = difference(&golden, case, folder.path(), Compute::F32);
        assert!(found < 5e-6, "{name}: {found}");
        if Compute::Bf16.path() != ComputePath::F32 {
            let found = difference(&golden, case, folder.path(), Compute::Bf16);
            assert!((1e-6..5e-2).contains(&found), "{name} in bf16: {found}");
        }
        write(case, folder.path(), 1.001);
        let found = difference(&golden, case, folder.path(), Compute::F32);
        assert!(found > 1e-4, "{name}: {found}");
    }
}

#[test]
fn a_sequence_sees_no_other() {
    let golden = golden();
    let folder = TempDir::new().unwrap();
    write(&golden["cases"]["gelu"], folder.path(), 1.0);
    let bert = Bert::load(folder.path(), Compute::F32).unwrap();
    let sequences = sequences(&golden);
    let together = bert.forward(&sequences).unwrap();
    let alone: Vec<f32> =
        sequences.iter().flat_map(|sequence| bert.forward(std::slice::from_ref(sequence)).unwrap()).collect();
    assert!(together.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn the_error_function_is_accurate() {
    // Abramowitz and Stegun, table 7.1.
    for (x, expected) in
        [(0.0f32, 0.0), (0.1, 0.112_462_9), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3)]
    {
        assert!((forward::erf(x) - expected).abs() < 4e-7, "{x}: {}", forward::erf(x));
        assert!((forward::erf(-x) + expected).abs() < 4e-7, "{x}");
    }
    assert_eq!((forward::erf(9.0), forward::erf(-9.0)), (1.0, -1.0));
}

fn with_words(folder: &Path) {
    let name = |id: usize| match id {
        0 => "[PAD]".to_owned(),
        1 => "[UNK]".to_owned(),
        2 => "[CLS]".to_owned(),
        3 => "[SEP]".to_owned(),
        id => format!("w{id}"),
    };
    let pieces: Vec<String> = (0..31).map(name).collect();
    std::fs::write(folder.join("vocab.txt"), pieces.join("\n")).unwrap();
}

const TEXTS: [&str; 4] = ["w7 W19 w4", "w11", "w30 w5 w30 w5 w9 w14", ""];

#[test]
fn sentences_have_the_vectors_of_e5s_recipe() {
    let golden = golden();
    let case = &golden["cases"]["gelu"];
    let folder = TempDir::new().unwrap();
    write(case, folder.path(), 1.0);
    with_words(folder.path());
    let encoder = SentenceEncoder::load(folder.path(), SentenceOptions::default()).unwrap();
    let found = encoder.encode(&TEXTS).unwrap();
    let expected: Vec<f64> = case["vectors"].as_array().unwrap().iter().flat_map(floats).collect();
    let far = |found: &[f32]| {
        found.iter().zip(&expected).map(|(&a, &b)| (f64::from(a) - b).abs()).fold(0.0, f64::max)
    };
    assert!(far(&found) < 2e-6, "{}", far(&found));

    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let pooling = |mean: bool| {
        let text = json!({"pooling_mode_mean_tokens": mean, "pooling_mode_cls_token": !mean}).to_string();
        std::fs::write(folder.path().join("1_Pooling/config.json"), text).unwrap();
    };
    let module = |kind: &str, path: &str| json!({"type": format!("sentence_transformers.models.{kind}"), "path": path});
    let modules = |names: &[(&str, &str)]| {
        let list: Vec<Value> = names.iter().map(|(kind, path)| module(kind, path)).collect();
        std::fs::write(folder.path().join("modules.json"), Value::from(list).to_string()).unwrap();
    };
    let load = || SentenceEncoder::load(folder.path(), SentenceOptions::default());
    modules(&[("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]);
    pooling(true);
    assert!(far(&load().unwrap().encode(&TEXTS).unwrap()) < 2e-6);
    pooling(false);
    assert!(far(&load().unwrap().encode(&TEXTS).unwrap()) > 1e-2);
    modules(&[("Transformer", ""), ("Pooling", "1_Pooling")]);
    pooling(true);
    let bare = load().unwrap().encode(&TEXTS[..1]).unwrap();
    let norm = bare.iter().map(|value| value * value).sum::<f32>().sqrt();
    assert!((norm - 1.0).abs() > 1e-2 && bare.iter().all(|value| value.is_finite()), "{norm}");
    std::fs::write(folder.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 4}"#).unwrap();
    let encoder = load().unwrap();
    assert_eq!(encoder.encode(&["w7 w19 w4 w5"]).unwrap(), encoder.encode(&["w7 w19"]).unwrap());
    // A cased tokenizer lacks `W19`.
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    let cased = load().unwrap();
    assert_ne!(cased.encode(&["W7 W19"]).unwrap(), cased.encode(&["w7 w19"]).unwrap());
    std::fs::write(folder.path().join("sentence_bert_config.json"), r#"{"do_lower_case": true}"#).unwrap();
    let lower = load().unwrap();
    assert_eq!(lower.encode(&["W7 W19"]).unwrap(), cased.encode(&["w7 w19"]).unwrap());
    let text = json!({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true}).to_string();
    std::fs::write(folder.path().join("1_Pooling/config.json"), text).unwrap();
    assert!(load().unwrap_err().to_string().contains("and no other"));
    modules(&[("Transformer", ""), ("Dense", "2_Dense")]);
    assert!(load().unwrap_err().to_string().contains("`Dense` is not known"));
}

#[test]
fn many_texts_keep_their_order() {
    let golden = golden();
    let folder = TempDir::new().unwrap();
    write(&golden["cases"]["gelu"], folder.path(), 1.0);
    with_words(folder.path());
    let encoder = SentenceEncoder::load(folder.path(), SentenceOptions::default()).unwrap();
    let texts: Vec<String> = (0..900)
        .map(|n: usize| {
            (0..n * 7 % 9).map(|i| format!("w{}", 4 + (n + i * 5) % 27)).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = encoder.encode(&texts).unwrap();
    for (text, vector) in texts.iter().zip(together.chunks_exact(encoder.dimensions())) {
        let alone = encoder.encode(&[text]).unwrap();
        assert!(alone.iter().zip(vector).all(|(a, b)| (a - b).abs() < 1e-5), "{text}");
    }
    assert_eq!(encoder.encode(&[]).unwrap(), Vec::<f32>::new());
}

#[test]
fn what_is_no_such_model_is_refused_by_name() {
    let golden = golden();
    let case = &golden["cases"]["gelu"];
    let folder = TempDir::new().unwrap();
    write(case, folder.path(), 1.0);
    let refused = |key: &str, value: Value, expected: &str| {
        let mut config = case["config"].clone();
        config[key] = value;
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let error = Bert::load(folder.path(), Compute::F32).unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains(&folder.path().display().to_string()),
            "{key}: {error}"
        );
    };
    refused("model_type", json!("roberta"), "`roberta`");
    refused("hidden_act", json!("silu"), "`silu`");
    refused("position_embedding_type", json!("relative_key"), "relative_key");
    refused("num_attention_heads", json!(5), "not a multiple");
    refused("num_attention_heads", json!(0), "num_attention_heads");
    refused("vocab_size", json!(32), "word_embeddings");
    refused("num_hidden_layers", json!(3), "encoder.layer.2");
    refused("hidden_size", Value::Null, "invalid type");
    write(case, folder.path(), 1.0);
    let bert = Bert::load(folder.path(), Compute::F32).unwrap();
    for (sequence, expected) in [(vec![], "0 tokens"), (vec![2; 13], "13 tokens"), (vec![2, 31], "token 31")]
    {
        let error = bert.forward(&[sequence]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    write(case, folder.path(), f64::NAN);
    assert!(Bert::load(folder.path(), Compute::F32).unwrap_err().to_string().contains("no number"));
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(Bert::load(folder.path(), Compute::F32).unwrap_err().to_string().contains("safetensors"));
}
