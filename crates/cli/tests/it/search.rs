//! Tests of `turnwise env search`.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn search(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .args(["env", "search", "webshop"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn queries_are_answered_in_the_form_of_the_recording() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    std::fs::write(
        path.join("documents.jsonl"),
        "{\"id\":\"B2\",\"contents\":\"red shoes\"}\n{\"id\":\"B1\",\"contents\":\"red shoes\"}\n{\"id\":\"B3\",\"contents\":\"kettle\"}\n",
    )
    .unwrap();
    std::fs::write(path.join("queries.jsonl"), "{\"query\":\"Red shoe\"}\n{\"query\":\"!!!\"}\n").unwrap();
    let output = search(path, &["--queries", "queries.jsonl", "--output", "out.jsonl", "--data", "."]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("2 queries in "));
    let found = lines(&path.join("out.jsonl"));
    assert_eq!(found[0]["tokens"], serde_json::json!(["red", "shoe"]));
    let asins: Vec<&Value> = found[0]["hits"].as_array().unwrap().iter().map(|hit| &hit[0]).collect();
    assert_eq!(asins, ["B1", "B2"]);
    assert_eq!((&found[0]["hits"][0][1], found[0]["hits"].as_array().unwrap().len()), (&Value::from(1), 2));
    assert_eq!(found[1], serde_json::json!({ "query": "!!!", "tokens": [], "hits": [] }));

    // What was written is a query file again, and its own answer.
    let again =
        search(path, &["--queries", "out.jsonl", "--output", "again.jsonl", "--data", "documents.jsonl"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(lines(&path.join("again.jsonl")), found);

    // The queries' own file may be the dump.
    let own = search(path, &["--queries", "out.jsonl", "--output", "out.jsonl", "--data", "documents.jsonl"]);
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    assert_eq!(lines(&path.join("out.jsonl")), found);

    let few = search(path, &["--queries", "queries.jsonl", "--output", "few.jsonl", "-k", "3"]);
    assert!(few.status.success(), "{}", String::from_utf8_lossy(&few.stderr));
    assert!(String::from_utf8_lossy(&few.stdout).contains("on 12000 products"));
    assert_eq!(lines(&path.join("few.jsonl"))[0]["hits"].as_array().unwrap().len(), 3);
}

#[test]
fn what_is_missing_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let refused = |arguments: &[&str]| {
        let output = search(path, arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let message = refused(&["--queries", "none.jsonl", "--output", "out.jsonl"]);
    assert!(message.contains("none.jsonl"), "{message}");
    std::fs::write(path.join("queries.jsonl"), "{\"query\":\"a\"}\n{\"question\":\"b\"}\n").unwrap();
    let message = refused(&["--queries", "queries.jsonl", "--output", "out.jsonl", "--data", "."]);
    assert!(message.contains("documents.jsonl") && message.contains("turnwise-search.json"), "{message}");
    std::fs::write(path.join("documents.jsonl"), "{\"id\":\"B2\"}\n").unwrap();
    let message =
        refused(&["--queries", "queries.jsonl", "--output", "out.jsonl", "--data", "documents.jsonl"]);
    assert!(message.contains("documents.jsonl, line 1") && message.contains("contents"), "{message}");
    let message = refused(&["--queries", "queries.jsonl", "--output", "out.jsonl"]);
    assert!(message.contains("queries.jsonl, line 2") && message.contains("query"), "{message}");
    assert!(!path.join("out.jsonl").exists());
}
