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
//! | `turns[].agent` | the agent whose request the turn answered, an object of a run |
//! | `turns[].progress` | the environment's progress signal after the turn |
//! | `turns[].state_value` | the mean return of continuations from the state before the turn |
//! | `turns[].values` | the critic's values, one a response token, or one number for the whole turn |
//! | `turns[].credit` | the turn's credit from an outside decomposer |
//! | `turns[].calls`, `parts` | calls of tools, and the messages and results that an observation has, as a run writes them |
//! | `task`, `tools` | what was to be done (a text, or `{"id", "kind", "goal"}`), and the tools that could be called |
//! | `sample`, `step`, `success`, `final_observation`, `final_state_key` | as in a run's dump |
//!
//! A key whose value is null counts as absent.
//!
//! Trajectories of a run's dump that it did not train on are left out, and a note states how many: those
//! that failed through no fault of the policy (`stop` says so), and those without advantages in a step
//! whose others have them, which were in no group that was compared.
//!
//! A key that is not known is an error in a line written by hand, because a misspelt `valid` would
//! change the numbers silently; a run's line (it has `schema_version`) may have more keys. `turns[].response` (the
//! response as text) and `turns[].old_logprobs` may be there and no method reads them.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use turnwise_core::{
    AgentTurn, Part, SCHEMA_VERSION, StopReason, Task, TokenSequence, Tool, ToolCall, Trajectory, Turn,
};

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
    /// Only a run writes them: what a policy's hidden states are made from.
    #[serde(default, deserialize_with = "or_default")]
    sequences: Vec<TokenSequence>,
    /// Only a run writes them, and none for what it did not train on.
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

/// Returns a value, or what stands for none if it is null.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Log-probs, in which null stands for a number that was not finite.
fn logprobs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let read: Option<Vec<Option<f32>>> = Option::deserialize(deserializer)?;
    Ok(read.unwrap_or_default().into_iter().map(|number| number.unwrap_or(f32::NAN)).collect())
}

/// Keys that only a run writes.
const RUN_KEYS: [(&str, Kind); 2] = [("schema_version", Kind::Count), ("sequences", Kind::Sequences)];
const LINE_KEYS: [(&str, Kind); 10] = [
    ("group", Kind::Name),
    ("sample", Kind::Count),
    ("step", Kind::Count),
    ("task", Kind::Task),
    ("success", Kind::Flag),
    ("final_observation", Kind::Text),
    ("final_state_key", Kind::Text),
    ("stop", Kind::Stop),
    ("tools", Kind::Tools),
    ("turns", Kind::List),
];
const TURN_KEYS: [(&str, Kind); 18] = [
    ("observation", Kind::Text),
    ("state_key", Kind::Text),
    ("action", Kind::Text),
    ("reward", Kind::Number),
    ("shaped_reward", Kind::Number),
    ("valid", Kind::Flag),
    ("entropy", Kind::Number),
    ("entropies", Kind::Numbers),
    ("progress", Kind::Number),
    ("state_value", Kind::Number),
    ("response_ids", Kind::Ids),
    ("values", Kind::Values),
    ("credit", Kind::Number),
    ("parts", Kind::Parts),
    ("calls", Kind::Calls),
    ("response", Kind::Text),
    ("old_logprobs", Kind::Logprobs),
    ("agent", Kind::Agent),
];

/// Kind of value that a key has.
#[derive(Clone, Copy)]
enum Kind {
    Name,
    Text,
    Flag,
    Count,
    Number,
    Numbers,
    /// Numbers; one that was not finite is null.
    Logprobs,
    /// A number or some.
    Values,
    /// Ids of tokens.
    Ids,
    List,
    Task,
    Stop,
    Sequences,
    Tools,
    Parts,
    Calls,
    /// What a run keeps of an agent's request.
    Agent,
}

