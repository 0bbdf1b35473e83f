//! Parses responses into actions.
//!
//! A malformed response is also sent to the environment, which rejects its text. The response's
//! turn is marked invalid and gets the invalid-action penalty.

mod calls;
mod named;
mod rules;
#[cfg(test)]
mod tests;

use serde_json::Value;
use turnwise_core::{Action, Reasoning, ToolCall, Turn};

pub use self::calls::{CallFormat, calls_of_words};
pub use self::rules::{Blocks, Case, ReasoningDemand, ResponseRules, Style};
use crate::python::{is_space, strip};

/// The action in a response.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedAction {
    /// Text sent to the environment.
    pub action: String,
    /// Tool calls in order; if there are any, `action` contains their text, one call per line.
    pub calls: Vec<ToolCall>,
    /// Whether the response contains a valid action.
    pub valid: bool,
    /// Why the response is invalid.
    pub reason: Option<&'static str>,
    /// Error message of a malformed call, in environments with tools.
    pub error: Option<String>,
}

impl ParsedAction {
    /// Returns one action per call. The first call gets the id `id`, to which the tool result
    /// refers. Further calls get the ids `id_1`, `id_2` and so on.
    pub fn into_actions(self, id: &str) -> Vec<Action> {
        if let Some(error) = self.error {
            return vec![Action::Malformed { text: self.action, error }];
        }
        if self.calls.is_empty() {
            return vec![Action::from(self.action)];
        }
        let numbered = |(number, call): (usize, ToolCall)| {
            let id = if number == 0 { id.to_owned() } else { format!("{id}_{number}") };
            Action::Call(ToolCall { id, ..call })
        };
        self.calls.into_iter().enumerate().map(numbered).collect()
    }
}

/// Parses responses by a template's [`ResponseRules`].
///
/// If `admissible` is true and the environment lists admissible actions, the action must match a
/// listed one. A listed `name[<placeholder>]` matches any non-empty `name[..]` and
/// `<name>..</name>`; a listed `name(<..>)` matches any call of that function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionParser {
    rules: ResponseRules,
    admissible: bool,
}

impl ActionParser {
    /// Creates a parser; `admissible` makes unlisted actions invalid.
    pub fn new(rules: ResponseRules, admissible: bool) -> Self {
        Self { rules, admissible }
    }

    /// Parses a response.
    pub fn parse(&self, response: &str, admissible: &[String]) -> ParsedAction {
        let rules = &self.rules;
        let (mut calls, mut error) = (Vec::new(), None);
        let (action, reason) = match (rules.style, rules.blocks) {
            (Style::Line, _) => past_reasoning(rules, response, |text| line(rules, text)),
            (Style::Label, _) => past_reasoning(rules, response, |text| labelled(rules, response, text)),
            (Style::Tags, Blocks::One) => one_block(rules, response),
            (Style::Tags, _) => any_block(rules, response),
            (Style::Named, _) => named::read(rules, response),
            (Style::Call, _) => match called(rules, response) {
                Ok((words, read)) => {
                    calls = read;
                    (words, None)
                }
                Err((words, reason)) => {
                    error = Some(rules.error.replace("{reason}", reason));
                    (words, Some(reason))
                }
            },
            (Style::Json, Blocks::One) => {
                past_reasoning(rules, response, |text| first_object(rules, response, text))
            }
            (Style::Json, _) => any_object(response, admissible),
        };
        let forbidden = || {
            let [from, to] = rules.forbidden?;
            let has = response.contains(|character| (from..=to).contains(&character));
            has.then_some("it has characters that are forbidden")
        };
        let reason = reason.or_else(forbidden).or_else(|| {
            let foreign =
                self.admissible && !admissible.is_empty() && !all_offered(admissible, &action, &calls);
            foreign.then_some("the action is not admissible")
        });
        ParsedAction { action, calls, valid: reason.is_none(), reason, error }
    }
}

fn all_offered(admissible: &[String], action: &str, calls: &[ToolCall]) -> bool {
    match calls.len() {
        0 | 1 => offered(admissible, action),
        _ => calls.iter().all(|call| offered(admissible, &Action::Call(call.clone()).text())),
    }
}

