//! The training batch of one step: rounds of rollouts until the selection has what it wants.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{Batch, Group, PromptTokens, Sampler as _, Task, Trajectory};
use turnwise_credit::selection::{Selection, SelectionConfig};

use crate::TrainError;
use crate::config::{Config, OnError};
use crate::learners::Learners;
use crate::learners::policy::PolicyLearner;
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Observer, Round};
use crate::record::state::RunState;
use crate::rollout::Job;
use crate::rollout::actor::Actor;
use crate::rollout::engines::sampling_lanes;
use crate::rollout::faults::{Faults, run_with_resampling};
use crate::rollout::tasks::TaskOrder;
use crate::step::StepContext;

/// A batch and what it took to get it.
pub(crate) struct Sampled {
    /// The groups that are trained on.
    pub(crate) batch: Batch,
    /// Tasks drawn from the order.
    pub(crate) drawn: u64,
    /// Numbers about all that was sampled, those groups included that were not chosen.
    pub(crate) metrics: Metrics,
    /// Trajectories that are not trained on because they, or too many beside them, failed through no fault of the
    /// policy.
    pub(crate) masked: Vec<Trajectory>,
}

/// Everything that the rounds of a step share.
struct SampleContext<'a> {
    actor: &'a Actor,
    policy: &'a dyn PolicyLearner,
    config: &'a Config,
    state: &'a RunState,
    order: &'a TaskOrder,
    /// Members that a group needs at least to be trained on, where others of it failed.
    fewest: usize,
    stop: &'a AtomicBool,
}

/// Samples the batch of a step; `None` when it was stopped from outside.
pub(crate) fn sample(
    actor: &Actor,
    learners: &mut Learners,
    state: &RunState,
    config: &Config,
    step: &mut StepContext<'_>,
) -> Result<Option<Sampled>, TrainError> {
    // Sampling has its own copy of the weights and its cache; what training works in need not lie beside.
    learners.release();
    // A critic judges a trajectory by itself; everything else compares it with another of its task.
    let fewest = if learners.critic.is_some() { 1 } else { 2 };
    let (policy, order, stop) = (learners.policy.as_ref(), step.order, step.stop);
    let context = SampleContext { actor, policy, config, state, order, fewest, stop };
    let Some(mut sampled) = context.rounds(step.observer)? else { return Ok(None) };
    let report = learners.policy.sampling_report();
    report.notes.into_iter().for_each(|note| step.observer.event(Event::Note(note)));
    sampled.metrics.0.extend(report.metrics.0);
    Ok(Some(sampled))
}

impl SampleContext<'_> {
    /// Rounds of rollouts until the selection has what it wants.
    fn rounds(&self, observer: &mut dyn Observer) -> Result<Option<Sampled>, TrainError> {
        let settings = &self.config.rollout;
        let mut selection = Selection::new(&settings.selection, settings.tasks_per_step)?;
        let (mut drawn, mut trajectories, mut solved, mut reward) = (0, 0.0, 0.0, 0.0);
        let (mut masked, mut failed, mut resampled, mut dropped) = (Vec::new(), 0, 0, 0);
        let mut prompt_tokens = PromptTokens::default();
        loop {
            let count = selection.missing();
            if count == 0 {
                break;
            }
            let tasks = self.order.draw(self.state.tasks_drawn + drawn, count)?;
            let number = (selection.max_rounds() > 1).then(|| Round {
                number: selection.rounds() + 1,
                most: selection.max_rounds(),
                kept: selection.kept(),
                wanted: settings.tasks_per_step,
            });
            let Some((mut round, again, tokens)) = self.round(&tasks, drawn as usize, number, observer)?
            else {
                return Ok(None);
            };
            prompt_tokens.add(tokens);
            drawn += count as u64;
            resampled += again;
            let mut faults = Faults::take_out(&mut round, self.fewest)?;
            if let Some(reason) = faults.reason() {
                observer.event(Event::Note(format!(
                    "step {}: {} trajectories failed through no fault of the policy and are left out, {} groups with \
                     them; the first reason: {reason}",
                    self.state.position.step + 1,
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
                reward += trajectory.environment_return(self.config.env.reward_scale);
            }
            selection.add(round);
        }
        let mut metrics = Metrics::default();
        metrics.set("train/success_rate", solved / trajectories);
        metrics.set("train/reward/mean", reward / trajectories);
        metrics.set("rollout/trajectories", trajectories);
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
        Ok(Some(Sampled { batch, drawn, metrics, masked }))
    }

    /// One round: a group for each task. `first` numbers the groups of a step through all of its rounds,
    /// so that no two draws share a seed. Says how many trajectories were sampled again because they failed, and the
    /// samplers' prompt tokens.
    fn round(
        &self,
        tasks: &[Task],
        first: usize,
        number: Option<Round>,
        observer: &mut dyn Observer,
    ) -> Result<Option<(Vec<Group>, usize, PromptTokens)>, TrainError> {
        let group_size = self.config.rollout.group_size;
        let job = |group, task: &Task, sample| Job::new(task.clone(), group, sample);
        let jobs: Vec<Job> = tasks
            .iter()
            .enumerate()
            .flat_map(|(index, task)| (0..group_size).map(move |sample| job(first + index, task, sample)))
            .collect();
        let (lanes, slots) = sampling_lanes(self.config);
        let context = self.actor.context(self.config, slots, self.state.position.step, self.stop);
        let mut samplers = self.policy.samplers(lanes, slots, self.config.rollout.max_context)?;
        let total = jobs.len();
        let settings = &self.config.rollout;
        let again = if settings.on_error == OnError::Resample { settings.max_resamples } else { 0 };
        let trajectories = run_with_resampling(&context, &jobs, &mut samplers, again, |progress| {
            observer.event(Event::Rollout {
                finished: progress.finished.load(Ordering::Relaxed),
                total,
                solved: progress.solved.load(Ordering::Relaxed),
                tokens: progress.tokens.load(Ordering::Relaxed),
                round: number,
            });
        })?;
        let mut tokens = PromptTokens::default();
        for sampler in &samplers {
            tokens.add(sampler.prompt_tokens());
        }
        let groups = |trajectories| into_groups(trajectories, first, tasks.len());
        Ok(trajectories.map(|(trajectories, again)| (groups(trajectories), again, tokens)))
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
