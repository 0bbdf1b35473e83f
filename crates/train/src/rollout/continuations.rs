//! State values: the mean return of continuations that the policy samples from a state.
//!
//! Seeds are derived from run, step, state and continuation, so values do not depend on threads or
//! interruptions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use turnwise_core::{Group, Purpose, Sampler, StopReason, Trajectory};
use turnwise_credit::StateValues;

use super::branch::{Branch, branches};
use super::{EnvRunner, Job, Rollout, is_faulty, run_each};
use crate::TrainError;

/// An environment state with the policy's exact tokens ([`Branch`]), and its continuations'
/// returns.
#[derive(Clone, Debug)]
pub struct State {
    branch: Arc<Branch>,
    /// Number of turns that start in this state.
    pub uses: usize,
    asked: usize,
    /// Return of each continuation that did not fail, in order.
    pub returns: Vec<f64>,
}

impl State {
    /// Returns the mean return and its standard error (0 for a single return); `None` if there are
    /// no returns.
    pub fn value(&self) -> Option<(f64, f64)> {
        let n = self.returns.len() as f64;
        if self.returns.is_empty() {
            return None;
        }
        let mean = self.returns.iter().sum::<f64>() / n;
        let squares: f64 = self.returns.iter().map(|value| (value - mean).powi(2)).sum();
        let error = if self.returns.len() < 2 { 0.0 } else { (squares / (n - 1.0) / n).sqrt() };
        Some((mean, error))
    }
}

/// States before the turns of trajectories, without duplicates.
#[derive(Clone, Debug, Default)]
pub struct States {
    known: HashMap<(usize, String), usize>,
    /// States in order of first appearance.
    pub all: Vec<State>,
}

impl States {
    /// Adds the states of a trajectory of this rollout, and returns each turn's state index.
    /// Trajectories of a group share states.
    ///
    /// # Errors
    /// Fails like [`branches`].
    pub fn add(
        &mut self,
        runner: &EnvRunner,
        rollout: &Rollout<'_>,
        trajectory: &Trajectory,
    ) -> Result<Vec<usize>, TrainError> {
        let mut numbers = Vec::with_capacity(trajectory.turns.len());
        for branch in branches(runner, rollout, trajectory)? {
            let number = match self.known.entry((trajectory.group, branch.key(rollout.config.prompt.history)))
            {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let branch = Arc::new(branch);
                    self.all.push(State { branch, uses: 0, asked: 0, returns: Vec::new() });
                    *new.insert(self.all.len() - 1)
                }
            };
            self.all[number].uses += 1;
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// How to compute a continuation's return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReturnSettings {
    /// Discount per turn.
    pub gamma: f64,
    /// Factor on environment rewards.
    pub reward_scale: f64,
}

/// Statistics of continuations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continued {
    /// Number of continuations.
    pub sampled: usize,
    /// Number of continuations without a return, because the environment or sampler failed.
    pub failed: usize,
    /// Number of turns.
    pub turns: usize,
    /// Number of response tokens.
    pub tokens: usize,
    /// Reason of the first failure.
    pub failure: Option<String>,
}