/// Returns true if an action is listed or matches a pattern: `search[<your query>]` matches
/// `search[shoes]` and `<search>shoes</search>`.
pub fn offered(admissible: &[String], action: &str) -> bool {
    admissible.iter().any(|listed| admits(listed, action))
}

/// Among the turns that list admissible actions, returns the fraction whose action is not listed,
/// or `None` if no turn lists any.
pub fn inadmissible_rate<'a>(turns: impl Iterator<Item = &'a Turn>) -> Option<f64> {
    let (mut listed, mut foreign) = (0_usize, 0_usize);
    for turn in turns.filter(|turn| !turn.admissible.is_empty()) {
        listed += 1;
        foreign += usize::from(!offered(&turn.admissible, &turn.action));
    }
    (listed > 0).then(|| foreign as f64 / listed as f64)
}

fn admits(listed: &str, action: &str) -> bool {
    let open = || listed.strip_suffix(">]")?.split_once("[<").map(|(name, _)| name);
    let called = || listed.strip_suffix(">)")?.split_once("(<").map(|(name, _)| name);
    listed == action
        || called().is_some_and(|name| ToolCall::from_text(action).is_some_and(|call| call.name == name))
        || open().is_some_and(|name| {
            let argument =
                action.strip_prefix(name).and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
            let argument = argument.or_else(|| named::inside(action, name));
            argument.is_some_and(|argument| !argument.trim().is_empty())
        })
}

type Read = (String, Option<&'static str>);

fn line(rules: &ResponseRules, text: &str) -> Read {
    let action = rules.cased(text.split(['\n', '\r']).next().unwrap_or_default().trim());
    let reason = action.is_empty().then_some("the first line is empty");
    (action, reason)
}

/// Reads the action from the first line that has the label, an optional number and a colon. Later
/// lines often contain observations that the model made up.
fn labelled(rules: &ResponseRules, response: &str, text: &str) -> Read {
    let action = text.lines().find_map(|line| {
        let (label, action) = line.trim_start().split_once(':')?;
        let number = label.strip_prefix(rules.label.as_str())?.trim();
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| action.trim())
    });
    match action {
        Some(action) => (rules.cased(action), action.is_empty().then_some("the line of the action is empty")),
        None => (rules.tail(response), Some("there is no line with an action")),
    }
}

/// Returns the reasoning and the text after it. If the reasoning is not closed, the error contains
/// the text to send as the action and the reason why the response is invalid.
fn after_reasoning<'a>(rules: &ResponseRules, response: &'a str) -> Result<(Reasoning<'a>, &'a str), Read> {
    let [open, close] = &rules.reasoning_tags;
    let reasoning = Reasoning::between(response, open, close);
    let unclosed = "the reasoning is not closed, so that all that follows belongs to it";
    let answer = reasoning.answer().ok_or_else(|| (rules.tail(response), Some(unclosed)))?;
    Ok((reasoning, answer))
}

/// Reads the action from the text after the reasoning, because the reasoning may contain draft
/// actions.
fn past_reasoning(rules: &ResponseRules, response: &str, read: impl FnOnce(&str) -> Read) -> Read {
    if !response.trim_start().starts_with(rules.reasoning_tags[0].as_str()) {
        return read(response);
    }
    match after_reasoning(rules, response) {
        Ok((_, answer)) => read(answer.trim_start()),
        Err(unclosed) => unclosed,
    }
}

fn one_block(rules: &ResponseRules, response: &str) -> Read {
    let (reasoning, answer) = match after_reasoning(rules, response) {
        Ok((reasoning, answer)) => (reasoning, rules.cased(answer)),
        Err(unclosed) => return unclosed,
    };
    let [open, close] = &rules.action_tags;
    let block = answer.split_once(open.as_str()).and_then(|(_, rest)| rest.split_once(close.as_str()));
    let Some((block, after)) = block else {
        return (rules.tail(response), Some("there is no block with an action after the reasoning"));
    };
    let action = strip(block);
    let has = |text: &str, tag: &str| text.contains(tag);
    let reason = if action.is_empty() {
        Some("the block of the action is empty")
    } else if has(block, open) || has(after, open) || has(after, close) {
        Some("there is more than one block with an action")
    } else if rules.reasoning == ReasoningDemand::Required && matches!(reasoning, Reasoning::None(_)) {
        Some("there is no reasoning before the action")
    } else {
        None
    };
    (action.to_owned(), reason)
}

