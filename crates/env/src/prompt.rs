//! How observations become prompts.
//!
//! A template is a TOML file: the texts of the prompts with placeholders in braces, and how a response
//! to them looks. Embedded are `alfworld` and `webshop` (free reasoning and tags; figures 12 to 15 of the STAPO
//! paper), `alfworld-verl-agent` and `webshop-verl-agent` (the prompts of that framework, with which the other papers
//! train), `alfworld-compact` and `webshop-compact` (the world's own words, for small policies), `alfworld-react` and
//! `webshop-react` (a thought and an action, one worked example). A user's file replaces them; with
//! `base = "alfworld"` it needs only the keys that differ.
//!
//! Placeholders: `{task_description}` the goal without its final full stop; `{step_count}` turns taken;
//! `{current_step}` that plus one; `{history_length}` earlier turns shown; `{action_history}` those
//! turns, one history line each; `{current_observation}`; `{admissible_actions}`. `{{` and `}}` are
//! literal braces.

mod text;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use turnwise_core::EnvError;

use self::text::{Rule, Slot, Text, nearest};
use crate::parse::ResponseStyle;

/// Which parts of the trajectory a masked prompt hides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mask {
    /// Goal and history: the trajectory-blind prompt.
    #[default]
    #[serde(rename = "goal+history")]
    GoalAndHistory,
    /// The goal only.
    #[serde(rename = "goal")]
    Goal,
    /// The history only.
    #[serde(rename = "history")]
    History,
}

/// Which prompt is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// Everything: goal, history, observation.
    Full,
    /// With a part of it hidden.
    Masked(Mask),
}

/// What a prompt is made of.
#[derive(Clone, Copy, Debug)]
pub struct PromptView<'a> {
    /// The goal as the task states it.
    pub goal: &'a str,
    /// The turns so far as (observation, action), the latest last. It may start later than the first turn.
    pub history: &'a [(String, String)],
    /// How many of them a windowed prompt shows at most.
    pub window: usize,
    /// What the agent sees now.
    pub observation: &'a str,
    /// What would be understood now.
    pub admissible: &'a [String],
    /// Turns taken before this one.
    pub step: usize,
}

const EMBEDDED: [(&str, &str); 8] = [
    ("alfworld", include_str!("../templates/alfworld.toml")),
    ("alfworld-compact", include_str!("../templates/alfworld-compact.toml")),
    ("alfworld-react", include_str!("../templates/alfworld-react.toml")),
    ("alfworld-verl-agent", include_str!("../templates/alfworld-verl-agent.toml")),
    ("webshop", include_str!("../templates/webshop.toml")),
    ("webshop-compact", include_str!("../templates/webshop-compact.toml")),
    ("webshop-react", include_str!("../templates/webshop-react.toml")),
    ("webshop-verl-agent", include_str!("../templates/webshop-verl-agent.toml")),
];

const KEYS: [(&str, &[&str]); 5] = [
    ("response", &["style", "think", "text", "end", "stop"]),
    ("observation", &["goal_marker", "keep_goal", "goal_end", "separator", "join", "quote", "lowercase"]),
    ("history", &["line", "separator", "max_chars"]),
    ("admissible", &["item", "separator", "exclude"]),
    (
        "prompt",
        &[
            "first",
            "later",
            "blind",
            "blind_goal",
            "blind_history",
            "concatenated_first",
            "concatenated_next",
        ],
    ),
];

/// Keys that have a default: `think` means nothing for one-line responses, the others little for observations in
/// sentences.
const OPTIONAL: [&str; 7] = ["think", "goal_end", "separator", "join", "quote", "lowercase", "max_chars"];