/// Samples `more(state)` further continuations of each state; returns `None` if stopped. `tick`
/// gets the number of finished continuations, the total number of continuations, and the number of
/// tokens sampled so far.
///
/// # Errors
/// Fails like [`EnvRunner::play`].
pub fn continue_states<S: Sampler + Send>(
    runner: &EnvRunner,
    rollout: &Rollout<'_>,
    settings: ReturnSettings,
    states: &mut [State],
    more: impl Fn(usize) -> usize,
    samplers: &mut [S],
    tick: &mut dyn FnMut(usize, usize, usize),
) -> Result<Option<Continued>, TrainError> {
    let mut jobs = Vec::new();
    for (number, state) in states.iter_mut().enumerate() {
        let new = state.asked..state.asked + more(number);
        state.asked = new.end;
        jobs.extend(new.map(|sample| Job {
            branch: Some(Arc::clone(&state.branch)),
            ..Job::new(state.branch.task().clone(), number, sample)
        }));
    }
    if jobs.is_empty() {
        return Ok(Some(Continued::default()));
    }
    let returns: Mutex<Vec<Option<f64>>> = Mutex::new(vec![None; jobs.len()]);
    let found: Mutex<Continued> = Mutex::new(Continued { sampled: jobs.len(), ..Continued::default() });
    let keep = |job: usize, mut trajectory: Trajectory| {
        let before = jobs[job].branch.as_ref().map_or(0, |branch| branch.turn());
        let Ok(mut found) = found.lock() else { return };
        // The turns before the state have no tokens here.
        found.turns += trajectory.turns.len() - before;
        found.tokens += trajectory.response_tokens();
        if is_faulty(&trajectory) {
            found.failed += 1;
            if let StopReason::EnvironmentError(reason) | StopReason::SampleError(reason) = trajectory.stop {
                found.failure.get_or_insert(reason);
            }
            return;
        }
        trajectory.scale_rewards(settings.reward_scale);
        // A continuation without room for a response has no turn and return 0.
        let earned = trajectory.step_returns(settings.gamma).get(before).copied().unwrap_or(0.0);
        if let Ok(mut returns) = returns.lock() {
            returns[job] = Some(earned);
        }
    };
    let finished = run_each(&runner.context(rollout), &jobs, samplers, &keep, |progress| {
        let count = |of: &std::sync::atomic::AtomicUsize| of.load(Ordering::Relaxed);
        tick(count(&progress.finished), jobs.len(), count(&progress.tokens));
    })?;
    if !finished {
        return Ok(None);
    }
    let returns = returns.into_inner().map_err(|_| TrainError::Thread)?;
    for (job, earned) in jobs.iter().zip(returns) {
        states[job.group].returns.extend(earned);
    }
    found.into_inner().map(Some).map_err(|_| TrainError::Thread)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValueSettings {
    pub(crate) wanted: StateValues,
    pub(crate) reward_scale: f64,
}

pub(crate) struct Estimated {
    pub(crate) states: usize,
    pub(crate) error: f64,
    pub(crate) continued: Continued,
}

/// Estimates the state values of the groups, which the rollout `playing` sampled, and stores them
/// in the groups' turns; returns `None` if stopped.
pub(crate) fn estimate_state_values<S: Sampler + Send>(
    runner: &EnvRunner,
    playing: &Rollout<'_>,
    settings: &ValueSettings,
    groups: &mut [Group],
    samplers: &mut [S],
    tick: &mut dyn FnMut(usize, usize, usize),
) -> Result<Option<Estimated>, TrainError> {
    let mut states = States::default();
    let mut numbers = Vec::new();
    for trajectory in groups.iter().flat_map(|group| &group.trajectories) {
        numbers.push(states.add(runner, playing, trajectory)?);
    }
    let ValueSettings { wanted: StateValues { continuations, gamma }, reward_scale } = *settings;
    let returns = ReturnSettings { gamma, reward_scale };
    let continuing = Rollout { purpose: Purpose::Continuation, ..*playing };
    let continued =
        continue_states(runner, &continuing, returns, &mut states.all, |_| continuations, samplers, tick)?;
    let Some(continued) = continued else { return Ok(None) };
    let values: Option<Vec<(f64, f64)>> = states.all.iter().map(State::value).collect();
    let Some(values) = values else {
        let Continued { failed, sampled, failure, .. } = continued;
        return Err(TrainError::Rollout { failed, sampled, reason: failure.unwrap_or_default() });
    };
    let trajectories = groups.iter_mut().flat_map(|group| &mut group.trajectories);
    for (trajectory, numbers) in trajectories.zip(&numbers) {
        for (turn, &number) in trajectory.turns.iter_mut().zip(numbers) {
            turn.state_value = Some(values[number].0);
        }
    }
    let error = values.iter().map(|value| value.1).sum::<f64>() / values.len().max(1) as f64;
    Ok(Some(Estimated { states: values.len(), error, continued }))
}
