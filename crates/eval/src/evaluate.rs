//! Plays each task of a panel and computes success rates.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use turnwise_core::{Purpose, Sampler, StopReason, Task, Trajectory};
use turnwise_env::panel::Panel;
use turnwise_env::parse::inadmissible_rate;
use turnwise_model::Weights;
use turnwise_train::TrainError;
use turnwise_train::config::Config;
use turnwise_train::rollout::{EnvRunner, Job, Rollout, RolloutProgress, is_faulty};

use crate::{Agent, Outcomes, Rate, reflexion};

/// Why an evaluation failed.
#[derive(Debug, Error)]
pub enum EvalError {
    /// The rollout failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// `stop` was set.
    #[error("the evaluation was interrupted; nothing was written")]
    Interrupted,
    /// `reflexion` with no trials.
    #[error("trials is 0: a task must be tried at least once")]
    NoTrials,
    /// All tasks failed in the environment or sampler.
    #[error(
        "all {tasks} tasks failed in the environment or the sampler, so there is nothing to report; the first reason: \
         {reason}"
    )]
    Environment {
        /// Number of tasks.
        tasks: usize,
        /// Reason of the first failure.
        reason: String,
    },
}

/// How to play episodes.
pub struct PlaySettings<'a> {
    /// Prompts, parsing and limits.
    pub config: &'a Config,
    /// Environment, tokenizer and prompts.
    pub runner: &'a EnvRunner,
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// How to prompt the policy, as set by [`Agent::configure`].
    pub agent: Agent,
    /// Maximum `reflexion` trials per task, at least 1.
    pub trials: usize,
    /// Set by the caller to stop early.
    pub stop: &'a AtomicBool,
}

/// Success in one `reflexion` trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Trial number, from 1.
    pub trial: usize,
    /// Tasks solved in this trial, among the tasks that were played in it.
    pub solved: Rate,
    /// Tasks solved in this or an earlier trial, among all tasks.
    pub success: Rate,
}

/// Results of one kind of task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindResult {
    /// Success rate.
    #[serde(flatten)]
    pub success: Rate,
    /// Mean number of turns.
    pub mean_turns: f64,
}

/// Results on one panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The split.
    pub split: String,
    /// Hash of the panel's tasks.
    pub panel: String,
    /// How the policy was prompted.
    #[serde(default)]
    pub agent: Agent,
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// Sampling seed; no effect if greedy.
    pub seed: u64,
    /// Success over all tasks; with `reflexion`, a task counts as solved if any trial solved it.
    /// The other fields describe only each task's last trial.
    pub success: Rate,
    /// Results of each `reflexion` trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<TrialResult>,
    /// Results by kind of task.
    pub kinds: BTreeMap<String, KindResult>,
    /// Fraction of fully solved scenarios ([`Task::SCENARIO`]; AppWorld's scenario goal completion)
    /// among those played completely and without failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenarios: Option<Rate>,
    /// Mean number of turns.
    pub mean_turns: f64,
    /// Mean outcome return.
    pub mean_return: f64,
    /// Mean of each environment metric over the tasks; a task without the metric counts as 0.
    #[serde(
        default,
        deserialize_with = "turnwise_core::null_as_nan::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub metrics: BTreeMap<String, f64>,
    /// Number of tasks that failed in the environment or sampler; no other field counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: usize,
    /// Number of episodes that failed in the environment or sampler and were played again, with
    /// other random numbers; only the last attempt counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resampled: usize,
    /// Number of tasks that ended because the next prompt exceeded the context
    /// (`rollout.max_model_len`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overflowed: usize,
    /// Fraction of turns without a well-formed action.
    pub invalid_action_frac: f64,
    /// Fraction of turns with an inadmissible action, among turns whose environment lists the
    /// admissible ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inadmissible_rate: Option<f64>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Outcomes in panel order; empty in older results.
    #[serde(default, skip_serializing_if = "Outcomes::is_empty")]
    pub outcomes: Outcomes,
}

