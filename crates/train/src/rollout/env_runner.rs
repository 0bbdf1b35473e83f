//! Plays episodes with any samplers.

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
    /// Response parser.
    pub parser: ActionParser,
    /// The policy's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat format, if used.
    pub chat: Option<ChatFormat>,
    /// Pictures in prompts, if used.
    pub pictures: Option<PicturePrompts>,
}

/// Common settings of a rollout's episodes.
#[derive(Clone, Copy)]
pub struct Rollout<'a> {
    /// Prompts, sampling and limits.
    pub config: &'a Config,
    /// Purpose of the random draws.
    pub purpose: Purpose,
    /// The training step, or another number that identifies this rollout.
    pub step: u64,
    /// Sampling temperature; 0 is greedy.
    pub temperature: f32,
    /// Maximum number of times to resample a trajectory that failed for reasons other than the
    /// policy.
    pub max_resamples: u64,
    /// Flag that the caller sets to stop the rollout early.
    pub stop: &'a AtomicBool,
}

impl<'a> Rollout<'a> {
    /// Creates a rollout at step 0, with the config's temperature.
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
    /// Number of trajectories resampled after a failure.
    pub resampled: usize,
}

impl EnvRunner {
    /// Creates the runner for a policy with this vision tower.
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

    /// Plays all jobs, one thread per sampler; returns `None` if stopped. Resamples failed
    /// trajectories up to [`Rollout::max_resamples`] times. Calls `tick` about ten times per
    /// second.
    ///
    /// # Errors
    /// Fails on [`turnwise_core::SampleError::Backend`] or a thread's panic; other failures only
    /// end their trajectory.
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
    /// Fails if `rollout.max_model_len` is below 2 or above `max_position_embeddings`, or if the
    /// device is not in this build or lacks memory.
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

    /// Hides the pictures of a step's trajectories before they are written
    /// ([`PicturePrompts::hide`]).
    pub(crate) fn hide_pictures(&self, batch: &mut Batch, others: &mut [Trajectory]) {
        let Some(pictures) = &self.pictures else { return };
        let trained = batch.groups.iter_mut().flat_map(|group| &mut group.trajectories);
        trained.chain(others).for_each(|trajectory| pictures.hide(trajectory));
    }

    /// Hides pictures, whose tokens are only valid in this process, and scales rewards.
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
