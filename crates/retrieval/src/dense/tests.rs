//! Vectors on disk and exact search with a test encoder.

use std::ops::ControlFlow;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::build::{BuildFolder, Parts, build};
use crate::lucene::BuildOptions;

/// Encodes bytes as 40 numbers of length 1; queries are read backwards.
struct Bytes {
    name: &'static str,
}

impl Bytes {
    fn vector(text: impl Iterator<Item = u8>) -> Vec<f32> {
        let mut vector = [0.01f32; 40];
        for (index, byte) in text.enumerate() {
            vector[(usize::from(byte) * 7 + index / 3) % 40] += 1.0 + f32::from(byte % 5) * 0.1;
        }
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter().map(|value| value / norm).collect()
    }
}

impl Encoder for Bytes {
    fn dimensions(&self) -> usize {
        40
    }
    fn fingerprint(&self) -> String {
        self.name.to_owned()
    }
    fn is_named(&self, fingerprint: &str) -> bool {
        fingerprint.trim_start_matches("earlier ") == self.name
    }
    fn queries(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        Ok(texts.iter().flat_map(|text| Self::vector(text.bytes().rev())).collect())
    }
    fn passages(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        if texts.iter().any(|text| text.contains("broken")) {
            return Ok(vec![f32::NAN; texts.len() * 40]);
        }
        Ok(texts.iter().flat_map(|text| Self::vector(text.bytes())).collect())
    }
}