/// Plays each task once, or with `reflexion` until it is solved or no trials are left. Results are
/// deterministic.
///
/// # Errors
/// Fails like [`evaluate_with`] and [`EnvRunner::samplers`].
pub fn evaluate(
    settings: &PlaySettings<'_>,
    weights: &Weights,
    panel: &Panel,
    tick: impl FnMut(&RolloutProgress),
) -> Result<(Evaluation, Vec<Trajectory>), EvalError> {
    let mut samplers = settings.runner.samplers(settings.config, weights)?;
    evaluate_with(settings, panel, &mut samplers, tick)
}

/// Like [`evaluate`], with the caller's samplers, one per lane.
///
/// # Errors
/// Returns [`EvalError::Train`] on a failed sampler, [`EvalError::NoTrials`] for `reflexion`
/// without trials, [`EvalError::Interrupted`] if stopped, [`EvalError::Environment`] if every task
/// failed in its environment or sampler.
pub fn evaluate_with<S: Sampler + Send>(
    settings: &PlaySettings<'_>,
    panel: &Panel,
    samplers: &mut [S],
    mut tick: impl FnMut(&RolloutProgress),
) -> Result<(Evaluation, Vec<Trajectory>), EvalError> {
    if settings.agent == Agent::Reflexion && settings.trials == 0 {
        return Err(EvalError::NoTrials);
    }
    let started = Instant::now();
    let PlaySettings { config, runner, .. } = *settings;
    let temperature = settings.temperature;
    let rollout = Rollout { temperature, ..Rollout::new(config, Purpose::Evaluation, settings.stop) };
    let scaled = |mut trajectories: Vec<Trajectory>| {
        runner.finish(config, &mut trajectories);
        trajectories
    };
    let (last, all, trials, resampled) = if settings.agent == Agent::Reflexion {
        let played = reflexion::play(runner, &rollout, &panel.tasks, settings.trials, samplers, &mut tick)?;
        let (played, resampled) = played.ok_or(EvalError::Interrupted)?;
        let trials = trials_of(&played, settings.trials);
        let played: Vec<Vec<Trajectory>> = played.into_iter().map(scaled).collect();
        let last = played.iter().filter_map(|trials| trials.last().cloned()).collect();
        (last, Some(played.into_iter().flatten().collect()), trials, resampled)
    } else {
        let jobs: Vec<Job> =
            panel.tasks.iter().enumerate().map(|(group, task)| Job::new(task.clone(), group, 0)).collect();
        let played = runner.play(&rollout, &jobs, samplers, &mut tick)?.ok_or(EvalError::Interrupted)?;
        (scaled(played.trajectories), None, Vec::new(), played.resampled)
    };
    let seconds = started.elapsed().as_secs_f64();
    if let Some(StopReason::EnvironmentError(reason) | StopReason::SampleError(reason)) =
        last.first().map(|trajectory| &trajectory.stop)
        && last.iter().all(is_faulty)
    {
        let (tasks, reason) = (last.len(), reason.clone());
        return Err(EvalError::Environment { tasks, reason });
    }
    let mut evaluation = summarise(&last, panel, settings.temperature, config.seed, seconds);
    evaluation.agent = settings.agent;
    evaluation.trials = trials;
    evaluation.resampled = resampled;
    if panel.tasks.iter().any(|task| task.scenario().is_some()) {
        let split = runner.world.task_set().tasks(&panel.split).map_err(TrainError::from)?;
        evaluation.scenarios = scenarios_of(&last, &split);
    }
    Ok((evaluation, all.unwrap_or(last)))
}

fn is_overflow(trajectory: &Trajectory) -> bool {
    trajectory.stop == StopReason::ContextOverflow
}

