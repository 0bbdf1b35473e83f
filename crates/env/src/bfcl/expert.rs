//! An expert that knows the gold calls, and its episodes to imitate.

use turnwise_core::{Action, EnvError, Environment as _, Observation, Purpose, Rng, Seed, Task};

use super::package::BfclTask;
use super::reply::write_calls;
use super::set::BfclTasks;
use crate::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_all,
};
use crate::world::Advisor;

/// Reply after the calls of a turn.
const DONE: &str = "Done.";
/// Reply at a turn at which something is missing.
const MISSING: &str = "I cannot do that yet: something is missing.";
/// A call that no task has a function for: the mistake there is to make.
const UNKNOWN: &str = "[do_it()]";

/// The replies that solve a task: the calls of each turn, together or one in a reply, and words that end it.
fn replies(task: &BfclTask, one_by_one: bool) -> Vec<String> {
    let mut replies = Vec::new();
    for calls in &task.gold {
        let size = if one_by_one { 1 } else { calls.len().max(1) };
        replies.extend(calls.chunks(size).map(write_calls));
        replies.push(if calls.is_empty() { MISSING } else { DONE }.to_owned());
    }
    replies
}

/// Gives advice to a person who plays a task and follows it.
pub(super) struct Adviser {
    replies: std::vec::IntoIter<String>,
}

impl Adviser {
    pub(super) fn new(task: &BfclTask, one_by_one: bool) -> Self {
        Self { replies: replies(task, one_by_one).into_iter() }
    }
}

impl Advisor for Adviser {
    fn advise(&mut self, _: &Observation) -> String {
        self.replies.next().unwrap_or_else(|| DONE.to_owned())
    }
}

/// Lets the expert play `count` tasks of a split, taken in turn from the first.
pub(super) fn demonstrate(
    set: &BfclTasks,
    request: &DemonstrationRequest<'_>,
    one_by_one: bool,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, one_by_one, &mut seed.rng())
    })
}

/// One episode; `None` if it does not solve its task within the turns.
fn play(
    set: &BfclTasks,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    one_by_one: bool,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let mut plan = replies(set.task(&task.id)?, one_by_one).into_iter();
    let mut environment = set.bfcl();
    let mut observation = environment.reset(task, Seed::derive(0, Purpose::Environment, &[]))?;
    let mut turns = Vec::new();
    while turns.len() < request.max_turns {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action =
            if imitate { plan.next().unwrap_or_else(|| DONE.to_owned()) } else { UNKNOWN.to_owned() };
        let step = environment.step(&Action::from(&action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, imitate, step.reward));
        if step.success {
            let final_observation = observation.into_text();
            return Ok(Some(Demonstration {
                task: task.clone(),
                turns,
                final_observation,
                tools: Vec::new(),
            }));
        }
        if step.terminated || step.truncated {
            break;
        }
    }
    Ok(None)
}
