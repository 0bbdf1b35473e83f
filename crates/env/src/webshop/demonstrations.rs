//! Purchases to imitate, for warm starts.

use rayon::prelude::*;
use turnwise_core::{EnvError, Environment as _, Task};

use super::expert::Expert;
use super::set::WebshopSet;
use crate::alfworld::demonstrations::{Demonstration, DemonstrationTurn, Demonstrations};

/// Lets the [`Expert`] shop for `count` goals of a split, taken in turn from the first, and keeps the episodes that
/// reach their goal. `keep_admissible`: whether the turns keep their admissible actions, which prompts that list
/// them need. The result depends on the arguments alone, not on the number of threads.
///
/// # Errors
/// [`EnvError::UnknownSplit`], and whatever the shop fails with.
pub fn demonstrate(
    set: &WebshopSet,
    split: &str,
    count: usize,
    keep_admissible: bool,
) -> Result<Demonstrations, EnvError> {
    let places = set.split(split)?;
    let played: Vec<Option<Demonstration>> = (0..count)
        .into_par_iter()
        .map(|index| play(set, set.task(places[index % places.len()] as usize)?, keep_admissible))
        .collect::<Result<_, EnvError>>()?;
    let episodes: Vec<Demonstration> = played.into_iter().flatten().collect();
    let dropped = count - episodes.len();
    Ok(Demonstrations { episodes, dropped })
}

/// One episode; `None` if it did not reach its goal.
fn play(set: &WebshopSet, task: Task, keep_admissible: bool) -> Result<Option<Demonstration>, EnvError> {
    let mut environment = set.webshop();
    let mut expert = Expert::new(&task.goal).with_max_steps(set.max_steps());
    let mut observation = environment.reset(&task)?;
    let mut turns = Vec::new();
    loop {
        let action = expert.act(&observation);
        let step = environment.step(&action)?;
        let seen = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn {
            observation: seen.text,
            admissible: if keep_admissible { seen.admissible } else { Vec::new() },
            action,
            imitate: true,
            reward: step.reward,
        });
        if step.success {
            return Ok(Some(Demonstration { task, turns, final_observation: observation.text }));
        }
        if step.terminated || step.truncated {
            return Ok(None);
        }
    }
}
