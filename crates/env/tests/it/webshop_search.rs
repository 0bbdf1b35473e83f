//! Compares the search engine with recorded tokens, norms and rankings of Lucene.
//!
//! Reads the folder in `TURNWISE_DATA`; without it, the tests print that they are skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use turnwise_env::webshop::generator::{GeneratorConfig, products};
use turnwise_env::webshop::search::bm25::encode_length;
use turnwise_env::webshop::search::recording::{Answer, record};
use turnwise_env::webshop::search::{Analyzer, Bm25, SearchIndex, document_text};
use turnwise_env::webshop::{Product, ProductOption};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA");
    if folder.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    folder.map(|folder| PathBuf::from(folder).join("webshop"))
}

fn lines(path: &Path) -> Vec<String> {
    let decoder = zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap();
    BufReader::new(decoder).lines().map(Result::unwrap).collect()
}

fn values(path: &Path) -> Vec<Value> {
    lines(path).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn documents(folder: &Path) -> &'static [Value] {
    static DOCUMENTS: OnceLock<Vec<Value>> = OnceLock::new();
    DOCUMENTS.get_or_init(|| values(&folder.join("products_1000_documents.jsonl.zst")))
}

fn index(folder: &Path) -> SearchIndex {
    let pairs = documents(folder).iter().map(|document| {
        let text = |key: &str| document[key].as_str().unwrap().to_owned();
        (text("id"), text("contents"))
    });
    SearchIndex::build_in_memory(pairs).unwrap()
}