fn keep(_: crate::build::BuildProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn passages(folder: &Path) -> BuildFolder {
    let file = folder.join("p.jsonl");
    let line = |n: u32| {
        format!("{{\"id\": \"{n}\", \"contents\": \"\\\"T{n}\\\"\\nword {} and {}\"}}", n * 37 % 101, n / 7)
    };
    std::fs::write(&file, (0..3000).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let folder = BuildFolder::open(&folder.join("index")).unwrap();
    build(&folder, &[file], Parts::Passages, BuildOptions::default(), &mut keep).unwrap();
    folder
}

#[test]
fn the_best_are_those_with_the_greatest_products() {
    for (precision, most) in [(Precision::F32, 1e-6), (Precision::F16, 1e-3)] {
        let folder = TempDir::new().unwrap();
        let building = passages(folder.path());
        let encoder = Arc::new(Bytes { name: "one" });
        let progress = build_vectors(&building, &*encoder, DenseOptions { precision }, &mut keep).unwrap();
        assert_eq!(progress.passages, 3000);
        let index = folder.path().join("index");
        let size = std::fs::metadata(index.join(DENSE).join("vectors.bin")).unwrap().len();
        assert_eq!(size, 3000 * 40 * precision.bytes() as u64);
        let retriever = DenseRetriever::open(&index, encoder.clone()).unwrap();
        let queries = ["what is word 5?", "T77", "", "and and and"];
        let found = retriever.search(&queries, 7).unwrap();
        let store = PassageStore::open(&index.join(PASSAGES)).unwrap();
        for (query, hits) in queries.iter().zip(&found) {
            let asked = encoder.queries(&[query]).unwrap();
            let mut expected: Vec<(f32, String)> = store
                .iter()
                .map(|passage| {
                    let passage = passage.unwrap();
                    let vector = encoder.passages(&[&passage.contents]).unwrap();
                    (vector.iter().zip(&asked).map(|(a, b)| a * b).sum(), passage.id.clone())
                })
                .collect();
            expected.sort_by(|left, right| right.0.total_cmp(&left.0));
            assert_eq!(hits.len(), 7);
            for (hit, (score, _)) in hits.iter().zip(&expected) {
                assert!((hit.score - score).abs() < most, "{precision:?} {query}: {} {score}", hit.score);
            }
            if precision == Precision::F32 {
                assert_eq!(hits[0].passage.id, expected[0].1, "{query}");
            }
        }
        assert_eq!(retriever.search(&["x"], 5000).unwrap()[0].len(), 3000);
        assert_eq!(retriever.search(&["x"], 0).unwrap()[0].len(), 0);
        assert!(retriever.search(&[], 3).unwrap().is_empty());
    }
}

#[test]
fn equal_scores_come_by_position() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("p.jsonl");
    let line = |id: usize| format!("{{\"id\": \"{id}\", \"contents\": \"the same\"}}");
    std::fs::write(&file, (0..2500).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let index = folder.path().join("index");
    let building = BuildFolder::open(&index).unwrap();
    build(&building, &[file], Parts::Passages, BuildOptions::default(), &mut keep).unwrap();
    build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep).unwrap();
    let retriever = DenseRetriever::open(&index, Arc::new(Bytes { name: "one" })).unwrap();
    let found = retriever.search(&["x"], 4).unwrap().remove(0);
    assert_eq!(found.iter().map(|hit| hit.passage.id.as_str()).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
}

#[test]
fn a_stopped_encoding_goes_on_with_the_same_bits() {
    let whole = TempDir::new().unwrap();
    let building = passages(whole.path());
    build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep).unwrap();
    let vectors =
        |folder: &Path| std::fs::read(folder.join("index").join(DENSE).join("vectors.bin")).unwrap();

    let folder = TempDir::new().unwrap();
    let building = passages(folder.path());
    let partial = folder.path().join("index/dense.partial/vectors.bin");
    let stop_at = |name: &'static str, rounds: usize| {
        let (mut left, mut first) = (rounds, None);
        let stopped = build_vectors(&building, &Bytes { name }, DenseOptions::default(), &mut |progress| {
            first.get_or_insert(progress.passages);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(stopped.unwrap_err(), RetrievalError::Interrupted);
        first.unwrap()
    };
    assert_eq!(stop_at("one", 4), 0);
    // A kill may leave half a row.
    let mut bytes = std::fs::read(&partial).unwrap();
    bytes.truncate(bytes.len() - 3);
    std::fs::write(&partial, bytes).unwrap();
    assert_eq!(stop_at("one", 2), 512);
    // An earlier version's name is accepted, and the query prefix may differ.
    let of = folder.path().join("index/dense.partial/of.json");
    let text = std::fs::read_to_string(&of).unwrap();
    let encoding = r#"{"query_prefix":"q","passage_prefix":"p","max_tokens":9}"#;
    let other = format!("\"encoder\":\"earlier one\",\"encoding\":{encoding}");
    assert!(text.contains("\"encoder\":\"one\""), "{text}");
    std::fs::write(&of, text.replace("\"encoder\":\"one\"", &other)).unwrap();
    assert_eq!(stop_at("one", 2), 768);
    // Changing the encoder starts again, in both directions.
    assert_eq!(stop_at("two", 3), 0);
    assert_eq!(stop_at("one", 3), 0);
    build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep).unwrap();
    assert_eq!(vectors(folder.path()), vectors(whole.path()));
    assert!(!partial.exists());
}

#[test]
fn vectors_are_kept_where_the_last_moment_fails() {
    let folder = TempDir::new().unwrap();
    let building = passages(folder.path());
    let dense = folder.path().join("index").join(DENSE);
    let build = |watch: crate::build::Watch<'_>| {
        build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), watch)
    };
    // This fails like a kill before the rename.
    let failed = build(&mut |progress| {
        if progress.passages > 2700 {
            std::fs::write(&dense, "in the way").unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(failed, Err(RetrievalError::File { .. })), "{failed:?}");
    std::fs::remove_file(&dense).unwrap();
    let mut first = None;
    build(&mut |progress| {
        first.get_or_insert(progress.passages);
        ControlFlow::Continue(())
    })
    .unwrap();
    // Eleven whole calls of 256.
    assert_eq!(first, Some(2816));
    assert!(!dense.join("of.json").exists());
    // Files left by a kill after the rename are harmless.
    std::fs::write(dense.join("of.json"), "{}").unwrap();
    let index = folder.path().join("index");
    assert!(DenseRetriever::open(&index, Arc::new(Bytes { name: "one" })).is_ok());
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let folder = TempDir::new().unwrap();
    let building = passages(folder.path());
    let index = folder.path().join("index");
    let open = |name: &'static str| DenseRetriever::open(&index, Arc::new(Bytes { name }));
    assert!(open("one").unwrap_err().to_string().contains("--encoder"));
    build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep).unwrap();
    assert!(open("one").is_ok());
    assert!(open("two").unwrap_err().to_string().contains("another encoder"));
    let again = build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep);
    assert!(again.unwrap_err().to_string().contains("it is there already"));
    let path = index.join(DENSE).join("vectors.bin");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 2]).unwrap();
    assert!(open("one").unwrap_err().to_string().contains("damaged"));
    std::fs::write(&path, &bytes).unwrap();
    let manifest = index.join(DENSE).join("turnwise-vectors.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"vectors\": 3000", "\"vectors\": 2999")).unwrap();
    assert!(open("one").unwrap_err().to_string().contains("bytes and should have"));
}

