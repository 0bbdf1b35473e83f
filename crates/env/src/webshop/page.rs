//! Renders pages as `text`, `text_rich` and a list of clickable items.
//!
//! As with the original's HTML, whitespace between tags becomes one space, or nothing if it
//! contains a newline. Only the format `text` strips the whitespace around each part.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::python::{json_string, strip};

/// Kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Text that is not clickable.
    Plain,
    /// A button.
    Button,
    /// An option value.
    Option {
        /// Whether the value is selected.
        chosen: bool,
    },
    /// A link to a product.
    Link {
        /// Whether the product was opened since the last `back to search`.
        visited: bool,
    },
}

/// Piece of text on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Kind.
    pub kind: PartKind,
    /// Unstripped text.
    pub text: Cow<'a, str>,
}

/// Effect of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Presses the button.
    Button,
    /// Opens the product at this index in the list of results.
    Product(usize),
    /// Selects a value of the option at this index.
    Option(usize),
}

/// Contents of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageView<'a> {
    /// All texts in order.
    pub parts: Vec<Part<'a>>,
    /// Whether the page has a search bar.
    pub has_search_bar: bool,
    /// Clickable items with their effects, in the original's order.
    pub clickables: Vec<(Cow<'a, str>, Target)>,
}

/// Text format of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObservationMode {
    /// Parts joined by ` [SEP] `.
    #[default]
    Text,
    /// One line per part, with buttons marked.
    TextRich,
}

/// What credit methods compare to find equal states ([`turnwise_core::Observation::state_key`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateKey {
    /// Page text, as in verl-agent. With `observation = "text"`, the page text does not show which
    /// options are selected.
    #[default]
    Page,
    /// Page text and, on product pages, the selected options.
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

    /// Adds the values of options as clickable items. If an item with the same name exists, it
    /// keeps its position but selects the option value from then on.
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

    /// Returns the effect of clicking an item on the page.
    pub fn target(&self, name: &str) -> Option<Target> {
        self.clickables.iter().find(|(clickable, _)| clickable == name).map(|(_, target)| *target)
    }

    /// Renders the page for the agent.
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
                    // Later lines come first.
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

    /// Returns the admissible actions: [`SEARCH`] if the page has a search bar, then a click per
    /// item.
    pub fn admissible(&self) -> Vec<String> {
        let search = self.has_search_bar.then(|| SEARCH.to_owned());
        let click = |(name, _): &(Cow<'a, str>, Target)| format!("click[{name}]");
        // `click[search]`, which the original lists, has no effect.
        let clicks = self.clickables.iter().filter(|(name, _)| name != "search").map(click);
        search.into_iter().chain(clicks).collect()
    }
}

/// Placeholder for any search in the admissible actions.
pub(crate) const SEARCH: &str = "search[<your query>]";

/// Returns the options as JSON with sorted keys, escaped for HTML.
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
