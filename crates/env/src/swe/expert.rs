//! An expert that knows the fix: it views, edits and submits.

use serde_json::{Value, json};
use turnwise_core::{Action, EnvError, Observation, Purpose, Seed, Task, ToolCall};

use super::instance::{SweFix, SweInstance};
use super::patch;
use super::set::SweTasks;
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::Advisor;

/// Lines that the expert views around an edit.
const AROUND: usize = 10;

fn call(name: &str, arguments: Value) -> String {
    Action::Call(ToolCall { id: String::new(), name: name.to_owned(), arguments }).text().into_owned()
}

fn remove(path: &str) -> String {
    let quoted = path.replace('\'', "'\\''");
    call("run", json!({ "command": format!("rm -- '{quoted}'") }))
}

/// Returns the expert's calls; empty without a known fix.
fn calls(instance: &SweInstance) -> Vec<String> {
    let mut calls = Vec::new();
    match &instance.fix {
        SweFix::None => {}
        SweFix::Files(files) => {
            for (path, text) in files {
                calls.push(match text {
                    Some(text) => call("edit", json!({"path": path, "new": text})),
                    None => remove(path),
                });
            }
        }
        SweFix::Patch(text) => {
            for file in patch::parse(text) {
                match (&file.old, &file.new) {
                    (Some(path), None) => calls.push(remove(path)),
                    (None, Some(path)) => {
                        let text: String = file.hunks.iter().map(|hunk| hunk.text.as_str()).collect();
                        calls.push(call("edit", json!({"path": path, "new": text})));
                    }
                    (_, Some(path)) => {
                        // From the end, so that earlier line numbers stay valid.
                        for hunk in file.hunks.iter().rev() {
                            let first = hunk.first.saturating_sub(AROUND).max(1);
                            calls.push(call(
                                "view",
                                json!({"path": path, "first": first, "last": hunk.last + AROUND}),
                            ));
                            let edit = json!({"path": path, "first": hunk.first, "last": hunk.last, "new": hunk.text});
                            calls.push(call("edit", edit));
                        }
                    }
                    (None, None) => {}
                }
            }
        }
    }
    if !calls.is_empty() {
        calls.push(submit());
    }
    calls
}

fn submit() -> String {
    call("submit", json!({}))
}

pub(super) struct Adviser {
    calls: std::vec::IntoIter<String>,
}

impl Adviser {
    pub(super) fn new(instance: &SweInstance) -> Option<Self> {
        let calls = calls(instance);
        (!calls.is_empty()).then(|| Self { calls: calls.into_iter() })
    }
}

impl Advisor for Adviser {
    fn advise(&mut self, _: &Observation) -> String {
        self.calls.next().unwrap_or_else(submit)
    }
}

pub(super) fn demonstrate(
    set: &SweTasks,
    request: &DemonstrationRequest<'_>,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        let mut rng = seed.rng();
        play(set, task, request, || rng.chance(request.invalid_action_prob))
    })
}

fn play(
    set: &SweTasks,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    mut wrong: impl FnMut() -> bool,
) -> Result<Option<Demonstration>, EnvError> {
    let mut plan = calls(set.instance(&task.id)?).into_iter();
    if plan.len() == 0 {
        return Ok(None);
    }
    let mistake = || call("view", json!({"path": "no_such_file.py"}));
    let act = |_: &super::SweEnv, _: &Observation| {
        let imitate = !wrong();
        let action = if imitate { plan.next().unwrap_or_else(submit) } else { mistake() };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    play_episode(&mut set.swe(), task, seed, request, act, |step| step.success)
}
