//! Turnwise's own dumps, and hand-written lines.
//!
//! A run writes one [`turnwise_core::Trajectory`] per line. A hand-written line only needs these
//! keys:
//!
//! ```json
//! {"group": "a", "turns": [{"observation": "s0", "action": "open", "reward": 0, "entropy": 0.7}]}
//! ```
//!
//! | key | meaning |
//! |---|---|
//! | `group` | group of trajectories to compare (string or number) |
//! | `turns[].kind` | `"action"` (default), or `"compaction"`: a summary that replaces the previous turns |
//! | `turns[].reward` | the environment's reward |
//! | `turns[].shaped_reward` | reward for credit, after scale, KL and length penalty |
//! | `turns[].observation`, `action` | texts |
//! | `turns[].state_key` | state name for methods that compare states; default: the observation |
//! | `turns[].valid` | whether the action was well-formed (default `true`) |
//! | `turns[].entropy` | mean token entropy in nats; or `entropies`, one per token |
//! | `turns[].progress` | the environment's progress after the turn |
//! | `turns[].state_value` | mean return of continuations sampled from the state before the turn |
//! | `turns[].values` | critic values per response token, or one for the turn |
//! | `turns[].credit` | credit from an external decomposer |
//! | `turns[].agent`, `calls`, `parts` | requesting agent, tool calls, observation parts (written by runs) |
//! | `task`, `tools` | the task (a text, or `{"id", "kind", "goal"}`) and tools |
//! | `sample`, `step`, `success`, `final_observation`, `final_state_key` | as in a run's dump |
//!
//! Null values count as missing. `turns[].response` and `old_logprobs` are allowed, but no method
//! reads them. Other keys are errors in hand-written lines, because a misspelled `valid` would
//! silently change the result; lines with a `schema_version` may have more keys.
//!
//! Trajectories whose environment or sampler failed (`stop`) are skipped, with a note. If some
//! trajectories of a step have advantages, those without are skipped too, because the run did not
//! train on them.

mod keys;

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use turnwise_core::{
    AgentTurn, Part, SCHEMA_VERSION, StopReason, Task, TokenSequence, Tool, ToolCall, Trajectory, Turn,
    TurnKind,
};

use self::keys::{check_keys, is_used};
use crate::conversation::messages;
use crate::dump::{Dump, Record, TurnExtras, assemble};
use crate::{DumpError, Format, chat, lines};

