//! Demonstrations: actions from task files, executed on the servers.

use serde_json::Value;
use turnwise_core::{Action, EnvError, Seed, Task, TaskSet, ToolCall};
use turnwise_env::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_in_turn,
};

const KEY: &str = "demonstration";

/// Stores a demonstration's actions in its task; a call is written as the JSON object
/// `{"name": .., "arguments": ..}`.
pub(crate) fn keep(task: &mut Task, actions: Vec<Value>) {
    if !actions.is_empty() {
        task.metadata.insert(KEY.into(), actions.into());
    }
}

fn kept(task: &Task) -> &[Value] {
    task.metadata.get(KEY).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn action(value: &Value) -> Action {
    let call = || Some((value.get("name")?.as_str()?.to_owned(), value.get("arguments")?.clone()));
    match (value, call()) {
        (Value::String(text), _) => Action::from(text),
        (_, Some((name, arguments))) => Action::Call(ToolCall { id: String::new(), name, arguments }),
        _ => Action::from(value.to_string()),
    }
}

/// Runs a split's demonstrations on the servers and returns the successful episodes. Returns `None`
/// if no task in the split has a demonstration.
///
/// # Errors
/// Fails if the split does not exist, or if every episode failed because of a server.
pub(crate) fn demonstrate(
    set: &dyn TaskSet,
    request: &DemonstrationRequest<'_>,
) -> Result<Option<Demonstrations>, EnvError> {
    let mut tasks = set.tasks(request.split)?;
    tasks.retain(|task| !kept(task).is_empty());
    if tasks.is_empty() {
        return Ok(None);
    }
    play_in_turn(&tasks, request, |task, seed| play(set, task, seed, request)).map(Some)
}

/// Runs one demonstration; returns `None` if it does not solve the task.
fn play(
    set: &dyn TaskSet,
    task: &Task,
    seed: Seed,
    request: &DemonstrationRequest<'_>,
) -> Result<Option<Demonstration>, EnvError> {
    let mut environment = set.environment()?;
    let mut seen = environment.reset(task, seed)?;
    let mut turns = Vec::new();
    for value in kept(task).iter().take(task.limits.turns_within(request.max_turns)) {
        let action = action(value);
        let step = environment.step(&action)?;
        let before = std::mem::replace(&mut seen, step.observation);
        let words = action.text().into_owned();
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, words, true, step.reward));
        if step.success {
            let tools = environment.tools().to_vec();
            environment.close();
            return Ok(Some(Demonstration {
                task: task.clone(),
                tools,
                turns,
                final_observation: seen.into_text(),
            }));
        }
        if step.terminated || step.truncated {
            break;
        }
    }
    environment.close();
    Ok(None)
}
