//! Formats observations for prompts.

use std::borrow::Cow;

use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ObservationSection {
    pub(super) goal_marker: String,
    pub(super) keep_goal: bool,
    /// Text that ends the goal; by default, the goal ends with its line. With `goal_end`, removing
    /// the goal also removes the text before the goal's marker.
    goal_end: Option<String>,
    /// Separator between the parts of an observation; prompts replace it with `join`.
    #[serde(default)]
    separator: String,
    #[serde(default)]
    join: String,
    #[serde(default)]
    quote: String,
    /// Lower-cases goals and observations, but not actions.
    #[serde(default)]
    lowercase: bool,
}

impl ObservationSection {
    /// Appends the observation to the prompt. With `strip`, the goal is removed, and so are lines
    /// or parts that contain nothing else.
    pub(super) fn push(&self, out: &mut String, goal: &str, observation: &str, strip: bool) {
        if !strip {
            self.push_parts(out, observation);
            return;
        }
        let mut shown = String::with_capacity(observation.len());
        let mut rest = observation;
        while !self.goal_marker.is_empty() {
            let Some(at) = rest.find(&self.goal_marker) else { break };
            let goal = &rest[at + self.goal_marker.len()..];
            match &self.goal_end {
                None => {
                    shown.push_str(rest[..at].trim_end());
                    rest = goal.find('\n').map_or("", |end| &goal[end..]);
                }
                Some(end) => rest = goal.split_once(end.as_str()).map_or("", |(_, after)| after),
            }
        }
        shown.push_str(rest);
        self.push_parts(out, &self.without_statements(goal, &shown));
    }

    pub(super) fn cased<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.lowercase { text.to_lowercase().into() } else { text.into() }
    }

    fn without_statements<'a>(&self, goal: &str, text: &'a str) -> Cow<'a, str> {
        let goal = goal.trim();
        if goal.is_empty() || !text.contains(goal) {
            return text.into();
        }
        let without = |text: &str, between: &str| {
            let kept: Vec<&str> = text.split(between).filter(|piece| piece.trim() != goal).collect();
            kept.join(between)
        };
        let text = without(text, "\n");
        if self.separator.is_empty() { text } else { without(&text, &self.separator) }.into()
    }

    fn push_parts(&self, out: &mut String, text: &str) {
        if self.separator.is_empty() {
            out.push_str(&self.cased(text));
            return;
        }
        for (number, part) in text.split(self.separator.as_str()).enumerate() {
            if number > 0 {
                out.push_str(&self.join);
            }
            for piece in [&self.quote, &*self.cased(part), &self.quote] {
                out.push_str(piece);
            }
        }
    }
}
