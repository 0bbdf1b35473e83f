//! Tests of OpenAI messages in `turnwise credit` and `turnwise view`.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/credit/messages.jsonl");

fn turnwise(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_turnwise")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code(), text)
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn conversations_get_one_advantage_for_each_assistant_message() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.jsonl");
    let (code, said) = turnwise(&["credit", EXAMPLE, "--preset", "rloo", "--output", rows.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("rloo on messages.jsonl (messages): 2 trajectories in 1 group, 5 turns"), "{said}");
    let rows = std::fs::read_to_string(rows).unwrap();
    let advantages: Vec<serde_json::Value> = rows
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["advantages"].clone())
        .collect();
    assert_eq!(advantages, [serde_json::json!([1.0, 1.0]), serde_json::json!([-1.0, -1.0, -1.0])]);
}

#[test]
fn a_conversation_without_a_reward_can_be_viewed_and_not_credited() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(EXAMPLE).unwrap().replace("\"reward\": 0.0, ", "");
    let path = written(folder.path(), "chats.jsonl", &text);
    let (code, said) = turnwise(&["credit", &path, "--preset", "rloo"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("chats.jsonl: line 2: `reward` is missing"), "{said}");
    let (code, said) =
        turnwise(&["view", &path, "--output", folder.path().join("page.html").to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn the_viewer_shows_roles_calls_and_results() {
    let folder = tempfile::tempdir().unwrap();
    let orphan = std::fs::read_to_string(EXAMPLE)
        .unwrap()
        .replace("\"tool_call_id\": \"c2\"", "\"tool_call_id\": \"c9\"");
    let path = written(folder.path(), "chats.jsonl", &orphan);
    let page = folder.path().join("page.html");
    let (code, said) = turnwise(&["view", &path, "--preset", "rloo", "--output", page.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    let page = std::fs::read_to_string(page).unwrap();
    for shown in [
        "<p class=\"label\">system</p><pre>Answer with the help of the tools.</pre>",
        "<p class=\"label\">user</p><pre>Do I need an umbrella in Oslo?</pre>",
        "<p class=\"label\">call of weather <code>c1</code></p><pre>city: Oslo</pre>",
        "<p class=\"label\">result of weather <code>c1</code></p><pre>rain, 7 degrees</pre>",
        "<p class=\"label\">result of <code>c9</code> <span class=\"badge\">no such call</span></p>",
        "<summary class=\"label\">tools that may be called: weather</summary>",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}