/// Returns the calls after the reasoning and their text or, if there are no calls and the rules
/// allow it, the text answer. The error contains the text to send as the action and the reason why
/// the response is invalid.
fn called(rules: &ResponseRules, response: &str) -> Result<(String, Vec<ToolCall>), (String, &'static str)> {
    let unread = |(text, reason): Read| (text, reason.unwrap_or("there is no call after the reasoning"));
    let (reasoning, answer) = after_reasoning(rules, response).map_err(unread)?;
    let answer = rules.cased(answer);
    let sent = || {
        let [open, close] = &rules.action_tags;
        let block = answer.split_once(open.as_str()).and_then(|(_, rest)| rest.split_once(close.as_str()));
        match block {
            Some((block, _)) if rules.calls == CallFormat::Hermes => strip(block).to_owned(),
            _ => rules.tail(response),
        }
    };
    let calls = rules.calls.read(rules, &answer).map_err(|reason| (sent(), reason))?;
    if calls.is_empty() && (!rules.text_answer || strip(&answer).is_empty()) {
        return Err((sent(), "there is no call after the reasoning"));
    }
    if rules.reasoning == ReasoningDemand::Required && matches!(reasoning, Reasoning::None(_)) {
        return Err((sent(), "there is no reasoning before the call"));
    }
    if calls.is_empty() {
        return Ok((strip(&answer).to_owned(), calls));
    }
    let words: Vec<String> =
        calls.iter().map(|call| Action::Call(call.clone()).text().into_owned()).collect();
    Ok((words.join("\n"), calls))
}

fn any_block(rules: &ResponseRules, response: &str) -> Read {
    let text = rules.cased(response);
    let [open, close] = &rules.action_tags;
    let (Some(start), Some(end)) = (text.find(open.as_str()), text.find(close.as_str())) else {
        return (rules.tail(response), Some("a tag of the action is missing"));
    };
    // The closing tag may come first.
    let action = text.get(start + open.len()..end).unwrap_or_default();
    let required = rules.reasoning == ReasoningDemand::Required;
    let missing = required && rules.reasoning_tags.iter().any(|tag| !response.contains(tag.as_str()));
    (strip(action).to_owned(), missing.then_some("a tag of the reasoning is missing"))
}

fn first_object(rules: &ResponseRules, response: &str, text: &str) -> Read {
    let object = text.match_indices('{').find_map(|(start, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match values.next()?.ok()? {
            Value::Object(object) => Some(object),
            _ => None,
        }
    });
    let Some(object) = object else {
        return (rules.tail(response), Some("there is no JSON object in it"));
    };
    let action = match object.get("action") {
        Some(Value::String(action)) => action.trim().to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let reason = action.is_empty().then_some("the JSON object has no `action`");
    (action, reason)
}

fn any_object(response: &str, admissible: &[String]) -> Read {
    let lower = response.to_lowercase();
    let mut text = match lower.find("\"action\":") {
        Some(start) => lower[start..].to_owned(),
        None => lower.chars().last().map(String::from).unwrap_or_default(),
    };
    let ten = text.contains("10");
    text = text.replace("10", "");
    let mut contained = admissible.iter().filter(|action| match action.as_str() {
        "10" => ten,
        action => text.contains(action),
    });
    match (contained.next(), contained.next()) {
        (Some(only), None) => (only.clone(), None),
        (Some(_), Some(_)) => (String::new(), Some("there is more than one action in it")),
        (None, _) => (String::new(), Some("there is no action in it")),
    }
}

impl ResponseRules {
    fn cased(&self, text: &str) -> String {
        match self.case {
            Case::Keep => text.to_owned(),
            Case::Lower => text.to_lowercase(),
        }
    }

    /// Returns the last `tail` characters of the response, counting Unicode scalar values as Python
    /// does.
    fn tail(&self, response: &str) -> String {
        let text = self.cased(response);
        let start = match self.tail.checked_sub(1) {
            None => text.len(),
            Some(before) => text.char_indices().rev().nth(before).map_or(0, |(start, _)| start),
        };
        let tail = &text[start..];
        if self.trim_tail { tail.trim_matches(is_space) } else { tail }.to_owned()
    }
}
