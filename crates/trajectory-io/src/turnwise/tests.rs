//! Tests of reading Turnwise's own lines.

use serde_json::json;

use super::keys::{LINE_KEYS, RUN_KEYS, TURN_KEYS};
use super::*;

fn turn() -> Value {
    json!({"observation": "s0", "action": "open", "reward": 1.0})
}

fn read_line(line: &Value) -> Result<Trajectory, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    std::fs::write(&path, line.to_string()).unwrap();
    let read =
        crate::read(&path, &crate::ReadOptions { format: Some(Format::Turnwise), ..Default::default() });
    let plain = |error: DumpError| error.to_string().rsplit_once("line 1: ").unwrap().1.to_owned();
    let mut dumps = [read, from_values("values", vec![line.clone()])].map(|read| {
        read.map(|mut dump| dump.batches[0].batch.groups[0].trajectories.remove(0)).map_err(plain)
    });
    assert_eq!(dumps[0], dumps[1]);
    std::mem::replace(&mut dumps[0], Err(String::new()))
}

#[test]
fn null_is_as_good_as_absent() {
    let bare = json!({"group": "a", "turns": [turn()]});
    let expected = read_line(&bare).unwrap();
    for (key, _) in LINE_KEYS.iter().chain(&RUN_KEYS).filter(|(key, _)| !["group", "turns"].contains(key)) {
        let mut line = bare.clone();
        line[*key] = Value::Null;
        if *key == "sequences" {
            line["schema_version"] = json!(1);
        }
        assert_eq!(read_line(&line).unwrap(), expected, "{key}");
    }
    for (key, _) in TURN_KEYS.iter().filter(|(key, _)| !["observation", "action", "reward"].contains(key)) {
        let mut line = bare.clone();
        line["turns"][0][*key] = Value::Null;
        assert_eq!(read_line(&line).unwrap(), expected, "{key}");
    }
    for key in ["group", "turns"] {
        let mut line = bare.clone();
        line[key] = Value::Null;
        let error = read_line(&line).unwrap_err();
        assert!(error.starts_with(&format!("`{key}` is missing")), "{error}");
    }
    let error = read_line(&json!({"group": "a", "turns": [{"reward": null}]})).unwrap_err();
    assert!(error.starts_with("turn 0: `reward` is missing"), "{error}");
}

#[test]
fn errors_name_the_key() {
    for (key, value) in [
        ("schema_version", json!("1")),
        ("sequences", json!([{}])),
        ("step", json!(1.5)),
        ("task", json!({"id": "a"})),
        ("stop", json!("terminated")),
        ("stop", json!({"kind": "done"})),
    ] {
        let mut line = json!({"group": "a", "turns": [turn()], "schema_version": 1});
        line[key] = value;
        let error = read_line(&line).unwrap_err();
        assert!(error.starts_with(&format!("`{key}` is ")) && error.contains("it must be"), "{error}");
    }
    for (key, value) in [
        ("values", json!("1")),
        ("values", json!([1.0, null])),
        ("response_ids", json!([1.5])),
        ("response_ids", json!([4_294_967_296_u64])),
        ("old_logprobs", json!([[]])),
    ] {
        let mut line = json!({"group": "a", "turns": [turn(), turn()]});
        line["turns"][1][key] = value;
        let error = read_line(&line).unwrap_err();
        assert!(
            error.starts_with(&format!("turn 1: `{key}` is ")) && error.contains("it must be"),
            "{error}"
        );
    }
}

#[test]
fn an_empty_list_of_values_is_refused() {
    for ids in [json!(null), json!([])] {
        let mut line = json!({"group": "a", "turns": [turn()]});
        line["turns"][0]["values"] = json!([]);
        line["turns"][0]["response_ids"] = ids;
        let error = read_line(&line).unwrap_err();
        assert!(error.starts_with("turn 0: `values` is an empty list"), "{error}");
    }
}

#[test]
fn numbers_that_json_does_not_have_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let text = json!({"group": "a", "turns": [turn()]}).to_string();
    std::fs::write(&path, text.replace("1.0", "NaN")).unwrap();
    let error = records(&path, &mut Vec::new()).err().unwrap().to_string();
    assert!(error.contains("line 1: `turns.reward` is NaN, and JSON has no such number"), "{error}");
    // Other versions may write more keys.
    std::fs::write(&path, text.replacen('{', r#"{"schema_version": 1, "more": [NaN],"#, 1)).unwrap();
    assert_eq!(records(&path, &mut Vec::new()).unwrap().len(), 1);
}

#[test]
fn what_a_run_did_not_train_on_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step.jsonl");
    let line = |step: u64, group: &str, trained: bool, stop: &str| {
        let mut line = json!({"schema_version": 1, "step": step, "group": group, "turns": [turn()]});
        line["stop"] =
            if stop == "max_turns" { json!({"kind": stop}) } else { json!({"kind": stop, "detail": "gone"}) };
        if trained {
            line["advantages"] = json!([0.5]);
        }
        line.to_string()
    };
    let read = |lines: &[String]| {
        std::fs::write(&path, lines.join("\n")).unwrap();
        crate::read(&path, &crate::ReadOptions { format: Some(Format::Turnwise), ..Default::default() })
    };
    let groups = |dump: &Dump| -> Vec<Vec<Value>> {
        let origins = |batch: &crate::DumpBatch| {
            batch.origins.iter().flatten().map(|origin| origin.group.clone()).collect()
        };
        dump.batches.iter().map(origins).collect()
    };
    // Step 0 was trained on, except the failed trajectory and another. Step 1 was not.
    let dump = read(&[
        line(0, "a", true, "max_turns"),
        line(0, "b", false, "environment_error"),
        line(0, "c", false, "max_turns"),
        line(1, "a", false, "max_turns"),
        line(1, "a", false, "sample_error"),
    ])
    .unwrap();
    assert_eq!(groups(&dump), [vec![json!("a")], vec![json!("a")]]);
    assert_eq!(dump.notes, ["3 trajectories are left out, which were in no group that was compared"]);
    let error = read(&[line(0, "a", false, "sample_error")]).unwrap_err().to_string();
    assert!(error.contains("all of its trajectories failed"), "{error}");
}

#[test]
fn what_a_run_keeps_of_an_agents_request_is_read() {
    let mut line = json!({"group": "a", "turns": [turn()]});
    line["turns"][0]["agent"] =
        json!({"name": "solver", "messages": 3, "continues": 0, "rewards": [["episode, last line", 1.0]]});
    let read = read_line(&line).unwrap();
    let agent = read.turns[0].agent.as_ref().unwrap();
    assert_eq!((agent.name.as_str(), agent.messages, agent.continues), ("solver", 3, Some(0)));
    assert_eq!(agent.rewards, [("episode, last line".to_owned(), 1.0)]);
    line["turns"][0]["agent"] = json!({"name": "solver"});
    assert!(read_line(&line).unwrap_err().contains("`agent`"));
}
