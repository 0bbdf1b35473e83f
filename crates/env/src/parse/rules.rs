//! The rules that a response is read by: data of a prompt template.

use serde::Deserialize;

use super::CallFormat;

/// Form of the action in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// The response is the action, up to the end of its first line. Reasoning that it begins with (`reasoning_tags`) is left out.
    Line,
    /// In tags within free text (`action_tags`), after reasoning in its own tags
    /// (`reasoning_tags`).
    Tags,
    /// Calls of tools after reasoning in tags of its own, in one of several formats (`calls`).
    Call,
    /// A block whose tag names the kind of action (`action_names`), such as `<search>..</search>`
    /// and `<answer>..</answer>`. The action is the block with its tags; white space at the ends of
    /// its content is removed.
    Named,
    /// On a line that starts with a label (`label`), as ReAct writes `Action: ..`.
    Label,
    /// In a JSON object in free text, under `"action"`.
    Json,
}

/// Block of tags, or object, that is the action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// The only block after the reasoning, which must not be empty. Tags inside the reasoning do
    /// not count. Reasoning that is never closed extends to the end, so a response that was cut off
    /// while reasoning has no action.
    #[default]
    One,
    /// As in verl-agent. With `tags`: from the first opening to the first closing tag of the whole
    /// response, also inside the reasoning and if empty; no action if they are in the wrong order.
    /// Required reasoning may be anywhere. With `json` (EZPoints): everything from the first
    /// `"action":` of the lower-cased response, or else its last character (`find` returns -1
    /// there). The action is the one admissible action in it; none or several are malformed. `10`
    /// is found first and removed, so that it does not count as `1`. With `named` (search): the
    /// response is cut after the first closing tag of the first name, or else of the second. The
    /// first block of the first name counts, or else of the second, in any letter case. It is
    /// malformed without a block, or if the whole response has more than one opening tag.
    Any,
    /// As in Search-R1, with `style = "named"`: the response is cut in the same way, and the first
    /// block of either name counts. Any block is well-formed.
    First,
}

/// Judgement of a response without reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningDemand {
    /// It is as good as one with it.
    #[default]
    Optional,
    /// It is malformed.
    Required,
}

/// Treatment of upper-case letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// They stay.
    #[default]
    Keep,
    /// Lower-case the response before the action is parsed, as verl-agent does. Reasoning is
    /// checked in the original response.
    Lower,
}

/// The rules that a response is read by: keys of a template's `[response]` section.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ResponseRules {
    /// Form of the action.
    pub style: Style,
    /// Opening and closing tag of the action, for `style = "tags"` and `"call"`.
    #[serde(default = "action_tags")]
    pub action_tags: [String; 2],
    /// Format of calls, for `style = "call"`.
    #[serde(default)]
    pub calls: CallFormat,
    /// True if a response without a call is an answer in words, for `style = "call"`: it goes to the world whole. Otherwise it is
    /// malformed.
    #[serde(default)]
    pub text_answer: bool,
    /// The answer to a call that cannot be read, in worlds with tools, for `style = "call"`; `{reason}` is why.
    #[serde(default = "error")]
    pub error: String,
    /// Names of the tags, without their brackets, for `style = "named"`.
    #[serde(default = "action_names")]
    pub action_names: Vec<String>,
    /// Block or object that is the action, for `style = "tags"`, `"json"` and `"named"`.
    #[serde(default)]
    pub blocks: Blocks,
    /// Opening and closing tag of the reasoning, behind which the action is read.
    #[serde(default = "reasoning_tags")]
    pub reasoning_tags: [String; 2],
    /// Judgement of a response without reasoning, for `style = "tags"`, `"call"` and `"named"` with one block.
    #[serde(default)]
    pub reasoning: ReasoningDemand,
    /// The label, without its colon, for `style = "label"`.
    #[serde(default = "label")]
    pub label: String,
    /// Treatment of upper-case letters, for `style = "line"`, `"label"`, `"tags"` and `"call"`.
    #[serde(default)]
    pub case: Case,
    /// First and last of the characters whose presence makes a response malformed.
    #[serde(default)]
    pub forbidden: Option<[char; 2]>,
    /// Characters (Unicode scalar values) of a malformed response's end that are sent instead of an
    /// action. (verl-agent sends 30 to ALFWorld and 20 to WebShop.)
    #[serde(default = "tail")]
    pub tail: usize,
    /// True if white space at the ends of that tail is left out.
    #[serde(default = "yes")]
    pub trim_tail: bool,
}

