//! Tests of MCP tools: a double over HTTP, and shell scripts over stdin and stdout.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwise_core::{Action, EnvError, Environment, Step, TaskSet as _, Tool, ToolCall};
use turnwise_env::demonstration::DemonstrationRequest;
use turnwise_env::world::World as _;
use turnwise_remote::environments::mcp::{McpConfig, McpSet};

use crate::mcp_double::Double;
use crate::serving::nowhere;
use crate::{seed, until};

/// Tasks: an answer, a pattern, a judge of the state after a call of the task's own, and a judge that gives words.
const LINES: &str = r#"
{"id":"answer","instruction":"what is 3 + 4?","answer":[7,"seven"]}
{"id":"pattern","instruction":"say yes","answer":"(?i)yes","match":"regex"}
{"id":"state","instruction":"bring it to 5","setup":[{"tool":"add","arguments":{"n":2}}],"verify":{"tool":"is","arguments":{"n":5}},"demonstration":[{"name":"add","arguments":{"n":3}},"answer({\"answer\":\"\"})"]}
{"id":"given","instruction":"name the total","verify":{"tool":"is","answer_argument":"said","arguments":{"n":0}}}
{"id":"short","instruction":"bring it to 1","verify":{"tool":"is","arguments":{"n":1}},"limits":{"turns":1},"demonstration":[{"name":"add","arguments":{"n":2}},{"name":"add","arguments":{"n":-1}}]}
{"id":"words","instruction":"-","verify":{"tool":"words"}}
{"id":"lost","instruction":"-","answer":"x","setup":[{"tool":"fail"}]}
"#;

fn tasks(folder: &Path) -> BTreeMap<String, std::path::PathBuf> {
    let path = folder.join("train.jsonl");
    std::fs::write(&path, LINES).unwrap();
    BTreeMap::from([("train".to_owned(), path)])
}

fn config(url: &str, folder: &TempDir) -> McpConfig {
    McpConfig {
        urls: vec![url.to_owned()],
        sessions: 2,
        tools: ["add", "total", "fail", "refuse", "break", "garble", "huge", "slow", "gone"]
            .map(str::to_owned)
            .to_vec(),
        tasks: tasks(folder.path()),
        timeout_s: 1.0,
        max_message_bytes: 20_000,
        ..McpConfig::default()
    }
}

fn begin(set: &McpSet, id: &str) -> Box<dyn Environment> {
    let tasks = set.tasks("train").unwrap();
    let mut environment = set.environment().unwrap();
    environment.reset(tasks.iter().find(|task| task.id == id).unwrap(), seed()).unwrap();
    environment
}

fn call(environment: &mut Box<dyn Environment>, name: &str, arguments: Value) -> Result<Step, EnvError> {
    environment.step(&Action::Call(ToolCall { id: "c".into(), name: name.into(), arguments }))
}

fn answer(environment: &mut Box<dyn Environment>, answer: &str) -> Step {
    call(environment, "answer", json!({"answer": answer})).unwrap()
}

