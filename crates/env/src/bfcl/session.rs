//! Executes calls on a task's APIs.

use std::sync::Arc;

use serde::Deserialize as _;
use turnwise_core::ToolCall;

use super::apis::{Api, Instance, Leftovers};
use super::long_context::LongContext;
use crate::python;
use crate::python::values::{Caller, Class, Dict, Raise, Value, evaluate, parse};

/// Functions that the original refuses to call.
const FORBIDDEN: [&str; 8] = ["kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"];

const LONGEST_NAME: usize = 60;

/// A task's APIs and their states.
#[derive(Clone, Debug)]
pub struct Session {
    instances: Vec<(String, Instance)>,
    hidden: Vec<String>,
    long: Option<Arc<LongContext>>,
}

/// An episode's initial conditions.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// Task id.
    pub id: &'a str,
    /// APIs in the task's order.
    pub apis: &'a [Api],
    /// Start state of each API, by the name of its Python class.
    pub config: &'a Dict,
    /// Padding for long-context tasks.
    pub long: Option<&'a Arc<LongContext>>,
}

impl<'a> Scenario<'a> {
    fn of(&self, api: Api) -> &'a Dict {
        const EMPTY: &Dict = &Dict::new();
        self.config.get_str(api.class()).and_then(Value::as_dict).unwrap_or(EMPTY)
    }
}

impl Session {
    /// Creates the APIs. `player` becomes part of the Python object names, which error messages may
    /// contain.
    pub fn new(scenario: Scenario<'_>, player: &str) -> Self {
        let instances = scenario.apis.iter().map(|api| {
            let class = api.class();
            let name = format!("{player}_{}_{class}_instance", scenario.id);
            let name = name.replace(['-', '.', '/', ':'], "_");
            (name, Instance::new(*api, scenario.of(*api), scenario.long.map(Arc::as_ref)))
        });
        Self { instances: instances.collect(), hidden: Vec::new(), long: scenario.long.cloned() }
    }

    /// Returns the APIs in the task's order.
    pub(crate) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().map(|(_, instance)| instance)
    }

    pub(super) fn hide(&mut self, functions: Vec<String>) {
        self.hidden = functions;
    }

    /// Executes a Python call and returns the text for the model.
    pub fn execute(&mut self, call: &str) -> String {
        let result = self.run(call);
        shown_or_error(result)
    }

    /// Executes a tool call and returns the text for the model.
    pub(crate) fn execute_tool(&mut self, call: &ToolCall) -> String {
        let result = self.run_tool(call);
        shown_or_error(result)
    }

    fn run_tool(&mut self, call: &ToolCall) -> Result<Value, Raise> {
        let Some(object) = self.owner(&call.name).map(str::to_owned) else {
            let name: String = call.name.chars().take(LONGEST_NAME).collect();
            return Err(Raise::new(Class::Name, format!("name '{name}' is not defined")));
        };
        let read = |error: serde_json::Error| Raise::type_error(error.to_string());
        let arguments = match &call.arguments {
            serde_json::Value::Null => Vec::new(),
            serde_json::Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| Ok((name.clone(), Value::deserialize(value).map_err(read)?)))
                .collect::<Result<_, _>>()?,
            _ => return Err(Raise::type_error("the arguments of a call must be a JSON object")),
        };
        self.call(&object, &call.name, Vec::new(), arguments)
    }

    fn run(&mut self, call: &str) -> Result<Value, Raise> {
        let call = self.qualified(call);
        let head = call.split('(').next().unwrap_or_default();
        let name = head.split('.').nth(1).unwrap_or(head);
        if FORBIDDEN.contains(&name) {
            return Err(Raise::new(Class::Other, format!("Function call {name} is not allowed.")));
        }
        evaluate(parse(&call)?, self)
    }

    fn owner(&self, method: &str) -> Option<&str> {
        if self.hidden.iter().any(|hidden| hidden == method) {
            return None;
        }
        let owner = self.instances.iter().rev().find(|(_, instance)| instance.api().method(method).is_some());
        owner.map(|(name, _)| name.as_str())
    }

    /// Prefixes each method name with the name of its object. As in the original, this also changes
    /// text in arguments that looks like a call.
    fn qualified(&self, call: &str) -> String {
        let mut out = String::with_capacity(call.len() + 64);
        let mut copied = 0;
        for (bracket, _) in call.match_indices('(') {
            let before = &call[copied..bracket];
            let name_end = before.trim_end_matches(python::is_space).len();
            let is_word = |c: char| c == '_' || c.is_alphanumeric();
            let start = before[..name_end].trim_end_matches(is_word).len();
            let name = &before[start..name_end];
            if !name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) {
                continue;
            }
            out.push_str(&before[..start]);
            if let Some(owner) = self.owner(name) {
                out.push_str(owner);
                out.push('.');
            }
            out.push_str(name);
            copied = bracket;
        }
        out.push_str(&call[copied..]);
        out
    }

    pub(super) fn adopt(&mut self, leftovers: &Leftovers) {
        for (_, instance) in &mut self.instances {
            instance.adopt(leftovers);
        }
    }

    pub(super) fn leave(&self, leftovers: &mut Leftovers, scenario: &Scenario<'_>) {
        for (_, instance) in &self.instances {
            instance.leave(leftovers, scenario.of(instance.api()), self.long.as_deref());
        }
    }
}

