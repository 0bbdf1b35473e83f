//! Groups of trajectories of a policy.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{Batch, Group, Purpose, StopReason, Task};
use turnwise_model::Weights;
use turnwise_model::engine::{NativeEngine, SharedWeights};
use turnwise_text::Tokenizer;
use turnwise_train::config::Config;
use turnwise_train::rollout::prompting::PromptParts;
use turnwise_train::rollout::{Job, RolloutContext, RolloutProgress, is_faulty, run_with_resampling};
use turnwise_train::setup::{self, World};
use turnwise_train::{TrainError, engines, sampling_lanes};

use crate::EvalError;

/// The policy that is analysed, and the world that it plays.
pub struct AnalysisSettings<'a> {
    /// Prompts, parsing, sampling and limits.
    pub config: &'a Config,
    /// The world.
    pub world: &'a World,
    /// The weights.
    pub weights: Weights,
    /// Their tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Set from outside to stop early.
    pub stop: &'a AtomicBool,
}

impl AnalysisSettings<'_> {
    /// The samplers of the config's lanes, with so many sequences each.
    pub(crate) fn samplers(&self) -> Result<Vec<NativeEngine>, EvalError> {
        let (lanes, slots) = sampling_lanes(self.config);
        let weights =
            SharedWeights::of(&self.weights, 0, self.config.policy.device, self.config.policy.compute)
                .map_err(TrainError::from)?;
        Ok(engines(self.config, &weights, &self.tokenizer, lanes, slots)?)
    }
}

/// Plays each task `samples` times at the rollout temperature; a group is a task. Trajectories that
/// failed for reasons other than the policy are left out.
///
/// # Errors
/// Returns [`EvalError::Train`] for an invalid `prompt.template`, chat settings that do not fit the
/// model, too little memory or a failed sampler; [`EvalError::Interrupted`] if `stop` was set; and
/// [`EvalError::Environment`] if every trajectory failed.
pub fn play_groups(
    settings: &AnalysisSettings<'_>,
    tasks: &[Task],
    samples: usize,
    tick: &mut dyn FnMut(&RolloutProgress),
) -> Result<Batch, EvalError> {
    let config = settings.config;
    let vision = settings.weights.config().vision.as_ref();
    let prompts = PromptParts::new(config, &settings.tokenizer, vision)?;
    let parser = setup::parser(config, &prompts.template);
    let prompter = prompts.prompter(&settings.tokenizer);
    let task_set = settings.world.shared_task_set();
    let temperature = config.rollout.temperature;
    let context = RolloutContext::new(config, task_set, prompter, &parser, temperature, settings.stop);
    let context = RolloutContext { purpose: Purpose::Evaluation, ..context };
    let job = |(group, task): (usize, &Task)| {
        let task = task.clone();
        (0..samples).map(move |sample| Job::new(task.clone(), group, sample))
    };
    let jobs: Vec<Job> = tasks.iter().enumerate().flat_map(job).collect();
    let mut samplers = settings.samplers()?;
    let played = run_with_resampling(&context, &jobs, &mut samplers, config.rollout.max_resamples, tick)?;
    let (mut played, _) = played.ok_or(EvalError::Interrupted)?;
    if let Some(StopReason::EnvironmentError(reason) | StopReason::SampleError(reason)) =
        played.first().map(|trajectory| &trajectory.stop)
        && played.iter().all(is_faulty)
    {
        return Err(EvalError::Environment { tasks: tasks.len(), reason: reason.clone() });
    }
    for trajectory in &mut played {
        trajectory.scale_rewards(config.env.reward_scale);
    }
    let mut groups = vec![Group::default(); tasks.len()];
    for trajectory in played.into_iter().filter(|trajectory| !is_faulty(trajectory)) {
        groups[trajectory.group].trajectories.push(trajectory);
    }
    groups.retain(|group| !group.trajectories.is_empty());
    Ok(Batch { groups })
}
