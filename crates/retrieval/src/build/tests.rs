//! Indexes in folders, from files.

use std::fmt::Write as _;

use tempfile::TempDir;

use super::*;
use crate::{Bm25Retriever, Retriever as _};

const LINES: &str = "{\"id\": \"b\", \"contents\": \"\\\"Kettle\\\"\\nA kettle of steel.\"}\n\n\
    {\"contents\": \"\\\"Shoes\\\"\\nBlue running shoes.\", \"id\": 7, \"more\": [1]}\n\
    {\"id\": \"c\", \"contents\": \"\\\"Steel\\\"\\nSteel is iron with carbon.\"}";

fn keep(_: BuildProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn built(folder: &Path, file: &Path) -> Result<BuildProgress, RetrievalError> {
    let folder = BuildFolder::open(folder)?;
    build(&folder, &[file.to_owned()], Parts::Bm25, BuildOptions::default(), &mut keep)
}

fn ids(retriever: &Bm25Retriever, query: &str) -> Vec<String> {
    let found = retriever.search(&[query], 5).unwrap().remove(0);
    found.iter().map(|hit| hit.passage.id.clone()).collect()
}

#[test]
fn a_file_becomes_an_index() {
    let folder = TempDir::new().unwrap();
    let (file, index) = (folder.path().join("wiki.jsonl"), folder.path().join("index"));
    std::fs::write(&file, LINES).unwrap();
    let progress = built(&index, &file).unwrap();
    assert_eq!((progress.passages, progress.read), (3, LINES.len() as u64));
    let retriever = Bm25Retriever::open(&index).unwrap();
    assert_eq!(ids(&retriever, "kettles of steel"), ["b", "c"]);
    let hit = retriever.search(&["shoe"], 1).unwrap().remove(0).remove(0);
    assert_eq!((hit.passage.id.as_str(), hit.passage.text()), ("7", "Blue running shoes."));
    assert!(!index.join(UNFINISHED).exists());

    let again = built(&index, &file).unwrap_err().to_string();
    assert!(again.contains("has passages already"), "{again}");
    let again =
        build(&BuildFolder::open(&index).unwrap(), &[], Parts::Bm25, BuildOptions::default(), &mut keep);
    assert!(again.unwrap_err().to_string().contains("it is there already"));
    // Only the terms are built again.
    std::fs::remove_dir_all(index.join(BM25)).unwrap();
    assert!(Bm25Retriever::open(&index).unwrap_err().to_string().contains("index build"));
    let progress =
        build(&BuildFolder::open(&index).unwrap(), &[], Parts::Bm25, BuildOptions::default(), &mut keep);
    assert_eq!(progress.unwrap().passages, 3);
    assert_eq!(ids(&Bm25Retriever::open(&index).unwrap(), "kettles of steel"), ["b", "c"]);
}

#[test]
fn in_memory_and_on_disk_is_the_same() {
    let folder = TempDir::new().unwrap();
    let words = ["red", "blue", "shoe", "sock", "kettle", "steel", "cotton"];
    let mut text = String::new();
    for number in 0..5000_usize {
        let contents: Vec<&str> =
            (0..3 + number % 9).map(|index| words[(number * 5 + index * 3) % 7]).collect();
        writeln!(
            text,
            r#"{{"id": "{}", "contents": "\"T{number}\"\n{} only{}"}}"#,
            (number * 7919) % 5003,
            contents.join(" "),
            number / 3
        )
        .unwrap();
    }
    let file = folder.path().join("p.jsonl.zst");
    std::fs::write(&file, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    let index = folder.path().join("index");
    let options = BuildOptions { memory: 100_000 };
    let files = [file.clone()];
    build(&BuildFolder::open(&index).unwrap(), &files, Parts::Bm25, options, &mut keep).unwrap();
    let disk = Bm25Retriever::open(&index).unwrap();
    let memory = Bm25Retriever::in_memory(read_passages(&file).unwrap()).unwrap();
    for query in ["red", "steel kettle sock", "only77 cotton", "t4711", "nothing here"] {
        assert_eq!(disk.search(&[query], 20).unwrap(), memory.search(&[query], 20).unwrap(), "{query}");
    }
    let many: Vec<String> = (0..100).map(|number| format!("only{number} blue")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let together = disk.search(&many, 3).unwrap();
    for (query, found) in many.iter().zip(together) {
        assert_eq!(disk.search(&[query], 3).unwrap(), [found], "{query}");
    }
}

#[test]
fn a_line_that_is_no_passage_is_named() {
    let folder = TempDir::new().unwrap();
    let (file, index) = (folder.path().join("wiki.jsonl"), folder.path().join("index"));
    let wrong: [(&str, &str); 4] = [
        ("{\"id\": \"0\"}", "missing field `contents`"),
        ("{\"id\": \"0\", \"contents\": 3}", "invalid type"),
        ("{\"id\": \"0\", \"contents\": \"cut", "EOF"),
        ("{\"id\": 1.5, \"contents\": \"x\"}", "a text or a whole number"),
    ];
    for (line, expected) in wrong {
        std::fs::write(&file, format!("{LINES}\n\n{line}\n")).unwrap();
        let error = built(&index, &file).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}, line 6: ", file.display())), "{error}");
        assert!(error.contains(expected) && error.contains("`id` and `contents`"), "{error}");
        assert!(!index.join(PASSAGES).exists() && !index.join(UNFINISHED).exists());
    }
    std::fs::write(&file, b"{\"id\": \"0\", \"contents\": \"\xff\"}\n").unwrap();
    let error = built(&index, &file).unwrap_err().to_string();
    assert!(error.contains("line 1: not UTF-8"), "{error}");
    let error = built(&index, &folder.path().join("none.jsonl")).unwrap_err().to_string();
    assert!(error.contains("none.jsonl"), "{error}");
    std::fs::write(&file, LINES).unwrap();
    assert_eq!(built(&index, &file).unwrap().passages, 3);
}

#[test]
fn a_build_can_be_stopped_and_started_again() {
    let folder = TempDir::new().unwrap();
    let (file, index) = (folder.path().join("wiki.jsonl"), folder.path().join("index"));
    std::fs::write(&file, LINES).unwrap();
    let build_folder = BuildFolder::open(&index).unwrap();
    let files = [file.clone()];
    let stopped =
        build(&build_folder, &files, Parts::Bm25, BuildOptions::default(), &mut |_| ControlFlow::Break(()));
    assert_eq!(stopped.unwrap_err(), RetrievalError::Interrupted);
    let busy = BuildFolder::open(&index).unwrap_err().to_string();
    assert!(busy.contains("another process builds here"), "{busy}");
    drop(build_folder);
    // A kill leaves more files than a stop.
    std::fs::create_dir_all(index.join(UNFINISHED).join(BM25)).unwrap();
    std::fs::write(index.join(UNFINISHED).join(BM25).join("postings.idx"), b"half").unwrap();
    assert_eq!(built(&index, &file).unwrap().passages, 3);
}

#[test]
fn terms_of_other_passages_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("wiki.jsonl");
    for (name, text) in [("one", LINES.to_owned()), ("two", LINES.replace("steel", "iron"))] {
        std::fs::write(&file, text).unwrap();
        built(&folder.path().join(name), &file).unwrap();
    }
    let terms = folder.path().join("one").join(BM25);
    std::fs::remove_dir_all(&terms).unwrap();
    std::fs::rename(folder.path().join("two").join(BM25), &terms).unwrap();
    let error = Bm25Retriever::open(&folder.path().join("one")).unwrap_err().to_string();
    assert!(error.contains("other passages"), "{error}");
}
