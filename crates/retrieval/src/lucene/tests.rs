//! The index on generated texts.

use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const SHOES: [(&str, &str); 5] = [
    ("B5", "red running shoes for women"),
    ("B4", "blue running shoes"),
    ("B3", "running shoes, running socks, running everything"),
    ("B2", "a kettle of steel"),
    ("B1", "blue running shoes"),
];

fn names(index: &SearchIndex, query: &str, limit: usize) -> Vec<String> {
    index.search(query, limit).unwrap().into_iter().map(|hit| hit.name).collect()
}

#[test]
fn equal_scores_come_by_name() {
    let index = SearchIndex::build_in_memory(SHOES).unwrap();
    assert_eq!(names(&index, "Blue shoe", 10), ["B1", "B4", "B5", "B3"]);
    assert_eq!(names(&index, "blue shoes", 1), ["B1"]);
    let hits = index.search("kettles", 10).unwrap();
    assert_eq!((hits.len(), hits[0].position, hits[0].name.as_str()), (1, 3, "B2"));
    for nothing in ["", "!!!", "the", "zebra"] {
        assert_eq!(index.search(nothing, 10).unwrap(), [], "{nothing:?}");
    }
    assert_eq!(index.search("shoes", 0).unwrap(), []);
    assert_eq!(SearchIndex::build_in_memory([("", ""); 0]).unwrap().search("shoes", 5).unwrap(), []);
}

#[test]
fn a_repeated_term_counts_twice() {
    let index = SearchIndex::build_in_memory(SHOES).unwrap();
    let score = |query: &str| index.search(query, 1).unwrap()[0].score;
    assert_eq!(score("kettle kettle"), 2.0 * score("kettle"));
    assert_eq!(names(&index, "red blue", 1), ["B5"]);
    assert_eq!(names(&index, "blue red blue", 1), ["B1"]);
}

#[test]
fn temporary_files_make_no_difference() {
    let text = |number: usize| {
        let words = ["red", "blue", "shoe", "sock", "kettle", "steel", "cotton"];
        let rare = if number.is_multiple_of(3) { format!(" rare{number}") } else { String::new() };
        (0..=number % 5).map(|index| words[(number * 7 + index * 3) % 7]).collect::<Vec<_>>().join(" ")
            + &rare
    };
    // Names descend, pairs share a name, and some texts have no terms.
    let texts: Vec<(String, String)> = (0..2000)
        .map(|n| (format!("A{:04}", 9999 - n / 2 * 2), if n % 11 == 0 { String::new() } else { text(n) }))
        .collect();
    let memory = SearchIndex::build_in_memory(texts.iter().map(|(name, text)| (name, text))).unwrap();
    let folder = TempDir::new().unwrap();
    let mut builder = IndexBuilder::create(folder.path(), BuildOptions { memory: 40_000 }).unwrap();
    for (name, text) in &texts {
        builder.add(name, text).unwrap();
    }
    assert!(builder.runs() > 2, "{} files", builder.runs());
    let disk = builder.finish().unwrap();
    assert_eq!(memory.fingerprint(), disk.fingerprint());
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 2, "postings and manifest");
    for query in ["red", "blue shoes", "steel kettle red cotton", "sock sock red", "rare999 red", "rare1998"]
    {
        for limit in [1, 7, 50, 300] {
            let found = memory.search(query, limit).unwrap();
            assert!(!found.is_empty(), "{query}");
            assert_eq!(found, disk.search(query, limit).unwrap(), "{query}, {limit}");
            assert!(found.is_sorted_by(|left, right| {
                left.score > right.score
                    || left.score == right.score
                        && (&left.name, left.position) < (&right.name, right.position)
            }));
        }
    }
}

#[test]
fn threads_share_an_index() {
    let index = SearchIndex::build_in_memory(SHOES).unwrap();
    let alone = index.search("blue running shoes", 10).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!(index.search("blue running shoes", 10).unwrap(), alone);
                }
            });
        }
    });
}

fn create(folder: &Path) -> SearchIndex {
    SearchIndex::create(folder, SHOES, BuildOptions::default()).unwrap()
}

#[test]
fn an_index_on_disk_answers_like_one_in_memory() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("index");
    let written = create(&path).search("blue running shoes", 10).unwrap();
    assert_eq!(SearchIndex::open(&path).unwrap().search("blue running shoes", 10).unwrap(), written);
    let memory = SearchIndex::build_in_memory(SHOES).unwrap();
    assert_eq!(memory.search("blue running shoes", 10).unwrap(), written);
    assert_eq!(SearchIndex::open_for(&path, SHOES).unwrap().fingerprint(), memory.fingerprint());

    let mut other = SHOES;
    other[0].1 = "red running shoes for men";
    let error = SearchIndex::open_for(&path, other).unwrap_err();
    assert!(
        matches!(error, SearchError::Stale { .. }) && error.to_string().contains("other texts"),
        "{error}"
    );
    let error = SearchIndex::create(&path, SHOES, BuildOptions::default()).unwrap_err();
    assert!(matches!(error, SearchError::Occupied { .. }), "{error}");
}

