//! Prompts, parsing and chat of a run.

use std::sync::Arc;

use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::chat::{ChatFormat, ChatSettings};
use turnwise_text::{ReasoningTags, Tokenizer};

use super::reasoning::{reasoning, stop_in_reasoning};
use crate::TrainError;
use crate::config::{AutoOnOff, Config, Layout, Registries, Validity};

/// Returns the configured template: a registered one, or one from a file. The template includes
/// pictures if `prompt.pictures` is set.
///
/// # Errors
/// Fails if the template is missing or invalid, or if it lacks a section for pictures.
pub fn template(config: &Config, registries: &Registries) -> Result<PromptTemplate, TrainError> {
    let name = &config.prompt.template;
    let template = PromptTemplate::find(name, &registries.environments)?;
    if !config.prompt.pictures {
        return Ok(template);
    }
    template.with_pictures().ok_or_else(|| TrainError::Config {
        origin: "prompt.template".into(),
        reason: format!(
            "is {name:?}, which has no section [pictures]; use \"sokoban-compact\", \"sokoban-verl-agent\", \
             \"ezpoints-compact\" or \"ezpoints-verl-agent\", add the section to your own, or leave prompt.pictures out"
        ),
    })
}

/// Returns the configured parser.
pub fn parser(config: &Config, template: &PromptTemplate) -> ActionParser {
    let admissible = config.prompt.validity == Validity::Admissible;
    ActionParser::new(template.rules().clone(), admissible)
}

/// Returns the configured chat format, if any.
///
/// # Errors
/// Fails in these cases:
/// * A required chat format is missing, or the layout does not support it.
/// * `prompt.thinking` is set, and the chat template has no switch for thinking.
/// * `prompt.system` or `prompt.thinking` is set without a chat format.
/// * Servers or a service would stop at a stop string in the reasoning.
pub fn chat(
    config: &Config,
    registries: &Registries,
    tokenizer: &Tokenizer,
) -> Result<Option<ChatFormat>, TrainError> {
    let fail =
        |key: &str, reason: String| Err(TrainError::Config { origin: format!("prompt.{key}"), reason });
    let prompt = &config.prompt;
    let wanted = match prompt.chat {
        AutoOnOff::On => true,
        AutoOnOff::Off => false,
        AutoOnOff::Auto => tokenizer.chat_template().is_some(),
    };
    let thinking = match prompt.thinking {
        AutoOnOff::Auto => None,
        AutoOnOff::On => Some(true),
        AutoOnOff::Off => Some(false),
    };
    if !wanted {
        let set = [("system", prompt.system.is_some()), ("thinking", thinking.is_some())];
        if let Some((key, _)) = set.into_iter().find(|(_, set)| *set) {
            return fail(
                key,
                "is set, and prompts are not wrapped in a chat template that could use it".into(),
            );
        }
        return Ok(None);
    }
    let settings = ChatSettings { system: prompt.system.clone(), thinking };
    let format = match ChatFormat::new(tokenizer, settings) {
        Ok(format) => format,
        Err(error) => return fail("chat", format!("{error}; or set prompt.chat = \"off\"")),
    };
    if prompt.layout == Layout::Concatenated
        && !template(config, registries)?.keeps_reply_open()
        && let Err(error) = format.check_growth()
    {
        return fail("layout", format!("{error}: set prompt.layout = \"windowed\" or prompt.chat = \"off\""));
    }
    if thinking.is_some() && !format.knows_thinking()? {
        return fail("thinking", "is set, and this model's chat template has no such switch".into());
    }
    if let Some(stop) = stop_in_reasoning(config, &template(config, registries)?, &format) {
        let reason = format!(
            "`{}` ends a response at {stop:?}, which stands in the reasoning that this model begins with, and only the engine \
             of this process passes over reasoning; take a template without it, set prompt.thinking = \"off\" where the chat \
             template has that switch, or sample here (no rollout.engine, policy.learner.kind = \"native\")",
            prompt.template
        );
        return fail("template", reason);
    }
    Ok(Some(format))
}

pub(crate) fn engine_reasoning(
    config: &Config,
    registries: &Registries,
    tokenizer: &Tokenizer,
) -> Result<Option<Arc<ReasoningTags>>, TrainError> {
    let chat = chat(config, registries, tokenizer)?;
    Ok(reasoning(&template(config, registries)?, chat.as_ref()).map(Arc::new))
}
