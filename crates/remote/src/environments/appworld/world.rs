//! AppWorld tasks and episodes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task, TaskSet};
use turnwise_env::world::{EvalDefaults, OpenOptions, World, WorldKind};

use super::client::{Client, Described};
use super::settings::AppWorldConfig;
use crate::environments::error::ServerError;
use crate::environments::slots::{Slot, Slots};
use crate::environments::text::{LONGEST_GOAL, cut, plain};
use turnwise_env::task_files::{Splits, lines};

const SPLITS: [&str; 4] = ["train", "dev", "test_normal", "test_challenge"];

/// How long a reset waits for a server to become free if all are in use.
const WAIT: Duration = Duration::from_secs(20);

const FAILED: &str = "Execution failed.";

/// AppWorld tasks.
#[derive(Clone, Debug)]
pub struct AppWorldSet(Arc<Served>);

#[derive(Debug)]
struct Served {
    client: Arc<Client>,
    slots: Arc<Slots>,
    splits: Splits,
    config: AppWorldConfig,
    max_turns: usize,
}

impl AppWorldSet {
    /// Reads the splits (all if `splits` is empty) and requests their tasks from a server. With
    /// `max_turns` above 0, episodes end after that many actions.
    ///
    /// # Errors
    /// Fails if a setting is invalid, a file is unreadable, a server is unreachable or a task is
    /// unknown.
    pub fn open(config: &AppWorldConfig, splits: &[&str], max_turns: usize) -> Result<Self, EnvError> {
        let client = Client::new(config)?;
        let mut found = Vec::new();
        for split in SPLITS {
            let path = config.datasets.join(format!("{split}.txt"));
            if path.exists() && (splits.is_empty() || splits.contains(&split)) {
                found.push((split.to_owned(), read_split(&client, &path)?));
            }
        }
        if found.is_empty() {
            let known = SPLITS.map(|split| format!("{split}.txt")).join(", ");
            let folder = config.datasets.display();
            let reason = format!(
                "{folder} has none of {known} that are asked for; name AppWorld's folder data/datasets"
            );
            return Err(ServerError::setting("datasets", reason).into());
        }
        let slots = Slots::new(client.servers(), 1);
        let splits = Splits::new(found)?;
        Ok(Self(Arc::new(Served { client, slots, splits, config: config.clone(), max_turns })))
    }
}

fn read_split(client: &Client, path: &Path) -> Result<Vec<Task>, EnvError> {
    let mut tasks = Vec::new();
    for (number, line) in lines(path)? {
        let id = line.trim();
        if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
            let path = format!("{}, line {number}", path.display());
            return Err(EnvError::File { path, reason: "is not the name of a task".to_owned() });
        }
        let described = client.task(0, id)?;
        let length = described.instruction.len();
        if length > LONGEST_GOAL {
            let reason =
                format!("the instruction of task {id} has {length} bytes; at most {LONGEST_GOAL} are read");
            return Err(ServerError::Answer(reason).into());
        }
        let mut task = Task::new(id, "appworld", described.instruction);
        // Equal instructions with different names are different tasks.
        task.metadata.insert("task_id".into(), id.into());
        // `07b42fd_2` is the second task of the scenario `07b42fd`.
        if let Some((scenario, _)) = id.rsplit_once('_') {
            task.metadata.insert(Task::SCENARIO.into(), scenario.into());
        }
        tasks.push(task);
    }
    Ok(tasks)
}

fn introduction(described: &Described) -> String {
    let field = |key: &str| described.supervisor.get(key).map(plain).unwrap_or_default();
    format!(
        "My name is {} {}, my e-mail address is {} and my phone number is {}. It is {}.",
        field("first_name"),
        field("last_name"),
        field("email"),
        field("phone_number"),
        plain(&described.datetime)
    )
}

/// Returns the code of an action: the argument `code` of a tool call, or a text, with or without a
/// code fence.
fn code(action: &Action) -> Result<String, &'static str> {
    if let Some(call) = action.call() {
        let code = call.arguments.get("code").and_then(Value::as_str);
        return code.map(str::to_owned).ok_or("the call has no argument `code`");
    }
    let text = action.text();
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let code = fenced.map_or(text, |rest| after_info(rest).trim());
    if code.is_empty() { Err("there is no code in it") } else { Ok(code.to_owned()) }
}

