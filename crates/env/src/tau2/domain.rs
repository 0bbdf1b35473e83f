//! Episode states and tool calls by domain.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::ToolCall;

use super::retail::{Retail, RetailDb};
use super::task::{FunctionCall, Side, Tau2Task, keywords};
use super::telecom::Telecom;
use crate::python::values::{Raise, Value};

/// A domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tau2Domain {
    /// Online store: orders, returns, exchanges.
    #[default]
    Retail,
    /// Technical support of a mobile carrier, in solo mode: the agent gets a ticket instead of a
    /// conversation and operates the user's phone itself.
    Telecom,
}

impl Tau2Domain {
    /// Returns the domain's name, as used in paths of the checkout.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retail => "retail",
            Self::Telecom => "telecom",
        }
    }

    /// Returns true if the agent gets a ticket with the request instead of talking to a user.
    pub(crate) fn is_solo(self) -> bool {
        self == Self::Telecom
    }
}

/// A domain's stored database.
#[derive(Clone, Debug)]
pub enum Base {
    /// The store.
    Retail(Arc<RetailDb>),
    /// The carrier and the phone.
    Telecom(Box<Telecom>),
}

/// An episode's state.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The store.
    Retail(Retail),
    /// The carrier and the phone.
    Telecom(Box<Telecom>),
}

/// A call's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Text shown to the agent.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
}

impl From<Result<String, Raise>> for Outcome {
    fn from(result: Result<String, Raise>) -> Self {
        match result {
            Ok(text) => Self { text, is_error: false },
            Err(raise) => Self { text: format!("Error: {}", raise.text), is_error: true },
        }
    }
}

/// Returns the error that tau2-bench raises if an argument is named like a parameter of its Python
/// functions, such as `self`.
fn reserved(arguments: &[(String, Value)]) -> Option<Raise> {
    let has = |name: &str| arguments.iter().any(|(known, _)| known == name);
    let function = "tau2.environment.environment.Environment.make_tool_call()";
    if has("requestor") {
        let text = format!("{function} got multiple values for keyword argument 'requestor'");
        return Some(Raise::type_error(text));
    }
    let taken = ["self", "tool_name"].into_iter().find(|name| has(name))?;
    Some(Raise::type_error(format!(
        "Environment.make_tool_call() got multiple values for argument '{taken}'"
    )))
}

impl State {
    /// Creates a task's initial state.
    ///
    /// # Errors
    /// Fails if a setup action fails.
    pub fn new(base: &Base, task: &Tau2Task) -> Result<Self, Raise> {
        let mut state = match base {
            Base::Retail(base) => Self::Retail(Retail::new(Arc::clone(base))),
            Base::Telecom(base) => Self::Telecom(base.clone()),
        };
        let actions = task.initial_state.iter().filter_map(|initial| initial.initialization_actions.as_ref());
        for action in actions.flatten() {
            state.run(action)?;
        }
        Ok(state)
    }

    /// Executes the agent's call.
    pub fn execute(&mut self, call: &ToolCall) -> Outcome {
        let arguments = match &call.arguments {
            serde_json::Value::Null => Vec::new(),
            serde_json::Value::Object(fields) => {
                let read = |(name, value): (&String, &serde_json::Value)| {
                    Value::deserialize(value).map(|value| (name.clone(), value))
                };
                match fields.iter().map(read).collect::<Result<Vec<_>, _>>() {
                    Ok(arguments) => arguments,
                    Err(error) => return Err(Raise::type_error(error.to_string())).into(),
                }
            }
            _ => return Err(Raise::type_error("the arguments of a call must be a JSON object")).into(),
        };
        if let Some(raise) = reserved(&arguments) {
            return Err(raise).into();
        }
        match self {
            Self::Retail(retail) => retail.call(&call.name, arguments).into(),
            Self::Telecom(telecom) => telecom.call(&call.name, arguments).into(),
        }
    }

    /// Executes a gold call. An error of the call is ignored, as in tau2-bench.
    pub(super) fn execute_gold(&mut self, side: Side, name: &str, arguments: &Value) {
        match (self, side) {
            (Self::Retail(retail), Side::Assistant) => drop(retail.call(name, keywords(arguments))),
            (Self::Retail(_), Side::User) => {}
            (Self::Telecom(telecom), side) => drop(telecom.call_on(side, name, keywords(arguments))),
        }
    }

    /// Calls the function of a setup action or assertion.
    pub(super) fn run(&mut self, call: &FunctionCall) -> Result<Value, Raise> {
        match self {
            Self::Retail(_) => Err(Raise::value_error(format!(
                "the domain retail has no function `{}` outside of its tools",
                call.func_name
            ))),
            Self::Telecom(telecom) => telecom.run(call),
        }
    }

    /// Returns the parts of the state that differ from the checkout's data, each with its name and
    /// the JSON that tau2-bench would write. In `telecom`, returns all parts.
    ///
    /// # Errors
    /// Fails if serialization fails.
    pub fn changes(&self) -> Result<Vec<(String, String)>, serde_json::Error> {
        match self {
            Self::Retail(retail) => retail.changes(),
            Self::Telecom(telecom) => telecom.parts(),
        }
    }
}
