//! The environment runner: plays episodes with any samplers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{Batch, Purpose, Sampler, Trajectory};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::Weights;
use turnwise_model::engine::NativeEngine;
use turnwise_model::vision::VisionConfig;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::{Config, Registries};
use crate::rollout::compaction::Compaction;
use crate::rollout::engines::{engines, sampling_lanes, sampling_params};
use crate::rollout::pictures::PicturePrompts;
use crate::rollout::pool::EnvCalls;
use crate::rollout::prompting::{PromptParts, Prompter};
use crate::rollout::{Job, RolloutContext, RolloutProgress, is_faulty, run};
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

/// What the episodes of one rollout have in common.
#[derive(Clone, Copy)]
pub struct Rollout<'a> {
    /// Prompts, sampling and limits.
    pub config: &'a Config,
    /// Purpose of the random draws.
    pub purpose: Purpose,
    /// The training step, or another number that identifies this rollout.
    pub step: u64,
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// How often a trajectory that failed for reasons other than the policy is sampled again.
    pub max_resamples: u64,
    /// Set by the caller to stop early.
    pub stop: &'a AtomicBool,
}

impl<'a> Rollout<'a> {
    /// Creates the rollout of a config for this purpose, at step 0 and the config's temperature.
    pub fn new(config: &'a Config, purpose: Purpose, stop: &'a AtomicBool) -> Self {
        let (temperature, max_resamples) = (config.rollout.temperature, config.rollout.max_resamples);
        Self { config, purpose, step: 0, temperature, max_resamples, stop }
    }
}

/// Result of [`EnvRunner::play`].
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Trajectories in job order.
    pub trajectories: Vec<Trajectory>,
    /// Number of trajectories that were sampled again after a failure.
    pub resampled: usize,
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
        let PromptParts { template, chat, pictures } =
            PromptParts::new(config, registries, &tokenizer, vision)?;
        Ok(Self { world, parser: setup::parser(config, &template), template, tokenizer, chat, pictures })
    }

    /// Plays all jobs, one thread per sampler; returns `None` if stopped. Failed trajectories are
    /// sampled again, up to [`Rollout::max_resamples`] times. `tick` is called about ten times per
    /// second.
    ///
    /// # Errors
    /// Fails if a sampler fails as a whole ([`turnwise_core::SampleError::Backend`]) or a thread
    /// panics. Other failures only end their trajectory.
    pub fn play<S: Sampler + Send>(
        &self,
        rollout: &Rollout<'_>,
        jobs: &[Job],
        samplers: &mut [S],
        mut tick: impl FnMut(&RolloutProgress),
    ) -> Result<Option<Played>, TrainError> {
        let context = &self.context(rollout);
        let Some(mut trajectories) = run(context, jobs, samplers, &mut tick)? else { return Ok(None) };
        let mut resampled = 0;
        for attempt in 1..=rollout.max_resamples {
            let failed: Vec<usize> =
                (0..trajectories.len()).filter(|&index| is_faulty(&trajectories[index])).collect();
            if failed.is_empty() {
                break;
            }
            let again: Vec<Job> =
                failed.iter().map(|&index| Job { attempt, ..jobs[index].clone() }).collect();
            let Some(found) = run(context, &again, samplers, &mut tick)? else { return Ok(None) };
            resampled += found.len();
            for (index, trajectory) in failed.into_iter().zip(found) {
                trajectories[index] = trajectory;
            }
        }
        Ok(Some(Played { trajectories, resampled }))
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
    pub(crate) fn hide_pictures(&self, batch: &mut Batch, others: &mut [Trajectory]) {
        let Some(pictures) = &self.pictures else { return };
        let trained = batch.groups.iter_mut().flat_map(|group| &mut group.trajectories);
        trained.chain(others).for_each(|trajectory| pictures.hide(trajectory));
    }

    /// Prepares played trajectories for files and statistics: hides pictures, whose tokens are
    /// valid in this process only, and scales rewards.
    pub fn finish(&self, config: &Config, trajectories: &mut [Trajectory]) {
        for trajectory in trajectories {
            if let Some(pictures) = &self.pictures {
                pictures.hide(trajectory);
            }
            trajectory.scale_rewards(config.env.reward_scale);
        }
    }

    pub(crate) fn context<'a>(&'a self, rollout: &Rollout<'a>) -> RolloutContext<'a> {
        let Rollout { config, purpose, step, temperature, stop, .. } = *rollout;
        let prompter = self.prompter();
        RolloutContext {
            task_set: self.world.shared_task_set(),
            env_calls: EnvCalls::new(&config.rollout),
            tokenizer: &self.tokenizer,
            template: &self.template,
            chat: self.chat.as_ref(),
            pictures: self.pictures.as_ref(),
            parser: &self.parser,
            valid: config.prompt.validity,
            layout: config.prompt.layout,
            history: config.prompt.history,
            compaction: Compaction::of(&config.prompt),
            params: sampling_params(config, prompter, temperature),
            max_turns: config.env.max_turns,
            max_model_len: config.rollout.max_model_len,
            slots: sampling_lanes(config).1,
            run_seed: config.seed,
            purpose,
            step,
            stop,
        }
    }
}