fn answers(folder: &Path) -> Vec<Answer> {
    lines(&folder.join("bm25_reference.jsonl.zst"))
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns queries whose results differ in order, or in a score by more than half of the last
/// decimal place.
fn differing(index: &SearchIndex, recorded: &[Answer]) -> Vec<String> {
    recorded
        .iter()
        .filter(|expected| {
            let found = index.search(&expected.query, 50).unwrap();
            let same = found.len() == expected.hits.len()
                && found.iter().zip(&expected.hits).all(|(hit, (asin, id, score))| {
                    // Anserini lowers each tied score by one millionth.
                    (&hit.name, hit.position) == (asin, *id)
                        && (f64::from(hit.score) - f64::from(*score)).abs() < 5e-5 + 5e-6
                });
            !same
        })
        .map(|expected| expected.query.clone())
        .collect()
}

#[test]
fn all_recorded_documents_give_the_recorded_tokens() {
    let Some(folder) = data() else { return };
    let analyzer = Analyzer::new().unwrap();
    let recorded = values(&folder.join("lucene_doc_tokens.jsonl.zst"));
    assert_eq!(recorded.len(), 1000);
    let mut tokens = 0;
    for (expected, document) in recorded.iter().zip(documents(&folder)) {
        assert_eq!(expected["id"], document["id"]);
        let found = analyzer.terms(document["contents"].as_str().unwrap());
        assert_eq!(found, strings(&expected["tokens"]), "{}", document["id"]);
        tokens += found.len();
    }
    assert_eq!(tokens, 107_608);
    for answer in answers(&folder) {
        assert_eq!(analyzer.terms(&answer.query), answer.tokens, "{}", answer.query);
    }
}

#[test]
fn all_norms_are_the_recorded_ones() {
    let Some(folder) = data() else { return };
    let analyzer = Analyzer::new().unwrap();
    let text = std::fs::read_to_string(folder.join("lucene_norms.tsv")).unwrap();
    let mut count = 0;
    for (line, document) in text.lines().zip(documents(&folder)) {
        let norm: u8 = line.split_once('\t').unwrap().1.parse().unwrap();
        let length = analyzer.terms(document["contents"].as_str().unwrap()).len();
        assert_eq!(encode_length(length as u32), norm, "{}: {length} terms", document["id"]);
        count += 1;
    }
    assert_eq!(count, 1000);
}

#[test]
fn all_recorded_rankings_come_out() {
    let Some(folder) = data() else { return };
    let (index, recorded) = (index(&folder), answers(&folder));
    assert_eq!((index.len(), recorded.len()), (1000, 150));
    assert_eq!(differing(&index, &recorded), Vec::<String>::new());
}

#[test]
fn other_constants_are_noticed() {
    let Some(folder) = data() else { return };
    let recorded = answers(&folder);
    for ranking in [Bm25 { k1: 1.2, b: 0.4 }, Bm25 { k1: 0.9, b: 0.75 }] {
        let wrong = differing(&index(&folder).with_ranking(ranking), &recorded).len();
        assert!(wrong > 140, "{ranking:?}: only {wrong} of 150 differ");
    }
    let pairs = documents(&folder)
        .iter()
        .map(|document| (document["id"].as_str().unwrap(), document["contents"].as_str().unwrap()));
    let more = SearchIndex::build_in_memory(pairs.chain([("A000000000", "women's blue shoes")])).unwrap();
    assert!(differing(&more, &recorded).len() > 140);
}

/// Tests pruning: the best products equal the first of an exhaustive search.
#[test]
fn the_best_of_a_large_shop_are_the_first_of_all() {
    let config = GeneratorConfig { seed: 0, products: 8_000 };
    let pairs = products(config).map(|product| (product.asin.clone(), document_text(&product)));
    let index = SearchIndex::build_in_memory(pairs).unwrap();
    let mut many = 0;
    for product in products(config).step_by(400) {
        for query in [product.instruction.unwrap_or_default(), product.title, product.description] {
            let all = index.search(&query, 8_000).unwrap();
            many += usize::from(all.len() > 4_000);
            for limit in [1, 10, 50] {
                let found = index.search(&query, limit).unwrap();
                assert_eq!(found, all[..limit.min(all.len())], "{query}");
            }
        }
    }
    assert!(many > 10, "only {many} queries were about many products");
}

#[test]
fn the_searched_text_of_every_product_is_the_recorded_one() {
    let Some(folder) = data() else { return };
    for document in documents(&folder) {
        let product = &document["product"];
        let text = |key: &str| product[key].as_str().unwrap().to_owned();
        let options = product["options"].as_object().unwrap();
        // The test's JSON maps are sorted; the recorded text has the original order.
        let contents = document["contents"].as_str().unwrap();
        let mut options: Vec<ProductOption> = options
            .iter()
            .map(|(name, values)| ProductOption { name: name.clone(), values: strings(values) })
            .collect();
        options.sort_by_key(|option| {
            contents.rfind(&format!("{}: {}", option.name, option.values.join(", ").to_lowercase()))
        });
        let product = Product {
            title: text("Title"),
            description: text("Description"),
            bullet_points: strings(&product["BulletPoints"]),
            options,
            ..Product::default()
        };
        assert_eq!(document_text(&product), contents, "{}", document["id"]);
    }
}

#[test]
fn a_recording_recorded_again_is_the_same() {
    let Some(folder) = data() else { return };
    let text = lines(&folder.join("bm25_reference.jsonl.zst")).join("\n");
    let mut out = Vec::new();
    assert_eq!(record("reference", text.as_bytes(), &index(&folder), 50, &mut out).unwrap(), 150);
    let (mut scores, mut exact) = (0, 0);
    for (found, expected) in String::from_utf8(out).unwrap().lines().zip(text.lines()) {
        let [found, expected] = [found, expected].map(|line| serde_json::from_str::<Answer>(line).unwrap());
        assert_eq!((&found.query, &found.tokens), (&expected.query, &expected.tokens));
        for (found, expected) in found.hits.iter().zip(&expected.hits) {
            assert_eq!((&found.0, found.1), (&expected.0, expected.1));
            assert!((found.2 - expected.2).abs() < 1.1e-4, "{found:?} {expected:?}");
            scores += 1;
            exact += usize::from(found.2 == expected.2);
        }
    }
    println!("{exact} of {scores} printed scores are the recorded ones to the last bit");
    assert!(scores == 7084 && scores - exact <= 4, "{exact} of {scores}");
}
