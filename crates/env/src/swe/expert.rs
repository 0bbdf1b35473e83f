//! Expert that views the files, applies the known fix and submits.

use serde_json::json;
use turnwise_core::EnvError;

use super::instance::{SweFix, SweInstance};
use super::patch;
use super::set::SweTasks;
use crate::coding::calls::{CallAdviser, call, play_calls, submit};
use crate::demonstration::{DemonstrationRequest, Demonstrations, play_all};

const AROUND: usize = 10;

fn remove(path: &str) -> String {
    let quoted = path.replace('\'', "'\\''");
    call("run", json!({ "command": format!("rm -- '{quoted}'") }))
}

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
                        // From the end, so earlier line numbers stay valid.
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

pub(super) fn adviser(instance: &SweInstance) -> Option<CallAdviser> {
    CallAdviser::new(calls(instance))
}

pub(super) fn demonstrate(
    set: &SweTasks,
    request: &DemonstrationRequest<'_>,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        let calls = calls(set.instance(&task.id)?);
        play_calls(&mut set.swe(), task, request, calls, &mut seed.rng())
    })
}