const FULL: Rule = Rule {
    allowed: &[
        Slot::TaskDescription,
        Slot::StepCount,
        Slot::HistoryLength,
        Slot::ActionHistory,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
    ],
    required: &[Slot::TaskDescription, Slot::ActionHistory, Slot::CurrentObservation],
    why: "it belongs to history lines and responses",
};
const NO_HISTORY: Rule = Rule {
    allowed: &[
        Slot::TaskDescription,
        Slot::StepCount,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
    ],
    required: &[Slot::CurrentObservation],
    why: "this prompt has no history",
};
const HIDDEN_HISTORY: Rule = Rule {
    allowed: NO_HISTORY.allowed,
    required: &[Slot::TaskDescription, Slot::CurrentObservation],
    why: NO_HISTORY.why,
};
const HIDDEN_GOAL: Rule = Rule {
    allowed: &[
        Slot::StepCount,
        Slot::HistoryLength,
        Slot::ActionHistory,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
    ],
    required: &[Slot::ActionHistory, Slot::CurrentObservation],
    why: "this prompt hides the goal",
};
const BLIND: Rule = Rule {
    allowed: &[Slot::StepCount, Slot::CurrentStep, Slot::CurrentObservation, Slot::AdmissibleActions],
    required: &[Slot::CurrentObservation],
    why: "this prompt hides goal and history",
};
const LINE: Rule = Rule {
    allowed: &[Slot::Step, Slot::Observation, Slot::Action],
    required: &[Slot::Observation, Slot::Action],
    why: "a history line shows one earlier turn",
};
const ITEM: Rule = Rule {
    allowed: &[Slot::Action],
    required: &[Slot::Action],
    why: "this is the form of one admissible action",
};
const RESPONSE: Rule = Rule {
    allowed: &[Slot::Action, Slot::Thought],
    required: &[Slot::Action],
    why: "a response is made of a thought and an action",
};

#[derive(Deserialize)]
struct File {
    response: ResponseSection,
    observation: ObservationSection,
    history: HistorySection,
    admissible: AdmissibleSection,
    prompt: PromptSection,
}

#[derive(Deserialize)]
struct ResponseSection {
    style: String,
    #[serde(default)]
    think: bool,
    text: String,
    end: String,
    stop: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ObservationSection {
    goal_marker: String,
    keep_goal: bool,
    /// What the goal ends before, where that is not the end of the line. Then what stands before the marker is part
    /// of the page's head and goes with the goal.
    goal_end: Option<String>,
    /// What stands between the parts of an observation, and what prompts have there instead.
    #[serde(default)]
    separator: String,
    #[serde(default)]
    join: String,
    /// What stands around every part in prompts.
    #[serde(default)]
    quote: String,
    /// Whether goals and observations are shown in lower case. Actions stay as they are.
    #[serde(default)]
    lowercase: bool,
}

#[derive(Deserialize)]
struct HistorySection {
    line: String,
    separator: String,
    /// A windowed prompt of more characters than this is replaced by the one without history.
    max_chars: Option<usize>,
}

#[derive(Deserialize)]
struct AdmissibleSection {
    item: String,
    separator: String,
    exclude: Vec<String>,
}

#[derive(Deserialize)]
struct PromptSection {
    first: String,
    later: String,
    blind: String,
    blind_goal: String,
    blind_history: String,
    concatenated_first: String,
    concatenated_next: String,
}

/// The prompts of one environment and the form of the responses to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTemplate {
    style: ResponseStyle,
    response: Text,
    end: String,
    stop: Vec<String>,
    observation: ObservationSection,
    line: Text,
    line_separator: String,
    max_chars: Option<usize>,
    item: Text,
    item_separator: String,
    exclude: Vec<String>,
    first: Text,
    later: Text,
    blind: Text,
    blind_goal: Text,
    blind_history: Text,
    concatenated_first: Text,
    concatenated_next: Text,
}

impl PromptTemplate {
    /// An embedded template.
    pub fn named(name: &str) -> Result<Self, EnvError> {
        let source = embedded(name).map_err(EnvError::Other)?;
        Self::parse(source, &format!("embedded template `{name}`"))
    }

