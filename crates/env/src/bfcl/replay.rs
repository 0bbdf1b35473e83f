//! Compares the APIs of this crate with recorded episodes of the original.
//!
//! Recordings are JSON Lines, one object per episode:
//!
//! ```text
//! {"id", "set", "variant", "calls": [[call, ..] per turn], "results": [[text, ..] per turn],
//!  "state": {class: {attribute: value}}}
//! ```
//!
//! All texts and the final public attributes are compared. In texts that print a Python set, the
//! members are compared in any order, because the order varies between runs.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;
use turnwise_core::EnvError;

use super::apis::Leftovers;
use super::package::{BfclSet, BfclTask, Package};
use super::session::Session;
use crate::python::values::{Dict, Value};
use crate::replay::{Checker, ReplayReport, numbered_lines};

#[derive(Deserialize)]
struct Play {
    id: String,
    calls: Vec<Vec<String>>,
    results: Vec<Vec<String>>,
    state: HashMap<String, Value>,
}

/// Replays a recording. The order of the recorded episodes matters, because in the original, an
/// episode may change objects that later episodes use.
///
/// # Errors
/// Fails on a line that cannot be read or parsed, but not on differences from the recording.
pub fn replay(name: &str, reader: impl BufRead, data: &Path) -> Result<ReplayReport, EnvError> {
    let package = Package::read(data, &BfclSet::ALL)?;
    let tasks: HashMap<&str, &BfclTask> = package.tasks.iter().map(|task| (task.id.as_str(), task)).collect();
    let mut leftovers = Leftovers::default();
    let mut differences = Vec::new();
    let (mut plays, mut calls) = (0, 0);
    for line in numbered_lines(name, reader) {
        let line = line?;
        let play: Play = serde_json::from_str(&line.text)
            .map_err(|error| line.error(format!("this is no recorded play: {error}")))?;
        let task = tasks
            .get(play.id.as_str())
            .ok_or_else(|| line.error(format!("there is no task `{}` in the package", play.id)))?;
        let mut checker = Checker::new(&mut differences, line.number, play.id.clone());
        let scenario = package.scenario(task);
        let mut session = Session::new(scenario, "replay");
        session.adopt(&leftovers);
        let mut step = 0;
        for (texts, expected) in play.calls.iter().zip(&play.results) {
            if texts.len() != expected.len() {
                return Err(line.error("a turn has more or fewer results than calls"));
            }
            for (call, expected) in texts.iter().zip(expected) {
                step += 1;
                checker.at(step);
                let found = session.execute(call);
                if !same_text(expected, &found) {
                    checker.add("result", expected, &found);
                }
            }
        }
        calls += step;
        plays += 1;
        checker.at(0);
        for instance in session.instances() {
            let class = instance.api().class();
            let Some(Value::Dict(expected)) = play.state.get(class) else {
                return Err(line.error(format!("`state` has no object `{class}`")));
            };
            let found = instance.state();
            for (attribute, value) in &found {
                let recorded = expected.get_str(attribute).unwrap_or(&Value::None);
                if !same_state(recorded, value) {
                    let place = format!("{class}.{attribute}: ");
                    checker.add("state", &(place.clone() + &recorded.repr()), &(place + &value.repr()));
                }
            }
            checker.add("attributes", &expected.len(), &found.len());
        }
        session.leave(&mut leftovers, &scenario);
    }
    let counts = format!("{plays} plays, {calls} calls, {} differences", differences.len());
    Ok(ReplayReport { counts, unit: "play", differences })
}

/// Compares texts, ignoring the order of members in printed sets, which occur in errors about
/// ticket fields and flight classes.
fn same_text(expected: &str, found: &str) -> bool {
    if expected == found {
        return true;
    }
    let both = |start: &str, end: &str| {
        let inside = |text: &str| {
            let (_, rest) = text.split_once(start)?;
            let mut members: Vec<String> = rest.strip_suffix(end)?.split(", ").map(str::to_owned).collect();
            members.sort_unstable();
            Some(members)
        };
        inside(expected).is_some() && inside(expected) == inside(found)
    };
    both("Invalid fields for update: ", "\"}") || both("Invalid travel class. Must be one of {", "}\"}")
}

/// Compares values and their types; dictionary keys are compared as strings, sets by member.
fn same_state(recorded: &Value, found: &Value) -> bool {
    match (recorded, found) {
        (Value::Str(text), Value::Set(items)) => {
            let members = text.trim_start_matches("set(").trim_matches(['{', '}', '(', ')']);
            let mut members: Vec<String> =
                members.split(", ").filter(|member| !member.is_empty()).map(str::to_owned).collect();
            let mut found: Vec<String> = items.iter().map(Value::repr).collect();
            members.sort_unstable();
            found.sort_unstable();
            members == found
        }
        (Value::Dict(recorded), Value::Dict(found)) => {
            // The recording keeps the last of several keys with the same text.
            let written: Dict =
                found.iter().map(|(key, value)| (Value::from(key.to_string()), value.clone())).collect();
            // Modification times vary; the recording has `time` instead.
            let is_time = |key: &Value, value: &Value| {
                key.as_str() == Some("_last_modified") && value.as_str() == Some("time")
            };
            let recorded = || recorded.iter().filter(|(key, value)| !is_time(key, value));
            recorded().count() == written.len()
                && recorded()
                    .all(|(key, value)| written.get(key).is_some_and(|found| same_state(value, found)))
        }
        (Value::List(recorded), Value::List(found) | Value::Tuple(found)) => {
            recorded.len() == found.len()
                && recorded.iter().zip(found).all(|(recorded, found)| same_state(recorded, found))
        }
        (Value::Str(text), Value::Opaque { repr, .. }) => text == repr,
        _ => recorded.is_identical(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::values::dict;

    #[test]
    fn sets_are_compared_by_their_members() {
        let text = |members: &str| format!("{{\"error\": \"Invalid fields for update: {members}\"}}");
        assert!(same_text(&text("a, b"), &text("b, a")));
        assert!(!same_text(&text("a, b"), &text("b, c")));
        assert!(!same_text("a, b", "b, a"));
        let set = |items: [i64; 2]| Value::Set(items.map(Value::Int).to_vec());
        assert!(same_state(&"{2, 1}".into(), &set([1, 2])) && !same_state(&"{2, 3}".into(), &set([1, 2])));
        assert!(same_state(&"set()".into(), &Value::Set(Vec::new())));
    }

    #[test]
    fn types_are_compared_and_keys_are_strings() {
        let numbers: Dict = [(Value::Int(1), Value::Int(5))].into_iter().collect();
        assert!(same_state(&dict([("1", Value::Int(5))]), &numbers.clone().into()));
        assert!(!same_state(&dict([("1", Value::Float(5.0))]), &numbers.into()));
    }
}
