//! Vectors and hybrids from settings, with a small BERT of random weights.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use turnwise_core::hexadecimal;
use turnwise_model::bert::SentenceOptions;
use turnwise_model::testing::write_bert;
use turnwise_retrieval::Retriever as _;
use turnwise_retrieval::build::{BuildFolder, Parts, build};
use turnwise_retrieval::dense::{DenseOptions, DenseRetriever, Encoder as _, build_vectors};
use turnwise_retrieval::lucene::BuildOptions;
use turnwise_retrieval_service::{EncoderOptions, PrefixedEncoder, RetrievalConfig, RetrieverKind, open};

const WORDS: [&str; 16] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "passage", ":", "kettle", "shoe", "sock", "steel", "blue",
    "red", "of", "a", "##s",
];

/// Returns the folders of an encoder and of an index with five encoded passages, and the encoder.
fn built(folder: &Path, options: EncoderOptions) -> (PathBuf, PathBuf, PrefixedEncoder) {
    let (file, index, model) = (folder.join("p.jsonl"), folder.join("index"), folder.join("e5"));
    let texts = ["kettle of steel", "blue shoes", "red socks", "a red shoe", "steel"];
    let lines: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(id, text)| json!({"id": id.to_string(), "contents": text}).to_string())
        .collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    std::fs::create_dir(&model).unwrap();
    write_bert(&model, &WORDS, 0.0).unwrap();
    let encoder = PrefixedEncoder::load(&model, options).unwrap();
    let building = BuildFolder::open(&index).unwrap();
    let mut keep = |_| ControlFlow::Continue(());
    build(&building, &[file], Parts::Bm25, BuildOptions::default(), &mut keep).unwrap();
    build_vectors(&building, &encoder, DenseOptions::default(), &mut keep).unwrap();
    (model, index, encoder)
}

#[test]
fn vectors_and_hybrids_are_opened_from_settings() {
    let folder = TempDir::new().unwrap();
    let (model, index, loaded) = built(folder.path(), EncoderOptions::default());
    assert_eq!(loaded.dimensions(), 16);
    assert_ne!(loaded.queries(&["steel"]).unwrap(), loaded.passages(&["steel"]).unwrap());

    let config = |kind: RetrieverKind| RetrievalConfig {
        kind,
        index: index.clone(),
        encoder: model.clone(),
        ..RetrievalConfig::default()
    };
    let ids = |kind: RetrieverKind, query: &str| -> Vec<String> {
        let found = open(&config(kind)).unwrap().search(&[query], 5).unwrap().remove(0);
        found.iter().map(|hit| hit.passage.id.clone()).collect()
    };
    let dense = ids(RetrieverKind::Dense, "blue shoes");
    assert_eq!((dense.len(), dense[0].as_str()), (5, "1"));
    let (words, both) = (ids(RetrieverKind::Bm25, "steel"), ids(RetrieverKind::Hybrid, "steel"));
    assert_eq!((words.len(), both.len()), (2, 5));
    assert_eq!(both[0], "4");

    let refused = |config: RetrievalConfig| open(&config).unwrap_err().to_string();
    let prefixed = RetrievalConfig { passage_prefix: Some(String::new()), ..config(RetrieverKind::Dense) };
    assert!(refused(prefixed).starts_with("passage_prefix: \"\" was named"));
    write_bert(&model, &WORDS, 1.0).unwrap();
    assert!(refused(config(RetrieverKind::Hybrid)).contains("another encoder"));
    let none = RetrievalConfig { encoder: folder.path().join("none"), ..config(RetrieverKind::Dense) };
    assert!(refused(none).contains("config.json"));
    let unnamed = RetrievalConfig { encoder: std::path::PathBuf::new(), ..config(RetrieverKind::Dense) };
    assert!(refused(unnamed).starts_with("encoder: name the model folder"));
}