    /// The names of the embedded templates.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The source of an embedded template, to start one's own from.
    pub fn source(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, source)| *source)
    }

    /// A template file.
    pub fn load(path: &Path) -> Result<Self, EnvError> {
        let file = path.display().to_string();
        let source =
            std::fs::read_to_string(path).map_err(|source| EnvError::Io { path: file.clone(), source })?;
        Self::parse(&source, &file)
    }

    /// Reads a template; `file` names it in errors.
    pub fn parse(source: &str, file: &str) -> Result<Self, EnvError> {
        Self::read(source).map_err(|reason| EnvError::File { path: file.to_owned(), reason })
    }

    fn read(source: &str) -> Result<Self, String> {
        let mut table: toml::Table = source.parse().map_err(|error: toml::de::Error| error.to_string())?;
        check_keys(&table)?;
        match table.remove("base") {
            None => {}
            Some(toml::Value::String(base)) => {
                let mut whole: toml::Table =
                    embedded(&base)?.parse().map_err(|error: toml::de::Error| error.to_string())?;
                for (section, values) in table {
                    if let (Some(toml::Value::Table(under)), toml::Value::Table(over)) =
                        (whole.get_mut(&section), values)
                    {
                        under.extend(over);
                    }
                }
                table = whole;
            }
            Some(_) => return Err("base: must be the name of an embedded template, in quotes".to_owned()),
        }
        for (section, keys) in KEYS {
            let Some(toml::Value::Table(values)) = table.get(section) else {
                return Err(format!(
                    "the section [{section}] is missing; add it, or start from `base = \"alfworld\"`"
                ));
            };
            let missing = |key: &&&str| !values.contains_key(**key) && !OPTIONAL.contains(*key);
            if let Some(missing) = keys.iter().find(missing) {
                return Err(format!(
                    "{section}.{missing} is missing; add it, or start from an embedded template with `base = \"alfworld\"`"
                ));
            }
        }
        let file: File = table.try_into().map_err(|error: toml::de::Error| error.to_string())?;
        Self::compile(file)
    }

    fn compile(file: File) -> Result<Self, String> {
        let text = |key: &str, source: &str, rule: &Rule| {
            Text::parse(source, rule).map_err(|reason| format!("{key}: {reason}"))
        };
        let style = match file.response.style.as_str() {
            "tags" => ResponseStyle::Tags { think: file.response.think },
            "line" => ResponseStyle::Line,
            "react" => ResponseStyle::React,
            other => {
                return Err(format!("response.style: `{other}` is not one of \"tags\", \"line\", \"react\""));
            }
        };
        let template = Self {
            style,
            response: text("response.text", &file.response.text, &RESPONSE)?,
            end: file.response.end,
            stop: file.response.stop,
            observation: file.observation,
            line: text("history.line", &file.history.line, &LINE)?,
            line_separator: file.history.separator,
            max_chars: file.history.max_chars,
            item: text("admissible.item", &file.admissible.item, &ITEM)?,
            item_separator: file.admissible.separator,
            exclude: file.admissible.exclude,
            first: text("prompt.first", &file.prompt.first, &NO_HISTORY)?,
            later: text("prompt.later", &file.prompt.later, &FULL)?,
            blind: text("prompt.blind", &file.prompt.blind, &BLIND)?,
            blind_goal: text("prompt.blind_goal", &file.prompt.blind_goal, &HIDDEN_GOAL)?,
            blind_history: text("prompt.blind_history", &file.prompt.blind_history, &HIDDEN_HISTORY)?,
            concatenated_first: text(
                "prompt.concatenated_first",
                &file.prompt.concatenated_first,
                &NO_HISTORY,
            )?,
            concatenated_next: text("prompt.concatenated_next", &file.prompt.concatenated_next, &NO_HISTORY)?,
        };
        if !template.observation.keep_goal && !template.first.has(Slot::TaskDescription) {
            return Err(
                "prompt.first: with observation.keep_goal = false no prompt but this states the goal at the \
                        first turn; add {task_description}"
                    .to_owned(),
            );
        }
        if template.stop.iter().any(String::is_empty) {
            return Err("response.stop: an empty string would end every response; remove it".to_owned());
        }
        Ok(template)
    }

    /// Whether some prompt lists the admissible actions.
    pub fn lists_admissible(&self) -> bool {
        [
            &self.first,
            &self.later,
            &self.blind,
            &self.blind_goal,
            &self.blind_history,
            &self.concatenated_first,
            &self.concatenated_next,
        ]
        .iter()
        .any(|text| text.has(Slot::AdmissibleActions))
    }

    /// The form of the responses.
    pub fn style(&self) -> ResponseStyle {
        self.style
    }

    /// The strings that end a response.
    pub fn stop(&self) -> &[String] {
        &self.stop
    }

    /// An action as a response to these prompts, without reasoning.
    pub fn response(&self, action: &str) -> String {
        self.response_with_thought("", action)
    }

    /// A thought and an action as a response to these prompts.
    pub fn response_with_thought(&self, thought: &str, action: &str) -> String {
        let mut out = String::new();
        self.response.fill(&mut out, |slot, out| match slot {
            Slot::Action => out.push_str(action),
            _ => out.push_str(thought),
        });
        out
    }

    /// The windowed prompt for one turn.
    ///
    /// The first turn, which has no history, has a prompt of its own; hiding the history changes nothing
    /// there, and hiding the goal alone gives the blind prompt. With a window of 0 every later prompt is the
    /// one without history that states the goal; so is one whose full text would have more characters (Unicode scalar
    /// values) than the template's `history.max_chars`, and then masked prompts of this turn show no history either.
    pub fn render(&self, view: &PromptView<'_>, kind: PromptKind) -> String {
        let mut shown = &view.history[view.history.len() - view.window.min(view.history.len())..];
        if let Some(most) = self.max_chars.filter(|_| !shown.is_empty()) {
            let full = self.fill(&self.later, view, shown, !self.observation.keep_goal);
            if full.chars().count() > most {
                shown = &[];
            } else if kind == PromptKind::Full {
                return full;
            }
        }
        let (text, hide_goal) = match (kind, shown.is_empty()) {
            (PromptKind::Full, false) => (&self.later, false),
            (PromptKind::Full | PromptKind::Masked(Mask::History), true) => {
                (if view.step == 0 { &self.first } else { &self.blind_history }, false)
            }
            (PromptKind::Masked(Mask::History), false) => (&self.blind_history, false),
            (PromptKind::Masked(Mask::Goal), false) => (&self.blind_goal, true),
            (PromptKind::Masked(Mask::Goal), true) | (PromptKind::Masked(Mask::GoalAndHistory), _) => {
                (&self.blind, true)
            }
        };
        self.fill(text, view, shown, hide_goal || !self.observation.keep_goal)
    }

    /// The start of a concatenated sequence: everything before the first response.
    pub fn render_concatenated_first(&self, view: &PromptView<'_>) -> String {
        self.fill(&self.concatenated_first, view, &[], false)
    }

    /// What a concatenated sequence gets between a response and the next one. `closed` says that the
    /// response before it ended by itself; one that was cut off is closed here first.
    pub fn render_concatenated_next(&self, view: &PromptView<'_>, closed: bool) -> String {
        // The goal stands at the start of the sequence already.
        let next = self.fill(&self.concatenated_next, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    fn fill(&self, text: &Text, view: &PromptView<'_>, shown: &[(String, String)], strip: bool) -> String {
        let mut out = String::with_capacity(256);
        text.fill(&mut out, |slot, out| match slot {
            Slot::TaskDescription => out.push_str(&self.observation.cased(description(view.goal))),
            Slot::StepCount => push(out, view.step),
            Slot::CurrentStep => push(out, view.step + 1),
            Slot::HistoryLength => push(out, shown.len()),
            Slot::ActionHistory => self.push_history(out, view, shown, strip),
            Slot::CurrentObservation => self.push_observation(out, view.goal, view.observation, strip),
            Slot::AdmissibleActions => self.push_admissible(out, view.admissible),
            // The rules of the texts filled here let no other placeholder in.
            Slot::Step | Slot::Observation | Slot::Action | Slot::Thought => {}
        });
        out
    }

    fn push_history(&self, out: &mut String, view: &PromptView<'_>, shown: &[(String, String)], strip: bool) {
        let first = (view.step + 1).saturating_sub(shown.len());
        for (index, (observation, action)) in shown.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.line_separator);
            }
            self.line.fill(out, |slot, out| match slot {
                Slot::Step => push(out, first + index),
                Slot::Observation => self.push_observation(out, view.goal, observation, strip),
                _ => out.push_str(action),
            });
        }
    }

    fn push_admissible(&self, out: &mut String, admissible: &[String]) {
        let mut first = true;
        for action in admissible.iter().filter(|action| !self.exclude.contains(action)) {
            if !first {
                out.push_str(&self.item_separator);
            }
            first = false;
            self.item.fill(out, |_, out| out.push_str(action));
        }
    }

    /// The observation, without the goal if that is to be hidden: without the lines from its marker on, or without
    /// everything up to its end, as the template says. A line or part that is the goal and nothing else is taken out as
    /// well; words of the goal that stand in other sentences stay.
    fn push_observation(&self, out: &mut String, goal: &str, observation: &str, strip: bool) {
        let section = &self.observation;
        if !strip {
            section.push_parts(out, observation);
            return;
        }
        let mut shown = String::with_capacity(observation.len());
        let mut rest = observation;
        while !section.goal_marker.is_empty() {
            let Some(at) = rest.find(&section.goal_marker) else { break };
            let goal = &rest[at + section.goal_marker.len()..];
            match &section.goal_end {
                None => {
                    shown.push_str(rest[..at].trim_end());
                    rest = goal.find('\n').map_or("", |end| &goal[end..]);
                }
                Some(end) => rest = goal.split_once(end.as_str()).map_or("", |(_, after)| after),
            }
        }
        shown.push_str(rest);
        section.push_parts(out, &section.without_statements(goal, &shown));
    }
}

