//! Vectors and hybrids from their settings, with a small BERT of chance weights.

use std::ops::ControlFlow;

use serde_json::json;
use tempfile::TempDir;
use turnwise_model::testing::write_bert;
use turnwise_retrieval::Retriever as _;
use turnwise_retrieval::build::{BuildFolder, Parts, build};
use turnwise_retrieval::dense::{DenseOptions, Encoder as _, build_vectors};
use turnwise_retrieval::lucene::BuildOptions;
use turnwise_retrieval_service::{EncoderOptions, PrefixedEncoder, RetrievalConfig, RetrieverKind, open};

const WORDS: [&str; 16] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "passage", ":", "kettle", "shoe", "sock", "steel", "blue",
    "red", "of", "a", "##s",
];

#[test]
fn vectors_and_hybrids_are_opened_from_settings() {
    let folder = TempDir::new().unwrap();
    let (file, index, model) =
        (folder.path().join("p.jsonl"), folder.path().join("index"), folder.path().join("e5"));
    let texts = ["kettle of steel", "blue shoes", "red socks", "a red shoe", "steel"];
    let lines: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(id, text)| json!({"id": id.to_string(), "contents": text}).to_string())
        .collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    std::fs::create_dir(&model).unwrap();
    write_bert(&model, &WORDS, 0.0).unwrap();
    let loaded = PrefixedEncoder::load(&model, EncoderOptions::default()).unwrap();
    assert_eq!(loaded.dimensions(), 16);
    // The prefixes count.
    assert_ne!(loaded.queries(&["steel"]).unwrap(), loaded.passages(&["steel"]).unwrap());
    let building = BuildFolder::open(&index).unwrap();
    let mut keep = |_| ControlFlow::Continue(());
    build(&building, &[file], Parts::Bm25, BuildOptions::default(), &mut keep).unwrap();
    build_vectors(&building, &loaded, DenseOptions::default(), &mut keep).unwrap();
    drop(building);

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

    // The vectors of another encoder, or of other prefixes, are not compared with.
    let refused = |config: RetrievalConfig| open(&config).unwrap_err().to_string();
    let prefixed = RetrievalConfig { passage_prefix: String::new(), ..config(RetrieverKind::Dense) };
    assert!(refused(prefixed).contains("another encoder"));
    write_bert(&model, &WORDS, 1.0).unwrap();
    assert!(refused(config(RetrieverKind::Hybrid)).contains("another encoder"));
    let none = RetrievalConfig { encoder: folder.path().join("none"), ..config(RetrieverKind::Dense) };
    assert!(refused(none).contains("config.json"));
    let unnamed = RetrievalConfig { encoder: std::path::PathBuf::new(), ..config(RetrieverKind::Dense) };
    assert!(refused(unnamed).starts_with("encoder: name the model folder"));
}
