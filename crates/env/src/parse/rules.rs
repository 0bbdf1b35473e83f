//! Response rules of prompt templates.

use serde::Deserialize;

use super::CallFormat;

/// How a response contains the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// The action is the first line, after optional reasoning (`reasoning_tags`).
    Line,
    /// The action is in tags (`action_tags`) after the reasoning (`reasoning_tags`).
    Tags,
    /// Tool calls (`calls`) after reasoning in tags.
    Call,
    /// A block whose tag names the action's kind (`action_names`), such as `<search>..</search>`.
    /// The action includes the tags; the text between them is trimmed.
    Named,
    /// The action follows a label (`label`) at a line's start, such as ReAct's `Action: ..`.
    Label,
    /// The value of `"action"` in a JSON object.
    Json,
}

/// Which block or JSON object is the action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// The block after the reasoning; it must be the only one and not empty. Reasoning that is not
    /// closed extends to the end of the response, which then has no action. With `style = "json"`,
    /// the first JSON object after the reasoning is used; others are ignored.
    #[default]
    One,
    /// verl-agent's rules:
    ///
    /// * `tags`: the text between the first opening and the first closing tag, even if it is empty
    ///   or inside the reasoning. If a closing tag comes first, the action is empty. Reasoning, if
    ///   required, may be anywhere in the response.
    /// * `json` (EZPoints): the admissible action that occurs after the first `"action":` of the
    ///   lower-cased response; no other admissible action may occur there. Without `"action":`,
    ///   only the last character is searched, because Python's `find` returns -1. `10` is removed
    ///   from the text before it is searched for `1`.
    /// * `named` (search): the response is cut after the first closing tag of the first name or, if
    ///   that tag is missing, of the second name. The action is the first block with the first name
    ///   or, without such a block, with the second name; letter case is ignored. A response with
    ///   several opening tags is malformed.
    Any,
    /// Search-R1's rules for `style = "named"`: the response is cut as for `any`; the action is
    /// then the first block with either name.
    First,
}

/// How to treat a response without reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningDemand {
    /// Accept it.
    #[default]
    Optional,
    /// Mark it malformed.
    Required,
}

/// How to treat upper-case letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Keep them.
    #[default]
    Keep,
    /// Lower-case the response before parsing, as verl-agent does, but match reasoning tags
    /// case-sensitively.
    Lower,
}

/// The keys of a template's `[response]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ResponseRules {
    /// How the action is written.
    pub style: Style,
    /// The action's tags, for `style = "tags"` and `"call"`.
    #[serde(default = "action_tags")]
    pub action_tags: [String; 2],
    /// Tool call format, for `style = "call"`.
    #[serde(default)]
    pub calls: CallFormat,
    /// Whether a response without a call is a text answer rather than malformed, for
    /// `style = "call"`.
    #[serde(default)]
    pub text_answer: bool,
    /// Error message for a malformed call, with an optional `{reason}`, for `style = "call"`.
    #[serde(default = "error")]
    pub error: String,
    /// Tag names without brackets, for `style = "named"`.
    #[serde(default = "action_names")]
    pub action_names: Vec<String>,
    /// Which block or object is the action, for `style = "tags"`, `"json"` and `"named"`.
    #[serde(default)]
    pub blocks: Blocks,
    /// The reasoning's tags.
    #[serde(default = "reasoning_tags")]
    pub reasoning_tags: [String; 2],
    /// How to treat a response without reasoning, for `style = "tags"`, for `"call"`, and for
    /// `"named"` with `blocks = "one"`.
    #[serde(default)]
    pub reasoning: ReasoningDemand,
    /// Label without colon, for `style = "label"`.
    #[serde(default = "label")]
    pub label: String,
    /// How to treat upper-case letters, for `style = "line"`, `"label"`, `"tags"` and `"call"`.
    #[serde(default)]
    pub case: Case,
    /// First and last character of a range; a response that contains a character of this range is
    /// malformed.
    #[serde(default)]
    pub forbidden: Option<[char; 2]>,
    /// Number of Unicode scalar values at the end of a malformed response that are sent as the
    /// action (verl-agent: 30 for ALFWorld, 20 for WebShop).
    #[serde(default = "tail")]
    pub tail: usize,
    /// Whether to trim the text that is sent as the action of a malformed response.
    #[serde(default = "yes")]
    pub trim_tail: bool,
}

impl ResponseRules {
    /// Creates a style's rules with defaults.
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

    /// Returns whether responses contain `action_tags`.
    pub fn uses_action_tags(&self) -> bool {
        self.style == Style::Tags || (self.style == Style::Call && self.calls == CallFormat::Hermes)
    }

    /// Rejects keys that the style ignores, if the template itself sets them. Keys inherited from
    /// the base template are not checked.
    pub(crate) fn check_effect<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for key in keys {
            let (read, by) = match key {
                "action_tags" => {
                    (self.uses_action_tags(), "`style = \"tags\"`, and `\"call\"` with `calls = \"hermes\"`")
                }
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
