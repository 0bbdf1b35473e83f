//! Tasks in the format of tau2-bench.

use std::fmt;

use serde::Deserialize;

use crate::python::values::{Dict, Value};

/// A task.
#[derive(Clone, Debug, Deserialize)]
pub struct Tau2Task {
    /// Task id.
    pub id: String,
    /// The user.
    pub user_scenario: Scenario,
    /// Text of the request for solo mode, in which the agent has no user to talk to.
    #[serde(default)]
    pub ticket: Option<String>,
    /// State to set up before the episode.
    #[serde(default)]
    pub initial_state: Option<InitialState>,
    /// Grading criteria.
    #[serde(default)]
    pub evaluation_criteria: Option<Criteria>,
}

/// The simulated user.
#[derive(Clone, Debug, Deserialize)]
pub struct Scenario {
    /// The user's personality.
    #[serde(default)]
    pub persona: Option<String>,
    /// What the user wants.
    pub instructions: Instructions,
}

/// A user's instructions.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Instructions {
    /// Separate fields.
    Fields(Fields),
    /// One text.
    Text(String),
}

/// A user's instructions, which address the user as `you`.
#[derive(Clone, Debug, Deserialize)]
pub struct Fields {
    /// Domain name.
    pub domain: String,
    /// The request.
    pub reason_for_call: String,
    /// What the user knows.
    #[serde(default)]
    pub known_info: Option<String>,
    /// What the user does not know.
    #[serde(default)]
    pub unknown_info: Option<String>,
    /// How the user behaves.
    pub task_instructions: String,
}

/// Setup before an episode.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct InitialState {
    /// Rows that replace parts of the database; tasks with such rows are not supported.
    #[serde(default)]
    pub initialization_data: Value,
    /// Functions to call before the episode.
    #[serde(default)]
    pub initialization_actions: Option<Vec<FunctionCall>>,
    /// Messages before the episode; tasks with such messages are not supported.
    #[serde(default)]
    pub message_history: Value,
}

/// Side that a function or call belongs to: the agent's or the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The agent's.
    #[default]
    Assistant,
    /// The user's.
    User,
}

/// A call in a task's setup or assertions; its function may be one that the agent cannot call as a
/// tool.
#[derive(Clone, Debug, Deserialize)]
pub struct FunctionCall {
    /// The function's side.
    pub env_type: Side,
    /// Function name.
    pub func_name: String,
    /// Arguments as an object.
    pub arguments: Value,
    /// Expected result, if the call is an assertion.
    #[serde(default = "holds")]
    pub assert_value: bool,
}

fn holds() -> bool {
    true
}

/// Grading criteria.
#[derive(Clone, Debug, Deserialize)]
pub struct Criteria {
    /// Gold calls, whose execution yields the expected database.
    #[serde(default)]
    pub actions: Option<Vec<GoldAction>>,
    /// Assertions about the final state.
    #[serde(default)]
    pub env_assertions: Option<Vec<FunctionCall>>,
    /// Texts that the agent must communicate to the user.
    #[serde(default)]
    pub communicate_info: Option<Vec<String>>,
    /// Statements about the episode that tau2-bench lets an LLM judge check; not graded here.
    #[serde(default)]
    pub nl_assertions: Option<Vec<String>>,
    /// Components of the reward.
    #[serde(default = "default_basis")]
    pub reward_basis: Vec<Basis>,
}

fn default_basis() -> Vec<Basis> {
    vec![Basis::Db, Basis::Communicate]
}

/// A component of the reward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Basis {
    /// The final database equals the expected one.
    Db,
    /// Assertions about the final state.
    EnvAssertion,
    /// The statements for an LLM judge; not graded here.
    NlAssertion,
    /// The agent made all gold calls.
    Action,
    /// The agent communicated all required texts.
    Communicate,
}