#[test]
fn answers_are_rewarded() {
    let (server, double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let set = McpSet::open(&config(&server.url, &folder), 0).unwrap();
    for (id, given, reward) in
        [("answer", "7", 1.0), ("answer", "8", 0.0), ("pattern", "Yes", 1.0), ("pattern", "yes, no", 0.0)]
    {
        let mut environment = begin(&set, id);
        let step = answer(&mut environment, given);
        assert_eq!(
            (step.reward, step.success, step.terminated),
            (reward, reward == 1.0, true),
            "{id} {given}"
        );
    }
    until(|| double.open() == 0 && set.free_episodes() == Some(2));
}

#[test]
fn a_tool_judges_the_state_of_the_session() {
    let (server, double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let set = McpSet::open(&config(&server.url, &folder), 0).unwrap();
    let mut environment = begin(&set, "state");
    // Another session has a counter of its own.
    let mut other = begin(&set, "state");
    let added = call(&mut environment, "add", json!({"n": 3})).unwrap();
    assert_eq!(
        (added.observation.text().as_ref(), added.reward, added.terminated, added.understood),
        ("5", 0.0, false, true)
    );
    let judged = answer(&mut environment, "");
    assert_eq!((judged.reward, judged.success), (1.0, true));
    let judged = answer(&mut other, "");
    assert_eq!((judged.reward, judged.success, judged.terminated), (0.0, false, true));
    drop((environment, other));
    answer(&mut begin(&set, "given"), "zero");
    assert_eq!(
        double.calls.lock().unwrap().last().unwrap(),
        &("is".to_owned(), json!({"n": 0, "said": "zero"}))
    );
    // The state is judged at the end of the turns, too.
    let mut short = begin(&set, "short");
    let last = call(&mut short, "add", json!({"n": 1})).unwrap();
    assert_eq!((last.reward, last.success, last.truncated, last.terminated), (1.0, true, true, false));
}

#[test]
fn what_the_policy_does_wrong_is_an_observation() {
    let (server, double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let set = McpSet::open(&config(&server.url, &folder), 0).unwrap();
    let mut environment = begin(&set, "answer");
    for (name, arguments, expected) in [
        ("fail", json!({}), "it is empty"),
        ("refuse", json!({}), "n must be even"),
        ("add", json!({"n": "x"}), "`n` must be of type integer"),
        ("is", json!({"n": 5}), "there is no tool `is`"),
    ] {
        let step = call(&mut environment, name, arguments).unwrap();
        let text = step.observation.text().into_owned();
        assert!(text.contains(expected) && !step.understood && !step.terminated, "{name}: {text}");
    }
    let step = environment.step(&Action::from("I do not know")).unwrap();
    assert!(step.observation.text().contains("no JSON object with `name`") && !step.understood);
    // What is no call of a tool of the policy's was never sent.
    let calls: Vec<String> = double.calls.lock().unwrap().iter().map(|(tool, _)| tool.clone()).collect();
    assert_eq!(calls, ["fail", "refuse"]);
    assert_eq!(call(&mut environment, "add", json!({"n": 1})).unwrap().observation.text(), "1");
}

#[test]
fn a_server_that_fails_is_an_error_of_the_environment() {
    let (server, _double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let set = McpSet::open(&config(&server.url, &folder), 0).unwrap();
    for (tool, expected) in [
        ("break", "error -32603: out of memory"),
        ("garble", "env.urls[0]: "),
        ("huge", "env.urls[0]: "),
        ("slow", "no answer within 1 s"),
        ("gone", "env.urls[0]: "),
    ] {
        let mut environment = begin(&set, "answer");
        let error = call(&mut environment, tool, json!({})).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected) && !error.is_transient(), "{tool}: {text}");
        assert!(!text.contains("127.0.0.1"), "{text}");
    }
    // A judge without a number is no reward of 0.
    let mut environment = begin(&set, "words");
    let error = call(&mut environment, "answer", json!({"answer": ""})).unwrap_err().to_string();
    assert!(error.contains("gives no number: very good"), "{error}");
    let tasks = set.tasks("train").unwrap();
    let lost = tasks.iter().find(|task| task.id == "lost").unwrap();
    let error = set.environment().unwrap().reset(lost, seed()).unwrap_err();
    assert!(
        error.to_string().contains("`setup` of the task: `fail` failed: it is empty")
            && !error.is_transient()
    );
}

#[test]
fn episodes_declare_the_tools() {
    let (server, _double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let everything = McpConfig { tools: Vec::new(), ..config(&server.url, &folder) };
    let set = McpSet::open(&everything, 0).unwrap();
    let mut environment = set.environment().unwrap();
    let seen = environment.reset(&set.tasks("train").unwrap()[0], seed()).unwrap().into_text();
    assert_eq!(seen, "", "prompts list the tools");
    // `is` and `words` judge tasks.
    let names: Vec<&str> = environment.tools().iter().map(Tool::name).collect();
    assert_eq!(
        names,
        ["add", "total", "fail", "refuse", "break", "garble", "huge", "slow", "gone", "answer"]
    );
    let first: Value = serde_json::from_str(environment.tools()[0].json()).unwrap();
    assert_eq!(first["function"]["parameters"]["required"], json!(["n"]));
    let malformed = Action::Malformed { text: "{".into(), error: "No call: not JSON.".into() };
    let step = environment.step(&malformed).unwrap();
    assert_eq!((step.observation.text().as_ref(), step.understood), ("No call: not JSON.", false));
}

#[test]
fn actions_of_a_line_are_demonstrations() {
    let (server, _double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let set = McpSet::open(&config(&server.url, &folder), 0).unwrap();
    let request = DemonstrationRequest { count: 1, max_turns: 5, ..Default::default() };
    let found = set.demonstrations(&request).unwrap().unwrap();
    let actions: Vec<&str> = found.episodes[0].turns.iter().map(|turn| turn.action.as_str()).collect();
    assert_eq!(actions, ["add({\"n\":3})", "answer({\"answer\":\"\"})"]);
    // Two calls do not fit the one turn that the other task has: no rollout could play them.
    let both = DemonstrationRequest { count: 2, ..request };
    let found = set.demonstrations(&both).unwrap().unwrap();
    assert_eq!((found.episodes.len(), found.dropped), (1, 1));
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let (server, double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let good = config(&server.url, &folder);
    let refusal = |config: McpConfig| McpSet::open(&config, 0).unwrap_err().to_string();
    assert!(refusal(McpConfig::default()).contains("env.tasks: is empty"));
    let both = McpConfig { command: vec!["server".into()], ..good.clone() };
    assert!(refusal(both).contains("either a command such as"));
    let gone = nowhere();
    let error = refusal(McpConfig { urls: vec![server.url.clone(), gone.clone()], ..good.clone() });
    assert!(error.contains("env.urls[1]: ") && !error.contains(&gone[7..]), "{error}");
    let error = refusal(McpConfig { tools: vec!["sub".into()], ..good.clone() });
    assert!(error.contains("env.tools: the server has no tool `sub`"), "{error}");
    std::fs::write(
        folder.path().join("train.jsonl"),
        r#"{"id":"a","instruction":"i","verify":{"tool":"judge"}}"#,
    )
    .unwrap();
    let error = refusal(good);
    assert!(error.contains("a task names the tool `judge`"), "{error}");
    assert!(double.keys.lock().unwrap().iter().all(Option::is_none));
}

#[test]
fn a_key_goes_with_every_request_and_into_no_text() {
    let (server, double) = Double::start();
    let folder = tempfile::tempdir().unwrap();
    let key = std::env::var("CARGO_PKG_NAME").unwrap();
    let set =
        McpSet::open(&McpConfig { api_key_env: "CARGO_PKG_NAME".into(), ..config(&server.url, &folder) }, 0)
            .unwrap();
    let error = call(&mut begin(&set, "answer"), "gone", json!({})).unwrap_err().to_string();
    assert!(!error.contains(&key), "{error}");
    assert!(double.keys.lock().unwrap().iter().all(|sent| *sent == Some(format!("Bearer {key}"))));
}

fn program(script: &str, folder: &TempDir) -> McpConfig {
    McpConfig {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        tasks: {
            let path = folder.path().join("train.jsonl");
            std::fs::write(&path, r#"{"id":"a","instruction":"i","answer":"x"}"#).unwrap();
            BTreeMap::from([("train".to_owned(), path)])
        },
        start_timeout_s: 5.0,
        timeout_s: 5.0,
        ..McpConfig::default()
    }
}

/// Answers requests by their method, with the number that they carry.
const PROGRAM: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}}]}';;
    *'"die"'*) echo "no memory left" >&2; exit 3;;
    *'"tools/call"'*) result="{\"content\":[{\"type\":\"text\",\"text\":\"key: $CARGO_PKG_NAME, home: ${HOME:+known}\"}]}";;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;

