//! Purchases to imitate, for warm starts.

use std::collections::BTreeSet;

use rayon::prelude::*;
use turnwise_core::{Action, EnvError, Environment as _, Observation, Purpose, Rng, Seed, Task};

use super::expert::Expert;
use super::page::SEARCH;
use super::set::WebshopSet;
use crate::demonstration::{Demonstration, DemonstrationTurn, Demonstrations};

/// Settings of demonstrations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemonstrationOptions {
    /// Probability that a click on something that is not on the page stands before a step; it is not to be
    /// imitated.
    pub invalid_action_prob: f64,
    /// Probability that the expert leaves out an option value that the goal asks for: people in a hurry do, and
    /// a policy that imitates them learns it too.
    pub option_drop_prob: f64,
    /// Keep the turns' admissible actions, which prompts that list them need.
    pub keep_admissible: bool,
}

/// Lets the [`Expert`] shop for `count` goals of a split, taken in turn from the first, and keeps the episodes that
/// reach their goal, or miss nothing of it but the options left out. The result depends on the arguments alone, not on
/// the number of threads.
///
/// # Errors
/// [`EnvError::UnknownSplit`], [`EnvError::Other`] if `invalid_action_prob` or `option_drop_prob` is no probability below 1, and
/// whatever the shop fails with.
pub fn demonstrate(
    set: &WebshopSet,
    split: &str,
    count: usize,
    options: &DemonstrationOptions,
    seed: u64,
) -> Result<Demonstrations, EnvError> {
    for (name, probability) in
        [("invalid_action_prob", options.invalid_action_prob), ("option_drop_prob", options.option_drop_prob)]
    {
        if !(0.0..1.0).contains(&probability) {
            return Err(EnvError::Other(format!(
                "{name}: {probability} is no probability; it must be at least 0 and below 1"
            )));
        }
    }
    let indices = set.split(split)?;
    let played: Vec<Option<Demonstration>> = (0..count)
        .into_par_iter()
        .map(|index| {
            let mut rng = Seed::derive(seed, Purpose::Demonstration, &[index as u64]).rng();
            play(set, set.task(indices[index % indices.len()] as usize)?, options, &mut rng)
        })
        .collect::<Result<_, EnvError>>()?;
    let episodes: Vec<Demonstration> = played.into_iter().flatten().collect();
    let dropped = count - episodes.len();
    Ok(Demonstrations { episodes, dropped })
}

/// One episode; `None` if it misses more of its goal than the options left out.
fn play(
    set: &WebshopSet,
    task: Task,
    options: &DemonstrationOptions,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let mut environment = set.webshop();
    let mut expert = Expert::new(&task.goal).with_max_steps(set.max_steps());
    let mut observation = environment.reset(&task, Seed::derive(0, Purpose::Environment, &[]))?;
    let mut seen = BTreeSet::new();
    let mut turns = Vec::new();
    let mut dropped_options = 0;
    loop {
        seen.extend(observation.admissible.iter().filter(|action| *action != SEARCH).cloned());
        let room = turns.len() + 1 < set.max_steps();
        let mistake =
            (room && rng.chance(options.invalid_action_prob)).then(|| mistake(&seen, &observation, rng));
        let mistake = mistake.flatten();
        let imitate = mistake.is_none();
        let action = mistake.unwrap_or_else(|| {
            expert.act_noisy(&observation, &mut || {
                // Where the probability is 0 nothing is drawn, so that what else is drawn stays as it is.
                let option_drop_prob = options.option_drop_prob > 0.0 && rng.chance(options.option_drop_prob);
                dropped_options += usize::from(option_drop_prob);
                option_drop_prob
            })
        });
        let step = environment.step(&Action::from(&action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, options.keep_admissible, action, imitate, step.reward));
        let bought = environment.score().is_some_and(|score| score.but_for_options(dropped_options));
        if step.success || bought {
            return Ok(Some(Demonstration { task, turns, final_observation: observation.into_text() }));
        }
        if step.terminated || step.truncated {
            return Ok(None);
        }
    }
}

/// A click on something that an earlier page of the episode had and this one has not: nothing happens, and what
/// has not been seen is not given away.
fn mistake(seen: &BTreeSet<String>, observation: &Observation, rng: &mut Rng) -> Option<String> {
    let gone: Vec<&String> = seen.iter().filter(|action| !observation.admissible.contains(*action)).collect();
    (!gone.is_empty()).then(|| gone[rng.below(gone.len())].clone())
}
