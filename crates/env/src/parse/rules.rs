//! Response parsing rules, which are part of a prompt template.

use serde::Deserialize;

use super::CallFormat;

/// How the action is written in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// The first line of the response is the action. Reasoning at the start (`reasoning_tags`) is
    /// skipped.
    Line,
    /// The action is inside tags (`action_tags`) and follows the reasoning, which has its own tags
    /// (`reasoning_tags`).
    Tags,
    /// The response makes tool calls (`calls`) after reasoning inside tags.
    Call,
    /// The action is a block whose tag names its kind (`action_names`), such as
    /// `<search>..</search>` or `<answer>..</answer>`. The tags are kept as part of the action, and
    /// its content is trimmed.
    Named,
    /// The action follows a label (`label`) at the start of a line, such as ReAct's `Action: ..`.
    Label,
    /// The action is the value of `"action"` in a JSON object.
    Json,
}

/// Which tagged block or JSON object is the action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// The only block after the reasoning, which must not be empty. Unclosed reasoning extends to
    /// the end, so a response truncated during reasoning contains no action.
    #[default]
    One,
    /// The same block as in verl-agent, which depends on the style.
    ///
    /// * `tags`: everything between the first opening tag and the first closing tag, even inside
    ///   the reasoning or if empty. There is no action if a closing tag comes first. Required
    ///   reasoning may be anywhere in the response.
    /// * `json` (EZPoints): the only admissible action after the first `"action":` in the
    ///   lower-cased response. Without `"action":`, only the last character is searched, because
    ///   Python's `find` returns -1. A response that does not contain exactly one action is
    ///   malformed. `10` is matched and removed first, so that it does not also match `1`.
    /// * `named` (search): the response is truncated after the first closing tag with the first
    ///   name. If the first name has no closing tag, the second name is used. The action is the
    ///   first block with the first name or, failing that, the second name. Letter case is ignored.
    ///   A response without a block or with several opening tags is malformed.
    Any,
    /// As in Search-R1, for `style = "named"`. The response is truncated as for `any`, and the
    /// action is the first block with either name. A response with at least one such block is
    /// well-formed.
    First,
}

/// How to handle a response without reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningDemand {
    /// Accept it.
    #[default]
    Optional,
    /// Mark it malformed.
    Required,
}

/// How to handle upper-case letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Keep them.
    #[default]
    Keep,
    /// Lower-case the response before parsing the action, as verl-agent does. Reasoning tags are
    /// matched in the original response.
    Lower,
}

/// Response parsing rules: the keys of a template's `[response]` section.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ResponseRules {
    /// How the action is written.
    pub style: Style,
    /// Opening and closing tags of the action, for `style = "tags"` and `"call"`.
    #[serde(default = "action_tags")]
    pub action_tags: [String; 2],
    /// Tool call format, for `style = "call"`.
    #[serde(default)]
    pub calls: CallFormat,
    /// If true, a response without a call is sent to the environment as a text answer. If false, a
    /// response without a call is malformed. For `style = "call"`.
    #[serde(default)]
    pub text_answer: bool,
    /// Error message for a malformed call, for `style = "call"`. It may contain `{reason}`.
    #[serde(default = "error")]
    pub error: String,
    /// Tag names without angle brackets, for `style = "named"`.
    #[serde(default = "action_names")]
    pub action_names: Vec<String>,
    /// Which block or object is the action, for `style = "tags"`, `"json"` and `"named"`.
    #[serde(default)]
    pub blocks: Blocks,
    /// Opening and closing tags of the reasoning before the action.
    #[serde(default = "reasoning_tags")]
    pub reasoning_tags: [String; 2],
    /// How to handle a response without reasoning, for `style = "tags"`, `"call"`, and `"named"`
    /// with one block.
    #[serde(default)]
    pub reasoning: ReasoningDemand,
    /// The label without its colon, for `style = "label"`.
    #[serde(default = "label")]
    pub label: String,
    /// How to handle upper-case letters, for `style = "line"`, `"label"`, `"tags"` and `"call"`.
    #[serde(default)]
    pub case: Case,
    /// Characters that make a response malformed, given as the first and last of a range.
    #[serde(default)]
    pub forbidden: Option<[char; 2]>,
    /// Number of characters (Unicode scalar values) at the end of a malformed response to send as
    /// the action. verl-agent sends 30 to ALFWorld and 20 to WebShop.
    #[serde(default = "tail")]
    pub tail: usize,
    /// Whether to trim whitespace from the text sent for a malformed response.
    #[serde(default = "yes")]
    pub trim_tail: bool,
}

impl ResponseRules {
    /// Creates rules for the given style, with defaults for all other keys.
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

    /// Rejects keys that are set by the template itself but not used by its style. Inherited keys
    /// are allowed even if unused. The error names the key and the styles that use it.
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

    /// Rejects rules that no response can match. The error names the key and its valid values.
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