impl Kind {
    /// Returns true if a value is of this kind; an absent one may be written as null.
    fn fits(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            Self::Name => value.is_string() || value.is_number(),
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Count => value.is_u64(),
            Self::Number => value.is_number(),
            Self::Numbers => value.as_array().is_some_and(|items| items.iter().all(Value::is_number)),
            Self::Logprobs => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| item.is_null() || item.is_number())),
            Self::Values => value.is_number() || Self::Numbers.fits(value),
            Self::Ids => Vec::<u32>::deserialize(value).is_ok(),
            Self::List => value.is_array(),
            Self::Task => TaskLine::deserialize(value).is_ok(),
            Self::Stop => StopReason::deserialize(value).is_ok(),
            Self::Sequences => Vec::<TokenSequence>::deserialize(value).is_ok(),
            // A tool is JSON text, which a value does not have.
            Self::Tools => serde_json::from_str::<Vec<Tool>>(&value.to_string()).is_ok(),
            Self::Parts => Vec::<Part>::deserialize(value).is_ok(),
            Self::Calls => Vec::<ToolCall>::deserialize(value).is_ok(),
            Self::Agent => AgentTurn::deserialize(value).is_ok(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Name => "a text or a number",
            Self::Text => "a text",
            Self::Flag => "true or false",
            Self::Count => "a whole number from 0",
            Self::Number => "a number",
            Self::Numbers | Self::Logprobs => "a list of numbers",
            Self::Values => "a number or a list of numbers",
            Self::Ids => "a list of whole numbers from 0",
            Self::List => "a list",
            Self::Task => "a text, or an object with the texts `id`, `kind` and `goal`",
            Self::Stop => {
                "an object: {\"kind\": \"terminated\"}, or max_turns, context_overflow, and with a text as `detail` \
                 environment_error or sample_error"
            }
            Self::Sequences => "a list of sequences as a run writes them",
            Self::Tools => "a list of tools: objects with `name` and `parameters`",
            Self::Parts => "a list of parts of an observation as a run writes them",
            Self::Calls => "a list of calls: objects with `id`, `name` and `arguments`",
            Self::Agent => "an object as a run writes it, with the number of `messages`",
        }
    }
}

/// Trajectories, or conversations with `messages`, that are in memory instead of lines of a file; `name` stands for the
/// file in errors, and the line counts from 1. All of them are kept.
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
/// Names the line and what is wrong with it.
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
        // A tool is JSON text, which a value does not have.
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
        return Err(DumpError::file(path, "there is no trajectory in it"));
    }
    let dump = Dump { path: path.to_owned(), format: Format::Turnwise, batches, notes: Vec::new() };
    dump.require_rewards()?;
    Ok(dump)
}

pub(crate) fn records(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Record>, DumpError> {
    let mut records = Vec::new();
    // Per record, whether the line has advantages.
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

/// Returns the trajectories that were compared with others: none that failed through no fault of the
/// policy, and in a step where some were trained on (`trained`, by record) only these.
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

/// Returns true if the value that these keys lead to is looked at.
fn is_used(keys: &[&str]) -> bool {
    let known = |known: &[(&str, Kind)], key: &str| known.iter().any(|(name, _)| *name == key);
    match keys {
        ["turns", key] => known(&TURN_KEYS, key),
        [key, ..] => *key != "turns" && (known(&LINE_KEYS, key) || known(&RUN_KEYS, key)),
        [] => false,
    }
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
        // One value for the turn: the turn is one step of the recursion.
        Some(Values::Turn(value)) => {
            response_ids.truncate(1);
            response_ids.resize(1, 0);
            Some(vec![value])
        }
        // The turn's reward stands at its last token, and there would be none.
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

/// Rejects values of a wrong kind and, in a line written by hand, keys that are not known.
fn check_keys(path: &Path, line: usize, read: &Value) -> Result<(), DumpError> {
    let by_hand = read.get("schema_version").is_none_or(Value::is_null);
    let check = |place: &str, value: &Value, keys: &[(&str, Kind)]| {
        let Some(map) = value.as_object() else {
            let reason = format!("{place}is no object with the keys {}", names(keys));
            return Err(DumpError::line(path, line, reason));
        };
        for (key, value) in map {
            match keys.iter().find(|(name, _)| name == key) {
                Some((_, kind)) if kind.fits(value) => {}
                Some((_, kind)) => {
                    let (value, kind) = (shortened(value), kind.name());
                    let reason = format!("{place}`{key}` is {value}; it must be {kind}");
                    return Err(DumpError::line(path, line, reason));
                }
                // By hand it can only be null here.
                None if by_hand && !(place.is_empty() && key == "schema_version") => {
                    let reason = format!("{place}unknown key `{key}`; known are {}", names(keys));
                    return Err(DumpError::line(path, line, reason));
                }
                None => {}
            }
        }
        Ok(())
    };
    if by_hand {
        check("", read, &LINE_KEYS)?;
    } else {
        check("", read, &[&LINE_KEYS[..], &RUN_KEYS].concat())?;
    }
    for (index, turn) in read["turns"].as_array().into_iter().flatten().enumerate() {
        check(&format!("turn {index}: "), turn, &TURN_KEYS)?;
    }
    Ok(())
}

fn names(keys: &[(&str, Kind)]) -> String {
    keys.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Returns a value as text of at most 40 characters.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        return text;
    }
    text.chars().take(39).chain(['\u{2026}']).collect()
}

#[cfg(test)]
mod tests;
