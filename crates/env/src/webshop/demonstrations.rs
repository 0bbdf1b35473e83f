//! Expert purchases for SFT warm starts.

use std::collections::BTreeSet;

use turnwise_core::{Action, EnvError, Environment as _, Observation, Purpose, Rng, Seed, Task};

use super::expert::Expert;
use super::page::SEARCH;
use super::set::WebshopSet;
use crate::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, check_probability, play_all,
};

/// Plays a split's goals with the [`Expert`], which skips each requested option with probability
/// `option_drop_prob`. Keeps episodes that reach the goal, or that miss it only because of skipped
/// options.
///
/// # Errors
/// Fails like `play_all`, for an unknown split, or for an `option_drop_prob` outside `[0, 1)`.
pub fn demonstrate(
    set: &WebshopSet,
    request: &DemonstrationRequest<'_>,
    option_drop_prob: f64,
) -> Result<Demonstrations, EnvError> {
    check_probability("option_drop_prob", option_drop_prob)?;
    play_all(set.split(request.split)?, request, |goal, seed| {
        play(set, set.task(*goal as usize)?, request, option_drop_prob, &mut seed.rng())
    })
}

fn play(
    set: &WebshopSet,
    task: Task,
    request: &DemonstrationRequest<'_>,
    option_drop_prob: f64,
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
            (room && rng.chance(request.invalid_action_prob)).then(|| mistake(&seen, &observation, rng));
        let mistake = mistake.flatten();
        let imitate = mistake.is_none();
        let action = mistake.unwrap_or_else(|| {
            expert.act_noisy(&observation, &mut || {
                // With probability 0, the other draws do not change.
                let dropped = option_drop_prob > 0.0 && rng.chance(option_drop_prob);
                dropped_options += usize::from(dropped);
                dropped
            })
        });
        let step = environment.step(&Action::from(&action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, imitate, step.reward));
        let bought = environment.score().is_some_and(|score| score.but_for_options(dropped_options));
        if step.success || bought {
            return Ok(Some(Demonstration {
                task,
                tools: Vec::new(),
                turns,
                final_observation: observation.into_text(),
            }));
        }
        if step.terminated || step.truncated {
            return Ok(None);
        }
    }
}

/// Returns a click on an item that an earlier page had but the current page lacks.
fn mistake(seen: &BTreeSet<String>, observation: &Observation, rng: &mut Rng) -> Option<String> {
    let gone: Vec<&String> = seen.iter().filter(|action| !observation.admissible.contains(*action)).collect();
    (!gone.is_empty()).then(|| gone[rng.below(gone.len())].clone())
}
