//! Renders the shop's pages as `text`, as `text_rich` and as a list of clickable items.
//!
//! The original renders HTML and then parses it. This renderer produces the same result without
//! HTML. Whitespace between tags becomes one space, or nothing if it contains a newline. `text`
//! strips whitespace from each part, whereas `text_rich` does not.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::python::{json_string, strip};

/// Kind of a page part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Text that is not clickable.
    Plain,
    /// A button.
    Button,
    /// An option value.
    Option {
        /// Whether the option value is selected.
        chosen: bool,
    },
    /// A link to a product.
    Link {
        /// Whether the product has been opened since the last `back to search`.
        visited: bool,
    },
}

/// A piece of text on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Kind of the part.
    pub kind: PartKind,
    /// Unstripped text.
    pub text: Cow<'a, str>,
}

/// Effect of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Presses the button with the given text.
    Button,
    /// Opens the product at the given index in the page's list.
    Product(usize),
    /// Selects a value of the option with the given index.
    Option(usize),
}

/// Contents of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageView<'a> {
    /// All texts on the page, in order.
    pub parts: Vec<Part<'a>>,
    /// Whether the page has a search bar.
    pub has_search_bar: bool,
    /// Clickable items in the original's order, with their effects.
    pub clickables: Vec<(Cow<'a, str>, Target)>,
}

/// Text format of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObservationMode {
    /// Parts joined by ` [SEP] `.
    #[default]
    Text,
    /// One line per part, with buttons and options marked.
    TextRich,
}

/// Which state credit methods use to compare turns ([`turnwise_core::Observation::state_key`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateKey {
    /// The page text, as in verl-agent. With `observation = "text"`, pages do not show selected
    /// options, so selecting one does not change the state.
    #[default]
    Page,
    /// The page text and, on product pages, the selected options.
    PageAndOptions,
}

impl<'a> PageView<'a> {
    pub(super) fn push(&mut self, kind: PartKind, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        let spaces = text.chars().all(|character| matches!(character, ' ' | '\n' | '\t' | '\u{c}' | '\r'));
        match (text.is_empty(), spaces) {
            (true, _) => {}
            (false, true) if text.contains('\n') => {}
            (false, true) => self.parts.push(Part { kind, text: " ".into() }),
            (false, false) => self.parts.push(Part { kind, text }),
        }
    }

    pub(super) fn plain(&mut self, text: impl Into<Cow<'a, str>>) {
        self.push(PartKind::Plain, text);
    }

    pub(super) fn button(&mut self, text: &'static str, clickable: &'static str) {
        self.push(PartKind::Button, text);
        self.clickables.push((clickable.into(), Target::Button));
    }

    pub(super) fn link(&mut self, asin: Cow<'a, str>, index: usize, visited: bool) {
        self.clickables.push((asin.to_lowercase().into(), Target::Product(index)));
        self.push(PartKind::Link { visited }, asin);
    }

    /// Appends option values. A value equal to an existing item replaces the item in place. If two
    /// options have the same value, the last one wins.
    pub(super) fn choices(&mut self, values: impl Iterator<Item = (usize, &'a str)>) {
        let mut indices: HashMap<Cow<'a, str>, usize> =
            self.clickables.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        for (group, value) in values {
            if let Some(index) = indices.get(value) {
                self.clickables[*index].1 = Target::Option(group);
            } else {
                indices.insert(value.into(), self.clickables.len());
                self.clickables.push((value.into(), Target::Option(group)));
            }
        }
    }

    /// Returns the effect of clicking on an item, or `None` if the page does not have it.
    pub fn target(&self, name: &str) -> Option<Target> {
        self.clickables.iter().find(|(clickable, _)| clickable == name).map(|(_, target)| *target)
    }

    /// Renders the page as text for the agent.
    pub fn render(&self, mode: ObservationMode) -> String {
        match mode {
            ObservationMode::Text => self.text(),
            ObservationMode::TextRich => self.text_rich(),
        }
    }

    fn text(&self) -> String {
        let mut out = String::with_capacity(self.parts.iter().map(|part| part.text.len() + 7).sum());
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                out.push_str(" [SEP] ");
            }
            out.push_str(strip(&part.text));
        }
        out
    }

    fn text_rich(&self) -> String {
        let mut clicked = String::new();
        let mut out = String::with_capacity(self.parts.iter().map(|part| part.text.len() + 24).sum());
        for part in &self.parts {
            let (before, after) = match part.kind {
                PartKind::Plain => ("", ""),
                PartKind::Button => ("[button] ", " [button_]"),
                PartKind::Option { chosen: false } => ("  [button] ", " [button_]"),
                PartKind::Option { chosen: true } => {
                    // Each line is inserted before the earlier ones.
                    clicked.insert_str(0, &format!("You have clicked {}.\n", part.text));
                    ("  [clicked button] ", " [clicked button_]")
                }
                PartKind::Link { visited: false } => ("\n[button] ", " [button_]"),
                PartKind::Link { visited: true } => ("\n[clicked button] ", " [clicked button_]"),
            };
            for piece in [before, &part.text, after, "\n"] {
                out.push_str(piece);
            }
        }
        if clicked.is_empty() { out } else { clicked + &out }
    }

    /// Returns the admissible actions: `search[<your query>]` if there is a search bar, then one
    /// click per item.
    pub fn admissible(&self) -> Vec<String> {
        let search = self.has_search_bar.then(|| SEARCH.to_owned());
        let click = |(name, _): &(Cow<'a, str>, Target)| format!("click[{name}]");
        // The original also lists `click[search]`, which has no effect.
        let clicks = self.clickables.iter().filter(|(name, _)| name != "search").map(click);
        search.into_iter().chain(clicks).collect()
    }
}

/// Pattern that represents any search in the list of admissible actions.
pub(crate) const SEARCH: &str = "search[<your query>]";

/// Returns the selected options for the page after the purchase, as HTML-escaped JSON with sorted
/// keys.
pub(super) fn options_json(options: &[(String, String)]) -> String {
    let mut sorted: Vec<&(String, String)> = options.iter().collect();
    sorted.sort();
    let plain = dumps(sorted.into_iter());
    plain.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").replace('\'', "\\u0027")
}

pub(super) fn dumps<'a>(options: impl Iterator<Item = &'a (String, String)>) -> String {
    let mut out = String::from("{");
    for (number, (name, value)) in options.enumerate() {
        if number > 0 {
            out.push_str(", ");
        }
        json_string(&mut out, name);
        out.push_str(": ");
        json_string(&mut out, value);
    }
    out.push('}');
    out
}