fn trials_of(played: &[Vec<Trajectory>], trials: usize) -> Vec<TrialResult> {
    let solved_in = |trial: usize| {
        played.iter().filter(|trials| trials.get(trial).is_some_and(|trajectory| trajectory.success)).count()
    };
    let whole = played.iter().filter(|trials| trials.last().is_some_and(|last| !is_faulty(last))).count();
    let mut success = 0;
    (0..trials)
        .map(|trial| {
            let tried = played
                .iter()
                .filter(|trials| trials.get(trial).is_some_and(|tried| !is_faulty(tried)))
                .count();
            let solved = solved_in(trial);
            success += solved;
            TrialResult {
                trial: trial + 1,
                solved: Rate::new(solved, tried),
                success: Rate::new(success, whole),
            }
        })
        .collect()
}

fn summarise(played: &[Trajectory], panel: &Panel, temperature: f32, seed: u64, seconds: f64) -> Evaluation {
    let trajectories: Vec<&Trajectory> = played.iter().filter(|trajectory| !is_faulty(trajectory)).collect();
    let rate = |chosen: &[&Trajectory]| {
        Rate::new(chosen.iter().filter(|trajectory| trajectory.success).count(), chosen.len())
    };
    let turns_of = |chosen: &[&Trajectory]| {
        chosen.iter().map(|trajectory| trajectory.actions()).sum::<usize>() as f64
            / chosen.len().max(1) as f64
    };
    let mut by_kind: BTreeMap<String, Vec<&Trajectory>> = BTreeMap::new();
    for &trajectory in &trajectories {
        by_kind.entry(trajectory.task.kind.clone()).or_default().push(trajectory);
    }
    let turns = || trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    let count = turns().count().max(1) as f64;
    Evaluation {
        split: panel.split.clone(),
        panel: panel.hash.clone(),
        agent: Agent::Plain,
        trials: Vec::new(),
        temperature,
        seed,
        success: rate(&trajectories),
        kinds: by_kind
            .into_iter()
            .map(|(kind, chosen)| {
                (kind, KindResult { success: rate(&chosen), mean_turns: turns_of(&chosen) })
            })
            .collect(),
        scenarios: None,
        mean_turns: turns_of(&trajectories),
        mean_return: trajectories.iter().map(|trajectory| trajectory.outcome_return()).sum::<f64>()
            / trajectories.len().max(1) as f64,
        metrics: metrics_of(&trajectories),
        failed: played.len() - trajectories.len(),
        resampled: 0,
        overflowed: trajectories.iter().filter(|trajectory| is_overflow(trajectory)).count(),
        invalid_action_frac: turns().filter(|turn| !turn.valid).count() as f64 / count,
        inadmissible_rate: inadmissible_rate(turns()),
        seconds,
        outcomes: Outcomes::of(played),
    }
}

