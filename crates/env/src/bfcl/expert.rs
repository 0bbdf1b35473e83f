//! An expert that knows the gold calls.

use turnwise_core::{Action, EnvError, Observation, Purpose, Rng, Seed, Step, Task};

use super::document::BfclDocuments;
use super::environment::BfclEnv;
use super::package::BfclTask;
use super::reply::{tool_call, write_calls};
use super::set::BfclTasks;
use super::world::BfclExpert;
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::Advisor;

const DONE: &str = "Done.";
const MISSING: &str = "I cannot do that yet: something is missing.";

#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    one_by_one: bool,
    /// Whether to write tool calls instead of a Python list.
    tools: bool,
}

impl Form {
    pub(super) fn new(expert: BfclExpert, documents: BfclDocuments) -> Self {
        let tools = documents == BfclDocuments::Tools;
        Self { one_by_one: expert.one_by_one || tools, tools }
    }

    fn write(self, task: &BfclTask, calls: &[String]) -> String {
        match calls {
            [call] if self.tools => tool_call(call, &task.apis)
                .map_or_else(|| write_calls(calls), |call| Action::Call(call).text().into_owned()),
            _ => write_calls(calls),
        }
    }

    fn mistake(self) -> &'static str {
        if self.tools { "do_it({})" } else { "[do_it()]" }
    }
}

fn replies(task: &BfclTask, plan: &[Vec<Vec<String>>], form: Form) -> Vec<String> {
    let mut replies = Vec::new();
    for (turn, planned) in plan.iter().enumerate() {
        for calls in planned {
            let size = if form.one_by_one { 1 } else { calls.len().max(1) };
            replies.extend(calls.chunks(size).map(|calls| form.write(task, calls)));
        }
        let is_missing = task.gold.get(turn).is_none_or(Vec::is_empty);
        replies.push(if is_missing { MISSING } else { DONE }.to_owned());
    }
    replies
}

fn hasty(task: &BfclTask, rng: &mut Rng) -> Vec<Vec<Vec<String>>> {
    let mut plan = task.plan.clone();
    let turns: Vec<usize> = (0..plan.len()).filter(|turn| !plan[*turn].is_empty()).collect();
    if let Some(turn) = rng.choose(&turns)
        && let Some(mut last) = plan[*turn].pop()
    {
        last.pop();
        if !last.is_empty() {
            plan[*turn].push(last);
        }
    }
    plan
}

pub(super) struct Adviser {
    replies: std::vec::IntoIter<String>,
}

impl Adviser {
    pub(super) fn new(task: &BfclTask, form: Form) -> Self {
        Self { replies: replies(task, &task.plan, form).into_iter() }
    }
}

impl Advisor for Adviser {
    fn advise(&mut self, _: &Observation) -> String {
        self.replies.next().unwrap_or_else(|| DONE.to_owned())
    }
}

pub(super) fn demonstrate(
    set: &BfclTasks,
    request: &DemonstrationRequest<'_>,
    expert: BfclExpert,
    form: Form,
) -> Result<Demonstrations, EnvError> {
    crate::demonstration::check_probability("env.expert.hasty_prob", expert.hasty_prob)?;
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, expert, form, &mut seed.rng())
    })
}

fn play(
    set: &BfclTasks,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    expert: BfclExpert,
    form: Form,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let known = set.task(&task.id)?;
    let is_hasty = rng.chance(expert.hasty_prob);
    let plan = if is_hasty { hasty(known, rng) } else { known.plan.clone() };
    let mut plan = replies(known, &plan, form).into_iter();
    let act = |_: &BfclEnv, _: &Observation| {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action =
            if imitate { plan.next().unwrap_or_else(|| DONE.to_owned()) } else { form.mistake().to_owned() };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    let worth = |step: &Step| step.success || (step.terminated && is_hasty);
    play_episode(&mut set.bfcl(), task, seed, request, act, worth)
}
