//! An expert that knows the fix: views, edits, runs the tests and submits.

use serde_json::json;
use turnwise_core::EnvError;

use super::calls::{CallAdviser, call, play_calls, submit};
use super::set::CodingTasks;
use super::task::CodingTask;
use super::world::CodingExpert;
use crate::demonstration::{DemonstrationRequest, Demonstrations, play_all};

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

pub(super) fn adviser(task: &CodingTask, expert: CodingExpert) -> Option<CallAdviser> {
    CallAdviser::new(calls(task, expert))
}

pub(super) fn demonstrate(
    set: &CodingTasks,
    request: &DemonstrationRequest<'_>,
    expert: CodingExpert,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        let calls = calls(set.task(&task.id)?, expert);
        play_calls(&mut set.coding(), task, request, calls, &mut seed.rng())
    })
}
