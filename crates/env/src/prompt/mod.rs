//! Prompts from observations.
//!
//! | file | subject |
//! |---|---|
//! | `file.rs` | templates from TOML |
//! | `observation.rs` | observations as prompts show them |
//! | `text.rs` | texts with placeholders, checked when they are read so that rendering cannot fail |
//!
//! A template is a TOML file: the texts of the prompts with placeholders in braces, and how a response
//! to them looks. Embedded are `alfworld` and `webshop` (free reasoning and tags; figures 12 to 15 of the STAPO
//! paper), `alfworld-stapo` and `webshop-stapo` (the same, read as verl-agent reads responses), `alfworld-verl-agent` and `webshop-verl-agent` (the prompts of that framework, with which the other papers
//! train), `alfworld-compact` and `webshop-compact` (the world's own words, for small policies), `alfworld-react` and
//! `webshop-react` (a thought and an action, one worked example); `sokoban-verl-agent`, `sokoban-compact`,
//! `ezpoints-verl-agent` and `ezpoints-compact` are of the same kinds, and so are those of the search world
//! (`search-r1` is Search-R1's). A user's file replaces them; with
//! `base = "alfworld"` it needs only the keys that differ.
//!
//! Placeholders: `{task_description}` the goal without its final full stop; `{step_count}` turns taken;
//! `{current_step}` that plus one; `{history_length}` earlier turns shown; `{action_history}` those
//! turns, one history line each; `{current_observation}`; `{admissible_actions}`. In `compacted`,
//! `{first_observation}` and `{summary}`. In `[pictures]`, `{image}` the picture of the observation. `{{` and `}}` are literal braces.

mod file;
mod observation;
mod text;

use std::fmt::Write as _;

use turnwise_core::{ContextMask, Tool};

use self::observation::ObservationSection;
use self::text::{Slot, Text};
use crate::parse::{ResponseRules, Style, calls_of_words};

/// Kind of prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// Everything: goal, history, observation.
    Full,
    /// With a part of it hidden.
    Masked(ContextMask),
}

/// Parts of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptView<'a> {
    /// The goal as the task states it.
    pub goal: &'a str,
    /// The turns so far as (observation, action), the latest last. It may start later than the first turn.
    pub history: &'a [(String, String)],
    /// Maximum earlier turns in a windowed prompt.
    pub window: usize,
    /// Observation that the agent acts on now.
    pub observation: &'a str,
    /// Actions that would be understood now.
    pub admissible: &'a [String],
    /// Turns taken before this one.
    pub step: usize,
}

/// The text for a picture in a prompt. It is one token each for the beginning, the picture and the end in Qwen2.5-VL's
/// tokenizer, and in those of models from scratch that read pictures.
pub const PICTURE: [&str; 3] = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"];

/// Prompts that show the observation as a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PictureTexts {
    prompt: Text,
    masked: Text,
    observation: ObservationSection,
}

/// What a prompt shows of the turns before a compaction.
#[derive(Clone, Copy, Debug)]
pub struct Compacted<'a> {
    /// The first observation of the episode.
    pub first_observation: &'a str,
    /// The summary.
    pub summary: &'a str,
}

/// The prompts of one environment and the form of the responses to them.
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
    /// Returns the template whose prompts show the observation as a picture, without history: those of its section
    /// `[pictures]`. `None` if it has no such section.
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

    /// Returns true if some prompt lists the admissible actions.
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

    /// Returns the rules by which responses are read.
    pub fn rules(&self) -> &ResponseRules {
        &self.rules
    }

    /// Returns the strings that end a response.
    pub fn stop(&self) -> &[String] {
        &self.stop
    }

    /// The strings that end a reply in a chat. Calls have none: a reply ends with its own token, and several calls may follow each
    /// other in it.
    pub fn stop_in_chat(&self) -> &[String] {
        if self.rules.style == Style::Call && !self.open_reply { &[] } else { &self.stop }
    }

    /// True if observations of a concatenated sequence stand in the model's own reply, which goes on after them (Search-R1):
    /// with a chat format the reply then stays open until the episode's end.
    pub fn keeps_reply_open(&self) -> bool {
        self.open_reply
    }

    /// Returns an action as a response to these prompts, without reasoning.
    ///
    /// Where words without a call are an answer (`text_answer`), they are the whole response.
    pub fn response(&self, action: &str) -> String {
        if self.rules.text_answer && calls_of_words(action).is_empty() {
            return action.to_owned();
        }
        self.response_with_thought("", action)
    }

    /// Returns a thought and an action as a response to these prompts.
    pub fn response_with_thought(&self, thought: &str, action: &str) -> String {
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

    /// Returns the windowed prompt for one turn.
    ///
    /// The first turn has its own prompt without history. Hiding the history changes nothing there,
    /// and hiding the goal gives the masked prompt. With a window of 0, all later prompts are
    /// without history and state the goal. So is a prompt whose full text would exceed the
    /// template's `history.max_chars` (Unicode scalar values); masked prompts of that turn then
    /// show no history either.
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

    /// Returns the start of a concatenated sequence: everything before the first response.
    pub fn render_concatenated_first(&self, view: &PromptView<'_>) -> String {
        self.fill(&self.concatenated_first, view, &[], false)
    }

    /// Returns the text between a response and the next one in a concatenated sequence. `closed`
    /// tells whether the response ended by itself; a response that was cut off is closed first.
    pub fn render_concatenated_next(&self, view: &PromptView<'_>, closed: bool) -> String {
        // The goal stands at the start of the sequence already.
        let next = self.fill(&self.concatenated_next, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    /// Returns the request for a summary of a concatenated sequence, in place of
    /// [`PromptTemplate::render_concatenated_next`].
    pub fn render_summarize(&self, view: &PromptView<'_>, closed: bool) -> String {
        let next = self.fill(&self.summarize, view, &[], !self.observation.keep_goal);
        if closed { next } else { format!("{}{next}", self.end) }
    }

    /// Returns the start of the sequence after a compaction: [`PromptTemplate::render_concatenated_first`]
    /// with the episode's first observation (which may state the task), the summary, and the newest
    /// observation, which `view` has.
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
            // The rules of the texts filled here let no other placeholder in.
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
            // What came of an action is what was seen before the next one.
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

/// Returns tools as a prompt without a chat template of its own lists them: one JSON object a line, as Qwen's chat format does.
pub fn tool_list(tools: &[Tool]) -> String {
    let lines: Vec<&str> = tools.iter().map(Tool::json).collect();
    format!("<tools>\n{}\n</tools>", lines.join("\n"))
}

fn push(out: &mut String, number: usize) {
    // Writing into a string cannot fail.
    let _ = write!(out, "{number}");
}

/// Returns the goal without its final full stop; the templates end the sentence themselves.
fn description(goal: &str) -> &str {
    let goal = goal.trim();
    goal.strip_suffix('.').unwrap_or(goal)
}

#[cfg(test)]
mod tests;