impl ObservationSection {
    /// A text in the case the template shows it in.
    fn cased<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.lowercase { text.to_lowercase().into() } else { text.into() }
    }

    /// A text without the lines and parts that are the goal and nothing else.
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

    /// A text with its parts joined and quoted as the template says.
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

fn push(out: &mut String, number: usize) {
    // Writing into a string cannot fail.
    let _ = write!(out, "{number}");
}

/// The goal without its final full stop; the templates end the sentence themselves.
fn description(goal: &str) -> &str {
    let goal = goal.trim();
    goal.strip_suffix('.').unwrap_or(goal)
}

fn embedded(name: &str) -> Result<&'static str, String> {
    PromptTemplate::source(name).ok_or_else(|| {
        let known = EMBEDDED.map(|(name, _)| format!("`{name}`")).join(", ");
        let meant = nearest(name, EMBEDDED.iter().map(|(name, _)| *name));
        let meant = meant.map(|near| format!(" did you mean `{near}`?")).unwrap_or_default();
        format!("unknown prompt template `{name}`:{meant} embedded are {known}; anything else must be the path of a template file")
    })
}

fn check_keys(table: &toml::Table) -> Result<(), String> {
    for (section, values) in table {
        if section == "base" {
            continue;
        }
        let Some((_, keys)) = KEYS.iter().find(|(known, _)| known == section) else {
            let sections = KEYS.iter().map(|(known, _)| *known);
            return Err(match nearest(section, sections.chain(["base"])) {
                Some(near) => format!("unknown key `{section}`; did you mean `{near}`?"),
                None => format!(
                    "unknown key `{section}`; there are base, {}",
                    KEYS.map(|(known, _)| known).join(", ")
                ),
            });
        };
        let Some(values) = values.as_table() else {
            return Err(format!("`{section}` must be a section: write [{section}] on a line of its own"));
        };
        for key in values.keys() {
            if !keys.contains(&key.as_str()) {
                return Err(match nearest(key, keys.iter().copied()) {
                    Some(near) => format!("unknown key `{section}.{key}`; did you mean `{section}.{near}`?"),
                    None => format!("unknown key `{section}.{key}`; [{section}] has {}", keys.join(", ")),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