#[derive(Deserialize)]
struct TrajectoryLine {
    schema_version: Option<u32>,
    group: Option<Value>,
    sample: Option<usize>,
    #[serde(default, deserialize_with = "or_default")]
    step: u64,
    task: Option<TaskLine>,
    success: Option<bool>,
    final_observation: Option<String>,
    final_state_key: Option<String>,
    stop: Option<StopReason>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<Tool>,
    turns: Option<Vec<TurnLine>>,
    /// Written by runs, to compute the policy's hidden states.
    #[serde(default, deserialize_with = "or_default")]
    sequences: Vec<TokenSequence>,
    /// Written by runs for trajectories that were trained on.
    advantages: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TaskLine {
    Goal(String),
    Whole(Task),
}

#[derive(Deserialize)]
struct TurnLine {
    #[serde(default, deserialize_with = "or_default")]
    kind: TurnKind,
    observation: Option<String>,
    state_key: Option<String>,
    action: Option<String>,
    reward: Option<f64>,
    shaped_reward: Option<f64>,
    valid: Option<bool>,
    entropy: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    entropies: Vec<f32>,
    progress: Option<f64>,
    state_value: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    response_ids: Vec<u32>,
    values: Option<Values>,
    credit: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    parts: Vec<Part>,
    #[serde(default, deserialize_with = "or_default")]
    calls: Vec<ToolCall>,
    #[serde(default, deserialize_with = "or_default")]
    response: String,
    #[serde(default, deserialize_with = "logprobs")]
    old_logprobs: Vec<f32>,
    agent: Option<AgentTurn>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    Turn(f64),
    Tokens(Vec<f64>),
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn logprobs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let read: Option<Vec<Option<f32>>> = Option::deserialize(deserializer)?;
    Ok(read.unwrap_or_default().into_iter().map(|number| number.unwrap_or(f32::NAN)).collect())
}

/// Reads trajectories, or conversations with `messages`, from memory. None are skipped. Errors show
/// `name` as the path and count lines from 1.
///
/// ```
/// use serde_json::json;
///
/// let turn = json!({"observation": "s0", "action": "open", "reward": 1.0});
/// let dump = turnwise_trajectory_io::from_values("batch", vec![json!({"group": "a", "turns": [turn]})])?;
/// assert_eq!(dump.batches[0].batch.groups[0].trajectories[0].outcome_return(), 1.0);
/// let wrong = vec![json!({"group": "a", "turns": [{"reward": "1"}]})];
/// let error = turnwise_trajectory_io::from_values("batch", wrong).unwrap_err().to_string();
/// assert_eq!(error, r#"batch: line 1: turn 0: `reward` is "1"; it must be a number"#);
/// # Ok::<(), turnwise_trajectory_io::DumpError>(())
/// ```
///
/// # Errors
/// The error names the line and problem.
pub fn from_values(name: &str, lines: Vec<Value>) -> Result<Dump, DumpError> {
    let path = Path::new(name);
    let mut records = Vec::with_capacity(lines.len());
    for (index, value) in lines.into_iter().enumerate() {
        let line = index + 1;
        let fail = |reason: String| DumpError::line(path, line, reason);
        if value.get("messages").is_some() {
            records.push(messages::conversation(line, &value.to_string()).map_err(fail)?.record());
            continue;
        }
        check_keys(path, line, &value)?;
        // `Tool` needs raw JSON text.
        let read = match value.get("tools") {
            None => TrajectoryLine::deserialize(value),
            Some(_) => serde_json::from_str(&value.to_string()),
        };
        let read = read.map_err(|error| fail(error.to_string()))?;
        records.push(record(path, line, read)?);
    }
    chat::name_groups(&mut records);
    let batches = assemble(records);
    if batches.is_empty() {
        return Err(DumpError::file(path, "has no trajectories"));
    }
    let dump = Dump { path: path.to_owned(), format: Format::Turnwise, batches, notes: Vec::new() };
    dump.require_rewards()?;
    Ok(dump)
}

pub(crate) fn records(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Record>, DumpError> {
    let mut records = Vec::new();
    let mut trained = Vec::new();
    lines::each(path, |line, text| {
        let read: Result<TrajectoryLine, DumpError> = lines::parse(path, line, text, is_used);
        if read.as_ref().map_or(true, |read| read.schema_version.is_none()) {
            check_keys(path, line, &lines::parse(path, line, text, is_used)?)?;
        }
        let read = read?;
        trained.push(read.advantages.is_some());
        records.push(record(path, line, read)?);
        Ok(true)
    })?;
    let count = records.len();
    let records = compared(records, &trained);
    match count - records.len() {
        0 => {}
        _ if records.is_empty() => {
            return Err(DumpError::file(
                path,
                "all of its trajectories failed in their environments or samplers",
            ));
        }
        1 => notes.push("1 trajectory is left out, which was in no group that was compared".into()),
        more => {
            notes.push(format!("{more} trajectories are left out, which were in no group that was compared"));
        }
    }
    Ok(records)
}

/// Drops failed trajectories. If a run trained on some trajectories of a step, also drops the
/// step's other trajectories.
fn compared(records: Vec<Record>, trained: &[bool]) -> Vec<Record> {
    let steps: BTreeSet<u64> =
        records.iter().zip(trained).filter(|(_, trained)| **trained).map(|(record, _)| record.step).collect();
    let kept = |record: &Record, trained: bool| {
        !record.trajectory.stop.is_failure() && (trained || !steps.contains(&record.step))
    };
    records
        .into_iter()
        .zip(trained)
        .filter(|(record, trained)| kept(record, **trained))
        .map(|(record, _)| record)
        .collect()
}

fn record(path: &Path, line: usize, read: TrajectoryLine) -> Result<Record, DumpError> {
    let fail = |reason: String| DumpError::line(path, line, reason);
    if let Some(version) = read.schema_version
        && !(1..=SCHEMA_VERSION).contains(&version)
    {
        return Err(fail(format!("schema_version is {version}; this program reads 1 to {SCHEMA_VERSION}")));
    }
    let group = match read.group {
        Some(group @ (Value::String(_) | Value::Number(_))) => group,
        Some(_) => return Err(fail("`group` must be a string or a number".into())),
        None => {
            let reason = "`group` is missing; it says which trajectories are compared with each other";
            return Err(fail(reason.into()));
        }
    };
    let task = match read.task {
        Some(TaskLine::Whole(task)) => task,
        Some(TaskLine::Goal(goal)) => Task::new("", "", goal),
        None => Task::default(),
    };
    let Some(lines) = read.turns else {
        return Err(fail("`turns` is missing; it lists what was seen, done and earned, turn by turn".into()));
    };
    let mut turns = Vec::with_capacity(lines.len());
    let mut extras = Vec::with_capacity(lines.len());
    for (index, turn) in lines.into_iter().enumerate() {
        let (turn, extra) = self::turn(turn).map_err(|reason| fail(format!("turn {index}: {reason}")))?;
        turns.push(turn);
        extras.push(extra);
    }
    Ok(Record {
        line,
        step: read.step,
        // `1` and `"1"` are different groups.
        key: group.to_string(),
        group,
        sample: read.sample,
        success: read.success,
        turns: extras,
        trajectory: Trajectory {
            step: read.step,
            final_observation: read.final_observation.unwrap_or_default(),
            final_state_key: read.final_state_key,
            stop: read.stop.unwrap_or(StopReason::Terminated),
            success: read.success.unwrap_or(false),
            sequences: read.sequences,
            tools: read.tools,
            ..Trajectory::new(task, turns)
        },
    })
}

fn turn(read: TurnLine) -> Result<(Turn, TurnExtras), String> {
    let Some(reward) = read.reward else {
        return Err("`reward` is missing; every method needs it (0 where there was none)".into());
    };
    let entropies = match (read.entropy, read.entropies) {
        (Some(mean), tokens) if tokens.is_empty() => vec![mean as f32],
        (Some(_), _) => return Err("both `entropy` and `entropies` are given; one of them is enough".into()),
        (None, tokens) => tokens,
    };
    let mut response_ids = read.response_ids;
    let values = match read.values {
        None => None,
        Some(Values::Turn(value)) => {
            response_ids.truncate(1);
            response_ids.resize(1, 0);
            Some(vec![value])
        }
        // The turn's reward needs a last token.
        Some(Values::Tokens(values)) if values.is_empty() => {
            let reason = "`values` is an empty list; give a number for each token of the response, one number for the whole turn, \
                          or leave the key out";
            return Err(reason.into());
        }
        Some(Values::Tokens(values)) => {
            if response_ids.is_empty() {
                response_ids.resize(values.len(), 0);
            }
            if response_ids.len() != values.len() {
                let (tokens, count) = (response_ids.len(), values.len());
                return Err(format!("`values` has {count} entries and `response_ids` {tokens}"));
            }
            Some(values)
        }
    };
    let extras = TurnExtras {
        has_observation: read.observation.is_some() || read.state_key.is_some(),
        has_action: read.action.is_some(),
        has_reward: true,
        values,
        credit: read.credit,
    };
    let turn = Turn {
        kind: read.kind,
        observation: read.observation.unwrap_or_default(),
        state_key: read.state_key,
        action: read.action.unwrap_or_default(),
        parts: read.parts,
        calls: read.calls,
        response: read.response,
        old_logprobs: read.old_logprobs,
        valid: read.valid.unwrap_or(true),
        reward,
        shaped_reward: read.shaped_reward,
        progress: read.progress,
        state_value: read.state_value,
        response_ids,
        entropies,
        agent: read.agent,
        ..Turn::default()
    };
    Ok((turn, extras))
}

#[cfg(test)]
mod tests;
