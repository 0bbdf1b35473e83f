//! Compares this engine with recorded episodes of the original.
//!
//! Recordings are JSON Lines with one object per episode:
//!
//! ```text
//! {"gamefile": PATH, "mode": TEXT, "engine": TEXT,
//!  "initial": {"observation": TEXT, "admissible_commands": [TEXT, ...]},
//!  "steps": [{"action": TEXT, "observation": TEXT, "reward": INTEGER, "done": BOOL, "won": BOOL,
//!             "admissible_commands": [TEXT, ...]}, ...]}
//! ```
//!
//! All results in `initial` and `steps` are compared byte for byte. Replays have no step limit, so
//! `done` always equals `won`.

use std::io::{BufRead, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnwise_core::EnvError;

use super::episode::Episode;
use super::parse::id_of;
use super::set::AlfworldSet;
use crate::replay::{Checker, Difference, numbered_lines};

/// This engine's name in recordings.
pub(crate) const ENGINE: &str = concat!("turnwise ", env!("CARGO_PKG_VERSION"));

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Episodes replayed.
    pub episodes: usize,
    /// Steps replayed.
    pub steps: usize,
    /// Differences found, in the order of the recording.
    pub differences: Vec<Difference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recording {
    gamefile: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    engine: String,
    initial: Initial,
    steps: Vec<RecordedStep>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Initial {
    observation: String,
    admissible_commands: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedStep {
    action: String,
    observation: String,
    reward: i64,
    done: bool,
    won: bool,
    admissible_commands: Vec<String>,
}

/// Replays a recording. If `dump` is given, this engine's results are written to it as a recording.
/// `name` is the recording's name in error messages.
///
/// # Errors
/// Fails if a line is not an episode, its game is unknown, or I/O fails. Differences from the
/// recording are not errors.
pub fn replay(
    name: &str,
    reader: impl BufRead,
    set: &AlfworldSet,
    mut dump: Option<&mut dyn Write>,
) -> Result<ReplayReport, EnvError> {
    let mut report = ReplayReport::default();
    for line in numbered_lines(name, reader) {
        let line = line?;
        let recording = parse(&line.text).map_err(|reason| line.error(reason))?;
        let game = set.game(&id_of(&recording.gamefile)).map_err(|_| {
            line.error(format!(
                "`gamefile` is {:?}, a game that is not in the loaded set; load the data it was recorded on",
                recording.gamefile
            ))
        })?;
        let produced = play(Episode::new(Arc::clone(game)), &recording);
        report.episodes += 1;
        report.steps += recording.steps.len();
        compare(Checker::new(&mut report.differences, line.number, game.id()), &recording, &produced);
        if let Some(dump) = dump.as_deref_mut() {
            let text =
                serde_json::to_string(&produced).map_err(|error| EnvError::Other(error.to_string()))?;
            let path = || "the dump of the replay".to_owned();
            writeln!(dump, "{text}").map_err(|source| EnvError::Io { path: path(), source })?;
        }
    }
    Ok(report)
}

fn parse(line: &str) -> Result<Recording, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let object = value.as_object().ok_or("not a JSON object; each line is one episode")?;
    let steps = object.get("steps").and_then(Value::as_array);
    // Parsed in parts, because serde errors lack the position in the object.
    if let Some(initial) = object.get("initial") {
        Initial::deserialize(initial).map_err(|error| format!("key `initial`: {}", key(&error, initial)))?;
    }
    for (number, step) in (1..).zip(steps.into_iter().flatten()) {
        RecordedStep::deserialize(step)
            .map_err(|error| format!("key `steps`, step {number}: {}", key(&error, step)))?;
    }
    Recording::deserialize(&value).map_err(|error| key(&error, &value))
}

fn key(error: &serde_json::Error, value: &Value) -> String {
    let message = error.to_string();
    if message.contains('`') && message.starts_with("missing field") {
        return message;
    }
    let wrong = |(name, value): (&String, &Value)| {
        let fits = match name.as_str() {
            "gamefile" | "mode" | "engine" | "action" | "observation" => value.is_string(),
            "reward" => value.is_i64(),
            "done" | "won" => value.is_boolean(),
            "admissible_commands" => {
                value.as_array().is_some_and(|commands| commands.iter().all(Value::is_string))
            }
            "steps" => value.is_array(),
            "initial" => value.is_object(),
            _ => true,
        };
        (!fits).then(|| name.clone())
    };
    match value.as_object().and_then(|object| object.iter().find_map(wrong)) {
        Some(name) => format!("key `{name}`: {message}"),
        None => message,
    }
}

fn play(mut episode: Episode, recording: &Recording) -> Recording {
    let initial =
        Initial { observation: episode.observation().to_owned(), admissible_commands: episode.admissible() };
    let steps = recording.steps.iter().map(|step| {
        let outcome = episode.step(&step.action);
        RecordedStep {
            action: step.action.clone(),
            observation: episode.observation().to_owned(),
            reward: i64::from(outcome.won),
            done: outcome.won,
            won: outcome.won,
            admissible_commands: episode.admissible(),
        }
    });
    Recording {
        gamefile: recording.gamefile.clone(),
        mode: recording.mode.clone(),
        engine: ENGINE.to_owned(),
        steps: steps.collect(),
        initial,
    }
}

fn compare(mut checker: Checker<'_>, expected: &Recording, found: &Recording) {
    let commands = |commands: &[String]| commands.join("\n");
    let (a, b) = (&expected.initial, &found.initial);
    checker.add("observation", &a.observation, &b.observation);
    checker.add("admissible_commands", &commands(&a.admissible_commands), &commands(&b.admissible_commands));
    for (step, (a, b)) in (1..).zip(expected.steps.iter().zip(&found.steps)) {
        checker.at(step);
        checker.add("observation", &a.observation, &b.observation);
        checker.add("reward", &a.reward, &b.reward);
        checker.add("done", &a.done, &b.done);
        checker.add("won", &a.won, &b.won);
        checker.add(
            "admissible_commands",
            &commands(&a.admissible_commands),
            &commands(&b.admissible_commands),
        );
    }
}