/// Returns the rate of fully solved scenarios among those played completely and without failures.
fn scenarios_of(played: &[Trajectory], split: &[Task]) -> Option<Rate> {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for scenario in split.iter().filter_map(Task::scenario) {
        *sizes.entry(scenario).or_default() += 1;
    }
    let mut results: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for trajectory in played.iter().filter(|trajectory| !is_faulty(trajectory)) {
        if let Some(scenario) = trajectory.task.scenario() {
            results.entry(scenario).or_default().push(trajectory.success);
        }
    }
    results.retain(|scenario, solved| sizes.get(scenario) == Some(&solved.len()));
    let solved = results.values().filter(|solved| solved.iter().all(|solved| *solved)).count();
    (!results.is_empty()).then(|| Rate::new(solved, results.len()))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn metrics_of(trajectories: &[&Trajectory]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in trajectories.iter().flat_map(|trajectory| &trajectory.metrics) {
        *sums.entry(name.clone()).or_default() += value / trajectories.len() as f64;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::Turn;

    #[test]
    fn results_are_split_by_kind() {
        let trajectory = |kind: &str, success: bool, turns: usize| {
            let turn = Turn {
                action: "look".into(),
                admissible: vec!["look".into()],
                valid: success,
                reward: 0.5,
                ..Turn::default()
            };
            Trajectory { success, ..Trajectory::new(Task::new(kind, kind, ""), vec![turn; turns]) }
        };
        let panel = Panel { env: "e".into(), split: "s".into(), tasks: Vec::new(), hash: "h".into() };
        let trajectories = [trajectory("a", true, 2), trajectory("a", false, 4), trajectory("b", true, 6)];
        let result = summarise(&trajectories, &panel, 0.0, 1, 2.0);
        assert_eq!(result.success, Rate::new(2, 3));
        assert_eq!(result.kinds["a"].success, Rate::new(1, 2));
        assert_eq!(result.kinds["a"].mean_turns, 3.0);
        assert_eq!(result.mean_turns, 4.0);
        assert_eq!(result.mean_return, 2.0);
        assert!((result.invalid_action_frac - 4.0 / 12.0).abs() < 1e-12);
        assert_eq!(result.inadmissible_rate, Some(0.0));

        let mut broken = trajectory("b", false, 9);
        broken.stop = StopReason::EnvironmentError("gone".into());
        let with_it = summarise(&[trajectories.as_slice(), &[broken]].concat(), &panel, 0.0, 1, 2.0);
        assert_eq!(with_it.failed, 1);
        assert_eq!(with_it.outcomes, result.outcomes);
        assert_eq!(Evaluation { failed: 0, ..with_it }, result);

        let mut long = trajectories.clone();
        long[1].stop = StopReason::ContextOverflow;
        let with_it = summarise(&long, &panel, 0.0, 1, 2.0);
        assert_eq!((with_it.overflowed, result.overflowed), (1, 0));
        assert_eq!(with_it.success, Rate::new(2, 3));

        // The admissible search is a pattern; without it, a search is inadmissible.
        let shop = |action: &str, offered: &str| {
            let mut trajectory = trajectory("a", true, 1);
            trajectory.turns[0].action = action.to_owned();
            trajectory.turns[0].admissible = vec![offered.to_owned()];
            trajectory
        };
        let trajectories = [
            shop("search[red mug]", "search[<your query>]"),
            shop("search[]", "search[<your query>]"),
            shop("search[red mug]", "click[buy now]"),
            shop("click[buy now]", "click[buy now]"),
        ];
        assert_eq!(summarise(&trajectories, &panel, 0.0, 1, 2.0).inadmissible_rate, Some(0.5));
        let mut unlisted = trajectory("a", true, 2);
        unlisted.turns.iter_mut().for_each(|turn| turn.admissible.clear());
        assert_eq!(summarise(&[unlisted], &panel, 0.0, 1, 2.0).inadmissible_rate, None);
    }

    #[test]
    fn a_scenario_is_solved_if_all_its_tasks_are() {
        let of = |scenario: &str, success: bool| {
            let mut task = Task::new("t", "kind", "");
            task.metadata.insert(Task::SCENARIO.into(), scenario.into());
            Trajectory { success, ..Trajectory::new(task, vec![Turn::default()]) }
        };
        let tasks =
            |played: &[Trajectory]| played.iter().map(|played| played.task.clone()).collect::<Vec<_>>();
        let played = [of("x", true), of("x", true), of("y", true), of("y", false), of("z", true)];
        assert_eq!(scenarios_of(&played, &tasks(&played)), Some(Rate::new(2, 3)));
        let mut broken = of("z", false);
        broken.stop = StopReason::EnvironmentError("x".into());
        let with_it = [played.as_slice(), &[broken]].concat();
        assert_eq!(scenarios_of(&with_it, &tasks(&with_it)), Some(Rate::new(1, 2)));
        assert_eq!(scenarios_of(&played, &tasks(&with_it)), Some(Rate::new(1, 2)));
        let plain = [Trajectory::new(Task::new("t", "kind", ""), vec![Turn::default()])];
        assert_eq!(scenarios_of(&plain, &tasks(&plain)), None);
    }
}
