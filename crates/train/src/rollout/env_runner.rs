//! The runner: everything that plays episodes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{Batch, Trajectory};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::vision::VisionConfig;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::Config;
use crate::rollout::RolloutContext;
use crate::rollout::pictures::PicturePrompts;
use crate::rollout::prompting::Prompter;
use crate::setup::{self, World};

/// The environment and everything between it and a policy: prompts, parsing, tokens.
pub struct EnvRunner {
    /// Tasks and environments.
    pub world: World,
    /// Template that makes prompts of observations.
    pub template: PromptTemplate,
    /// Parser that makes actions of responses.
    pub parser: ActionParser,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's chat format around the prompts, if it has one that is used.
    pub chat: Option<ChatFormat>,
    /// Pictures that prompts show, if they do.
    pub pictures: Option<PicturePrompts>,
}

impl EnvRunner {
    /// Returns the runner of a config in a world, for a policy with this vision tower.
    ///
    /// # Errors
    /// Fails on a template that cannot be read, a chat format that does not fit, or pictures that cannot be shown.
    pub fn new(
        config: &Config,
        world: World,
        tokenizer: Arc<Tokenizer>,
        vision: Option<&VisionConfig>,
    ) -> Result<Self, TrainError> {
        let template = setup::template(config)?;
        let chat = setup::chat(config, &tokenizer)?;
        let pictures = PicturePrompts::new(config, vision)?;
        Ok(Self { world, parser: setup::parser(config, &template), template, tokenizer, chat, pictures })
    }

    /// Prompts as tokens.
    pub fn prompter(&self) -> Prompter<'_> {
        Prompter {
            template: &self.template,
            tokenizer: &self.tokenizer,
            chat: self.chat.as_ref(),
            pictures: self.pictures.as_ref(),
        }
    }

    /// Makes the trajectories of a step ready to be written, if they have pictures ([`PicturePrompts::hide`]).
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
