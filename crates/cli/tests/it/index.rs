//! Tests of `turnwise index`.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const PASSAGES: &str = "{\"id\": \"0\", \"contents\": \"\\\"Kettle\\\"\\nA kettle of steel.\"}\n\
    {\"id\": \"1\", \"contents\": \"\\\"Shoes\\\"\\nBlue running shoes.\"}\n";

fn turnwise(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_index_is_built_and_asked() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    std::fs::write(path.join("wiki.jsonl"), PASSAGES).unwrap();
    let built = turnwise(&["index", "build", "wiki", "--passages", "wiki.jsonl"], path);
    assert!(built.status.success(), "{}", text(&built.stderr));
    assert!(text(&built.stdout).starts_with("wiki: 2 passages"), "{}", text(&built.stdout));

    let found = turnwise(&["index", "query", "wiki", "running shoe", "--json"], path);
    let lines: Vec<serde_json::Value> =
        text(&found.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["id"], &lines[0]["contents"]),
        (&"1".into(), &"\"Shoes\"\nBlue running shoes.".into())
    );

    std::fs::write(path.join("q.jsonl"), "{\"query\": \"steel\"}\n{\"question\": \"zebra\"}\n").unwrap();
    let asked = turnwise(&["index", "query", "wiki", "--queries", "q.jsonl", "--output", "a.jsonl"], path);
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    let answers = std::fs::read_to_string(path.join("a.jsonl")).unwrap();
    let answers: Vec<serde_json::Value> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (answers[0]["hits"][0]["id"].as_str(), answers[1]["hits"].as_array().map(Vec::len)),
        (Some("0"), Some(0))
    );
}

#[test]
fn what_goes_wrong_is_said_with_its_place() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    std::fs::write(path.join("wiki.jsonl"), format!("{PASSAGES}{{\"id\": \"2\"}}\n")).unwrap();
    std::fs::write(path.join("q.jsonl"), "{\"query\": \"steel\"}\n{\"text\": \"zebra\"}\n").unwrap();
    let refused = |arguments: &[&str], expected: &[&str]| {
        let output = turnwise(arguments, path);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        for part in expected {
            assert!(error.contains(part), "{arguments:?}: no `{part}` in {error}");
        }
    };
    let build = ["index", "build", "wiki", "--passages", "wiki.jsonl"];
    refused(&build, &["wiki.jsonl, line 3", "`contents`"]);
    refused(&["index", "build", "wiki", "--passages", "none.jsonl"], &["none.jsonl"]);
    refused(&["index", "build", "wiki"], &["no passages yet", "name a file"]);
    refused(&["index", "query", "wiki", "steel"], &["turnwise index build"]);
    refused(
        &["index", "query", "wiki", "--queries", "wiki.jsonl", "--output", "./wiki.jsonl"],
        &["is the file of the queries"],
    );
    refused(&["index", "query"], &["name the folder", "--server"]);
    refused(&["index", "query", "--server", "http://example.org", "steel"], &["allow_remote"]);

    // Options that would change nothing.
    refused(&["index", "query", "wiki", "steel", "--output", "a.jsonl"], &["--queries"]);
    let file = ["index", "query", "wiki", "--queries", "q.jsonl", "--output", "a.jsonl", "--json"];
    refused(&file, &["--json", "cannot be used with"]);

    std::fs::write(path.join("wiki.jsonl"), PASSAGES).unwrap();
    assert!(turnwise(&build, path).status.success());
    refused(&build, &["has passages already"]);
    refused(
        &["index", "query", "wiki", "--queries", "q.jsonl", "--output", "a.jsonl"],
        &["q.jsonl, line 2", "`query`"],
    );
}