/// A call of the reference solution.
#[derive(Clone, Debug, Deserialize)]
pub struct GoldAction {
    /// The caller's side.
    #[serde(default)]
    pub requestor: Side,
    /// Tool name.
    pub name: String,
    /// Arguments as an object.
    pub arguments: Value,
    /// Names of the arguments to compare; `None` compares the arguments that the agent's call
    /// contains.
    #[serde(default)]
    pub compare_args: Option<Vec<String>>,
}

pub(super) fn keywords(arguments: &Value) -> Vec<(String, Value)> {
    let entries = arguments.as_dict().into_iter().flat_map(Dict::iter);
    entries.map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// Text that is displayed with a tab before each non-blank line, as in tau2-bench.
struct Indented<'a>(&'a str);

impl fmt::Display for Indented<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.split_inclusive('\n') {
            let tab = if line.trim().is_empty() { "" } else { "\t" };
            write!(to, "{tab}{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = match self {
            Self::Text(text) => return to.write_str(text),
            Self::Fields(fields) => fields,
        };
        writeln!(to, "Domain: {}", fields.domain)?;
        writeln!(to, "Reason for call:\n{}", Indented(&fields.reason_for_call))?;
        if let Some(known) = &fields.known_info {
            writeln!(to, "Known info:\n{}", Indented(known))?;
        }
        if let Some(unknown) = &fields.unknown_info {
            writeln!(to, "Unknown info:\n{}", Indented(unknown))?;
        }
        write!(to, "Task instructions:\n{}", Indented(&fields.task_instructions))
    }
}

/// Formats the scenario as tau2-bench does.
impl fmt::Display for Scenario {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(persona) = &self.persona {
            writeln!(to, "Persona:\n{}", Indented(persona))?;
        }
        write!(to, "Instructions:\n{}", Indented(&self.instructions.to_string()))
    }
}

impl Tau2Task {
    /// Returns the reason why the task cannot be played, or `None` if it can be played.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let initial = self.initial_state.as_ref()?;
        let is_set = |value: &Value| !matches!(value, Value::None) && *value != Value::List(Vec::new());
        if is_set(&initial.initialization_data) {
            return Some("has `initialization_data`, which is not supported");
        }
        is_set(&initial.message_history).then_some("has a `message_history`, which is not supported")
    }

    /// Returns the gold calls.
    pub fn gold(&self) -> &[GoldAction] {
        let criteria = self.evaluation_criteria.as_ref();
        criteria.and_then(|criteria| criteria.actions.as_deref()).unwrap_or_default()
    }

    /// Returns the texts to communicate.
    pub fn information(&self) -> &[String] {
        let criteria = self.evaluation_criteria.as_ref();
        criteria.and_then(|criteria| criteria.communicate_info.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_written_with_tabs() {
        let text = r#"{"persona": "Calm.", "instructions": {"domain": "d", "reason_for_call": "One\n\ntwo",
            "known_info": null, "unknown_info": "x", "task_instructions": "y"}}"#;
        let scenario: Scenario = serde_json::from_str(text).unwrap();
        let expected = "Persona:\n\tCalm.\nInstructions:\n\tDomain: d\n\tReason for call:\n\t\tOne\n\n\t\ttwo\n\
            \tUnknown info:\n\t\tx\n\tTask instructions:\n\t\ty";
        assert_eq!(scenario.to_string(), expected);
        let text: Scenario = serde_json::from_str(r#"{"instructions": "Do it."}"#).unwrap();
        assert_eq!(text.to_string(), "Instructions:\n\tDo it.");
    }

    #[test]
    fn a_task_that_needs_more_is_refused() {
        let read = |initial: &str| {
            let text = format!(
                r#"{{"id": "t", "user_scenario": {{"instructions": "x"}}, "initial_state": {initial}}}"#
            );
            serde_json::from_str::<Tau2Task>(&text).unwrap().fault()
        };
        assert_eq!(read("null"), None);
        assert_eq!(read(r#"{"message_history": [], "initialization_actions": []}"#), None);
        assert!(read(r#"{"message_history": [{}]}"#).unwrap().contains("message_history"));
        assert!(
            read(r#"{"initialization_data": {"agent_data": {}}}"#).unwrap().contains("initialization_data")
        );
    }
}