#[test]
fn a_broken_index_is_refused_with_its_reason() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    create(path);
    let manifest = std::fs::read_to_string(path.join(MANIFEST)).unwrap();
    let refused = || SearchIndex::open(path).unwrap_err();

    std::fs::write(path.join(MANIFEST), manifest.replace("\"format\": 2", "\"format\": 1")).unwrap();
    assert!(matches!(refused(), SearchError::Stale { .. }), "{}", refused());
    std::fs::write(path.join(MANIFEST), &manifest[..manifest.len() / 2]).unwrap();
    assert!(matches!(refused(), SearchError::Damaged { .. }), "{}", refused());
    std::fs::remove_file(path.join(MANIFEST)).unwrap();
    assert!(matches!(refused(), SearchError::Unfinished { .. }), "{}", refused());
    assert!(refused().to_string().contains("build it again"), "{}", refused());

    std::fs::write(path.join(MANIFEST), &manifest).unwrap();
    assert_eq!(SearchIndex::open(path).unwrap().len(), 5);
    let terms = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "idx"))
        .unwrap();
    let bytes = std::fs::read(&terms).unwrap();
    std::fs::write(&terms, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(refused(), SearchError::Damaged { path, .. } if path == terms));
    // Any wrong byte gives an error or another answer, never a panic.
    for offset in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[offset] ^= 0xff;
        std::fs::write(&terms, &wrong).unwrap();
        if let Ok(index) = SearchIndex::open(path) {
            for query in ["blue running shoes", "everything", "steel"] {
                let _ = index.search(query, 10);
                let _ = index.search_pruning(query, 10, 0);
            }
        }
    }
    std::fs::write(&terms, vec![0; bytes.len()]).unwrap();
    assert!(refused().to_string().contains("not a whole file"), "{}", refused());
    std::fs::remove_file(&terms).unwrap();
    assert!(refused().to_string().contains("it is missing"), "{}", refused());
    let nowhere = SearchIndex::open(&path.join("nowhere")).unwrap_err();
    assert!(matches!(nowhere, SearchError::Io { .. }), "{nowhere}");
}

/// Scores every document by the formula, in double precision.
fn by_definition(texts: &[String], query: &str) -> Vec<f64> {
    let analyzer = Analyzer::new().unwrap();
    let documents: Vec<Vec<String>> = texts.iter().map(|text| analyzer.terms(text)).collect();
    let nonempty: Vec<&Vec<String>> = documents.iter().filter(|terms| !terms.is_empty()).collect();
    let count = nonempty.len() as f64;
    let average = nonempty.iter().map(|terms| terms.len() as f64).sum::<f64>() / count;
    let score = |document: &Vec<String>| {
        analyzer.terms(query).iter().fold(0.0, |sum, term| {
            let df = nonempty.iter().filter(|terms| terms.contains(term)).count() as f64;
            let tf = document.iter().filter(|other| *other == term).count() as f64;
            let idf = (1.0 + (count - df + 0.5) / (df + 0.5)).ln();
            sum + idf * tf / (tf + 0.9 * (0.6 + 0.4 * document.len() as f64 / average))
        })
    };
    documents.iter().map(score).collect()
}

#[test]
fn a_limit_may_be_any_number() {
    let texts = [("P1", "blue running shoes"), ("P2", "blue steel"), ("P3", "green tea")];
    let index = SearchIndex::build_in_memory(texts).unwrap();
    for many in [0, u64::MAX] {
        assert_eq!(index.search_pruning("blue shoes", usize::MAX, many).unwrap().len(), 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn pruning_changes_nothing(
        texts in prop::collection::vec("[a-f]{1,2}( [a-f]{1,2}){0,12}", 1..400),
        query in "[a-f]{1,2}( [a-f]{1,2}){0,7}",
        limit in 1..30usize,
    ) {
        let pairs = texts.iter().enumerate().map(|(n, text)| (format!("P{:03}", 999 - n), text));
        let index = SearchIndex::build_in_memory(pairs).unwrap();
        let whole = index.search_pruning(&query, limit, u64::MAX).unwrap();
        prop_assert_eq!(index.search_pruning(&query, limit, 0).unwrap(), whole);
    }

    #[test]
    fn scores_are_the_formula(
        texts in prop::collection::vec("[abc]{1,2}( [abc]{1,2}){0,12}", 1..20),
        query in "[abc]{1,2}( [abc]{1,2}){0,5}",
    ) {
        let pairs = texts.iter().enumerate().map(|(n, text)| (format!("P{n:02}"), text));
        let index = SearchIndex::build_in_memory(pairs).unwrap();
        let expected = by_definition(&texts, &query);
        let found = index.search(&query, 100).unwrap();
        prop_assert_eq!(found.len(), expected.iter().filter(|&&score| score > 0.0).count());
        for hit in found {
            let difference = f64::from(hit.score) - expected[hit.position as usize];
            prop_assert!(difference.abs() < 1e-5, "{:?}: {}", hit, expected[hit.position as usize]);
        }
    }
}
