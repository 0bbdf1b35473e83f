//! Warnings, with likely causes, that a run is not learning or will soon stop learning.

use std::collections::BTreeSet;

use turnwise_core::Batch;

use crate::TrainError;
use crate::config::{Config, DecomposerConfig, Registries};
use crate::record::metrics::Metrics;

/// Number of consecutive steps that a warning needs.
const STEPS: usize = 5;

/// Fraction of turns that a warning calls "most".
const MOST: f64 = 0.9;

/// Smallest fall of the success rate that can cause a warning.
const FALL: f64 = 0.15;

/// Fraction of turns that must have a problem before the problem is named as a likely cause.
const MANY: f64 = 0.5;

const EXAMPLE: usize = 160;

#[derive(Clone, Copy, Debug)]
struct Numbers {
    updates: f64,
    equal: f64,
    invalid: f64,
    truncated: f64,
    solved: f64,
    entropy: Option<f64>,
    mismatch: f64,
}

impl Numbers {
    fn of(metrics: &Metrics) -> Self {
        let get = |tag| metrics.get(tag).unwrap_or(0.0);
        Self {
            updates: get("train/updates"),
            equal: get("rollout/equal_return_frac"),
            invalid: get("rollout/invalid_action_frac"),
            truncated: get("rollout/truncated_rate"),
            solved: get("train/success_rate"),
            entropy: metrics.get("rollout/entropy"),
            mismatch: get("rollout/mismatch_kl"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Nothing,
    Falling,
    Invalid,
    Truncated,
    Entropy,
    Mismatch,
}

/// Tracks whether a run learns.
#[derive(Clone, Debug)]
pub struct Learning {
    warmup: usize,
    /// Whether groups with equal returns carry no signal.
    outcomes_only: bool,
    steps: Vec<Numbers>,
    unread: Option<String>,
    warned: BTreeSet<Trouble>,
}

impl Learning {
    /// Creates the tracker from past steps' metrics.
    ///
    /// # Errors
    /// Fails if the credit settings are invalid.
    pub fn new<'a>(
        config: &Config,
        registries: &Registries,
        steps: impl IntoIterator<Item = &'a Metrics>,
    ) -> Result<Self, TrainError> {
        let needs = registries.pipeline(config)?.required_inputs();
        let warmup = if needs.values { config.critic.warmup_steps as usize } else { 0 };
        let measured = needs.values || needs.credits || needs.state_values.is_some();
        let outcomes_only = !measured && config.decomposer == DecomposerConfig::None;
        let steps = steps.into_iter().map(Numbers::of).collect();
        Ok(Self { warmup, outcomes_only, steps, unread: None, warned: BTreeSet::new() })
    }

    /// Adds a step's metrics and, if any, one of the step's invalid responses
    /// ([`unread_response`]).
    pub fn push(&mut self, metrics: &Metrics, unread: Option<String>) {
        self.steps.push(Numbers::of(metrics));
        self.unread = unread.or(self.unread.take());
    }

    /// Returns the number of policy updates.
    pub fn updates(&self) -> u64 {
        self.steps.iter().map(|step| step.updates).sum::<f64>() as u64
    }

    /// Returns the current warnings, worst first.
    pub fn warnings(&self, config: &Config) -> Vec<String> {
        self.troubles(config).into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the current warnings that are new since the last call.
    pub(crate) fn new_warnings(&mut self, config: &Config) -> Vec<String> {
        let now = self.troubles(config);
        let known = std::mem::replace(&mut self.warned, now.iter().map(|(trouble, _)| *trouble).collect());
        now.into_iter().filter(|(trouble, _)| !known.contains(trouble)).map(|(_, text)| text).collect()
    }

    /// Returns why a finished run trained nothing; `None` if it made an update, or had no RL steps.
    pub fn nothing_trained(&self, config: &Config) -> Option<String> {
        let steps = self.steps.get(self.warmup..).unwrap_or_default();
        let none = !steps.is_empty() && self.updates() == 0;
        none.then(|| {
            format!("trained 0 updates in {} steps; {}", self.steps.len(), self.causes(config, steps))
        })
    }

    fn troubles(&self, config: &Config) -> Vec<(Trouble, String)> {
        let steps = self.steps.get(self.warmup..).unwrap_or_default();
        let Some(last) = steps.len().checked_sub(STEPS).map(|from| &steps[from..]) else { return Vec::new() };
        let mean = |number: fn(&Numbers) -> f64| last.iter().map(number).sum::<f64>() / STEPS as f64;
        let mut found = Vec::new();
        let idle = last.iter().all(|step| step.updates == 0.0);
        let equal = self.outcomes_only && last.iter().all(|step| step.equal >= 1.0);
        if idle || equal {
            let what = if idle { "had no update" } else { "had only groups whose returns are equal" };
            let text = format!(
                "the last {STEPS} steps {what}, so that nothing is learnt; {}",
                self.causes(config, last)
            );
            found.push((Trouble::Nothing, text));
        }
        if !idle {
            found.extend(falling(config, steps).map(|text| (Trouble::Falling, text)));
        }
        if mean(|step| step.invalid) >= MOST && !(idle || equal) {
            found.push((Trouble::Invalid, self.unread_cause(mean(|step| step.invalid))));
        }
        if mean(|step| step.truncated) >= MOST && !(idle || equal) {
            found.push((Trouble::Truncated, truncated_cause(config, mean(|step| step.truncated))));
        }
        let entropies: Vec<f64> = last.iter().filter_map(|step| step.entropy).collect();
        if let Some(first) = steps.iter().find_map(|step| step.entropy)
            && entropies.len() == STEPS
            && entropies.iter().all(|&entropy| entropy < 1e-3 && entropy < first / 20.0)
        {
            let text = format!(
                "the policy's entropy has collapsed from {first:.3} to {:.5} nats a token, so that the trajectories of a group are \
                 alike; lower train.learning_rate, or raise objective.entropy_coef",
                entropies[STEPS - 1]
            );
            found.push((Trouble::Entropy, text));
        }
        if mean(|step| step.mismatch) > 0.1 {
            let text = format!(
                "the sampler's log-probabilities are far from the learner's (rollout/mismatch_kl {:.3}), so that updates weigh tokens \
                 wrongly; give both the same precision, lower rollout.max_staleness, or set train.rollout_correction",
                mean(|step| step.mismatch)
            );
            found.push((Trouble::Mismatch, text));
        }
        found
    }

    fn causes(&self, config: &Config, steps: &[Numbers]) -> String {
        let mean =
            |number: fn(&Numbers) -> f64| steps.iter().map(number).sum::<f64>() / steps.len().max(1) as f64;
        let mut causes = Vec::new();
        if config.policy.model.is_none() && config.sft.steps == 0 {
            causes.push(
                "the policy began with random weights and had no warm start: set policy.model to a pretrained model, or sft.steps \
                 where the world has an expert"
                    .to_owned(),
            );
        }
        if mean(|step| step.invalid) >= MANY {
            causes.push(self.unread_cause(mean(|step| step.invalid)));
        }
        if mean(|step| step.truncated) >= MANY {
            causes.push(truncated_cause(config, mean(|step| step.truncated)));
        }
        if config.rollout.group_size == 1 && self.outcomes_only {
            causes
                .push("rollout.group_size is 1, and credit compares the trajectories of a group".to_owned());
        }
        let solved = mean(|step| step.solved);
        if solved == 0.0 {
            causes.push(
                "no trajectory solved its task: the tasks may be too hard for this policy; try easier ones, a warm start, a larger \
                 model or a larger env.max_turns"
                    .to_owned(),
            );
        } else if solved >= 1.0 {
            causes.push(
                "every trajectory solved its task: there is nothing left to learn; take harder tasks"
                    .to_owned(),
            );
        } else {
            causes.push(format!(
                "{:.0} % of the trajectories solved their task, and those of a group end alike: raise rollout.group_size or \
                 rollout.temperature",
                100.0 * solved
            ));
        }
        format!("likely causes: {}", causes.join("; "))
    }

    fn unread_cause(&self, share: f64) -> String {
        let example = self.unread.as_ref().map(|text| format!(", for example {text:?}")).unwrap_or_default();
        format!(
            "{:.0} % of the responses are not valid actions{example}: see that prompt.template asks for what this policy writes, or give \
             it a warm start",
            100.0 * share
        )
    }
}

fn falling(config: &Config, steps: &[Numbers]) -> Option<String> {
    let mean = |steps: &[Numbers], number: fn(&Numbers) -> f64| {
        steps.iter().map(number).sum::<f64>() / steps.len() as f64
    };
    let solved = |steps: &&[Numbers]| mean(steps, |step| step.solved);
    let last = steps.windows(STEPS).next_back()?;
    let best = steps.windows(STEPS).max_by(|one, other| solved(one).total_cmp(&solved(other)))?;
    // Four standard errors, because the best of many steps is high by chance.
    let trajectories = STEPS * config.rollout.tasks_per_step * config.rollout.group_size;
    let noise = 2.0 * (2.0 / trajectories as f64).sqrt();
    if solved(&best) - solved(&last) < FALL.max(noise) {
        return None;
    }
    let mut causes = String::new();
    for (what, number) in [
        ("invalid responses", (|step| step.invalid) as fn(&Numbers) -> f64),
        ("responses that were cut off", |step| step.truncated),
    ] {
        let (before, after) = (mean(best, number), mean(last, number));
        if after - before >= FALL {
            causes += &format!(", while {what} rose from {:.0} to {:.0} %", 100.0 * before, 100.0 * after);
        }
    }
    Some(format!(
        "success fell from {:.0} % in the best {STEPS} steps to {:.0} % in the last{causes}; lower train.learning_rate = {}",
        100.0 * solved(&best),
        100.0 * solved(&last),
        config.train.learning_rate
    ))
}

fn truncated_cause(config: &Config, share: f64) -> String {
    format!(
        "{:.0} % of the responses were cut off at rollout.max_response_tokens = {}: raise it, or ask for shorter ones",
        100.0 * share,
        config.rollout.max_response_tokens
    )
}

/// Returns a batch's first invalid response, shortened.
pub(crate) fn unread_response(batch: &Batch) -> Option<String> {
    let turn = batch.trajectories().flat_map(|trajectory| &trajectory.turns).find(|turn| !turn.valid)?;
    let mut text: String = turn.response.chars().take(EXAMPLE).collect();
    if text.len() < turn.response.len() {
        text.push_str(" ..");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Group, Task, Trajectory, Turn};

    use super::*;

    fn numbers(numbers: &[(&str, f64)]) -> Metrics {
        let mut metrics = Metrics::default();
        for (tag, value) in numbers {
            metrics.set(tag, *value);
        }
        metrics
    }

    fn good(changed: &[(&str, f64)]) -> Metrics {
        let mut metrics = numbers(&[
            ("train/updates", 4.0),
            ("rollout/equal_return_frac", 0.5),
            ("train/success_rate", 0.5),
            ("rollout/entropy", 0.5),
        ]);
        metrics.0.extend(numbers(changed).0);
        metrics
    }

    fn warnings(config: &Config, steps: &[Metrics]) -> Vec<String> {
        Learning::new(config, &Registries::builtin(), steps).unwrap().warnings(config)
    }

    fn pretrained() -> Config {
        let mut config = Config::default();
        config.policy.model = Some("model".into());
        config
    }

    #[test]
    fn steps_without_an_update_are_warned_of_once_with_their_causes() {
        let mut config = Config::default();
        config.sft.steps = 0;
        let idle = numbers(&[
            ("train/updates", 0.0),
            ("rollout/invalid_action_frac", 1.0),
            ("rollout/truncated_rate", 0.75),
        ]);
        let mut learning = Learning::new(&config, &Registries::builtin(), []).unwrap();
        for step in 1..=7 {
            learning.push(&idle, Some("hm\nhm".to_owned()));
            let new = learning.new_warnings(&config);
            assert_eq!(new.len(), usize::from(step == STEPS), "step {step}: {new:?}");
            let Some(text) = new.first() else { continue };
            for expected in [
                "the last 5 steps had no update",
                "random weights and had no warm start",
                "100 % of the responses are not valid actions, for example \"hm\\nhm\"",
                "75 % of the responses were cut off at rollout.max_response_tokens",
                "no trajectory solved its task",
            ] {
                assert!(text.contains(expected), "{expected}: {text}");
            }
        }
        let end = learning.nothing_trained(&config).unwrap();
        assert!(end.starts_with("trained 0 updates in 7 steps; likely causes: the policy began"), "{end}");
        learning.push(&good(&[]), None);
        assert!(learning.new_warnings(&config).is_empty() && learning.nothing_trained(&config).is_none());
        (0..STEPS).for_each(|_| learning.push(&idle, None));
        assert_eq!(learning.new_warnings(&config).len(), 1);
    }

    #[test]
    fn causes_are_those_of_the_run() {
        let config = pretrained();
        let steps = |success: f64| {
            [0; STEPS].map(|_| good(&[("train/updates", 0.0), ("train/success_rate", success)]))
        };
        for (success, expected) in
            [(1.0, "take harder tasks"), (0.0, "too hard"), (0.25, "25 % of the trajectories")]
        {
            let [text] = warnings(&config, &steps(success)).try_into().unwrap();
            assert!(text.contains(expected) && !text.contains("random weights"), "{text}");
            assert!(!text.contains("not valid actions") && !text.contains("cut off"), "{text}");
        }
        let equal = [0; STEPS].map(|_| good(&[("rollout/equal_return_frac", 1.0)]));
        assert!(warnings(&config, &equal)[0].contains("only groups whose returns are equal"));
        let mut critic = pretrained();
        critic.credit.estimator = serde_json::from_value(serde_json::json!({"kind": "ppo"})).unwrap();
        assert_eq!(warnings(&critic, &equal), [""; 0]);
        critic.critic.warmup_steps = 3;
        assert_eq!(warnings(&critic, &steps(0.5)), [""; 0]);
        assert!(
            Learning::new(&critic, &Registries::builtin(), &steps(0.5)[..3])
                .unwrap()
                .nothing_trained(&critic)
                .is_none()
        );
    }

    #[test]
    fn other_signs_are_warned_of_by_themselves() {
        let config = pretrained();
        let run = |changed: &[(&str, f64)]| {
            let steps: Vec<Metrics> =
                std::iter::once(good(&[])).chain((0..STEPS).map(|_| good(changed))).collect();
            warnings(&config, &steps)
        };
        assert_eq!(run(&[]), [""; 0]);
        for (changed, expected) in [
            (("rollout/invalid_action_frac", 0.95), "95 % of the responses are not valid actions"),
            (("rollout/truncated_rate", 1.0), "cut off at rollout.max_response_tokens"),
            (("rollout/entropy", 1e-4), "entropy has collapsed from 0.500"),
            (("rollout/mismatch_kl", 0.5), "rollout/mismatch_kl 0.500"),
        ] {
            let [text] = run(&[changed]).try_into().unwrap();
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(run(&[("rollout/invalid_action_frac", 0.8), ("rollout/entropy", 0.01)]), [""; 0]);
    }

    #[test]
    fn an_example_is_the_start_of_a_response_that_cannot_be_read() {
        let turn = |valid, response: String| Turn { valid, response, ..Turn::default() };
        let turns = vec![turn(true, "a".into()), turn(false, "é".repeat(EXAMPLE + 1))];
        let batch = |turns| Batch {
            groups: vec![Group { trajectories: vec![Trajectory::new(Task::default(), turns)] }],
        };
        assert_eq!(unread_response(&batch(turns)), Some(format!("{} ..", "é".repeat(EXAMPLE))));
        assert_eq!(unread_response(&batch(vec![turn(true, "a".into())])), None);
    }

    #[test]
    fn success_that_falls_is_warned_of_with_what_rose() {
        let config = pretrained();
        let steps = |success: f64, invalid: f64| {
            vec![good(&[("train/success_rate", success), ("rollout/invalid_action_frac", invalid)]); STEPS]
        };
        let fall = [steps(0.125, 0.1), steps(0.5, 0.1), steps(0.25, 0.75)].concat();
        let [text] = warnings(&config, &fall).try_into().unwrap();
        assert!(text.starts_with("success fell from 50 % in the best 5 steps to 25 % in the last"), "{text}");
        assert!(text.contains("while invalid responses rose from 10 to 75 %; lower"), "{text}");
        assert!(!text.contains("cut off"), "{text}");
        assert_eq!(warnings(&config, &[steps(0.5, 0.1), steps(0.4, 0.1)].concat()), [""; 0]);
        assert_eq!(warnings(&config, &[steps(0.1, 0.1), steps(0.5, 0.7)].concat()), [""; 0]);
    }
}
