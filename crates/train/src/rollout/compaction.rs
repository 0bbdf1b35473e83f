//! Compaction: the policy writes a summary that replaces earlier turns (`prompt.compact_after`).
//!
//! If the next action's prompt would exceed `compact_after` tokens, the policy first writes a
//! summary. The turn of the summary ([`turnwise_core::TurnKind::Compaction`]) has tokens, log-probs
//! and credit, but no environment step. The next action begins a new sequence:
//!
//! ```text
//! sequence 0:  first prompt, action, observation, action, observation + request, SUMMARY
//! sequence 1:  first prompt with the summary and the newest observation, action, observation, action, ...
//! ```
//!
//! Both the old and the new sequence are trained on their sampled tokens. At most one compaction
//! precedes an action, even if the new prompt is still too long.

use turnwise_core::{Reasoning, Tool};
use turnwise_env::prompt::{Compacted, PromptView};
use turnwise_text::TextError;

use super::prompting::{Prompter, after_opening};
use crate::config::PromptConfig;

/// When to write a summary, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Maximum number of tokens in an action's prompt; if it would be longer, a summary is written
    /// first.
    pub after: usize,
    /// Maximum tokens of a summary.
    pub max_tokens: usize,
}

impl Compaction {
    /// Returns the config's compaction, if any.
    pub fn of(config: &PromptConfig) -> Option<Self> {
        Some(Self { after: config.compact_after?, max_tokens: config.max_summary_tokens })
    }
}

impl Prompter<'_> {
    /// Returns the prompt of the first action after a compaction: `preamble`, then `view` with the
    /// newest observation.
    ///
    /// # Errors
    /// Fails like [`Prompter::start`].
    pub fn compacted(
        &self,
        view: &PromptView<'_>,
        compacted: &Compacted<'_>,
        preamble: &str,
        tools: &[Tool],
    ) -> Result<Vec<u32>, TextError> {
        let text = self.template.render_compacted(view, compacted);
        self.start(&format!("{preamble}{text}"), tools)
    }

    /// Returns the text after the reasoning, without the stop string; empty if the response was cut
    /// off within the reasoning.
    pub fn summary(&self, response: &str) -> String {
        let text = Reasoning::of(response).answer().unwrap_or_default().trim();
        let stop = self.template.stop().iter().find_map(|stop| text.strip_suffix(stop.as_str()));
        stop.unwrap_or(text).trim().to_owned()
    }

    /// Returns the tokens of a demonstrated summary, including its end.
    pub(crate) fn demonstrated_summary(&self, summary: &str) -> Vec<u32> {
        if let Some(chat) = self.chat.filter(|_| !self.template.keeps_reply_open()) {
            let mut ids = self.tokenizer.encode(&after_opening(chat.opening(), summary));
            ids.push(chat.close());
            return ids;
        }
        let stop = self.template.stop().first().map_or("", String::as_str);
        let mut ids = self.tokenizer.encode(&format!(" {summary}{stop}"));
        ids.extend(self.tokenizer.end_tokens().first().filter(|_| stop.is_empty()));
        ids
    }
}
