//! The training batch of a step: rounds of rollouts until the selection is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use turnwise_core::{Batch, Group, PromptTokens, Purpose, Sampler, Task, Trajectory};
use turnwise_credit::StateValues;
use turnwise_credit::selection::{Selection, SelectionConfig};

use crate::TrainError;
use crate::config::{Config, OnError, RolloutConfig};
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Round};
use crate::rollout::continuations::{ValueSettings, estimate_state_values};
use crate::rollout::faults::Faults;
use crate::rollout::overflow::Overflows;
use crate::rollout::tasks::TaskOrder;
use crate::rollout::{EnvRunner, Job, Played, Rollout, RolloutProgress};

pub(crate) struct Sampled {
    pub(crate) batch: Batch,
    pub(crate) drawn: u64,
    /// Number of response tokens, including those of trajectories that are not trained on.
    pub(crate) tokens: usize,
    pub(crate) turns: usize,
    pub(crate) metrics: Metrics,
    pub(crate) overflows: Overflows,
    pub(crate) continuing: f64,
    /// Trajectories left out because they failed, or because too many members of their group did.
    pub(crate) masked: Vec<Trajectory>,
}

pub(crate) struct SamplingJob {
    pub(crate) runner: Arc<EnvRunner>,
    pub(crate) config: Arc<Config>,
    pub(crate) order: Arc<TaskOrder>,
    pub(crate) samplers: Vec<Box<dyn Sampler + Send>>,
    pub(crate) step: u64,
    pub(crate) first_task: u64,
    pub(crate) fewest: usize,
    pub(crate) state_values: Option<StateValues>,
}

#[derive(Default)]
struct Totals {
    tokens: usize,
    turns: usize,
    /// Number of trajectories that did not fail; `solved` counts their successes, and `reward` sums
    /// their returns.
    trajectories: f64,
    solved: f64,
    reward: f64,
    overflows: Overflows,
    /// Number of failed trajectories, plus those left out because others of their group failed.
    failed: usize,
    masked: Vec<Trajectory>,
    groups_masked: usize,
    resampled: usize,
}

impl Totals {
    fn add_sampled(&mut self, round: &[Group], resampled: usize) {
        self.resampled += resampled;
        for trajectory in round.iter().flat_map(|group| &group.trajectories) {
            self.tokens += trajectory.response_tokens();
            self.turns += trajectory.actions();
        }
    }

    fn add_faults(&mut self, mut faults: Faults) {
        self.failed += faults.failed;
        self.groups_masked += faults.groups;
        self.masked.append(&mut faults.trajectories);
    }

    fn add_whole(&mut self, round: &[Group], reward_scale: f64) {
        for trajectory in round.iter().flat_map(|group| &group.trajectories) {
            self.trajectories += 1.0;
            self.solved += f64::from(u8::from(trajectory.success));
            self.reward += trajectory.environment_return(reward_scale);
            self.overflows.add(trajectory);
        }
    }

    fn metrics(&self, samplers: &[Box<dyn Sampler + Send>]) -> Metrics {
        let mut prompt_tokens = PromptTokens::default();
        for sampler in samplers {
            prompt_tokens.add(sampler.prompt_tokens());
        }
        let mut metrics = Metrics::default();
        metrics.set("train/success_rate", self.solved / self.trajectories);
        metrics.set("train/reward/mean", self.reward / self.trajectories);
        metrics.set("rollout/trajectories", self.trajectories);
        metrics.set("rollout/overflow_rate", self.overflows.share());
        metrics.set("perf/prompt_tokens_computed", prompt_tokens.computed as f64);
        metrics.set("perf/prompt_tokens_saved", prompt_tokens.saved as f64);
        let masked = self.masked.len() as f64;
        metrics.set("rollout/error_rate", self.failed as f64 / (self.trajectories + masked));
        if !self.masked.is_empty() || self.resampled > 0 {
            metrics.set("rollout/masked", masked);
            metrics.set("rollout/resampled", self.resampled as f64);
            metrics.set("rollout/groups_masked", self.groups_masked as f64);
        }
        metrics
    }
}

