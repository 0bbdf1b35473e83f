//! The training batch of one step: rounds of rollouts until the selection has what it wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{Batch, Group, PromptTokens, Sampler, Task, Trajectory};
use turnwise_credit::selection::{Selection, SelectionConfig};

use crate::TrainError;
use crate::config::{Config, OnError, RolloutConfig};
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Round};
use crate::rollout::actor::Actor;
use crate::rollout::engines::sampling_lanes;
use crate::rollout::faults::{Faults, run_with_resampling};
use crate::rollout::tasks::TaskOrder;
use crate::rollout::{Job, RolloutProgress};
use crate::step::overflow::Overflows;

/// A batch and what it took to get it.
pub(crate) struct Sampled {
    /// The groups that are trained on.
    pub(crate) batch: Batch,
    /// Tasks drawn from the order.
    pub(crate) drawn: u64,
    /// Response tokens of all that was sampled, those groups and trajectories included that are not trained on.
    pub(crate) tokens: usize,
    /// Its turns.
    pub(crate) turns: usize,
    /// Numbers about all that was sampled, those groups included that were not chosen.
    pub(crate) metrics: Metrics,
    /// Prompts that did not fit, of all that was sampled.
    pub(crate) overflows: Overflows,
    /// Trajectories that are not trained on because they, or too many beside them, failed through no fault of the
    /// policy.
    pub(crate) masked: Vec<Trajectory>,
}

/// The sampling of one step. It has all that it reads, so that it can go on while the policy is updated.
pub(crate) struct SamplingJob {
    pub(crate) actor: Arc<Actor>,
    pub(crate) config: Arc<Config>,
    pub(crate) order: Arc<TaskOrder>,
    /// Samplers over the weights that all rounds are sampled with, one a lane.
    pub(crate) samplers: Vec<Box<dyn Sampler + Send>>,
    /// The step that is sampled for.
    pub(crate) step: u64,
    /// Place in the order of tasks of the step's first one.
    pub(crate) first_task: u64,
    /// Members that a group needs at least to be trained on, where others of it failed.
    pub(crate) fewest: usize,
}

