//! Reasoning tags, within which stop strings are ignored.

use turnwise_core::Reasoning;
use turnwise_env::parse::{Blocks, Style};
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::ReasoningTags;
use turnwise_text::chat::ChatFormat;

use crate::config::{AutoOnOff, Config, PolicyLearnerConfig};

/// Returns the reasoning tags after which actions are parsed, and the chat format's opening if it
/// starts the reasoning. Returns `None` for templates that parse actions anywhere
/// (`response.blocks`).
pub fn reasoning(template: &PromptTemplate, chat: Option<&ChatFormat>) -> Option<ReasoningTags> {
    let rules = template.rules();
    let is_read_behind = match rules.style {
        Style::Line | Style::Label | Style::Call => true,
        Style::Tags | Style::Named | Style::Json => rules.blocks == Blocks::One,
    };
    let [open, close] = rules.reasoning_tags.clone();
    let opens = |text: &&str| matches!(Reasoning::between(text, &open, &close), Reasoning::Unclosed(_));
    let opening = chat.map(ChatFormat::opening).filter(opens).unwrap_or_default().to_owned();
    is_read_behind.then_some(ReasoningTags { open, close, opening })
}

/// Returns whether this process samples. Only the engine of this process ignores stop strings in
/// reasoning.
pub(crate) fn samples_here(config: &Config) -> bool {
    config.rollout.engine.is_none() && config.policy.learner == PolicyLearnerConfig::Native
}

/// Returns a stop string that would cut off the reasoning of a model that always reasons.
pub(super) fn stop_in_reasoning<'t>(
    config: &Config,
    template: &'t PromptTemplate,
    chat: &ChatFormat,
) -> Option<&'t str> {
    let tags = reasoning(template, Some(chat)).filter(|_| !samples_here(config))?;
    if tags.opening.is_empty() && config.prompt.thinking != AutoOnOff::On {
        return None;
    }
    let end = format!("\n{}\n\n", tags.close);
    template.stop_in_chat().iter().map(String::as_str).find(|stop| end.contains(stop))
}
