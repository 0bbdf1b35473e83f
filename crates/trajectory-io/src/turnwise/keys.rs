//! Keys of a line and the types of their values.

use std::path::Path;

use serde::Deserialize as _;
use serde_json::Value;
use turnwise_core::{AgentTurn, Part, StopReason, TokenSequence, Tool, ToolCall, TurnKind};

use super::TaskLine;
use crate::DumpError;
use crate::conversation::fields::shown;

pub(super) const RUN_KEYS: [(&str, Kind); 2] =
    [("schema_version", Kind::Count), ("sequences", Kind::Sequences)];
pub(super) const LINE_KEYS: [(&str, Kind); 10] = [
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
pub(super) const TURN_KEYS: [(&str, Kind); 19] = [
    ("kind", Kind::Turn),
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

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Name,
    Text,
    Flag,
    Count,
    Number,
    Numbers,
    /// Numbers, with null instead of non-finite values.
    Logprobs,
    /// A number or list of numbers.
    Values,
    Ids,
    List,
    Task,
    Stop,
    Sequences,
    Tools,
    Parts,
    Calls,
    Agent,
    Turn,
}

impl Kind {
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
            // `Tool` needs raw JSON text.
            Self::Tools => serde_json::from_str::<Vec<Tool>>(&value.to_string()).is_ok(),
            Self::Parts => Vec::<Part>::deserialize(value).is_ok(),
            Self::Calls => Vec::<ToolCall>::deserialize(value).is_ok(),
            Self::Agent => AgentTurn::deserialize(value).is_ok(),
            Self::Turn => TurnKind::deserialize(value).is_ok(),
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
            Self::Turn => "\"action\" or \"compaction\"",
        }
    }
}

pub(super) fn is_used(keys: &[&str]) -> bool {
    let known = |known: &[(&str, Kind)], key: &str| known.iter().any(|(name, _)| *name == key);
    match keys {
        ["turns", key] => known(&TURN_KEYS, key),
        [key, ..] => *key != "turns" && (known(&LINE_KEYS, key) || known(&RUN_KEYS, key)),
        [] => false,
    }
}

/// Rejects wrong types and, in hand-written lines, unknown keys.
pub(super) fn check_keys(path: &Path, line: usize, read: &Value) -> Result<(), DumpError> {
    let by_hand = read.get("schema_version").is_none_or(Value::is_null);
    let check = |place: &str, value: &Value, keys: &[(&str, Kind)]| {
        let Some(map) = value.as_object() else {
            let reason = format!("{place}is not an object with the keys {}", names(keys));
            return Err(DumpError::line(path, line, reason));
        };
        for (key, value) in map {
            match keys.iter().find(|(name, _)| name == key) {
                Some((_, kind)) if kind.fits(value) => {}
                Some((_, kind)) => {
                    let (value, kind) = (shown(&value.to_string()), kind.name());
                    let reason = format!("{place}`{key}` is {value}; it must be {kind}");
                    return Err(DumpError::line(path, line, reason));
                }
                // In a hand-written line it can only be null.
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
