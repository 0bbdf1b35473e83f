//! An expert whose calls are known in advance.

use serde_json::{Value, json};
use turnwise_core::{Action, EnvError, Environment, Observation, Purpose, Rng, Seed, Task, ToolCall};

use crate::demonstration::{Demonstration, DemonstrationRequest, play_episode};
use crate::world::Advisor;

pub(crate) fn call(name: &str, arguments: Value) -> String {
    Action::Call(ToolCall { id: String::new(), name: name.to_owned(), arguments }).text().into_owned()
}

pub(crate) fn submit() -> String {
    call("submit", json!({}))
}

pub(crate) struct CallAdviser {
    calls: std::vec::IntoIter<String>,
}

impl CallAdviser {
    pub(crate) fn new(calls: Vec<String>) -> Option<Self> {
        (!calls.is_empty()).then(|| Self { calls: calls.into_iter() })
    }
}

impl Advisor for CallAdviser {
    fn advise(&mut self, _: &Observation) -> String {
        self.calls.next().unwrap_or_else(submit)
    }
}

/// Plays the calls and inserts mistakes with the probability `request.invalid_action_prob`. Returns
/// `None` if the task is not solved.
pub(crate) fn play_calls<E: Environment>(
    environment: &mut E,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    calls: Vec<String>,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let Some(mut plan) = CallAdviser::new(calls) else { return Ok(None) };
    let mistake = || call("view", json!({"path": "no_such_file.py"}));
    let act = |_: &E, observation: &Observation| {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if imitate { plan.advise(observation) } else { mistake() };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    play_episode(environment, task, seed, request, act, |step| step.success)
}
