//! Expert that makes the gold calls of a task.

use std::collections::VecDeque;

use turnwise_core::{EnvError, Observation, Purpose, Rng, Seed, Step, Task};

use super::environment::Tau2Env;
use super::set::Tau2Tasks;
use super::task::{GoldAction, Tau2Task};
use crate::coding::calls::call;
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::Advisor;

/// The expert's question before its first call, as the policy requires.
const WHO: &str = "Could you tell me your name and zip code, or your email?";
/// The expert's question before its first change to the database, as the policy requires.
const CONFIRM: &str = "I will do what you asked for. Do you confirm (yes/no)?";
const DONE: &str = "It is done.";
const END: &str = "done({})";
/// Action that the expert plays as a mistake: a call of a tool that does not exist.
const MISTAKE: &str = "do_it({})";

fn changes(name: &str) -> bool {
    let reads = ["get_", "find_", "list_", "check_", "can_", "run_", "calculate"];
    !reads.iter().any(|read| name.starts_with(read))
}

fn write(action: &GoldAction) -> String {
    let mut json = String::new();
    let arguments = match action.arguments.write_json(&mut json) {
        Ok(()) => serde_json::from_str(&json).unwrap_or_default(),
        Err(_) => serde_json::Value::Null,
    };
    call(&action.name, arguments)
}

/// Returns the expert's replies. With `hasty`, the replies omit the last call that changes the
/// database; with `solo`, they contain no messages to the user.
fn replies(task: &Tau2Task, hasty: bool, solo: bool) -> VecDeque<String> {
    let gold = task.gold();
    let left_out = if hasty { gold.iter().rposition(|action| changes(&action.name)) } else { None };
    let first = gold.iter().position(|action| changes(&action.name)).unwrap_or(gold.len());
    let mut replies = VecDeque::new();
    if !solo {
        replies.push_back(WHO.to_owned());
    }
    for (place, action) in gold.iter().enumerate() {
        if place == first && !solo {
            replies.push_back(CONFIRM.to_owned());
        }
        if Some(place) != left_out {
            replies.push_back(write(action));
        }
    }
    let information = task.information();
    let close = if solo {
        END.to_owned()
    } else if information.is_empty() {
        DONE.to_owned()
    } else {
        format!("{DONE} For your information: {}.", information.join("; "))
    };
    replies.push_back(close);
    replies
}

pub(super) struct Adviser {
    replies: VecDeque<String>,
    last: &'static str,
}

impl Adviser {
    pub(super) fn new(task: &Tau2Task, solo: bool) -> Self {
        Self { replies: replies(task, false, solo), last: last(solo) }
    }
}

fn last(solo: bool) -> &'static str {
    if solo { END } else { DONE }
}

impl Advisor for Adviser {
    fn advise(&mut self, _: &Observation) -> String {
        self.replies.pop_front().unwrap_or_else(|| self.last.to_owned())
    }
}

pub(super) fn demonstrate(
    set: &Tau2Tasks,
    request: &DemonstrationRequest<'_>,
    hasty_prob: f64,
) -> Result<Demonstrations, EnvError> {
    crate::demonstration::check_probability("env.expert.hasty_prob", hasty_prob)?;
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, hasty_prob, &mut seed.rng())
    })
}

/// Plays a demonstration. Returns `None` if the demonstration takes too many turns, or if it fails
/// although the expert omitted no call.
fn play(
    set: &Tau2Tasks,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    hasty_prob: f64,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let is_hasty = rng.chance(hasty_prob);
    let solo = set.is_solo();
    let mut plan = replies(set.task(&task.id)?, is_hasty, solo);
    let act = |_: &Tau2Env, _: &Observation| {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if imitate {
            plan.pop_front().unwrap_or_else(|| last(solo).to_owned())
        } else {
            MISTAKE.to_owned()
        };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    let worth = |step: &Step| step.success || (step.terminated && is_hasty);
    play_episode(&mut set.tau2(), task, seed, request, act, worth)
}
