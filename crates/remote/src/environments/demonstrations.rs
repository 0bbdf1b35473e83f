//! Demonstrations from task files, executed on servers.

use serde_json::Value;
use turnwise_core::{Action, EnvError, Seed, Task, TaskSet, ToolCall};
use turnwise_env::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_in_turn,
};

const KEY: &str = "demonstration";

/// Stores a demonstration in its task; calls become `{"name": .., "arguments": ..}`.
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

/// Runs a split's demonstrations and returns the successful episodes, or `None` if the split has no
/// demonstrations.
///
/// # Errors
/// Fails if the split is unknown, or if every episode failed because of its server.
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

/// Returns `None` if the task is not solved.
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
