//! Prompt templates: TOML files with prompt texts and response rules.
//!
//! Embedded templates:
//!
//! | template | prompts |
//! |---|---|
//! | `alfworld`, `webshop` | free reasoning, then tags (STAPO, figures 12 to 15) |
//! | `alfworld-stapo`, `webshop-stapo` | prompts of `alfworld` and `webshop`, but parsed as in verl-agent |
//! | `*-verl-agent` | verl-agent's prompts, with which most papers train |
//! | `*-compact` | short prompts of few, frequent phrases, for small models |
//! | `*-react` | a thought and an action, with one example |
//! | `search-r1` | Search-R1's prompts |
//!
//! A template file with `base = "alfworld"` needs only the keys that differ from `alfworld`.
//!
//! | placeholder | value |
//! |---|---|
//! | `{task_description}` | the goal without its final full stop |
//! | `{step_count}`, `{current_step}` | number of earlier turns; number of the current turn, from 1 |
//! | `{action_history}` | the earlier turns, each as one history line |
//! | `{history_length}` | turns in `{action_history}` |
//! | `{current_observation}` | the observation to respond to |
//! | `{admissible_actions}` | the admissible actions that the environment lists |
//! | `{first_observation}`, `{summary}` | the first observation and the policy's summary, in `compacted` only |
//! | `{image}` | the image, in `[pictures]` only |
//!
//! `{{` and `}}` are literal braces.

mod file;
mod observation;
mod text;

use std::fmt::Write as _;

use turnwise_core::{ContextMask, Tool};

use self::observation::ObservationSection;
use self::text::{Slot, Text};
use crate::parse::{ResponseRules, Style, calls_of_words};

/// What a prompt shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// Goal, history and observation.
    Full,
    /// A prompt in which the goal, the history or both are hidden, for methods that compare it with
    /// the full prompt.
    Masked(ContextMask),
}

/// A prompt's contents.
#[derive(Clone, Copy, Debug)]
pub struct PromptView<'a> {
    /// The task's goal.
    pub goal: &'a str,
    /// Observation and action of each earlier turn, oldest first. The oldest turns may be left out.
    pub history: &'a [(String, String)],
    /// Maximum number of turns in `{action_history}`.
    pub window: usize,
    /// Observation to respond to.
    pub observation: &'a str,
    /// The admissible actions that the environment lists.
    pub admissible: &'a [String],
    /// Number of earlier turns.
    pub step: usize,
}

/// Start, image and end tokens of an image, as in Qwen2.5-VL.
pub const PICTURE: [&str; 3] = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct PictureTexts {
    prompt: Text,
    masked: Text,
    observation: ObservationSection,
}

/// What a compacted prompt shows instead of the earlier turns.
#[derive(Clone, Copy, Debug)]
pub struct Compacted<'a> {
    /// The episode's first observation.
    pub first_observation: &'a str,
    /// The policy's summary.
    pub summary: &'a str,
}

/// An environment's prompts and response rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTemplate {
    rules: ResponseRules,
    response: Text,
    end: String,
    stop: Vec<String>,
    open_reply: bool,
    observation: ObservationSection,
    line: Text,
    line_separator: String,
    max_chars: Option<usize>,
    outcomes: bool,
    item: Text,
    item_separator: String,
    exclude: Vec<String>,
    first: Text,
    later: Text,
    masked: Text,
    masked_goal: Text,
    masked_history: Text,
    concatenated_first: Text,
    concatenated_next: Text,
    summarize: Text,
    compacted: Text,
    pictures: Option<Box<PictureTexts>>,
}

impl PromptTemplate {
    /// Returns the variant with images as observations and without history (`[pictures]`), or
    /// `None` if the template has none.
    #[must_use]
    pub fn with_pictures(mut self) -> Option<Self> {
        let PictureTexts { prompt, masked, observation } = *self.pictures.take()?;
        self.observation = observation;
        for text in [
            &mut self.first,
            &mut self.later,
            &mut self.masked_history,
            &mut self.concatenated_first,
            &mut self.concatenated_next,
        ] {
            *text = prompt.clone();
        }
        self.masked_goal = masked.clone();
        self.masked = masked;
        self.max_chars = None;
        Some(self)
    }

    /// Returns true if any prompt lists the admissible actions.
    pub fn lists_admissible(&self) -> bool {
        [
            &self.first,
            &self.later,
            &self.masked,
            &self.masked_goal,
            &self.masked_history,
            &self.concatenated_first,
            &self.concatenated_next,
            &self.summarize,
        ]
        .iter()
        .any(|text| text.has(Slot::AdmissibleActions))
    }

    /// Returns the response rules.
    pub fn rules(&self) -> &ResponseRules {
        &self.rules
    }

    /// Returns the stop strings.
    pub fn stop(&self) -> &[String] {
        &self.stop
    }

    /// Returns the stop strings to use with a chat format. Tool calls have no stop strings, because
    /// a reply may contain several calls.
    pub fn stop_in_chat(&self) -> &[String] {
        if self.rules.style == Style::Call && !self.open_reply { &[] } else { &self.stop }
    }

    /// Returns whether multi-turn prompts insert observations into a single reply, which the policy
    /// then continues, as in Search-R1.
    pub fn keeps_reply_open(&self) -> bool {
        self.open_reply
    }

    /// Formats an action as a response without reasoning.
    ///
    /// If the rules set `text_answer`, an action that is not a tool call is returned unchanged.
    pub fn response(&self, action: &str) -> String {
        if self.rules.text_answer && calls_of_words(action).is_empty() {
            return action.to_owned();
        }
        self.response_with_thought("", action)
    }