impl Caller for Session {
    fn find(&self, object: &str, method: &str) -> Result<(), Raise> {
        let Some((_, instance)) = self.instances.iter().find(|(name, _)| name == object) else {
            return Err(Raise::new(Class::Name, format!("name '{object}' is not defined")));
        };
        let api = instance.api();
        if api.method(method).is_some() && !self.hidden.iter().any(|hidden| hidden == method) {
            return Ok(());
        }
        let text = format!("'{}' object has no attribute '{method}'", api.class());
        Err(Raise::new(Class::Attribute, text))
    }

    fn call(
        &mut self,
        object: &str,
        method: &str,
        arguments: Vec<Value>,
        keywords: Vec<(String, Value)>,
    ) -> Result<Value, Raise> {
        let long = self.long.as_deref();
        match self.instances.iter_mut().find(|(name, _)| name == object) {
            Some((_, instance)) => instance.call(method, arguments, keywords, long),
            None => Err(Raise::new(Class::Name, format!("name '{object}' is not defined"))),
        }
    }
}

fn shown_or_error(result: Result<Value, Raise>) -> String {
    match result.and_then(|value| shown(&value)) {
        Ok(text) => text,
        Err(raise) => format!("Error during execution: {}", raise.text),
    }
}

/// Formats a result: strings unchanged, dictionaries as JSON if possible, other values as `str`.
fn shown(value: &Value) -> Result<String, Raise> {
    if value.is_too_long() {
        let text = "Exceeds the limit (4300 digits) for integer string conversion";
        return Err(Raise::value_error(text));
    }
    if let Value::Dict(_) = value {
        let mut json = String::new();
        if value.write_json(&mut json).is_ok() {
            return Ok(json);
        }
    }
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const APIS: [Api; 4] = [Api::Files, Api::Maths, Api::Tickets, Api::Vehicle];

    fn play(calls: &[&str]) -> Vec<String> {
        let config = Dict::new();
        let scenario = Scenario { id: "multi_turn_base_0", apis: &APIS, config: &config, long: None };
        let mut session = Session::new(scenario, "m-1");
        calls.iter().map(|call| session.execute(call)).collect()
    }

    #[test]
    fn results_have_the_forms_of_the_original() {
        let texts = play(&[
            "pwd()",
            "touch('a')",
            "list_users()",
            "get_user_tickets()",
            "logarithm(8, 2, 5)",
            "add(a=1, b=multiply(a=2, b=3)['result'])",
            "power(10, 5000)",
            "kill(1)",
            "GorillaFileSystem.pwd()",
            "pwd",
            "pwd(",
        ]);
        let expected = [
            r#"{"current_working_directory": "//"}"#,
            "None",
            "Error during execution: name 'list_users' is not defined",
            "[{'error': 'User not authenticated. Please log in to view tickets.'}]",
            "{'result': mpf('3.0')}",
            r#"{"result": 7}"#,
            "Error during execution: Exceeds the limit (4300 digits) for integer string conversion",
            "Error during execution: Function call kill is not allowed.",
            "Error during execution: name 'GorillaFileSystem' is not defined",
            "Error during execution: name 'pwd' is not defined",
            "Error during execution: '(' was never closed (<string>, line 1)",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn names_before_brackets_are_qualified_in_texts_too() {
        let texts = play(&["echo(content='say cd (x) and so (y)')"]);
        let object = "m_1_multi_turn_base_0_GorillaFileSystem_instance";
        assert_eq!(texts, [format!("{{\"terminal_output\": \"say {object}.cd(x) and so(y)\"}}")]);
    }
}
