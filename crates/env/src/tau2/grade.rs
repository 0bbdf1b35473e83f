//! Grades episodes as in tau2-bench.

use turnwise_core::ToolCall;

use super::domain::{Base, State};
use super::task::{Basis, GoldAction, Tau2Task};
use crate::python::values::{Raise, Value};

/// An episode's grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grade {
    /// Whether the final state equals the state after the gold calls.
    pub database: bool,
    /// Whether all assertions hold.
    pub assertions: bool,
    /// Whether the agent's messages contain all texts that the task requires it to communicate.
    pub communicated: bool,
    /// Whether the agent made every gold call.
    pub actions: bool,
    /// Whether the episode passed all components of the task's reward basis.
    pub success: bool,
}

/// An episode to grade.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played<'a> {
    /// Final state.
    pub state: &'a State,
    /// The agent's calls.
    pub calls: &'a [ToolCall],
    /// The agent's messages.
    pub words: &'a [String],
}

/// Grades an episode that was ended by the agent or the user. If `information` is true, the agent
/// must communicate the required texts even if the task's reward basis omits this check.
///
/// # Errors
/// Fails if the task cannot be set up.
pub(crate) fn grade(
    base: &Base,
    task: &Tau2Task,
    played: Played<'_>,
    information: bool,
) -> Result<Grade, Raise> {
    let Some(criteria) = &task.evaluation_criteria else {
        let all =
            Grade { database: true, assertions: true, communicated: true, actions: true, success: true };
        return Ok(all);
    };
    let is_compared = criteria.actions.is_some() || criteria.env_assertions.is_some();
    let database = !is_compared || {
        let mut gold = State::new(base, task)?;
        for action in task.gold() {
            gold.execute_gold(action.requestor, &action.name, &action.arguments);
        }
        gold == *played.state
    };
    // Assertions may change the state.
    let mut state = played.state.clone();
    let assertions = criteria.env_assertions.iter().flatten();
    let assertions = assertions.map(|assertion| {
        state.run(assertion).is_ok_and(|value| value == Value::Bool(assertion.assert_value))
    });
    // Each may change the state, so all are run.
    let assertions = assertions.filter(|holds| !holds).count() == 0;
    let communicated = task.information().iter().all(|text| said(text, played.words));
    let actions = task.gold().iter().all(|action| played.calls.iter().any(|call| is_call(action, call)));
    let counts = |basis: Basis| criteria.reward_basis.contains(&basis);
    let success = (!counts(Basis::Db) || database)
        && (!counts(Basis::EnvAssertion) || assertions)
        && (!counts(Basis::Action) || actions)
        && (!(information || counts(Basis::Communicate)) || communicated);
    Ok(Grade { database, assertions, communicated, actions, success })
}

/// Returns true if one of the messages contains the text. Letter case and commas in the messages
/// are ignored.
fn said(text: &str, words: &[String]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|words| words.to_lowercase().replace(',', "").contains(&text))
}

fn is_call(action: &GoldAction, call: &ToolCall) -> bool {
    if action.name != call.name {
        return false;
    }
    let Some(gold) = action.arguments.as_dict() else { return false };
    let empty = serde_json::Map::new();
    let made = call.arguments.as_object().unwrap_or(&empty);
    let compared = |name: &str| match &action.compare_args {
        Some(names) => names.iter().any(|known| known == name),
        None => made.contains_key(name),
    };
    let value =
        |name: &str| made.get(name).and_then(|value| <Value as serde::Deserialize>::deserialize(value).ok());
    made.keys().filter(|name| compared(name)).all(|name| gold.get_str(name) == value(name).as_ref())
        && gold
            .keys()
            .filter_map(Value::as_str)
            .filter(|name| compared(name))
            .all(|name| made.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_without_commas() {
        let words = ["The total is $1,095.55.".to_owned()];
        assert!(said("1095.55", &words) && said("TOTAL", &words) && !said("1096", &words));
    }

    #[test]
    fn a_call_is_compared_by_the_named_arguments() {
        let read = |compared: &str| {
            let text =
                format!(r#"{{"name": "f", "arguments": {{"a": 1, "b": [2]}}, "compare_args": {compared}}}"#);
            serde_json::from_str::<GoldAction>(&text).unwrap()
        };
        let call = |arguments: serde_json::Value| ToolCall { id: String::new(), name: "f".into(), arguments };
        let right = call(serde_json::json!({"a": 1, "b": [2.0]}));
        let other = call(serde_json::json!({"a": 1, "b": [3]}));
        assert!(is_call(&read("null"), &right) && !is_call(&read("null"), &other));
        assert!(is_call(&read("[\"a\"]"), &other) && is_call(&read("[]"), &other));
        // `null` compares all arguments of the call.
        assert!(is_call(&read("null"), &call(serde_json::json!({"a": 1}))));
        assert!(!is_call(&read("[\"b\"]"), &call(serde_json::json!({"a": 1}))));
    }
}