impl ResponseRules {
    /// Creates a style with the default of every other key.
    pub fn new(style: Style) -> Self {
        Self {
            style,
            action_tags: action_tags(),
            calls: CallFormat::default(),
            text_answer: false,
            error: error(),
            action_names: action_names(),
            blocks: Blocks::default(),
            reasoning_tags: reasoning_tags(),
            reasoning: ReasoningDemand::default(),
            label: label(),
            case: Case::default(),
            forbidden: None,
            tail: tail(),
            trim_tail: yes(),
        }
    }

    /// Rejects keys that the template sets itself and these rules do not use. Keys from its base
    /// may stay.
    ///
    /// # Errors
    /// Returns the first such key and what would read it.
    pub(crate) fn check_effect<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for key in keys {
            let (read, by) = match key {
                "action_tags" => (
                    self.style == Style::Tags
                        || (self.style == Style::Call && self.calls == CallFormat::Hermes),
                    "`style = \"tags\"`, and `\"call\"` with `calls = \"hermes\"`",
                ),
                "calls" | "text_answer" | "error" => (self.style == Style::Call, "`style = \"call\"`"),
                "action_names" => (self.style == Style::Named, "`style = \"named\"`"),
                "label" => (self.style == Style::Label, "`style = \"label\"`"),
                "blocks" => (
                    matches!(self.style, Style::Tags | Style::Json | Style::Named),
                    "`style = \"tags\"`, `\"json\"` and `\"named\"`",
                ),
                "reasoning" => (
                    match self.style {
                        Style::Tags | Style::Call => true,
                        Style::Named => self.blocks == Blocks::One,
                        Style::Line | Style::Label | Style::Json => false,
                    },
                    "`style = \"tags\"`, `\"call\"` and `\"named\"` with `blocks = \"one\"`",
                ),
                "case" => (
                    !matches!(self.style, Style::Json | Style::Named),
                    "`style = \"line\"`, `\"label\"`, `\"tags\"` and `\"call\"`",
                ),
                "tail" | "trim_tail" => (
                    !(self.style == Style::Json && self.blocks == Blocks::Any),
                    "every style but `\"json\"` with `blocks = \"any\"`",
                ),
                _ => continue,
            };
            if !read {
                return Err(format!("response.{key}: it has no effect here; it is for {by}; leave it out"));
            }
        }
        Ok(())
    }

    /// Rejects rules that can find nothing.
    ///
    /// # Errors
    /// Returns the invalid key and its valid values.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (key, tags) in [("action_tags", &self.action_tags), ("reasoning_tags", &self.reasoning_tags)] {
            if tags.iter().any(String::is_empty) || tags[0] == tags[1] {
                return Err(format!(
                    "response.{key}: {tags:?} must be two different tags, such as [\"<action>\", \"</action>\"]"
                ));
            }
        }
        let name = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        if self.action_names.is_empty() || !self.action_names.iter().all(name) {
            return Err(format!(
                "response.action_names: {:?} must be names of tags in lower-case letters, such as [\"search\", \"answer\"]",
                self.action_names
            ));
        }
        if self.blocks == Blocks::First && self.style != Style::Named {
            return Err(
                "response.blocks: \"first\" is for `style = \"named\"`; use \"one\" or \"any\"".to_owned()
            );
        }
        if self.label.trim().is_empty() || self.label.contains(':') {
            return Err(format!(
                "response.label: {:?} must be a word, without the colon that follows it",
                self.label
            ));
        }
        let lower = |tag: &String| tag.to_lowercase() == *tag;
        if self.case == Case::Lower && !self.action_tags.iter().all(lower) {
            let tags = &self.action_tags;
            return Err(format!(
                "response.action_tags: {tags:?} are looked for in lower case (response.case), and are not"
            ));
        }
        Ok(())
    }
}

fn action_tags() -> [String; 2] {
    ["<action>", "</action>"].map(String::from)
}

fn error() -> String {
    "That is no call that can be read: {reason}.".to_owned()
}

fn action_names() -> Vec<String> {
    ["search", "answer"].map(String::from).to_vec()
}

fn reasoning_tags() -> [String; 2] {
    ["<think>", "</think>"].map(String::from)
}

fn label() -> String {
    "Action".to_owned()
}

fn tail() -> usize {
    30
}

fn yes() -> bool {
    true
}