#[test]
fn what_the_vectors_were_made_with_need_not_be_named_again() {
    let folder = TempDir::new().unwrap();
    let options = EncoderOptions {
        query_prefix: "a ".into(),
        passage_prefix: String::new(),
        sentence: SentenceOptions { max_tokens: 5, ..SentenceOptions::default() },
    };
    let (model, index, encoder) = built(folder.path(), options);
    let config = RetrievalConfig {
        kind: RetrieverKind::Dense,
        index: index.clone(),
        encoder: model,
        ..RetrievalConfig::default()
    };
    let found = open(&config).unwrap().search(&["red shoes"], 5).unwrap();
    let expected =
        DenseRetriever::open(&index, Arc::new(encoder)).unwrap().search(&["red shoes"], 5).unwrap();
    assert_eq!(found, expected);
    // Explicit settings must equal the index's; the error names them.
    let named = RetrievalConfig {
        query_prefix: Some("a ".into()),
        passage_prefix: Some(String::new()),
        max_tokens: Some(5),
        ..config.clone()
    };
    assert_eq!(open(&named).unwrap().search(&["red shoes"], 5).unwrap(), expected);
    for (other, key, asked, made) in [
        (
            RetrievalConfig { query_prefix: Some("query: ".into()), ..named.clone() },
            "query_prefix",
            "\"query: \"",
            "\"a \"",
        ),
        (
            RetrievalConfig { passage_prefix: Some("passage: ".into()), ..named.clone() },
            "passage_prefix",
            "\"passage: \"",
            "\"\"",
        ),
        (RetrievalConfig { max_tokens: Some(9), ..named.clone() }, "max_tokens", "9", "5"),
    ] {
        let error = open(&other).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key}: {asked} was named")), "{error}");
        assert!(error.contains(&format!("were made with {made};")), "{error}");
    }
}

/// Turns an index into an earlier version's: no prefixes, and a fingerprint of the weights only.
fn age(index: &Path, model: &Path, passage_prefix: &str, max_tokens: u64) {
    let path = index.join("dense/turnwise-vectors.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut hash = Sha256::new();
    for name in ["config.json", "model.safetensors"] {
        hash.update(std::fs::read(model.join(name)).unwrap());
    }
    hash.update(passage_prefix);
    hash.update(max_tokens.to_le_bytes());
    let description = manifest["description"].as_object_mut().unwrap();
    description.remove("encoding").unwrap();
    description["encoder"] = hexadecimal(&hash.finalize()).into();
    std::fs::write(&path, manifest.to_string()).unwrap();
}

#[test]
fn vectors_of_earlier_versions_are_opened() {
    let folder = TempDir::new().unwrap();
    let (model, index, _) = built(folder.path(), EncoderOptions::default());
    let config = RetrievalConfig {
        kind: RetrieverKind::Dense,
        index: index.clone(),
        encoder: model.clone(),
        ..RetrievalConfig::default()
    };
    let found = open(&config).unwrap().search(&["red shoes"], 5).unwrap();
    age(&index, &model, "passage: ", 256);
    assert_eq!(open(&config).unwrap().search(&["red shoes"], 5).unwrap(), found);
    let other = RetrievalConfig { passage_prefix: Some(String::new()), ..config.clone() };
    let error = open(&other).unwrap_err().to_string();
    assert!(error.contains("another encoder, or with another passage prefix"), "{error}");
    // Old vectors with another prefix can be opened with it.
    let folder = TempDir::new().unwrap();
    let options = EncoderOptions { passage_prefix: String::new(), ..EncoderOptions::default() };
    let (model, index, _) = built(folder.path(), options);
    age(&index, &model, "", 256);
    assert!(open(&RetrievalConfig { index, encoder: model, ..other }).is_ok());
}

#[test]
fn every_file_that_decides_a_vector_is_in_the_fingerprint() {
    let folder = TempDir::new().unwrap();
    let model = folder.path();
    write_bert(model, &WORDS, 0.0).unwrap();
    let mut seen: Vec<String> = Vec::new();
    let mut differs = |change: &str| {
        let fingerprint = PrefixedEncoder::load(model, EncoderOptions::default()).unwrap().fingerprint();
        assert!(!seen.contains(&fingerprint), "{change}");
        seen.push(fingerprint);
    };
    let write = |name: &str, text: &str| std::fs::write(model.join(name), text).unwrap();
    differs("weights");
    let module = |kind: &str, path: &str| json!({"type": format!("sentence_transformers.models.{kind}"), "path": path});
    std::fs::create_dir(model.join("1_Pooling")).unwrap();
    write("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
    let modules = [module("Transformer", ""), module("Pooling", "1_Pooling")];
    write("modules.json", &Value::from(modules.to_vec()).to_string());
    differs("modules.json");
    write("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true}"#);
    differs("1_Pooling/config.json");
    write("sentence_bert_config.json", r#"{"max_seq_length": 8}"#);
    differs("sentence_bert_config.json");
    write("tokenizer_config.json", r#"{"do_lower_case": false}"#);
    differs("tokenizer_config.json");
    let mut words = WORDS;
    words.swap(7, 8);
    write("vocab.txt", &words.join("\n"));
    differs("vocab.txt");
}
