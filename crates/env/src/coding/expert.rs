//! An expert that knows the fix: it views, edits, runs the tests and submits.

use serde_json::json;
use turnwise_core::{Action, EnvError, Observation, Purpose, Rng, Seed, Task, ToolCall};

use super::environment::CodingEnv;
use super::set::CodingTasks;
use super::task::CodingTask;
use super::world::CodingExpert;
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::Advisor;

fn call(name: &str, arguments: serde_json::Value) -> String {
    Action::Call(ToolCall { id: String::new(), name: name.to_owned(), arguments }).text().into_owned()
}

fn submit() -> String {
    call("submit", json!({}))
}

fn calls(task: &CodingTask, expert: CodingExpert) -> Vec<String> {
    let Some((first, last, new)) = task.known_edit() else { return Vec::new() };
    let path = task.path();
    let mut calls = Vec::new();
    if expert.look {
        calls.push(call("view", json!({ "path": path })));
    }
    let arguments = match old_text(task, first, last, &new) {
        Some((old, new)) => json!({"path": path, "old": old, "new": new}),
        None => json!({"path": path, "first": first, "last": last, "new": new}),
    };
    calls.push(call("edit", arguments));
    if let Some(tests) = task.tests.as_ref().filter(|_| expert.run_tests) {
        calls.push(call("run", json!({ "command": tests })));
    }
    calls.push(submit());
    calls
}

fn old_text(task: &CodingTask, first: usize, last: usize, new: &str) -> Option<(String, String)> {
    let text = task.files.get(&task.path())?;
    let old = text.lines().nth(first.checked_sub(1)?)?.trim();
    let new = new.trim_end_matches('\n');
    let one = first == last && !old.is_empty() && !new.contains('\n') && text.matches(old).count() == 1;
    one.then(|| (old.to_owned(), new.trim().to_owned()))
}

pub(super) struct Adviser {
    calls: std::vec::IntoIter<String>,
}

impl Adviser {
    pub(super) fn new(task: &CodingTask, expert: CodingExpert) -> Option<Self> {
        let calls = calls(task, expert);
        (!calls.is_empty()).then(|| Self { calls: calls.into_iter() })
    }
}

impl Advisor for Adviser {
    fn advise(&mut self, _: &Observation) -> String {
        self.calls.next().unwrap_or_else(submit)
    }
}

pub(super) fn demonstrate(
    set: &CodingTasks,
    request: &DemonstrationRequest<'_>,
    expert: CodingExpert,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, expert, &mut seed.rng())
    })
}

fn play(
    set: &CodingTasks,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    expert: CodingExpert,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let known = calls(set.task(&task.id)?, expert);
    if known.is_empty() {
        return Ok(None);
    }
    let mut plan = known.into_iter();
    let mistake = || call("view", json!({"path": "no_such_file.py"}));
    let act = |_: &CodingEnv, _: &Observation| {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if imitate { plan.next().unwrap_or_else(submit) } else { mistake() };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    play_episode(&mut set.coding(), task, seed, request, act, |step| step.success)
}
