//! Tests of `turnwise index` with vectors: a tiny encoder, and the graph of neighbours if it is
//! built in.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const WIDTH: usize = 16;
const WORDS: usize = 60;

fn turnwise(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).args(arguments).current_dir(folder).output().unwrap()
}

/// Writes a BERT of one layer whose weights are spread, not trained, and its vocabulary `w0`, `w1`, ….
fn write_encoder(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let vocabulary: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..WORDS).map(|word| format!("w{word}")))
        .collect();
    fs::write(folder.join("vocab.txt"), vocabulary.join("\n")).unwrap();
    let config = json!({
        "model_type": "bert", "vocab_size": vocabulary.len(), "hidden_size": WIDTH, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 2 * WIDTH, "max_position_embeddings": 32,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("tokenizer_config.json"), r#"{"do_lower_case": true}"#).unwrap();

    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![vocabulary.len(), WIDTH]),
        ("embeddings.position_embeddings.weight".into(), vec![32, WIDTH]),
        ("embeddings.token_type_embeddings.weight".into(), vec![2, WIDTH]),
        ("embeddings.LayerNorm.weight".into(), vec![WIDTH]),
        ("embeddings.LayerNorm.bias".into(), vec![WIDTH]),
    ];
    let layer = |name: &str| format!("encoder.layer.0.{name}");
    for (name, rows, columns) in [
        ("attention.self.query", WIDTH, WIDTH),
        ("attention.self.key", WIDTH, WIDTH),
        ("attention.self.value", WIDTH, WIDTH),
        ("attention.output.dense", WIDTH, WIDTH),
        ("intermediate.dense", 2 * WIDTH, WIDTH),
        ("output.dense", WIDTH, 2 * WIDTH),
    ] {
        tensors.push((layer(&format!("{name}.weight")), vec![rows, columns]));
        tensors.push((layer(&format!("{name}.bias")), vec![rows]));
    }
    for name in ["attention.output.LayerNorm", "output.LayerNorm"] {
        tensors.push((layer(&format!("{name}.weight")), vec![WIDTH]));
        tensors.push((layer(&format!("{name}.bias")), vec![WIDTH]));
    }
    // The safetensors format: the length of the header, the header, the numbers.
    let (mut header, mut bytes) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = bytes.len();
        for _ in 0..shape.iter().product::<usize>() {
            // Fractions of the golden ratio's multiples are spread evenly.
            let spread = (bytes.len() as f64 / 4.0 * 0.618_033_988_749_894_9).fract() - 0.5;
            let value = if name.ends_with("LayerNorm.weight") { 1.0 } else { spread as f32 };
            bytes.extend(f32::to_le_bytes(value));
        }
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, bytes.len()]}));
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(bytes);
    fs::write(folder.join("model.safetensors"), file).unwrap();
}

/// Passages of four words each, all different.
fn write_passages(path: &Path) {
    let passage = |number: usize| {
        let word = |step: usize| format!("w{}", (number * step + number / 7) % WORDS);
        let contents = format!("\"{}\"\n{} {} {}", word(1), word(7), word(11), word(13));
        json!({"id": number.to_string(), "contents": contents}).to_string() + "\n"
    };
    fs::write(path, (0..400).map(passage).collect::<String>()).unwrap();
}

#[test]
fn dense_vectors_and_their_graph_are_built_and_asked() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    write_encoder(&path.join("encoder"));
    write_passages(&path.join("wiki.jsonl"));
    let refused = |arguments: &[&str], expected: &str| {
        let output = turnwise(arguments, path);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: no `{expected}` in {error}");
    };
    let accepted = |arguments: &[&str]| {
        let output = turnwise(arguments, path);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let built = accepted(&["index", "build", "wiki", "--passages", "wiki.jsonl", "--encoder", "encoder"]);
    assert!(built.contains("wiki: 400 passages"), "{built}");
    let query = ["index", "query", "wiki", "w7 w14 w21", "--encoder", "encoder", "--kind", "dense", "--json"];
    let near = [&query[..], &["--approximate"]].concat();
    let graph = ["index", "build", "wiki", "--approximate"];
    if cfg!(not(feature = "hnsw")) {
        refused(&graph, "--features hnsw");
        refused(&near, "--features hnsw");
        return;
    }
    refused(&near, "index build --approximate");
    refused(&["index", "build", "other", "--approximate"], "--encoder");
    refused(&[&graph[..], &["--neighbours", "1"]].concat(), "2 to 256");
    let built = accepted(&graph);
    assert!(built.contains("of the ten nearest vectors are found"), "{built}");
    refused(&graph, "it is there already");
    // No two graphs are the same, and any may miss some: what it finds has its exact score, and is near.
    let hits = |text: String| -> Vec<(String, f64)> {
        let hit = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let pair = |hit: Value| (hit["id"].as_str().unwrap().to_owned(), hit["score"].as_f64().unwrap());
        text.lines().map(|line| pair(hit(line))).collect()
    };
    let all = hits(accepted(&[&query[..], &["-k", "400"]].concat()));
    let found = hits(accepted(&near));
    assert_eq!((all.len(), found.len()), (400, 3));
    for (id, score) in &found {
        let rank = all.iter().position(|(other, _)| other == id).unwrap();
        assert!((all[rank].1 - score).abs() < 1e-5, "{id}: {score}, exactly {}", all[rank].1);
        assert!(rank < 40, "{id} is number {rank} of 400");
    }
    let words = ["index", "query", "wiki", "w7", "--encoder", "encoder", "--kind", "bm25", "--approximate"];
    refused(&words, "--kind dense or hybrid");
}
