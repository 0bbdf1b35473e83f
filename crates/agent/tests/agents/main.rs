//! Tests of agents that are real programs; the test gives the replies.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail loudly, and says what it skips"
)]

mod failures;
mod fuzz_seeds;
mod methods;
mod model;
mod playing;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;

use turnwise_agent::world::{AgentConfig, AgentSet};
use turnwise_core::{
    Action, Conversation, EnvError, Environment, FinishReason, MessageCall, Observation, Purpose, Reply,
    Seed, Step, Task, TaskSet,
};

/// Python functions for the test programs, with only the standard library.
const LIBRARY: &str = r#"
import json, os, sys, time, threading, urllib.request, urllib.error
URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
TASK = json.loads(os.environ["TURNWISE_TASK"])

def post(path, body, **headers):
    headers = {"content-type": "application/json", "authorization": "Bearer " + KEY, **headers}
    data = json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {k.replace("_", "-"): v for k, v in headers.items()})
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}

def user(text):
    return {"role": "user", "content": text}

def ask(messages, model="m", **more):
    headers = {k: more.pop(k) for k in list(more) if k.startswith("x_")}
    return post("/chat/completions", {"model": model, "messages": messages, **more}, **headers)

def reply(messages, **more):
    return ask(messages, **more)["choices"][0]["message"]
"#;

/// Returns false without Python, and prints that the test is skipped.
fn has_python() -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("skipped: python3 is not in PATH");
    }
    found
}

fn open(folder: &Path, program: &str, config: AgentConfig) -> AgentSet {
    let path = folder.join("agent.py");
    std::fs::write(&path, format!("{LIBRARY}{program}")).unwrap();
    let tasks = folder.join("train.jsonl");
    std::fs::write(&tasks, "{\"id\": \"a\", \"goal\": \"do it\", \"number\": 7}\n").unwrap();
    let command = vec!["python3".to_owned(), path.display().to_string()];
    let tasks = BTreeMap::from([("train".to_owned(), tasks)]);
    AgentSet::open(&AgentConfig { command, tasks, ..config }, 4).unwrap()
}

/// An episode and its first observation.
fn begin(set: &AgentSet) -> Result<(Box<dyn Environment>, Observation), EnvError> {
    let task: Task = set.tasks("train")?.remove(0);
    let mut environment = set.environment()?;
    let seen = environment.reset(&task, Seed::derive(1, Purpose::Environment, &[]))?;
    Ok((environment, seen))
}

fn asked(seen: &Observation) -> &Conversation {
    seen.conversation.as_deref().unwrap()
}

fn reply(text: &str, calls: Vec<MessageCall>) -> Action {
    let content = text.to_owned();
    Action::Reply(Reply { content, calls, finish: FinishReason::Stop, prompt_tokens: 1, response_tokens: 1 })
}

fn say(environment: &mut dyn Environment, text: &str) -> Result<Step, EnvError> {
    environment.step(&reply(text, Vec::new()))
}