impl SamplingJob {
    pub(crate) fn run(
        mut self,
        report: &mut dyn FnMut(Event<'static>),
        stop: &AtomicBool,
    ) -> Result<Option<Sampled>, TrainError> {
        let config = Arc::clone(&self.config);
        let settings = &config.rollout;
        let mut selection = Selection::new(&settings.filter_groups, settings.tasks_per_step)?;
        let mut drawn = 0;
        let mut all = Totals::default();
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
            all.add_sampled(&round, again);
            let faults = Faults::take_out(&mut round, self.fewest);
            // An error only if no earlier round has groups.
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
            all.add_faults(faults);
            all.add_whole(&round, config.env.reward_scale);
            selection.add(round);
        }
        let mut metrics = all.metrics(&self.samplers);
        if settings.filter_groups != SelectionConfig::All {
            metrics.set("rollout/rounds", selection.rounds() as f64);
            metrics.set("rollout/groups_dropped", selection.dropped() as f64);
            metrics.set("rollout/groups_surplus", selection.surplus() as f64);
        }
        let mut continuing = 0.0;
        if let Some(wanted) = self.state_values {
            let started = Instant::now();
            let solved = all.solved as usize;
            let Some(found) = self.estimate(wanted, selection.groups_mut(), solved, report, stop)? else {
                return Ok(None);
            };
            continuing = started.elapsed().as_secs_f64();
            metrics.0.extend(found.0);
            metrics.set("perf/continuations_s", continuing);
        }
        let (rounds, dropped) = (selection.rounds(), selection.dropped());
        let batch = selection.finish();
        if batch.groups.is_empty() {
            report(Event::Note(format!(
                "step {}: rollout.filter_groups kept none of the {dropped} groups of {rounds} rounds, so that this step trains nothing; where \
                 that goes on, take easier tasks, a longer warm start, or another selection",
                self.step + 1
            )));
        }
        metrics.set("rollout/groups", batch.groups.len() as f64);
        let Totals { tokens, turns, overflows, masked, .. } = all;
        Ok(Some(Sampled { batch, drawn, tokens, turns, metrics, overflows, continuing, masked }))
    }

    /// Samples a group per task; also returns the number of resampled trajectories. Groups are
    /// numbered from `first`, across all rounds, so no two draws share a seed.
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
        let rollout = self.rollout(&self.config, stop);
        let played = self.runner.play(&rollout, &jobs, &mut self.samplers, tick)?;
        let groups = |trajectories| into_groups(trajectories, first, tasks.len());
        Ok(played.map(|Played { trajectories, resampled }| (groups(trajectories), resampled)))
    }

    fn rollout<'a>(&self, config: &'a Config, stop: &'a AtomicBool) -> Rollout<'a> {
        let RolloutConfig { on_error, max_resamples, .. } = config.rollout;
        let max_resamples = if on_error == OnError::Resample { max_resamples } else { 0 };
        let step = self.step;
        Rollout { step, max_resamples, ..Rollout::new(config, Purpose::Rollout, stop) }
    }

    /// Estimates state values of the chosen groups by continuations; `None` if stopped.
    fn estimate(
        &mut self,
        wanted: StateValues,
        groups: &mut [Group],
        solved: usize,
        report: &mut dyn FnMut(Event<'static>),
        stop: &AtomicBool,
    ) -> Result<Option<Metrics>, TrainError> {
        let config = Arc::clone(&self.config);
        let playing = self.rollout(&config, stop);
        let mut tick = |finished, total, tokens| {
            report(Event::Rollout { finished, total, solved, tokens, round: None });
        };
        let settings = ValueSettings { wanted, reward_scale: self.config.env.reward_scale };
        let (runner, samplers) = (&self.runner, &mut self.samplers);
        let found = estimate_state_values(runner, &playing, &settings, groups, samplers, &mut tick)?;
        Ok(found.map(|found| {
            let mut metrics = Metrics::default();
            metrics.set("continuations/states", found.states as f64);
            metrics.set("continuations/sampled", found.continued.sampled as f64);
            metrics.set("continuations/failed", found.continued.failed as f64);
            metrics.set("continuations/turns", found.continued.turns as f64);
            metrics.set("continuations/tokens", found.continued.tokens as f64);
            metrics.set("continuations/value_error", found.error);
            metrics
        }))
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

fn into_groups(trajectories: Vec<Trajectory>, first: usize, count: usize) -> Vec<Group> {
    let mut groups = vec![Group::default(); count];
    for trajectory in trajectories {
        groups[trajectory.group - first].trajectories.push(trajectory);
    }
    groups
}