#[test]
fn a_program_is_a_server_over_its_stdin_and_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let set = McpSet::open(&program(PROGRAM, &folder), 0).unwrap();
    let mut environment = begin(&set, "a");
    // It gets the variables of every program and no keys of this one.
    assert_eq!(call(&mut environment, "echo", json!({})).unwrap().observation.text(), "key: , home: known");
    assert!(answer(&mut environment, "x").success);
    let mut dying = begin(&set, "a");
    let error = call(&mut dying, "die", json!({})).unwrap_err();
    assert!(error.to_string().starts_with("env.command: ") && !error.is_transient(), "{error}");
    let named = McpConfig { environment: vec!["CARGO_PKG_NAME".into()], ..program(PROGRAM, &folder) };
    let set = McpSet::open(&named, 0).unwrap();
    let said = call(&mut begin(&set, "a"), "echo", json!({})).unwrap().observation.into_text();
    assert!(said.starts_with("key: turnwise-remote"), "{said}");
}

/// A server that goes on after its stdin is closed, and a child that has left its session.
#[cfg(target_os = "linux")]
#[test]
fn a_program_ends_with_its_episode_and_takes_its_children_along() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pids");
    let script = format!(
        "setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $! $$ >> {}; {PROGRAM}; while :; do sleep 1; done",
        path.display()
    );
    let set = McpSet::open(&program(&script, &folder), 0).unwrap();
    drop(begin(&set, "a"));
    let text = std::fs::read_to_string(&path).unwrap();
    let pids: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(pids.len(), 4, "the list of tools and the episode each start a server");
    let is_gone = |pid: &&str| {
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    until(|| pids.iter().all(is_gone));
}

#[test]
fn a_program_that_is_no_server_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |config: McpConfig| McpSet::open(&config, 0).unwrap_err().to_string();
    let absent = McpConfig { command: vec!["no-such-program".into()], ..program("", &folder) };
    assert!(refusal(absent).contains("env.command: cannot be started"));
    let error = refusal(program("echo 'no module named x' >&2; sleep 0.2; exit 7", &folder));
    assert!(error.contains("does not speak MCP") && error.contains("no module named x"), "{error}");
    let silent = McpConfig { start_timeout_s: 0.3, ..program("sleep 30", &folder) };
    assert!(refusal(silent).contains("no greeting within 0.3 s"));
}
