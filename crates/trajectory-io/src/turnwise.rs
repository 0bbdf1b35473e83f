//! Turnwise's own dumps, and lines that a person writes by hand.
//!
//! A dump of a run is one [`turnwise_core::Trajectory`] a line. By hand this is enough:
//!
//! ```json
//! {"group": "a", "turns": [{"observation": "s0", "action": "open", "reward": 0, "entropy": 0.7}]}
//! ```
//!
//! | key | meaning |
//! |---|---|
//! | `group` | which trajectories are compared with each other: a string or a number |
//! | `turns[].reward` | the environment's reward |
//! | `turns[].shaped_reward` | what a run made of it (scale, KL, penalty on length), which credit is then assigned from |
//! | `turns[].observation`, `action` | what was seen and what was done, as texts |
//! | `turns[].state_key` | the name of the state that methods compare turns by; the observation if not said |
//! | `turns[].valid` | whether the action was well-formed; `true` if not said |
//! | `turns[].entropy` | mean entropy of the response's tokens, in nats; or `entropies`, one a token |
//! | `turns[].progress` | the environment's progress signal after the turn |
//! | `turns[].values` | the critic's values, one a response token, or one number for the whole turn |
//! | `turns[].credit` | the turn's credit from an outside decomposer |
//! | `task` | what was to be done: a text, or `{"id", "kind", "goal"}` |
//! | `sample`, `step`, `success`, `final_observation`, `final_state_key` | as in a run's dump |
//!
//! A key that is not known is an error in a line written by hand, because a misspelt `valid` would
//! change the numbers silently; a run's line (it has `schema_version`) may have more keys.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use turnwise_core::{SCHEMA_VERSION, StopReason, Task, TokenSequence, Trajectory, Turn};

use crate::dump::{Record, TurnExtras};
use crate::{DumpError, lines};

#[derive(Deserialize)]
struct TrajectoryLine {
    schema_version: Option<u32>,
    group: Option<Value>,
    sample: Option<usize>,
    #[serde(default)]
    step: u64,
    task: Option<TaskLine>,
    success: Option<bool>,
    final_observation: Option<String>,
    final_state_key: Option<String>,
    stop: Option<StopReason>,
    turns: Vec<TurnLine>,
    /// Only a run writes them: what a policy's hidden states are made from.
    #[serde(default)]
    sequences: Vec<TokenSequence>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TaskLine {
    Goal(String),
    Whole(Task),
}

#[derive(Deserialize)]
struct TurnLine {
    observation: Option<String>,
    state_key: Option<String>,
    action: Option<String>,
    reward: Option<f64>,
    shaped_reward: Option<f64>,
    valid: Option<bool>,
    entropy: Option<f64>,
    #[serde(default)]
    entropies: Vec<f32>,
    progress: Option<f64>,
    #[serde(default)]
    response_ids: Vec<u32>,
    values: Option<Values>,
    credit: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    Turn(f64),
    Tokens(Vec<f64>),
}

const LINE_KEYS: [&str; 9] =
    ["group", "sample", "step", "task", "success", "final_observation", "final_state_key", "stop", "turns"];
const TURN_KEYS: [&str; 12] = [
    "observation",
    "state_key",
    "action",
    "reward",
    "shaped_reward",
    "valid",
    "entropy",
    "entropies",
    "progress",
    "response_ids",
    "values",
    "credit",
];

pub(crate) fn records(path: &Path) -> Result<Vec<Record>, DumpError> {
    let mut records = Vec::new();
    lines::each(path, |line, text| {
        let read: TrajectoryLine = lines::parse(path, line, text)?;
        if read.schema_version.is_none() {
            check_keys(path, line, &lines::parse(path, line, text)?)?;
        }
        records.push(record(path, line, read)?);
        Ok(true)
    })?;
    Ok(records)
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
    let mut turns = Vec::with_capacity(read.turns.len());
    let mut extras = Vec::with_capacity(read.turns.len());
    for (index, turn) in read.turns.into_iter().enumerate() {
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
        // One value for the turn: the turn is one step of the recursion.
        Some(Values::Turn(value)) => {
            response_ids.truncate(1);
            response_ids.resize(1, 0);
            Some(vec![value])
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
        values,
        credit: read.credit,
    };
    let turn = Turn {
        observation: read.observation.unwrap_or_default(),
        state_key: read.state_key,
        action: read.action.unwrap_or_default(),
        valid: read.valid.unwrap_or(true),
        reward,
        shaped_reward: read.shaped_reward,
        progress: read.progress,
        response_ids,
        entropies,
        ..Turn::default()
    };
    Ok((turn, extras))
}

/// Refuses keys that are not known.
fn check_keys(path: &Path, line: usize, read: &Value) -> Result<(), DumpError> {
    let unknown = |value: &Value, known: &[&str]| -> Option<String> {
        value.as_object()?.keys().find(|key| !known.contains(&key.as_str())).cloned()
    };
    let refuse = |place: String, key: &str, known: &[&str]| {
        let reason = format!("{place}unknown key `{key}`; known are {}", known.join(", "));
        Err(DumpError::line(path, line, reason))
    };
    if let Some(key) = unknown(read, &LINE_KEYS) {
        return refuse(String::new(), &key, &LINE_KEYS);
    }
    for (index, turn) in read["turns"].as_array().into_iter().flatten().enumerate() {
        if let Some(key) = unknown(turn, &TURN_KEYS) {
            return refuse(format!("turn {index}: "), &key, &TURN_KEYS);
        }
    }
    Ok(())
}
