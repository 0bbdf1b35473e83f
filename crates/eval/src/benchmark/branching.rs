//! Measures true advantages by continuations from saved states.
//!
//! Each task is played `samples` times. From the state before each turn, `K` continuations of the
//! exact tokens are sampled. Turns with the same state (environment state, tokens and number of
//! turns) share their continuations. `Q` of a turn is its reward plus the discounted `V` of the
//! next state. The played trajectories are excluded from the estimates, because methods see their
//! returns.
//!
//! With a budget, a pilot of `K/2` continuations per state decides how the rest is allocated: in
//! proportion to `s_i sqrt(u_i)`, which minimizes the summed variance (Neyman 1934). `s_i` is the
//! standard deviation of a state's returns in the pilot, and `u_i` the number of turns in that
//! state. The pilot is excluded from the estimates, because it would bias them. Variances are
//! smoothed towards their mean over the states, so that a few equal returns do not make a state
//! look certain.

use std::time::Instant;

use turnwise_benchmark::truth::{TurnTruth, mean_and_error, truth_of_turns};
use turnwise_core::{Purpose, Sampler, StopReason, Task, Trajectory};
use turnwise_train::TrainError;
use turnwise_train::rollout::continuations::{Continued, ReturnSettings, State, States, continue_states};
use turnwise_train::rollout::{EnvRunner, Job, Rollout, is_faulty};

use crate::EvalError;
use crate::analysis::AnalysisSettings;

/// Weight of the mean variance in a state's smoothed variance, as a number of returns.
const SMOOTHING: f64 = 2.0;

/// Numbers of samples and continuations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BranchingSettings {
    /// Number of trajectories per task.
    pub samples: usize,
    /// Number of continuations per state, at least 2.
    pub continuations: usize,
    /// Maximum number of continuations per task, including the pilot; with 0, every state gets
    /// `continuations`.
    pub budget: usize,
    /// Discount of returns.
    pub gamma: f64,
}

/// Progress of a benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BranchProgress {
    /// Number of tasks finished in this call.
    pub tasks: usize,
    /// Numbers of finished and of planned continuations of the current task.
    pub continuations: [usize; 2],
    /// Number of continuations in this call so far.
    pub all_continuations: usize,
}

/// A task with its true advantages.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchedTask {
    /// Trajectories, with the rewards that credit assignment uses.
    pub trajectories: Vec<Trajectory>,
    /// True advantages, `[trajectory][turn]`.
    pub truth: Vec<Vec<TurnTruth>>,
    /// Number of states from which continuations were sampled.
    pub states: usize,
    /// Number of sampled continuations.
    pub continuations: usize,
    /// Number of continuations in which the environment or the sampler failed.
    pub failed: usize,
    /// Seconds spent on playing and on continuations.
    pub seconds: [f64; 2],
}

/// Measures the true advantages of tasks, given with their indices, and passes each result to
/// `done`. Sampling depends only on the seed and a task's index, so tasks may be split over several
/// calls.
///
/// # Errors
/// Passes on errors of `done`. Otherwise:
/// * [`EvalError::Train`] if the environment is not deterministic or cannot save states,
///   `prompt.template` is invalid, or a sampler fails.
/// * [`EvalError::Interrupted`] if stopped.
/// * [`EvalError::Environment`] if all trajectories of a task or all continuations of a state
///   failed.
pub fn branch_tasks(
    analysis: &AnalysisSettings<'_>,
    settings: &BranchingSettings,
    tasks: &[(usize, Task)],
    done: &mut dyn FnMut(usize, BranchedTask) -> Result<(), EvalError>,
    tick: &mut dyn FnMut(&BranchProgress),
) -> Result<(), EvalError> {
    let config = analysis.config;
    if config.prompt.pictures {
        // Picture tokens are valid in one process only.
        let reason =
            "is true, and the benchmark does not support pictures; choose a run with prompts of text";
        return Err(TrainError::Config { origin: "prompt.pictures".into(), reason: reason.into() }.into());
    }
    let rollout = Rollout::new(config, Purpose::Evaluation, analysis.stop);
    let mut samplers = analysis.samplers()?;
    let mut progress = BranchProgress::default();
    for (place, task) in tasks {
        let before = progress.all_continuations;
        let of_task = OfTask { settings, place: *place, task, runner: analysis.runner, rollout: &rollout };
        let branched = branch_task(&of_task, &mut samplers, &mut |continuations| {
            let all_continuations = before + continuations[0];
            tick(&BranchProgress { continuations, all_continuations, ..progress });
        })?;
        progress.tasks += 1;
        progress.all_continuations += branched.continuations;
        done(*place, branched)?;
        tick(&progress);
    }
    Ok(())
}

struct OfTask<'a> {
    settings: &'a BranchingSettings,
    place: usize,
    task: &'a Task,
    runner: &'a EnvRunner,
    rollout: &'a Rollout<'a>,
}

