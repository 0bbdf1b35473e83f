//! Compaction: the policy writes a summary that replaces the turns before it (`prompt.compact_after`).
//!
//! If the prompt of the next action would have more than `compact_after` tokens, the policy first writes a summary. That response is
//! a turn of the kind [`turnwise_core::TurnKind::Compaction`] with its own tokens, log-probs and credit. The environment takes no step.
//! The next action begins a new sequence, with a prompt of the first observation, the summary and the newest observation:
//!
//! ```text
//! sequence 0:  first prompt, action, observation, action, observation + request, SUMMARY
//! sequence 1:  first prompt with the summary and the newest observation, action, observation, action, ...
//! ```
//!
//! Both sequences are trained, with the tokens that were sampled. A compaction follows an action, so there is at most one for each
//! action, even if the prompt after it is still too long.

use turnwise_core::{Reasoning, Tool};
use turnwise_env::prompt::{Compacted, PromptView};
use turnwise_text::TextError;

use super::prompting::{Prompter, after_opening};
use crate::config::PromptConfig;

/// When the policy writes a summary, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Maximum tokens of an action's prompt.
    pub after: usize,
    /// Maximum tokens of a summary.
    pub max_tokens: usize,
}

impl Compaction {
    /// Returns the compaction of a config, if it has one.
    pub fn of(config: &PromptConfig) -> Option<Self> {
        Some(Self { after: config.compact_after?, max_tokens: config.max_summary_tokens })
    }
}

impl Prompter<'_> {
    /// Returns the prompt of the first action after a compaction. `view` has the newest observation; `preamble` comes first.
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

    /// Returns the summary in a response: the text after any reasoning, without the string that ended it. It is empty if the
    /// response was cut off in its reasoning.
    pub fn summary(&self, response: &str) -> String {
        let text = Reasoning::of(response).answer().unwrap_or_default().trim();
        let stop = self.template.stop().iter().find_map(|stop| text.strip_suffix(stop.as_str()));
        stop.unwrap_or(text).trim().to_owned()
    }

    /// Returns the tokens of a demonstrated summary, including its end.
    pub fn demonstrated_summary(&self, summary: &str) -> Vec<u32> {
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
