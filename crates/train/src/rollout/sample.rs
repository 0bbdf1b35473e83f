//! The training batch of one step: rounds of rollouts until the selection has what it wants.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{Batch, Group, Purpose, Trajectory};
use turnwise_credit::selection::{Selection, SelectionConfig};

use crate::TrainError;
use crate::rollout::engines::{engines, sampling_lanes, sampling_params};
use crate::rollout::prompting::Prompter;
use crate::rollout::tasks::TaskOrder;
use crate::rollout::{self, Job, RolloutContext};
use crate::run::Run;
use crate::run::metrics::Metrics;
use crate::run::observer::{Event, Observer};

/// A batch and what it took to get it.
pub(crate) struct Sampled {
    /// The groups that are trained on.
    pub(crate) batch: Batch,
    /// Tasks drawn from the order.
    pub(crate) drawn: u64,
    /// Numbers about all that was sampled, those groups included that were not chosen.
    pub(crate) metrics: Metrics,
}

impl Run {
    /// Samples the batch of a step; `None` when it was stopped from outside.
    pub(crate) fn sample(
        &self,
        order: &TaskOrder,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Sampled>, TrainError> {
        let settings = &self.config.rollout;
        let mut selection = Selection::new(&settings.selection, settings.tasks_per_step)?;
        let (mut drawn, mut trajectories, mut solved, mut reward) = (0, 0.0, 0.0, 0.0);
        loop {
            let count = selection.missing();
            if count == 0 {
                break;
            }
            let tasks = order.draw(self.tasks_drawn + drawn, count);
            let Some(round) = self.round(&tasks, drawn as usize, observer, stop)? else { return Ok(None) };
            drawn += count as u64;
            for trajectory in round.iter().flat_map(|group| &group.trajectories) {
                trajectories += 1.0;
                solved += f64::from(u8::from(trajectory.success));
                reward += trajectory.outcome_return();
            }
            selection.add(round);
        }
        let mut metrics = Metrics::default();
        metrics.set("train/success_rate", solved / trajectories);
        metrics.set("train/reward/mean", reward / trajectories);
        metrics.set("rollout/trajectories", trajectories);
        if settings.selection != SelectionConfig::All {
            metrics.set("rollout/rounds", selection.rounds() as f64);
            metrics.set("rollout/groups_dropped", selection.dropped() as f64);
            metrics.set("rollout/groups_surplus", selection.surplus() as f64);
        }
        let batch = selection.finish();
        metrics.set("rollout/groups", batch.groups.len() as f64);
        Ok(Some(Sampled { batch, drawn, metrics }))
    }

    /// One round: a group for each task. `first` numbers the groups of a step through all of its rounds,
    /// so that no two draws share a seed.
    fn round(
        &self,
        tasks: &[turnwise_core::Task],
        first: usize,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<Group>>, TrainError> {
        let settings = &self.config.rollout;
        let jobs: Vec<Job> = tasks
            .iter()
            .enumerate()
            .flat_map(|(place, task)| {
                let group = first + place;
                (0..settings.group_size).map(move |sample| Job {
                    task: task.clone(),
                    group,
                    sample,
                    preamble: String::new(),
                })
            })
            .collect();
        let (all, slots) = sampling_lanes(&self.config);
        let prompter =
            Prompter { template: &self.template, tokenizer: &self.tokenizer, chat: self.chat.as_ref() };
        let context = RolloutContext {
            task_set: self.world.task_set(),
            tokenizer: &self.tokenizer,
            template: &self.template,
            chat: self.chat.as_ref(),
            parser: &self.parser,
            layout: self.config.prompt.layout,
            history: self.config.prompt.history,
            params: sampling_params(&self.config, prompter, settings.temperature),
            max_context: settings.max_context,
            reward_scale: self.config.env.reward_scale,
            slots,
            run_seed: self.config.seed,
            purpose: Purpose::Rollout,
            step: self.position.step,
            stop,
        };
        let weights = self.learner.engine_weights()?;
        let mut samplers = engines(&self.config, &weights, &self.tokenizer, all, slots)?;
        drop(weights);
        let total = jobs.len();
        let trajectories = rollout::run(&context, &jobs, &mut samplers, |progress| {
            observer.event(Event::Rollout {
                finished: progress.finished.load(Ordering::Relaxed),
                total,
                solved: progress.solved.load(Ordering::Relaxed),
                tokens: progress.tokens.load(Ordering::Relaxed),
            });
        })?;
        drop(samplers);
        Ok(trajectories.map(|trajectories| into_groups(trajectories, first, tasks.len())))
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
