//! Tests of tools, exceptions and text-only resets.

use turnwise_core::{Action, PendingStep, Task, TaskSet as _, Tool, ToolCall};

use super::tests::{config, has_python, seed};
use super::{ProcessConfig, ProcessSet};

const HELLO: &str = r#"read l; echo '{"id":0,"ok":{"protocol":1,"name":"shell","splits":["train"],"tools":[{"name":"add","parameters":{"type":"object","b":1,"a":2}}]}}';"#;
const TASKS: &str = r#"read l; echo '{"id":1,"ok":{"tasks":[{"id":"a","goal":"win"}]}}';"#;

fn names(tools: &[Tool]) -> Vec<&str> {
    tools.iter().map(Tool::name).collect()
}

#[test]
fn tools_of_hello_are_those_of_every_episode_without_its_own() {
    let script = format!(
        r#"{HELLO}{TASKS} read l; echo '{{"id":2,"ok":{{"observation":"start"}}}}';
        read l; read l; echo '{{"id":4,"ok":{{"observation":"start","tools":[{{"type":"function","function":{{"name":"f"}}}},{{"name":"g"}}]}}}}';
        read l; read l; echo '{{"id":6,"ok":{{"observation":"start","tools":[]}}}}'; read l"#
    );
    let set = ProcessSet::open(&config(&script), 0).unwrap();
    let task = Task::new("a", "task", "win");
    let mut environment = set.environment().unwrap();
    assert_eq!(names(environment.tools()), [""; 0], "no episode, no tools");
    for expected in [&["add"][..], &["f", "g"], &[]] {
        environment.reset(&task, seed()).unwrap();
        assert_eq!(names(environment.tools()), expected);
        if expected == ["add"] {
            assert_eq!(
                environment.tools()[0].json(),
                r#"{"type":"function","function":{"name":"add","parameters":{"type":"object","b":1,"a":2}}}"#
            );
        }
    }
    let wrong = HELLO.replace(r#""name":"add","#, "");
    let error = ProcessSet::open(&config(&format!("{wrong} read l")), 0).unwrap_err().to_string();
    assert!(error.contains("missing field `name`"), "{error}");
}

#[test]
fn a_call_that_cannot_be_read_is_answered_without_the_program_and_costs_a_turn() {
    // The program answers one step; more would time out.
    let script = format!(
        r#"{HELLO}{TASKS} read l; echo '{{"id":2,"ok":{{"observation":"start"}}}}';
        read l; case "$l" in *'"call":{{"id":"call_1","name":"add","arguments":{{"n":1}}}}'*) ;; *) exit 3;; esac
        echo '{{"id":3,"ok":{{"observation":"1","reward":1}}}}'; read l"#
    );
    let set = ProcessSet::open(&config(&script), 3).unwrap();
    let mut environment = set.environment().unwrap();
    environment.reset(&Task::new("a", "task", "win"), seed()).unwrap();
    let malformed = Action::Malformed { text: "{".into(), error: "That is no call.".into() };
    let step = environment.step(&malformed).unwrap();
    assert_eq!(
        (step.observation.text().as_ref(), step.understood, step.truncated),
        ("That is no call.", false, false)
    );
    let call = ToolCall { id: "call_1".into(), name: "add".into(), arguments: serde_json::json!({"n": 1}) };
    assert_eq!(environment.step(&Action::Call(call)).unwrap().reward, 1.0);
    let mut pending = [PendingStep { environment: &mut *environment, action: &malformed }];
    let last = set.step_many(&mut pending).remove(0).unwrap();
    assert!(last.truncated && last.observation.text() == "That is no call.");
}

/// An environment with a tool; the task's `goal` selects the fault.
const WORLD: &str = r#"import sys
sys.path.insert(0, sys.argv[1])
from turnwise_env import serve

def divide(by):
    return 1 / by

class World:
    def reset(self, *, seed=None, options=None):
        self.goal = options["task"]["goal"]
        if self.goal == "own tools":
            return "start", {"tools": [{"name": "own"}]}
        return "start"
    def step(self, action):
        if self.goal == "short":
            return "on", 0.0
        if self.goal == "divide":
            try:
                divide(0)
            except ZeroDivisionError as error:
                raise RuntimeError("cannot go on") from error
        return f"{action['name']} {action['arguments']}", 1.0, True, False, {}

goals = ["plain", "own tools", "short", "divide"]
serve(World, tasks={"train": [{"id": goal, "goal": goal} for goal in goals]}, tools=[{"name": "add", "parameters": {"type": "object"}}])
"#;

#[test]
fn the_python_helper_passes_tools_on_and_says_where_an_exception_was_raised() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let world = folder.path().join("world.py");
    std::fs::write(&world, WORLD).unwrap();
    let helper = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python_environment");
    let command = ["python3", world.to_str().unwrap(), helper.to_str().unwrap()].map(str::to_owned).to_vec();
    let set = ProcessSet::open(&ProcessConfig { command, ..ProcessConfig::default() }, 4).unwrap();
    let tasks = set.tasks("train").unwrap();
    let call = ToolCall { id: "call_0".into(), name: "add".into(), arguments: serde_json::json!({"n": 1}) };
    let play = |index: usize| {
        let mut environment = set.environment().unwrap();
        let seen = environment.reset(&tasks[index], seed()).unwrap();
        assert_eq!(seen.text(), "start");
        let tools = environment.tools().iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>();
        (tools, environment.step(&Action::Call(call.clone())).map_err(|error| error.to_string()))
    };
    let (tools, step) = play(0);
    let step = step.unwrap();
    assert_eq!((tools, step.observation.text().as_ref()), (vec!["add".to_owned()], "add {'n': 1}"));
    assert_eq!(play(1).0, ["own"]);
    let error = play(2).1.unwrap_err();
    assert!(
        error.contains("step must return observation, reward, terminated, truncated and info"),
        "{error}"
    );
    let error = play(3).1.unwrap_err();
    let line = |text: &str| 1 + WORLD.lines().position(|line| line.contains(text)).unwrap();
    let place = format!("RuntimeError: cannot go on ({}, line {}, in step)", world.display(), line("raise"));
    assert!(error.contains(&place), "{error}");
    for expected in
        [format!("line {}, in divide", line("1 / by")), "ZeroDivisionError".into(), "direct cause".into()]
    {
        assert!(error.contains(&expected), "{expected}: {error}");
    }
    assert!(!error.contains("turnwise_env.py"), "frames of the helper help nobody: {error}");
}