    /// Formats a response with a thought.
    pub(crate) fn response_with_thought(&self, thought: &str, action: &str) -> String {
        let mut out = String::new();
        self.response.fill(&mut out, |slot, out| match slot {
            Slot::Action if self.rules.style == Style::Call => match calls_of_words(action).as_slice() {
                [] => out.push_str(action),
                calls => out.push_str(&self.rules.calls.write(&self.rules, calls)),
            },
            Slot::Action => out.push_str(action),
            _ => out.push_str(thought),
        });
        out
    }

    /// Renders a per-turn prompt.
    ///
    /// The history is omitted in the first turn, if the window is 0, or if the full prompt would be
    /// longer than `history.max_chars` Unicode scalar values. If the full prompt omits the history,
    /// the masked prompts of the same turn omit it, too.
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
            (PromptKind::Full | PromptKind::Masked(ContextMask::History), true) => {
                (if view.step == 0 { &self.first } else { &self.masked_history }, false)
            }
            (PromptKind::Masked(ContextMask::History), false) => (&self.masked_history, false),
            (PromptKind::Masked(ContextMask::Goal), false) => (&self.masked_goal, true),
            (PromptKind::Masked(ContextMask::Goal), true)
            | (PromptKind::Masked(ContextMask::GoalAndHistory), _) => (&self.masked, true),
        };
        self.fill(text, view, shown, hide_goal || !self.observation.keep_goal)
    }

    /// Renders a multi-turn sequence up to the first response.
    pub fn render_concatenated_first(&self, view: &PromptView<'_>) -> String {
        self.fill(&self.concatenated_first, view, &[], false)
    }

    /// Renders the text between two responses of a multi-turn sequence; if `closed` is false, the
    /// text first closes the truncated response.
    pub fn render_concatenated_next(&self, view: &PromptView<'_>, closed: bool) -> String {
        // The start of the sequence states the goal.
        let next = self.fill(&self.concatenated_next, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    /// Like [`PromptTemplate::render_concatenated_next`], but requests a summary.
    pub fn render_summarize(&self, view: &PromptView<'_>, closed: bool) -> String {
        let next = self.fill(&self.summarize, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    /// Like [`PromptTemplate::render_concatenated_first`], but shows the first observation, the
    /// summary and the newest observation.
    pub fn render_compacted(&self, view: &PromptView<'_>, compacted: &Compacted<'_>) -> String {
        self.fill_after(&self.concatenated_first, view, &[], false, Some(compacted))
    }

    fn fill(&self, text: &Text, view: &PromptView<'_>, shown: &[(String, String)], strip: bool) -> String {
        self.fill_after(text, view, shown, strip, None)
    }

    fn fill_after(
        &self,
        text: &Text,
        view: &PromptView<'_>,
        shown: &[(String, String)],
        strip: bool,
        compacted: Option<&Compacted<'_>>,
    ) -> String {
        let mut out = String::with_capacity(256);
        text.fill(&mut out, |slot, out| match slot {
            Slot::TaskDescription => out.push_str(&self.observation.cased(description(view.goal))),
            Slot::StepCount => push(out, view.step),
            Slot::CurrentStep => push(out, view.step + 1),
            Slot::HistoryLength => push(out, shown.len()),
            Slot::ActionHistory => self.push_history(out, view, shown, strip),
            Slot::CurrentObservation => match compacted {
                None => self.observation.push(out, view.goal, view.observation, strip),
                Some(Compacted { first_observation, summary }) => {
                    self.compacted.fill(out, |slot, out| match slot {
                        Slot::FirstObservation => {
                            self.observation.push(out, view.goal, first_observation, false);
                        }
                        Slot::Summary => out.push_str(summary),
                        _ => {
                            let strip = !self.observation.keep_goal;
                            self.observation.push(out, view.goal, view.observation, strip);
                        }
                    });
                }
            },
            Slot::AdmissibleActions => self.push_admissible(out, view.admissible),
            Slot::Image => PICTURE.iter().for_each(|text| out.push_str(text)),
            // Not allowed in these texts.
            Slot::Step
            | Slot::Observation
            | Slot::Action
            | Slot::Thought
            | Slot::FirstObservation
            | Slot::Summary => {}
        });
        out
    }

    fn push_history(&self, out: &mut String, view: &PromptView<'_>, shown: &[(String, String)], strip: bool) {
        let first = (view.step + 1).saturating_sub(shown.len());
        for (index, (observation, action)) in shown.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.line_separator);
            }
            // An action's result is the next observation.
            let observation = match shown.get(index + 1) {
                _ if !self.outcomes => observation,
                Some((next, _)) => next,
                None => view.observation,
            };
            self.line.fill(out, |slot, out| match slot {
                Slot::Step => push(out, first + index),
                Slot::Observation => self.observation.push(out, view.goal, observation, strip),
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
}

/// Formats tools as one JSON object per line, like Qwen's chat format.
pub fn tool_list(tools: &[Tool]) -> String {
    let lines: Vec<&str> = tools.iter().map(Tool::json).collect();
    format!("<tools>\n{}\n</tools>", lines.join("\n"))
}

fn push(out: &mut String, number: usize) {
    let _ = write!(out, "{number}");
}

fn description(goal: &str) -> &str {
    let goal = goal.trim();
    goal.strip_suffix('.').unwrap_or(goal)
}

#[cfg(test)]
mod tests;
