//! ATIF, Harbor's Agent Trajectory Interchange Format, versions 1.0 to 1.8. A trajectory is a whole
//! file (a trial's `agent/trajectory.json`), an item of a list, or a line.
//!
//! | ATIF | here |
//! |---|---|
//! | step with `source` `system` or `user` | message with that role |
//! | step with `source` `agent` | turn |
//! | `observation.results` of a step | results of the turn's calls (`source_call_id`), else user messages |
//! | `agent.tool_definitions` | tools |
//! | `metrics.completion_token_ids`, `metrics.logprobs` | token ids and log-probs |
//! | step with `is_copied_context`, or `llm_call_count` 0 | assistant message that is not a turn |
//!
//! ATIF has no rewards. Turnwise exports rewards in `extra` (`reward` or `turn_rewards`, `group`,
//! `task`, `sample`, `step`, `success`). A missing reward or group is read from the trial's
//! `result.json`; the group is the task's name. Sub-agents and continuations in other files are
//! skipped with a note.

use std::path::{Path, PathBuf};

use serde_json::Value;
use turnwise_core::Tool;

use super::fields::Fields;
use super::messages::{header, set_rewards};
use super::{ChatCall, ChatMessage, Conversation, documents};
use crate::{DumpError, lines};

#[derive(Default)]
struct LeftOut {
    subagents: usize,
    continued: usize,
}

struct Trial {
    task: Option<String>,
    reward: Option<f64>,
}

