//! Prompts from observations.
//!
//! A template is a TOML file that contains prompt texts and rules for parsing responses. Embedded
//! templates:
//!
//! | template | prompts |
//! |---|---|
//! | `alfworld`, `webshop` | free reasoning, then tags; from figures 12 to 15 of the STAPO paper |
//! | `alfworld-stapo`, `webshop-stapo` | same prompts, with responses parsed as in verl-agent |
//! | `*-verl-agent` | the prompts of verl-agent, used for training in the other papers |
//! | `*-compact` | only phrases that the environment uses, for small policies |
//! | `*-react` | a thought and an action, with one worked example |
//! | `search-r1` | the prompts of Search-R1 |
//!
//! You can also write a template file. With `base = "alfworld"`, the file needs only the keys that
//! differ.
//!
//! | placeholder | value |
//! |---|---|
//! | `{task_description}` | the goal without its final full stop |
//! | `{step_count}`, `{current_step}` | number of turns taken; the same plus one |
//! | `{action_history}` | earlier turns, one per history line |
//! | `{history_length}` | number of turns shown in `{action_history}` |
//! | `{current_observation}` | the observation to respond to |
//! | `{admissible_actions}` | the actions listed by the environment |
//! | `{first_observation}`, `{summary}` | in `compacted` only |
//! | `{image}` | the observation image, in `[pictures]` only |
//!
//! Write `{{` and `}}` for literal braces.

mod file;
mod observation;
mod text;

use std::fmt::Write as _;

use turnwise_core::{ContextMask, Tool};

use self::observation::ObservationSection;
use self::text::{Slot, Text};
use crate::parse::{ResponseRules, Style, calls_of_words};

/// Which parts of the context a prompt shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// Goal, history and observation.
    Full,
    /// Some parts are hidden, as needed for counterfactual contexts.
    Masked(ContextMask),
}

/// Contents of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptView<'a> {
    /// The goal as stated by the task.
    pub goal: &'a str,
    /// Turns so far as (observation, action) pairs, oldest first. The earliest turns may be
    /// missing.
    pub history: &'a [(String, String)],
    /// Maximum number of earlier turns shown in a per-turn prompt.
    pub window: usize,
    /// The observation to respond to.
    pub observation: &'a str,
    /// Actions listed by the environment.
    pub admissible: &'a [String],
    /// Number of turns taken before this one.
    pub step: usize,
}

/// Text for an image in a prompt: one token each for start, image and end, as in Qwen2.5-VL's
/// tokenizer.
pub const PICTURE: [&str; 3] = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct PictureTexts {
    prompt: Text,
    masked: Text,
    observation: ObservationSection,
}

/// What a compacted prompt shows of the earlier turns.
#[derive(Clone, Copy, Debug)]
pub struct Compacted<'a> {
    /// First observation in the episode.
    pub first_observation: &'a str,
    /// Summary written by the policy.
    pub summary: &'a str,
}

/// An environment's prompts and the rules for parsing responses.
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
    /// Returns the variant of the template that shows observations as images, without history
    /// (section `[pictures]`). Returns `None` if the template has no such section.
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

    /// Returns true if at least one prompt lists the admissible actions.
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

    /// Returns the rules for parsing responses.
    pub fn rules(&self) -> &ResponseRules {
        &self.rules
    }

    /// Returns the strings that end a response.
    pub fn stop(&self) -> &[String] {
        &self.stop
    }

    /// Returns the strings that end a response in a chat format. Templates with tool calls have
    /// none, because a reply may contain several calls and ends with EOS.
    pub fn stop_in_chat(&self) -> &[String] {
        if self.rules.style == Style::Call && !self.open_reply { &[] } else { &self.stop }
    }

    /// Returns true if the observations in a multi-turn sequence are part of the model's reply, as
    /// in Search-R1. In a chat format, the reply then stays open until the episode ends.
    pub fn keeps_reply_open(&self) -> bool {
        self.open_reply
    }

    /// Formats an action as a response without reasoning.
    ///
    /// If the template accepts text answers without a call (`text_answer`), a text answer is
    /// returned unchanged.
    pub fn response(&self, action: &str) -> String {
        if self.rules.text_answer && calls_of_words(action).is_empty() {
            return action.to_owned();
        }
        self.response_with_thought("", action)
    }

    /// Formats a thought and an action as a response.
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

    /// Renders the per-turn prompt for one turn.
    ///
    /// The first turn uses a separate prompt without history. With a window of 0, all later prompts
    /// also omit the history and state the goal. A prompt that would exceed `history.max_chars`
    /// (Unicode scalar values) omits the history. Masked prompts for the same turn then also omit
    /// the history.
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

    /// Renders the start of a multi-turn sequence, which is everything before the first response.
    pub fn render_concatenated_first(&self, view: &PromptView<'_>) -> String {
        self.fill(&self.concatenated_first, view, &[], false)
    }

    /// Renders the text between two responses in a multi-turn sequence. If `closed` is false, the
    /// previous response was truncated, so the text first closes it.
    pub fn render_concatenated_next(&self, view: &PromptView<'_>, closed: bool) -> String {
        // The start of the sequence already states the goal.
        let next = self.fill(&self.concatenated_next, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    /// Renders the request for a summary in a multi-turn sequence. It replaces
    /// [`PromptTemplate::render_concatenated_next`].
    pub fn render_summarize(&self, view: &PromptView<'_>, closed: bool) -> String {
        let next = self.fill(&self.summarize, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    /// Renders the start of the sequence after a compaction. The sequence starts like
    /// [`PromptTemplate::render_concatenated_first`], but shows the first observation, the summary
    /// and the newest observation.
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
            // The rules of these texts allow no other placeholder.
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
            // The result of an action is the next observation.
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

/// Formats tools for a prompt without a chat template: one JSON object per line, as in Qwen's chat
/// format.
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
