//! Tasks in the original's format.

use std::fmt;

use serde::Deserialize;

use crate::python::values::{Dict, Value};

/// A task.
#[derive(Clone, Debug, Deserialize)]
pub struct Tau2Task {
    /// Its name.
    pub id: String,
    /// The user.
    pub user_scenario: Scenario,
    /// Task description for an agent without a user.
    #[serde(default)]
    pub ticket: Option<String>,
    /// Setup before the episode.
    #[serde(default)]
    pub initial_state: Option<InitialState>,
    /// Grading criteria.
    #[serde(default)]
    pub evaluation_criteria: Option<Criteria>,
}

/// What the user knows and wants.
#[derive(Clone, Debug, Deserialize)]
pub struct Scenario {
    /// The user's personality.
    #[serde(default)]
    pub persona: Option<String>,
    /// What the user wants.
    pub instructions: Instructions,
}

/// The user's instructions, either as separate fields or as one text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Instructions {
    /// Fields.
    Fields(Fields),
    /// One text.
    Text(String),
}

/// Instructions for the user, split into separate fields. All instructions address the user as
/// `you`.
#[derive(Clone, Debug, Deserialize)]
pub struct Fields {
    /// The domain.
    pub domain: String,
    /// The request.
    pub reason_for_call: String,
    /// What the user knows, such as a name.
    #[serde(default)]
    pub known_info: Option<String>,
    /// What the user does not know.
    #[serde(default)]
    pub unknown_info: Option<String>,
    /// How the user should behave.
    pub task_instructions: String,
}

/// Setup before an episode.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct InitialState {
    /// Rows that replace database rows, not used by the supported domains.
    #[serde(default)]
    pub initialization_data: Value,
    /// Functions to call before the episode.
    #[serde(default)]
    pub initialization_actions: Option<Vec<FunctionCall>>,
    /// Messages exchanged before the episode, not used by the supported domains.
    #[serde(default)]
    pub message_history: Value,
}

/// Whether a function belongs to the agent or to the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The agent's.
    #[default]
    Assistant,
    /// The user's.
    User,
}

/// A call to a function, which need not be a tool.
#[derive(Clone, Debug, Deserialize)]
pub struct FunctionCall {
    /// Side that the function belongs to.
    pub env_type: Side,
    /// Its name.
    pub func_name: String,
    /// Arguments of the function, as an object.
    pub arguments: Value,
    /// Expected result, for assertions.
    #[serde(default = "holds")]
    pub assert_value: bool,
}

fn holds() -> bool {
    true
}

/// Grading criteria.
#[derive(Clone, Debug, Deserialize)]
pub struct Criteria {
    /// Gold calls, which produce the expected database.
    #[serde(default)]
    pub actions: Option<Vec<GoldAction>>,
    /// Assertions about the final state.
    #[serde(default)]
    pub env_assertions: Option<Vec<FunctionCall>>,
    /// Texts that the agent must communicate.
    #[serde(default)]
    pub communicate_info: Option<Vec<String>>,
    /// Statements to be checked by an LLM judge.
    #[serde(default)]
    pub nl_assertions: Option<Vec<String>>,
    /// Components that count towards the reward.
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
    /// The database at the end of the episode.
    Db,
    /// Assertions about the final state.
    EnvAssertion,
    /// Statements to be checked by an LLM judge.
    NlAssertion,
    /// Whether the gold calls were made.
    Action,
    /// Whether the agent communicated the required information.
    Communicate,
}

/// A call in the reference solution.
#[derive(Clone, Debug, Deserialize)]
pub struct GoldAction {
    /// The side that makes the call.
    #[serde(default)]
    pub requestor: Side,
    /// The tool.
    pub name: String,
    /// Arguments of the call, as an object.
    pub arguments: Value,
    /// Names of the arguments to compare, or `None` to compare all arguments of the call.
    #[serde(default)]
    pub compare_args: Option<Vec<String>>,
}

/// Returns the entries of an arguments object, in order.
pub(super) fn keywords(arguments: &Value) -> Vec<(String, Value)> {
    let entries = arguments.as_dict().into_iter().flat_map(Dict::iter);
    entries.map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// Text that is displayed with a tab before each non-blank line, as in the original's instructions.
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

/// Formats the scenario for the user simulator, as in the original.
impl fmt::Display for Scenario {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(persona) = &self.persona {
            writeln!(to, "Persona:\n{}", Indented(persona))?;
        }
        write!(to, "Instructions:\n{}", Indented(&self.instructions.to_string()))
    }
}

impl Tau2Task {
    /// Returns the reason why the task cannot be played, or `None` if it can.
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

    /// Returns the texts that the agent should communicate.
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
