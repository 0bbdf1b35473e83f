use std::collections::HashMap;
use std::sync::Arc;

use turnwise_core::{Action, Environment as _, Purpose, Seed, Snapshot, Step, Tool, ToolCall};

use super::apis::Api;
use super::document::BfclDocuments;
use super::environment::BfclEnv;
use super::long_context::LongContext;
use super::package::{BfclTask, Package};
use super::set::{BfclOptions, BfclTasks};
use crate::python::values::Dict;

fn tasks(options: BfclOptions) -> BfclTasks {
    let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let task = BfclTask {
        id: "multi_turn_miss_func_0".into(),
        kind: "miss_func".into(),
        is_long: false,
        apis: vec![Api::Files],
        config: Dict::new(),
        turns: strings(&["Make a file a and a folder b.", "", "List all."]),
        functions: None,
        plan: Vec::new(),
        added: HashMap::from([(1, strings(&["mkdir"]))]),
        gold: vec![strings(&["touch('a')"]), strings(&["mkdir('b')"]), strings(&["ls()"])],
    };
    let document = |name: &str| {
        let text = r#"{"description": "X. Tool description: Y.", "parameters": {"properties": {}}}"#;
        (name.to_owned(), text.to_owned())
    };
    let documents = HashMap::from([(Api::Files, vec![document("touch"), document("mkdir")])]);
    let long = Arc::new(LongContext::default());
    BfclTasks::new(Package { tasks: vec![task], documents, long }, options)
}

fn play(environment: &mut BfclEnv, set: &BfclTasks, replies: &[&str]) -> Vec<Step> {
    let task = &set.split("all").unwrap()[0];
    let seen = environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    assert_eq!(seen.text(), "Functions:\ntouch(): Y.\nUser: Make a file a and a folder b.");
    replies.iter().map(|reply| environment.step(&Action::from(*reply)).unwrap()).collect()
}

const GOOD: [&str; 6] = ["[touch(file_name='a')]", "No folders.", "[mkdir('b')]", "Done.", "[ls()]", "Done."];

#[test]
fn calls_are_answered_and_words_end_the_turn() {
    let set = tasks(BfclOptions::default());
    let steps = play(&mut set.bfcl(), &set, &GOOD);
    let texts: Vec<_> = steps.iter().map(|step| step.observation.text().into_owned()).collect();
    assert_eq!(texts[0], "touch(file_name='a') -> None");
    assert!(texts[1].starts_with("More functions:\nmkdir(): Y.\nUser: "), "{}", texts[1]);
    assert_eq!(texts[3], "User: List all.");
    assert_eq!(texts[4], r#"ls() -> {"current_directory_content": ["a", "b"]}"#);
    let rewards: Vec<f64> = steps.iter().map(|step| step.reward).collect();
    assert_eq!(rewards, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let last = steps.last().unwrap();
    assert!(last.terminated && last.success && last.progress == Some(1.0));
}

#[test]
fn a_turn_that_fails_is_not_repaired() {
    let replies = ["Sorry.", "[touch('a'), mkdir('b')]", "Done.", "[ls()]", "Done."];
    let set = tasks(BfclOptions::default());
    let steps = play(&mut set.bfcl(), &set, &replies);
    let last = steps.last().unwrap();
    assert!(last.terminated && !last.success && last.reward == 0.0 && last.progress == Some(0.0));
    let set = tasks(BfclOptions { stop_at_failed_turn: true, ..BfclOptions::default() });
    let steps = play(&mut set.bfcl(), &set, &replies[..1]);
    assert!(steps[0].terminated && !steps[0].success);
}

#[test]
fn too_many_calls_end_the_episode() {
    let set = tasks(BfclOptions { max_steps: 2, ..BfclOptions::default() });
    let steps = play(&mut set.bfcl(), &set, &["[pwd()]"; 3]);
    let over: Vec<bool> = steps.iter().map(|step| step.terminated).collect();
    assert_eq!(over, [false, false, true]);
    let limited = set.with_max_turns(2);
    assert!(play(&mut limited.bfcl(), &limited, &["[pwd()]"; 2])[1].truncated);
}

#[test]
fn a_saved_episode_goes_on_as_it_would_have() {
    let set = tasks(BfclOptions::default());
    let mut first = set.bfcl();
    play(&mut first, &set, &GOOD[..3]);
    let saved = first.snapshot().unwrap().unwrap();
    let mut second = set.bfcl();
    second.restore(&saved).unwrap();
    for reply in &GOOD[3..] {
        let action = Action::from(*reply);
        assert_eq!(first.step(&action).unwrap(), second.step(&action).unwrap());
    }
    assert!(first.snapshot().is_err() && first.step(&Action::from("x")).is_err());
    assert!(second.restore(&Snapshot(b"{}".to_vec())).is_err());
}

#[test]
fn hostile_replies_are_ordinary_steps() {
    let set =
        tasks(BfclOptions { documents: BfclDocuments::None, max_steps: 1000, ..BfclOptions::default() });
    let mut environment = set.bfcl();
    let task = &set.split("all").unwrap()[0];
    environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    let deep = format!("[ls({}1)]", "(".repeat(100_000));
    let nested = format!("[touch({}1{})]", "[".repeat(60), "]".repeat(60));
    let many = format!("[echo('a' * {})]", i64::MAX);
    // A directory copied into itself is infinite.
    let endless =
        ["[mkdir('d')]", "[cp('d', 'd')]", "[cp('d', 'd'), find(), du()]", "[ls(), cd('d'), find()]"];
    for reply in [deep.as_str(), &nested, &many, "[echo('\\u12')]", "[]*", "[ls(**{})]", "[touch(\u{0})]"]
        .into_iter()
        .chain(endless)
    {
        let step = environment.step(&Action::from(reply)).unwrap();
        assert!(step.reward == 0.0 && step.understood);
        if step.terminated {
            environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        }
    }
    let step = environment.step(&Action::from("Done.")).unwrap();
    assert!(!step.success);
}

#[test]
fn tool_calls_are_executed_and_the_functions_are_declared() {
    let set = tasks(BfclOptions { documents: BfclDocuments::Tools, ..BfclOptions::default() });
    let mut environment = set.bfcl();
    let task = &set.split("all").unwrap()[0];
    let seen = environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    assert_eq!(seen.text(), "User: Make a file a and a folder b.");
    assert_eq!(environment.tools().iter().map(Tool::name).collect::<Vec<_>>(), ["touch"]);
    let call = |name: &str, arguments: serde_json::Value| {
        Action::Call(ToolCall { id: "call_0".into(), name: name.into(), arguments })
    };
    let mut act = |action: Action| environment.step(&action).unwrap().observation.into_text();
    assert_eq!(act(call("touch", serde_json::json!({"file_name": "a"}))), "None");
    let malformed = Action::Malformed { text: "{".into(), error: "not a call".into() };
    assert_eq!(act(malformed), "not a call");
    assert!(
        act("There is no function for it.".into()).starts_with("More functions:\n{\"type\":\"function\"")
    );
    assert_eq!(act(Action::from("mkdir({\"dir_name\": \"b\"})")), "None");
    act("Done.".into());
    let unknown = act(call(&"x".repeat(1000), serde_json::Value::Null));
    assert_eq!(unknown, format!("Error during execution: name '{}' is not defined", "x".repeat(60)));
    assert!(act(call("ls", serde_json::json!([1]))).contains("must be a JSON object"));
    assert!(act(call("ls", serde_json::Value::Null)).contains("[\"a\", \"b\"]"));
    assert!(environment.step(&"Done.".into()).unwrap().success);
}