fn branch_task<S: Sampler + Send>(
    of_task: &OfTask<'_>,
    samplers: &mut [S],
    tick: &mut dyn FnMut([usize; 2]),
) -> Result<BranchedTask, EvalError> {
    let OfTask { settings, place, task, runner, rollout } = *of_task;
    let reward_scale = rollout.config.env.reward_scale;
    let started = Instant::now();
    let jobs: Vec<Job> = (0..settings.samples).map(|sample| Job::new(task.clone(), place, sample)).collect();
    let played = runner.play(rollout, &jobs, samplers, |_| tick([0, 0]))?;
    let mut trajectories = whole(played.ok_or(EvalError::Interrupted)?.trajectories)?;
    let mut states = States::default();
    let mut states_of_turns = Vec::with_capacity(trajectories.len());
    for trajectory in &trajectories {
        states_of_turns.push(states.add(runner, rollout, trajectory)?);
    }
    let mut states = states.all;
    let play_seconds = started.elapsed().as_secs_f64();

    let continuing = Rollout { purpose: Purpose::Continuation, step: place as u64, ..*rollout };
    let returns = ReturnSettings { gamma: settings.gamma, reward_scale };
    let mut sampling = Continuations { returns, runner, rollout: &continuing, sampled: 0, failed: 0 };
    let (count, pilot) = (states.len(), pilot(settings));
    let fixed = count * (settings.continuations + pilot);
    let spends = pilot > 0 && settings.budget > fixed;
    let planned = if spends { settings.budget } else { count * settings.continuations };
    let mut tick = |finished| tick([finished, planned]);
    let mut more = vec![0; count];
    if spends {
        sampling.sample(&mut states, |_| pilot, samplers, &mut tick)?;
        let spread: Vec<(usize, &[f64])> =
            states.iter().map(|state| (state.uses, state.returns.as_slice())).collect();
        more = allocation(&spread, settings.continuations, settings.budget - fixed);
        for state in &mut states {
            state.returns.clear();
        }
    }
    sampling.sample(&mut states, |state| settings.continuations + more[state], samplers, &mut tick)?;

    for trajectory in &mut trajectories {
        trajectory.scale_rewards(reward_scale);
    }
    let truth = trajectories.iter().zip(&states_of_turns).map(|(trajectory, places)| {
        let rewards: Vec<f64> = trajectory.turns.iter().map(turnwise_core::Turn::credited_reward).collect();
        let returns: Vec<&[f64]> = places.iter().map(|&state| states[state].returns.as_slice()).collect();
        truth_of_turns(&rewards, &returns, settings.gamma)
    });
    Ok(BranchedTask {
        truth: truth.collect(),
        trajectories,
        states: states.len(),
        continuations: sampling.sampled,
        failed: sampling.failed,
        seconds: [play_seconds, started.elapsed().as_secs_f64() - play_seconds],
    })
}

fn whole(played: Vec<Trajectory>) -> Result<Vec<Trajectory>, EvalError> {
    let reason = played.iter().find_map(|trajectory| match &trajectory.stop {
        StopReason::EnvironmentError(reason) | StopReason::SampleError(reason) => Some(reason.clone()),
        _ => None,
    });
    let whole: Vec<Trajectory> = played.into_iter().filter(|trajectory| !is_faulty(trajectory)).collect();
    match reason {
        Some(reason) if whole.is_empty() => Err(EvalError::Environment { tasks: 1, reason }),
        _ => Ok(whole),
    }
}

struct Continuations<'a> {
    returns: ReturnSettings,
    runner: &'a EnvRunner,
    rollout: &'a Rollout<'a>,
    sampled: usize,
    failed: usize,
}

impl Continuations<'_> {
    fn sample<S: Sampler + Send>(
        &mut self,
        states: &mut [State],
        more: impl Fn(usize) -> usize,
        samplers: &mut [S],
        tick: &mut dyn FnMut(usize),
    ) -> Result<(), EvalError> {
        let before = self.sampled;
        let mut tick = |finished, _, _| tick(before + finished);
        let Self { runner, rollout, returns, .. } = *self;
        let found = continue_states(runner, rollout, returns, states, more, samplers, &mut tick)?;
        let Continued { sampled, failed, failure, .. } = found.ok_or(EvalError::Interrupted)?;
        self.sampled += sampled;
        self.failed += failed;
        if states.iter().any(|state| state.returns.is_empty()) {
            return Err(EvalError::Environment { tasks: 1, reason: failure.unwrap_or_default() });
        }
        Ok(())
    }
}

fn pilot(settings: &BranchingSettings) -> usize {
    if settings.budget == 0 { 0 } else { (settings.continuations / 2).max(2) }
}

/// Returns, for every state, how many continuations to sample beyond `each`, given the state's
/// number of turns and its pilot returns. The numbers sum to at most `rest` and are even, so that
/// both halves of a state's continuations have the same size.
fn allocation(states: &[(usize, &[f64])], each: usize, rest: usize) -> Vec<usize> {
    let variance = |returns: &[f64]| mean_and_error(returns).1.powi(2) * returns.len() as f64;
    let pooled =
        states.iter().map(|(_, returns)| variance(returns)).sum::<f64>() / states.len().max(1) as f64;
    let weight = |&(uses, returns): &(usize, &[f64])| {
        let n = returns.len() as f64;
        ((n * variance(returns) + SMOOTHING * pooled) / (n + SMOOTHING) * uses as f64).sqrt()
    };
    let weights: Vec<f64> = states.iter().map(weight).collect();
    let all = rest + each * states.len();
    let sum: f64 = weights.iter().sum();
    if rest == 0 || sum <= 0.0 {
        return vec![0; states.len()];
    }
    let missing: Vec<f64> =
        weights.iter().map(|weight| (all as f64 * weight / sum - each as f64).max(0.0)).collect();
    let total: f64 = missing.iter().sum();
    if total <= 0.0 {
        return vec![0; states.len()];
    }
    let scale = (rest as f64 / total).min(1.0);
    // Rounding must not lose a whole number.
    missing.iter().map(|missing| (missing * scale + 1e-9) as usize & !1).collect()
}

#[cfg(test)]
mod tests;