impl SamplingJob {
    /// Samples rounds of rollouts until the selection has what it wants; `None` when it was stopped from outside.
    pub(crate) fn run(
        mut self,
        report: &mut dyn FnMut(Event<'static>),
        stop: &AtomicBool,
    ) -> Result<Option<Sampled>, TrainError> {
        let config = Arc::clone(&self.config);
        let settings = &config.rollout;
        let mut selection = Selection::new(&settings.selection, settings.tasks_per_step)?;
        let (mut drawn, mut trajectories, mut solved, mut reward) = (0, 0.0, 0.0, 0.0);
        let (mut masked, mut failed, mut resampled, mut dropped) = (Vec::new(), 0, 0, 0);
        let (mut tokens, mut turns) = (0, 0);
        let mut overflows = Overflows::default();
        loop {
            let count = selection.missing();
            if count == 0 {
                break;
            }
            let tasks = self.order.draw(self.first_task + drawn, count)?;
            let number = (selection.max_rounds() > 1).then(|| Round {
                number: selection.rounds() + 1,
                most: selection.max_rounds(),
                kept: selection.kept(),
                wanted: settings.tasks_per_step,
            });
            let mut tick = |progress: &RolloutProgress| {
                report(rollout_event(progress, &tasks, settings, number));
            };
            let Some((mut round, again)) = self.round(&tasks, drawn as usize, stop, &mut tick)? else {
                return Ok(None);
            };
            drawn += count as u64;
            resampled += again;
            for trajectory in round.iter().flat_map(|group| &group.trajectories) {
                tokens += trajectory.response_tokens();
                turns += trajectory.turns.len();
            }
            let mut faults = Faults::take_out(&mut round, self.fewest);
            // A round without any is an error where none before it gave a group, and else only a round more.
            if round.is_empty() && selection.kept() == 0 {
                faults.check()?;
            }
            if let Some(reason) = faults.reason() {
                report(Event::Note(format!(
                    "step {}: {} trajectories failed through no fault of the policy and are left out, {} groups with \
                     them; the first reason: {reason}",
                    self.step + 1,
                    faults.failed,
                    faults.groups
                )));
            }
            failed += faults.failed;
            dropped += faults.groups;
            masked.append(&mut faults.trajectories);
            for trajectory in round.iter().flat_map(|group| &group.trajectories) {
                trajectories += 1.0;
                solved += f64::from(u8::from(trajectory.success));
                reward += trajectory.environment_return(config.env.reward_scale);
                overflows.add(trajectory);
            }
            selection.add(round);
        }
        let mut prompt_tokens = PromptTokens::default();
        self.samplers.iter().for_each(|sampler| prompt_tokens.add(sampler.prompt_tokens()));
        let mut metrics = Metrics::default();
        metrics.set("train/success_rate", solved / trajectories);
        metrics.set("train/reward/mean", reward / trajectories);
        metrics.set("rollout/trajectories", trajectories);
        metrics.set("rollout/overflow_rate", overflows.share());
        metrics.set("perf/prompt_tokens_computed", prompt_tokens.computed as f64);
        metrics.set("perf/prompt_tokens_saved", prompt_tokens.saved as f64);
        metrics.set("rollout/error_rate", failed as f64 / (trajectories + masked.len() as f64));
        if !masked.is_empty() || resampled > 0 {
            metrics.set("rollout/masked", masked.len() as f64);
            metrics.set("rollout/resampled", resampled as f64);
            metrics.set("rollout/groups_masked", dropped as f64);
        }
        if settings.selection != SelectionConfig::All {
            metrics.set("rollout/rounds", selection.rounds() as f64);
            metrics.set("rollout/groups_dropped", selection.dropped() as f64);
            metrics.set("rollout/groups_surplus", selection.surplus() as f64);
        }
        let batch = selection.finish();
        metrics.set("rollout/groups", batch.groups.len() as f64);
        Ok(Some(Sampled { batch, drawn, tokens, turns, metrics, overflows, masked }))
    }

    /// One round: a group for each task. `first` numbers the groups of a step through all of its rounds,
    /// so that no two draws share a seed. Says how many trajectories were sampled again because they failed.
    fn round(
        &mut self,
        tasks: &[Task],
        first: usize,
        stop: &AtomicBool,
        tick: &mut dyn FnMut(&RolloutProgress),
    ) -> Result<Option<(Vec<Group>, usize)>, TrainError> {
        let settings = &self.config.rollout;
        let job = |group, task: &Task, sample| Job::new(task.clone(), group, sample);
        let jobs: Vec<Job> = tasks
            .iter()
            .enumerate()
            .flat_map(|(index, task)| {
                (0..settings.group_size).map(move |sample| job(first + index, task, sample))
            })
            .collect();
        let slots = sampling_lanes(&self.config).1;
        let context = self.actor.context(&self.config, slots, self.step, stop);
        let again = if settings.on_error == OnError::Resample { settings.max_resamples } else { 0 };
        let trajectories = run_with_resampling(&context, &jobs, &mut self.samplers, again, tick)?;
        let groups = |trajectories| into_groups(trajectories, first, tasks.len());
        Ok(trajectories.map(|(trajectories, again)| (groups(trajectories), again)))
    }
}

fn rollout_event(
    progress: &RolloutProgress,
    tasks: &[Task],
    settings: &RolloutConfig,
    round: Option<Round>,
) -> Event<'static> {
    Event::Rollout {
        finished: progress.finished.load(Ordering::Relaxed),
        total: tasks.len() * settings.group_size,
        solved: progress.solved.load(Ordering::Relaxed),
        tokens: progress.tokens.load(Ordering::Relaxed),
        round,
    }
}

/// Trajectories in job order as groups.
fn into_groups(trajectories: Vec<Trajectory>, first: usize, count: usize) -> Vec<Group> {
    let mut groups = vec![Group::default(); count];
    for mut trajectory in trajectories {
        trajectory.group -= first;
        groups[trajectory.group].trajectories.push(trajectory);
    }
    groups
}
