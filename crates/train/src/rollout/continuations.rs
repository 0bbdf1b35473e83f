//! Values of states: the mean return of continuations that the policy samples from them.
//!
//! A state has the world's state and the exact tokens that the policy saw ([`Branch`]). States with the same
//! future (same world state, same tokens, same number of turns) are one and are continued once. The draws of a
//! continuation follow from the seed of the run, the step, the number of its state and its own number, so that
//! the same play has the same values on any number of threads and after any interruption. The played
//! trajectories are in no value.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use turnwise_core::{Group, Sampler, StopReason, Trajectory};
use turnwise_credit::StateValues;

use super::branch::{Branch, branches};
use super::{Job, RolloutContext, is_faulty, run_each};
use crate::TrainError;

/// A state and the returns of its continuations so far.
#[derive(Clone, Debug)]
pub struct State {
    branch: Arc<Branch>,
    /// Turns that it is the state of.
    pub uses: usize,
    /// Continuations that were requested.
    asked: usize,
    /// Returns of those that did not fail, in the order of their numbers.
    pub returns: Vec<f64>,
}

impl State {
    /// Returns the mean of the returns and its standard error, which is 0 for one return; `None` without returns.
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

/// The states before the turns of trajectories, each once.
#[derive(Clone, Debug, Default)]
pub struct States {
    known: HashMap<(usize, String), usize>,
    /// In the order in which they were first met.
    pub all: Vec<State>,
}

impl States {
    /// Adds the states before the turns of a trajectory that was played in this context. Returns the number of
    /// each turn's state. Trajectories share states within their group.
    ///
    /// # Errors
    /// Fails like [`branches`].
    pub fn add(
        &mut self,
        context: &RolloutContext<'_>,
        trajectory: &Trajectory,
    ) -> Result<Vec<usize>, TrainError> {
        let mut numbers = Vec::with_capacity(trajectory.turns.len());
        for branch in branches(context, trajectory)? {
            let number = match self.known.entry((trajectory.group, branch.key(context.history))) {
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

/// The return of a continuation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReturnSettings {
    /// Discount.
    pub gamma: f64,
    /// Factor on the environment's rewards.
    pub reward_scale: f64,
}

/// Counts of the sampled continuations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continued {
    /// Continuations.
    pub sampled: usize,
    /// Those that failed through no fault of the policy, and have no return.
    pub failed: usize,
    /// Turns of continuations.
    pub turns: usize,
    /// Response tokens of continuations.
    pub tokens: usize,
    /// Why the first of them failed.
    pub failure: Option<String>,
}

/// Samples `more(state)` further continuations of every state and adds their returns. Returns `None` if it was
/// stopped. `tick` gets the finished continuations, their total and the tokens so far.
///
/// # Errors
/// Fails like [`run_each`].
pub fn continue_states<S: Sampler + Send>(
    context: &RolloutContext<'_>,
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
        // Turns before the state have no tokens here.
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
        // A continuation without room for a response has no turn, so its return is 0.
        let earned = trajectory.step_returns(settings.gamma).get(before).copied().unwrap_or(0.0);
        if let Ok(mut returns) = returns.lock() {
            returns[job] = Some(earned);
        }
    };
    let finished = run_each(context, &jobs, samplers, &keep, |progress| {
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

/// How values are estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValueSettings {
    pub(crate) wanted: StateValues,
    pub(crate) reward_scale: f64,
}

/// The outcome of estimating values.
pub(crate) struct Estimated {
    /// States that were continued.
    pub(crate) states: usize,
    /// Mean standard error of their values.
    pub(crate) error: f64,
    pub(crate) continued: Continued,
}

/// Estimates the value of the state before each turn and writes it into the turn. The groups were played in the
/// context `playing`; continuations are sampled in `continuing`. Groups keep the numbers that they were sampled with.
/// Returns `None` if it was stopped.
///
/// # Errors
/// Fails like [`branches`] and [`run_each`], and if all continuations of a state failed.
pub(crate) fn estimate_state_values<S: Sampler + Send>(
    playing: &RolloutContext<'_>,
    continuing: &RolloutContext<'_>,
    settings: &ValueSettings,
    groups: &mut [Group],
    samplers: &mut [S],
    tick: &mut dyn FnMut(usize, usize, usize),
) -> Result<Option<Estimated>, TrainError> {
    let mut states = States::default();
    let mut numbers = Vec::new();
    for trajectory in groups.iter().flat_map(|group| &group.trajectories) {
        numbers.push(states.add(playing, trajectory)?);
    }
    let ValueSettings { wanted: StateValues { continuations, gamma }, reward_scale } = *settings;
    let returns = ReturnSettings { gamma, reward_scale };
    let continued = continue_states(continuing, returns, &mut states.all, |_| continuations, samplers, tick)?;
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
