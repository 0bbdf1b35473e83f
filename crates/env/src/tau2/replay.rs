//! Compares this environment with recorded episodes of tau2-bench.
//!
//! Recordings (`tools/tau2_record.py`) are JSON Lines of these objects:
//!
//! ```text
//! {"domain", "tools": [tool, ..]}                       the declared tools
//! {"domain", "task", "prompt": text}                    the system prompt of the original's user simulator
//! {"domain", "task", "calls": [{"name", "arguments"}], "results": [text, ..], "changes": {part: text},
//!  "words": [text, ..], "database", "communicated", "assertions": [bool, ..]}
//! ```

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use turnwise_core::{EnvError, Tool, ToolCall};

use super::checkout::Checkout;
use super::domain::{State, Tau2Domain};
use super::grade::{Played, grade};
use super::telecom::DONE_NAME;
use super::user::model_prompt;
use crate::replay::{Checker, Line, ReplayReport, numbered_lines};

#[derive(Deserialize)]
struct Recorded<'a> {
    domain: Tau2Domain,
    #[serde(default)]
    task: String,
    #[serde(default, borrow)]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    results: Vec<String>,
    #[serde(default)]
    changes: BTreeMap<String, String>,
    #[serde(default)]
    words: Vec<String>,
    #[serde(default)]
    database: bool,
    #[serde(default)]
    communicated: bool,
    #[serde(default)]
    assertions: bool,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: serde_json::Value,
}

/// Tools with parameters of custom Python types in tau2-bench; in this crate, these parameters are
/// strings or objects.
const OWN_TYPES: [&str; 2] = ["set_network_mode_preference", "set_apn_settings"];

/// Removes the version from error URLs, because it depends on the installation.
fn without_version(text: &str) -> String {
    const ADDRESS: &str = "https://errors.pydantic.dev/";
    let mut parts = text.split(ADDRESS);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(ADDRESS);
        out.push_str(part.split_once('/').map_or(part, |(_, rest)| rest));
    }
    out
}

/// Replays a recording.
///
/// # Errors
/// Fails on a line that cannot be read or parsed, but not on differences.
pub fn replay(name: &str, reader: impl BufRead, data: &Path) -> Result<ReplayReport, EnvError> {
    let mut checkouts: HashMap<Tau2Domain, Checkout> = HashMap::new();
    let mut differences = Vec::new();
    let (mut plays, mut calls) = (0, 0);
    for line in numbered_lines(name, reader) {
        let line = line?;
        let recorded: Recorded<'_> = serde_json::from_str(&line.text)
            .map_err(|error| line.error(format!("this is not a recorded play: {error}")))?;
        let checkout = match checkouts.entry(recorded.domain) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Checkout::read(data, recorded.domain)?),
        };
        let mut checker = Checker::new(&mut differences, line.number, recorded.task.clone());
        if let Some(tools) = &recorded.tools {
            compare_tools(&line, checkout, tools, &mut checker)?;
            continue;
        }
        let task = checkout
            .tasks
            .iter()
            .find(|task| task.id == recorded.task)
            .ok_or_else(|| line.error(format!("there is no task `{}` in the checkout", recorded.task)))?;
        if let Some(prompt) = &recorded.prompt {
            checker.add("prompt", prompt, &model_prompt(&checkout.guidelines, task));
            continue;
        }
        if recorded.calls.len() != recorded.results.len() {
            return Err(line.error("there are more or fewer results than calls"));
        }
        let mut state = State::new(&checkout.base, task).map_err(|raise| line.error(raise.text))?;
        let mut made = Vec::with_capacity(recorded.calls.len());
        for (step, (call, expected)) in recorded.calls.into_iter().zip(&recorded.results).enumerate() {
            checker.at(step + 1);
            let call = ToolCall { id: String::new(), name: call.name, arguments: call.arguments };
            let found = state.execute(&call);
            checker.add("result", &without_version(expected), &without_version(&found.text));
            made.push(call);
        }
        plays += 1;
        calls += made.len();
        checker.at(0);
        let found: BTreeMap<String, String> =
            state.changes().map_err(|error| line.error(error.to_string()))?.into_iter().collect();
        for part in
            recorded.changes.keys().chain(found.keys().filter(|part| !recorded.changes.contains_key(*part)))
        {
            let of = |parts: &BTreeMap<String, String>| {
                format!("{part}: {}", parts.get(part).map_or("as in the files", String::as_str))
            };
            checker.add("state", &of(&recorded.changes), &of(&found));
        }
        let played = Played { state: &state, calls: &made, words: &recorded.words };
        let grade = grade(&checkout.base, task, played, false).map_err(|raise| line.error(raise.text))?;
        checker.add("database", &recorded.database, &grade.database);
        checker.add("communicated", &recorded.communicated, &grade.communicated);
        checker.add("assertions", &recorded.assertions, &grade.assertions);
    }
    let counts = format!("{plays} plays, {calls} calls, {} differences", differences.len());
    Ok(ReplayReport { counts, unit: "play", differences })
}

fn compare_tools(
    line: &Line<'_>,
    checkout: &Checkout,
    recorded: &[&RawValue],
    checker: &mut Checker<'_>,
) -> Result<(), EnvError> {
    let tools: Vec<Tool> = recorded
        .iter()
        .map(|tool| Tool::from_json(tool.get()).map_err(|error| line.error(error.to_string())))
        .collect::<Result<_, _>>()?;
    let text = |tool: Option<&Tool>| tool.map_or("not declared", Tool::json).to_owned();
    for (place, tool) in tools.iter().enumerate() {
        if !OWN_TYPES.contains(&tool.name()) {
            checker.add("tool", &text(Some(tool)), &text(checkout.tools.get(place)));
        }
    }
    let declared = checkout.tools.iter().filter(|tool| tool.name() != DONE_NAME);
    checker.add("tools", &tools.len(), &declared.count());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_library_are_not_compared() {
        let text = |version: &str| format!("a\nvisit https://errors.pydantic.dev/{version}/v/x\nb");
        assert_eq!(without_version(&text("2.12")), without_version(&text("2.9")));
        assert_ne!(without_version(&text("2.12")), without_version(&text("2.12").replace("/v/x", "/v/y")));
    }
}