/// Returns the trajectories of a file or folder. For a folder, the `line` of a trajectory is its
/// number among the folder's trajectories, from 1.
pub(crate) fn conversations(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Conversation>, DumpError> {
    if !path.is_dir() {
        return of_file(path, notes);
    }
    let mut read = Vec::new();
    for trial in trials(path)? {
        for conversation in of_file(&trial, notes)? {
            read.push(Conversation { line: read.len() + 1, ..conversation });
        }
    }
    Ok(read)
}

fn of_file(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Conversation>, DumpError> {
    let mut left_out = LeftOut::default();
    let used = |keys: &[&str]| {
        matches!(keys, ["extra", ..] | ["steps", "metrics", "logprobs" | "completion_token_ids"])
    };
    let mut read = documents::parsed(path, used, |line, text| conversation(line, text, &mut left_out))?;
    if let (Some(trial), [only]) = (trial_of(path, notes)?, read.as_mut_slice()) {
        only.group = only.group.take().or(trial.task.map(Value::from));
        if only.rewards.is_none() {
            only.set_rewards(trial.reward, None).map_err(|reason| DumpError::file(path, reason))?;
        }
    }
    let LeftOut { subagents, continued } = left_out;
    if subagents > 0 {
        note(notes, "trajectories of sub-agents are left out");
    }
    if continued > 0 {
        note(notes, "trajectories that are continued in other files are read up to there");
    }
    Ok(read)
}

fn note(notes: &mut Vec<String>, text: &str) {
    if !notes.iter().any(|note| note == text) {
        notes.push(text.to_owned());
    }
}

/// Returns the files `TRIAL/agent/trajectory.json` in a folder, sorted.
pub(crate) fn trials(folder: &Path) -> Result<Vec<PathBuf>, DumpError> {
    let entries = std::fs::read_dir(folder).map_err(|error| DumpError::io(folder, error))?;
    let trajectory = |path: PathBuf| path.join("agent").join("trajectory.json");
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| trajectory(entry.path())).collect();
    found.push(trajectory(folder.to_owned()));
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

/// Returns true if the folder is or contains a Harbor trial.
pub fn is_harbor_job(folder: &Path) -> bool {
    folder.is_dir() && trials(folder).is_ok_and(|trials| !trials.is_empty())
}

/// Returns the task and reward that a trial's `result.json` contains.
fn trial_of(path: &Path, notes: &mut Vec<String>) -> Result<Option<Trial>, DumpError> {
    let folder = path.parent().filter(|folder| folder.ends_with("agent")).and_then(Path::parent);
    let Some(result) = folder.map(|folder| folder.join("result.json")).filter(|result| result.is_file())
    else {
        return Ok(None);
    };
    let Some((line, text)) = documents::first(&result)? else { return Ok(None) };
    let parsed = serde_json::from_str(&text);
    let value: Value = parsed.map_err(|error| DumpError::line(&result, line, lines::json_reason(&error)))?;
    let rewards = value["verifier_result"]["rewards"].as_object();
    let reward = match rewards.map(|rewards| rewards.iter().collect::<Vec<_>>()).as_deref() {
        None | Some([]) => None,
        Some([(_, only)]) => only.as_f64(),
        Some(several) => {
            if let Some((_, reward)) = several.iter().find(|(key, _)| *key == "reward") {
                reward.as_f64()
            } else {
                let keys: Vec<&str> = several.iter().map(|(key, _)| key.as_str()).collect();
                let words = format!("reward = {} (the trials name none `reward`)", keys.join(" + "));
                note(notes, &words);
                Some(several.iter().filter_map(|(_, value)| value.as_f64()).sum())
            }
        }
    };
    Ok(Some(Trial { task: value["task_name"].as_str().map(str::to_owned), reward }))
}

fn conversation(line: usize, text: &str, left_out: &mut LeftOut) -> Result<Conversation, String> {
    let fields = Fields::parse(text, "")?;
    let version =
        fields.text("schema_version")?.ok_or_else(|| fields.missing("schema_version", "\"ATIF-v1.8\""))?;
    let minor = version.strip_prefix("ATIF-v1.").and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor > 8) {
        return Err(format!("`schema_version` is {version:?}; this program reads ATIF-v1.0 to ATIF-v1.8"));
    }
    let Some(steps) = fields.objects("steps")? else {
        return Err(fields.missing("steps", "a list of steps"));
    };
    left_out.subagents += fields.list("subagent_trajectories")?.map_or(0, |list| list.len());
    left_out.continued += usize::from(fields.raw("continued_trajectory_ref").is_some());
    let extra = fields.object("extra")?;
    let mut conversation = match &extra {
        Some(extra) => header(extra)?,
        None => Conversation::default(),
    };
    conversation.line = line;
    if let Some(agent) = fields.object("agent")? {
        for (place, item) in agent.list("tool_definitions")?.into_iter().flatten() {
            let tool = Tool::from_json(item).map_err(|error| format!("`{place}`: {error}"))?;
            conversation.tools.push(tool);
        }
    }
    for step in &steps {
        add_step(&mut conversation, step)?;
    }
    match &extra {
        Some(extra) => set_rewards(&mut conversation, extra, None)?,
        None => conversation.set_rewards(None, None)?,
    }
    Ok(conversation)
}

fn add_step(conversation: &mut Conversation, step: &Fields<'_>) -> Result<(), String> {
    let source = step.text("source")?.ok_or_else(|| step.missing("source", "system, user or agent"))?;
    let role = match source.as_str() {
        "system" | "user" => source.as_str(),
        "agent" => "assistant",
        other => {
            return Err(format!("`{}` is {other:?}; it must be system, user or agent", step.path("source")));
        }
    };
    let mut message = ChatMessage::new(role, step.content("message")?);
    message.reasoning = step.text("reasoning_content")?.filter(|text| !text.is_empty());
    for call in step.objects("tool_calls")?.into_iter().flatten() {
        let needed = |key: &str| call.text(key)?.ok_or_else(|| call.missing(key, "a text"));
        message.calls.push(ChatCall {
            id: needed("tool_call_id")?,
            name: needed("function_name")?,
            arguments: super::arguments(call.raw("arguments")),
        });
    }
    if let Some(metrics) = step.object("metrics")? {
        message.ids = metrics.get("completion_token_ids", "a list of token ids")?.unwrap_or_default();
        message.logprobs = metrics.get("logprobs", "a list of numbers")?.unwrap_or_default();
    }
    let elsewhere =
        step.flag("is_copied_context")? == Some(true) || step.number("llm_call_count")? == Some(0.0);
    if elsewhere {
        message.sampled = false;
        message.trained = false;
    }
    conversation.messages.push(message);
    let Some(observation) = step.object("observation")? else { return Ok(()) };
    for result in observation.objects("results")?.into_iter().flatten() {
        let call_id = result.text("source_call_id")?;
        let role = if call_id.is_some() { "tool" } else { "user" };
        let text = result.content("content")?;
        conversation.messages.push(ChatMessage { call_id, ..ChatMessage::new(role, text) });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