fn after_info(fenced: &str) -> &str {
    let is_info = |line: &str| line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-".contains(&byte));
    match fenced.split_once('\n') {
        Some((line, code)) if is_info(line.trim()) => code,
        _ => fenced.strip_prefix("python").unwrap_or(fenced),
    }
}

impl TaskSet for AppWorldSet {
    fn name(&self) -> &'static str {
        "appworld"
    }

    fn splits(&self) -> Vec<String> {
        self.0.splits.names()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.0.splits.tasks(split)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(AppWorldEnvironment { served: Arc::clone(&self.0), episode: None }))
    }

    fn free_episodes(&self) -> Option<usize> {
        Some(self.0.slots.free())
    }
}

impl World for AppWorldSet {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn has_expert(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct AppWorldEnvironment {
    served: Arc<Served>,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    task: String,
    slot: Slot,
    turns: usize,
    max_turns: usize,
}

impl Environment for AppWorldEnvironment {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.close();
        let served = &self.served;
        let full = || ServerError::Full("all servers of env.urls play other episodes".to_owned()).of_reset();
        let slot = served.slots.take(&[], WAIT).ok_or_else(full)?;
        let described = served.client.initialize(slot.server, &task.id, &served.config);
        served.slots.note(slot.server, &described);
        let described = described.map_err(ServerError::of_reset)?;
        let max_turns = task.limits.turns_within(served.max_turns);
        self.episode = Some(Episode { task: task.id.clone(), slot, turns: 0, max_turns });
        Ok(Observation::new(introduction(&described)))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        let Served { client, config, .. } = &*self.served;
        let (server, task) = (episode.slot.server, episode.task.as_str());
        episode.turns += 1;
        let cut_off = episode.turns >= episode.max_turns;
        let (output, understood, completed) = match code(action) {
            Err(reason) => (format!("That is no code: {reason}."), false, false),
            Ok(code) => {
                let output = client.execute(server, task, &code)?;
                let understood = !output.starts_with(FAILED);
                (output, understood, client.is_completed(server, task)?)
            }
        };
        let mut step = Step {
            observation: Observation::new(cut(output, config.observation_chars)),
            terminated: completed,
            truncated: cut_off && !completed,
            understood,
            ..Step::default()
        };
        if completed || cut_off {
            let judged = client.evaluate(server, task)?;
            step.success = judged.success;
            step.reward = if judged.success { config.success_reward } else { 0.0 };
            step.progress = (judged.num_tests > 0)
                .then(|| (judged.passes.len() as f64 / judged.num_tests as f64).min(1.0));
        }
        Ok(step)
    }

    fn close(&mut self) {
        if let Some(Episode { task, slot, .. }) = self.episode.take() {
            self.served.client.close(slot.server, &task);
        }
    }
}

impl Drop for AppWorldEnvironment {
    fn drop(&mut self) {
        self.close();
    }
}

/// Environment kind `appworld`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppWorldKind;

impl WorldKind for AppWorldKind {
    type Settings = AppWorldConfig;

    fn name(&self) -> &'static str {
        "appworld"
    }

    fn summary(&self) -> &'static str {
        "code that uses the apps of AppWorld, behind its servers"
    }

    fn open(
        &self,
        settings: &AppWorldConfig,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(AppWorldSet::open(settings, options.splits, options.max_turns)?))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &[("appworld", include_str!("../../../templates/appworld.toml"))]
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: 40,
            splits: &["dev", "test_normal"],
            template: "appworld",
            ..EvalDefaults::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use turnwise_core::ToolCall;

    #[test]
    fn code_comes_with_or_without_a_fence_or_in_a_call() {
        for text in [
            "print(1)",
            "```python\nprint(1)\n```",
            "```\nprint(1)```",
            " print(1)\n",
            "```py\nprint(1)\n```",
            "```python3 \nprint(1)\n```",
            "```pythonprint(1)```",
        ] {
            assert_eq!(code(&Action::from(text)), Ok("print(1)".to_owned()), "{text:?}");
        }
        let call =
            |arguments| Action::Call(ToolCall { id: String::new(), name: "execute".into(), arguments });
        assert_eq!(code(&call(json!({"code": "x = 1"}))), Ok("x = 1".to_owned()));
        assert!(code(&call(json!({"text": "x"}))).is_err());
        assert!(code(&Action::from(" ")).is_err() && code(&Action::from("```python\n```")).is_err());
    }
}
