//! Small random policies, with a tokenizer for the environment's text.

use std::ops::ControlFlow;
use std::sync::Arc;

use turnwise_core::{Purpose, Seed};
use turnwise_env::demonstration::Demonstration;
use turnwise_env::prompt::{PICTURE, PromptTemplate, PromptView, tool_list};
use turnwise_model::vision::VisionTokens;
use turnwise_model::{ModelConfig, Parameters};
use turnwise_policy::Policy;
use turnwise_text::{Tokenizer, TokenizerConfig};

use crate::TrainError;
use crate::config::Config;
use crate::record::observer::{Event, Observer};
use crate::setup::World;

const TOKENIZER_DEMONSTRATIONS: usize = 2_000;

pub(crate) fn policy_from_scratch(
    config: &Config,
    model: ModelConfig,
    tokenizer: Tokenizer,
) -> Result<Policy, TrainError> {
    let weights = Parameters::init(model, Seed::derive(config.seed, Purpose::Init, &[]))?;
    Ok(Policy { weights: weights.into(), tokenizer: Arc::new(tokenizer) })
}

pub(crate) fn scratch_parts(
    config: &Config,
    world: &World,
    template: &PromptTemplate,
    observer: &mut dyn Observer,
) -> Result<(ModelConfig, Tokenizer), TrainError> {
    let total = TOKENIZER_DEMONSTRATIONS.min(config.sft.demonstrations.max(200));
    observer.event(Event::Stage("training the tokenizer on episodes"));
    let demonstrations = world.texts(config, template, total, &mut |played| {
        observer.event(Event::Demonstrations { played, total });
        ControlFlow::Continue(())
    })?;
    if demonstrations.failed > 0 {
        let failure = demonstrations.failure.as_deref().unwrap_or_default();
        observer.event(Event::Note(format!(
            "warning: {} of {total} episodes for the tokenizer failed in the environment, so that it may differ from that of \
             other runs; the first: {}",
            demonstrations.failed,
            failure.trim()
        )));
    }
    let text = |demonstration: &Demonstration| {
        let mut text = text_of(demonstration, template);
        if config.prompt.compact_after.is_some() {
            text.push_str(&summary_of(demonstration, template, world));
        }
        text
    };
    let texts: Vec<String> = demonstrations.episodes.iter().map(text).collect();
    let pictures = config.prompt.pictures;
    let tokenizer = Tokenizer::train(
        texts.iter().map(String::as_str),
        &TokenizerConfig {
            // Phrases are parts of observations, which pictures replace.
            phrases: if pictures { Vec::new() } else { world.phrases()? },
            max_pieces: config.policy.scratch.max_pieces,
            split_numbers: world.split_numbers(),
            special_tokens: if pictures { PICTURE.map(str::to_owned).to_vec() } else { Vec::new() },
        },
    )?;
    let scratch = &config.policy.scratch;
    let mut model = scratch.model_config(tokenizer.vocab_size(), config.rollout.max_model_len);
    if let [Some(start), Some(image), Some(end)] = PICTURE.map(|token| tokenizer.token_id(token)) {
        // Prompts never show videos.
        model = scratch.with_tower(model, VisionTokens { start, end, image, video: image });
    }
    model.check()?;
    Ok((model, tokenizer))
}

fn text_of(demonstration: &Demonstration, template: &PromptTemplate) -> String {
    let mut text = match demonstration.tools.as_slice() {
        [] => String::new(),
        tools => format!("{}\n", tool_list(tools)),
    };
    for (index, turn) in demonstration.turns.iter().enumerate() {
        let view = PromptView {
            goal: &demonstration.task.goal,
            history: &[],
            window: 0,
            observation: &turn.observation,
            admissible: &turn.admissible,
            step: index,
        };
        text.push_str(&if index == 0 {
            template.render_concatenated_first(&view)
        } else {
            template.render_concatenated_next(&view, true)
        });
        text.push_str(&template.response(&turn.action));
    }
    text
}

fn summary_of(demonstration: &Demonstration, template: &PromptTemplate, world: &World) -> String {
    let Some((last, before)) = demonstration.turns.split_last() else { return String::new() };
    let view = PromptView {
        goal: &demonstration.task.goal,
        history: &[],
        window: 0,
        observation: &last.observation,
        admissible: &last.admissible,
        step: before.len(),
    };
    let request = template.render_summarize(&view, true);
    format!("{request} {}\n", world.summarize(demonstration, before.len()))
}

pub(crate) fn without_world() -> TrainError {
    TrainError::Config {
        origin: "policy.model".into(),
        reason: "is missing; a model from scratch learns its tokenizer from an environment, which training on conversations \
                 does not have; name a model"
            .into(),
    }
}