#[test]
fn vectors_that_are_none_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("p.jsonl");
    std::fs::write(&file, "{\"id\": \"0\", \"contents\": \"broken\"}\n").unwrap();
    let building = BuildFolder::open(&folder.path().join("index")).unwrap();
    let none = build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep);
    assert!(none.unwrap_err().to_string().contains("no passages yet"));
    build(&building, &[file], Parts::Passages, BuildOptions::default(), &mut keep).unwrap();
    let error = build_vectors(&building, &Bytes { name: "one" }, DenseOptions::default(), &mut keep);
    assert!(error.unwrap_err().to_string().contains("no number"));
}

#[cfg(feature = "hnsw")]
#[test]
fn a_graph_finds_most_of_the_nearest() {
    let folder = TempDir::new().unwrap();
    let building = passages(folder.path());
    let index = folder.path().join("index");
    let encoder = Arc::new(Bytes { name: "one" });
    build_vectors(&building, &*encoder, DenseOptions::default(), &mut keep).unwrap();
    let exact = DenseRetriever::open(&index, encoder.clone()).unwrap();
    let approximate = || DenseRetriever::open(&index, encoder.clone()).unwrap().approximate(&index);
    assert!(approximate().unwrap_err().to_string().contains("--approximate"));
    let stopped = build_graph(&building, GraphOptions::default(), &mut |_| ControlFlow::Break(()));
    assert_eq!(stopped.unwrap_err(), RetrievalError::Interrupted);
    let (progress, recall) = build_graph(&building, GraphOptions::default(), &mut keep).unwrap();
    assert_eq!(progress.passages, 3000);
    assert!(recall > 0.9, "{recall}");
    let graph = approximate().unwrap();
    let queries: Vec<String> = (0..200).map(|n| format!("word {} and {}", n % 101, n * 2)).collect();
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let (near, all) = (graph.search(&queries, 5).unwrap(), exact.search(&queries, 5).unwrap());
    assert_eq!(graph.search(&queries, 5).unwrap(), near);
    let mut found = 0;
    for (near, all) in near.iter().zip(&all) {
        assert!(near.is_sorted_by(|left, right| left.score >= right.score));
        found += near.iter().filter(|hit| hit.score >= all[4].score - 1e-5).count();
    }
    assert!(found > 900, "{found} of 1000");
    // A narrow search of a poor graph has lower recall.
    std::fs::remove_dir_all(index.join(HNSW)).unwrap();
    let poor = GraphOptions { neighbours: 2, construction: 2, search: 1 };
    let (_, less) = build_graph(&building, poor, &mut keep).unwrap();
    assert!(less < recall - 0.1, "{less} {recall}");
    let manifest = index.join(HNSW).join("turnwise-hnsw.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"one\"", "\"two\"")).unwrap();
    assert!(approximate().unwrap_err().to_string().contains("other vectors"));
    std::fs::write(&manifest, &text).unwrap();
    // Without hashes, as in earlier versions, the library must find the wrong byte.
    let data = index.join(HNSW).join("graph.hnsw.data");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&data, &bytes).unwrap();
    assert!(approximate().unwrap_err().to_string().contains("other bytes than were written"));
    bytes[100] ^= 1;
    std::fs::write(&data, &bytes).unwrap();
    let mut earlier: serde_json::Value = serde_json::from_str(&text).unwrap();
    earlier["description"].as_object_mut().unwrap().remove("sha256");
    std::fs::write(&manifest, earlier.to_string()).unwrap();
    approximate().unwrap();
    let graph = index.join(HNSW).join("graph.hnsw.graph");
    let size = std::fs::read(&graph).unwrap().len();
    std::fs::write(&graph, vec![7; size]).unwrap();
    assert!(approximate().unwrap_err().to_string().contains("damaged"));
}
