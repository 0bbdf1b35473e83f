//! Agent environment: each episode runs the user's program.

mod episode;
mod settings;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use turnwise_core::{
    Action, EnvError, Environment, Observation, Seed, Step, Task, TaskLimits, TaskSet, Tool,
};
use turnwise_env::task_files::{Splits, read_splits};
use turnwise_env::world::{EvalDefaults, OpenOptions, World, WorldKind};
use turnwise_settings::Problem;

use self::episode::Episode;
pub use self::episode::observation;
pub use self::settings::{AgentConfig, RewardRule};
use crate::gateway::Gateway;
use crate::program::{Program, ProgramSettings};

/// The agent environment's tasks and endpoint.
#[derive(Clone)]
pub struct AgentSet(Arc<Shared>);

struct Shared {
    config: AgentConfig,
    program: ProgramSettings,
    splits: Splits,
    max_turns: usize,
    gateway: Gateway,
    idle: Mutex<Vec<Program>>,
    running: AtomicUsize,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    goal: String,
    #[serde(default)]
    limits: TaskLimits,
    #[serde(flatten)]
    metadata: Map<String, Value>,
}

impl AgentSet {
    /// Reads the tasks and starts the endpoint. With `max_turns` above 0, an episode ends at the
    /// first request after that many turns.
    ///
    /// # Errors
    /// Fails if the tasks cannot be read or the address cannot be bound.
    pub fn open(config: &AgentConfig, max_turns: usize) -> Result<Self, EnvError> {
        let splits = read_splits(&config.tasks, |line: Line| {
            let Line { id, kind, goal, limits, metadata } = line;
            Ok(Task { metadata, limits, ..Task::new(id, kind, goal) })
        })?;
        let gateway = Gateway::start(config.listen).map_err(|error| {
            EnvError::Other(format!("env.listen: {error}; give a free address, such as \"127.0.0.1:0\""))
        })?;
        let program = ProgramSettings {
            command: config.command.clone(),
            directory: config.directory.clone(),
            reused: config.reuse,
        };
        let (idle, running) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self(Arc::new(Shared {
            config: config.clone(),
            program,
            splits,
            max_turns,
            gateway,
            idle,
            running,
        })))
    }

    /// Returns the endpoint's base URL.
    pub fn base_url(&self) -> String {
        self.0.gateway.base_url()
    }
}

impl Shared {
    fn take_idle(&self) -> Option<Program> {
        loop {
            let mut program = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if !program.has_ended() {
                return Some(program);
            }
        }
    }

    fn keep(&self, program: Program) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(program);
    }

    fn timeout(&self) -> Duration {
        seconds(self.config.timeout_s)
    }

    fn start_timeout(&self) -> Duration {
        seconds(self.config.start_timeout_s)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}

impl World for AgentSet {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn has_expert(&self) -> bool {
        false
    }
}

impl TaskSet for AgentSet {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn splits(&self) -> Vec<String> {
        self.0.splits.names()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.0.splits.tasks(split)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(AgentEnvironment { shared: Arc::clone(&self.0), episode: None }))
    }

    fn free_episodes(&self) -> Option<usize> {
        let running = self.0.running.load(Ordering::Relaxed);
        Some(self.0.config.concurrency.saturating_sub(running))
    }

    fn limits_calls(&self) -> bool {
        true
    }
}

struct AgentEnvironment {
    shared: Arc<Shared>,
    episode: Option<Episode>,
}

impl Environment for AgentEnvironment {
    fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        self.close();
        let (episode, observation) = Episode::begin(&self.shared, task, seed)?;
        self.episode = Some(episode);
        Ok(observation)
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        let step = episode.step(action);
        if !matches!(&step, Ok(step) if !step.terminated && !step.truncated) {
            self.close();
        }
        step
    }

    fn tools(&self) -> &[Tool] {
        self.episode.as_ref().map_or(&[], |episode| &episode.tools)
    }

    fn close(&mut self) {
        self.episode = None;
    }
}

/// The environment kind `agent`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentKind;

impl WorldKind for AgentKind {
    type Settings = AgentConfig;

    fn name(&self) -> &'static str {
        "agent"
    }

    fn summary(&self) -> &'static str {
        "an agent of your own that uses an OpenAI-compatible endpoint"
    }

    fn rules(&self, settings: &AgentConfig) -> Vec<Problem> {
        let mut problems = Vec::new();
        if settings.command.is_empty() {
            problems.push(Problem::new("command", "is empty; give the agent's program and its arguments"));
        }
        if settings.tasks.is_empty() {
            problems.push(Problem::new(
                "tasks",
                "is empty; name a file of tasks a split, such as train = \"train.jsonl\"",
            ));
        }
        if settings.reuse && settings.reward == RewardRule::ExitCode {
            let reason = "is \"exit_code\", and with reuse = true a program does not end with its episode; set one of them otherwise";
            problems.push(Problem::new("reward", reason));
        }
        problems
    }

    fn has_progress(&self) -> bool {
        false
    }

    fn has_conversations(&self) -> bool {
        true
    }

    fn open(
        &self,
        settings: &AgentConfig,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(AgentSet::open(settings, options.max_turns)?))
    }

    fn templates(&self) -> &[(&str, &str)] {
        &[
            ("agent", include_str!("../../templates/agent.toml")),
            ("agent-llama", include_str!("../../templates/agent-llama.toml")),
            ("agent-python", include_str!("../../templates/agent-python.toml")),
        ]
    }

    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults { template: "agent", ..EvalDefaults::default() }
    }
}
