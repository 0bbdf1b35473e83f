//! The environment runner plays episodes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{Batch, Trajectory};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::Weights;
use turnwise_model::engine::NativeEngine;
use turnwise_model::vision::VisionConfig;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::{Config, Registries};
use crate::rollout::RolloutContext;
use crate::rollout::engines::engines;
use crate::rollout::pictures::PicturePrompts;
use crate::rollout::prompting::Prompter;
use crate::setup::{self, World};

/// The environment, with prompts, parser and tokenizer.
pub struct EnvRunner {
    /// Tasks and environments.
    pub world: World,
    /// Prompt template.
    pub template: PromptTemplate,
    /// Parser of responses.
    pub parser: ActionParser,
    /// The policy's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's chat format, if used.
    pub chat: Option<ChatFormat>,
    /// Pictures in prompts, if used.
    pub pictures: Option<PicturePrompts>,
}

impl EnvRunner {
    /// Creates the runner of a config, for a policy with this vision tower.
    ///
    /// # Errors
    /// Fails on an unreadable template, an unsuitable chat format, or pictures that cannot be
    /// shown.
    pub fn new(
        config: &Config,
        registries: &Registries,
        world: World,
        tokenizer: Arc<Tokenizer>,
        vision: Option<&VisionConfig>,
    ) -> Result<Self, TrainError> {
        let template = setup::template(config, registries)?;
        let chat = setup::chat(config, registries, &tokenizer)?;
        let pictures = PicturePrompts::new(config, vision)?;
        Ok(Self { world, parser: setup::parser(config, &template), template, tokenizer, chat, pictures })
    }

    /// Creates native samplers of these weights, one per lane.
    ///
    /// # Errors
    /// Fails if `rollout.max_model_len` is below 2 or above the model's `max_position_embeddings`,
    /// or if the device is not in this build or lacks memory.
    pub fn samplers(&self, config: &Config, weights: &Weights) -> Result<Vec<NativeEngine>, TrainError> {
        engines(config, weights, &self.tokenizer, setup::reasoning(&self.template, self.chat.as_ref()))
    }

    /// Returns the prompter.
    pub fn prompter(&self) -> Prompter<'_> {
        Prompter {
            template: &self.template,
            tokenizer: &self.tokenizer,
            chat: self.chat.as_ref(),
            pictures: self.pictures.as_ref(),
        }
    }

    /// Prepares a step's trajectories for writing if they have pictures ([`PicturePrompts::hide`]).
    pub fn hide_pictures(&self, batch: &mut Batch, others: &mut [Trajectory]) {
        let Some(pictures) = &self.pictures else { return };
        let trained = batch.groups.iter_mut().flat_map(|group| &mut group.trajectories);
        trained.chain(others).for_each(|trajectory| pictures.hide(trajectory));
    }

    /// Returns the context of a training step's rollout.
    pub fn context<'a>(
        &'a self,
        config: &Config,
        slots: usize,
        step: u64,
        stop: &'a AtomicBool,
    ) -> RolloutContext<'a> {
        let (temperature, task_set) = (config.rollout.temperature, self.world.shared_task_set());
        let context = RolloutContext::new(config, task_set, self.prompter(), &self.parser, temperature, stop);
        RolloutContext { slots, step, ..context }
    }
}
