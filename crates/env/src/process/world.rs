//! The environment kind `process`.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use turnwise_core::{
    Action, EnvError, Environment, Metric, Observation, PendingStep, Seed, Snapshot, Step, Task, TaskSet,
    Tool,
};

use crate::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_in_turn,
};
use crate::world::{EvalDefaults, OpenOptions, World, WorldKind};

use super::error::ProcessError;
use super::listing;
use super::program::{Process, Program, ProgramSettings, read_answer};
use super::protocol::{
    Demonstrated, EpisodeAction, ManyStepped, Request, Saved, Seen, Started, Stepped, Welcome,
};

/// Settings of an environment in an external program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessConfig {
    /// Program and arguments, such as `["python3", "world.py"]`.
    pub command: Vec<String>,
    /// Working directory of the program; by default Turnwise's working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Settings sent to the program with `hello`.
    pub settings: BTreeMap<String, Value>,
    /// Number of processes to start with `command`; new episodes are assigned to them in turn.
    #[schemars(range(min = 1, max = 4096))]
    pub programs: usize,
    /// Timeout of a response, in seconds. A program that exceeds the timeout is killed, its
    /// episodes fail, and it is restarted for later episodes.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Timeout of the program's start, including the loading of its data, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Maximum bytes in a line from the program.
    #[schemars(range(min = 1024, max = 1073741824))]
    pub max_line_bytes: usize,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            directory: None,
            settings: BTreeMap::new(),
            programs: 1,
            timeout_s: 60.0,
            start_timeout_s: 60.0,
            max_line_bytes: 16 << 20,
        }
    }
}

/// An environment in an external program.
#[derive(Clone, Debug)]
pub struct ProcessSet(Arc<Served>);

#[derive(Debug)]
struct Served {
    programs: Vec<Program>,
    welcome: Welcome,
    tasks: Vec<(String, Vec<Task>)>,
    max_turns: usize,
    next: AtomicU64,
}

impl ProcessSet {
    /// Starts the program and requests its tasks. With `max_turns = 0`, episodes have no turn
    /// limit.
    ///
    /// # Errors
    /// Fails if the program does not start, has another protocol version or lists invalid tasks.
    pub fn open(config: &ProcessConfig, max_turns: usize) -> Result<Self, EnvError> {
        let settings = ProgramSettings {
            command: config.command.clone(),
            directory: config.directory.clone(),
            settings: Value::Object(config.settings.clone().into_iter().collect()),
            timeout: seconds(config.timeout_s),
            start_timeout: seconds(config.start_timeout_s),
            max_line: config.max_line_bytes,
        };
        let programs: Vec<Program> =
            (0..config.programs.max(1)).map(|_| Program::new(settings.clone())).collect();
        let fatal = |error: ProcessError| EnvError::Other(error.to_string());
        let process = programs[0].process().map_err(fatal)?;
        let welcome = process.welcome().clone();
        let mut tasks = Vec::new();
        let mut room = listing::Room::default();
        for split in &welcome.splits {
            tasks.push((split.clone(), listing::list(&process, split, &mut room)?));
        }
        Ok(Self(Arc::new(Served { programs, welcome, tasks, max_turns, next: AtomicU64::new(0) })))
    }

    /// Returns how often programs were started.
    pub fn starts(&self) -> u64 {
        self.0.programs.iter().map(Program::starts).sum()
    }

    /// Plays an episode with the program's expert.
    ///
    /// # Errors
    /// Returns [`EnvError::Transient`] if a retry may succeed, otherwise [`EnvError::Other`].
    pub fn demonstrate(&self, task: &Task, seed: Seed) -> Result<ExpertEpisode, EnvError> {
        let max_turns = task.limits.turns_within(self.0.max_turns);
        let listed = as_listed(task)?;
        let request = Request::Demonstrate { task: &listed, seed: number_of(seed), max_turns };
        let process = self.0.programs[0].process().map_err(|error| of_reset(&error))?;
        let shown: Demonstrated = process.ask(&request).map_err(|error| of_reset(&error))?;
        let turns =
            shown.turns.into_iter().map(|turn| (observation(turn.observation), turn.action)).collect();
        let tools = shown.tools.unwrap_or_else(|| self.0.welcome.tools.clone());
        Ok(ExpertEpisode { tools, turns, success: shown.success })
    }
}

/// An episode of the program's expert.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertEpisode {
    /// Functions that actions may call.
    pub tools: Vec<Tool>,
    /// Observation and action of each turn.
    pub turns: Vec<(Observation, String)>,
    /// Whether the task was solved.
    pub success: bool,
}

fn seconds(seconds: f64) -> Duration {
    // The standard library's clocks allow no later time.
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}

/// Plays episodes with the program's expert. Fails only if all episodes fail.
fn demonstrate(set: &ProcessSet, request: &DemonstrationRequest<'_>) -> Result<Demonstrations, EnvError> {
    play_in_turn(&set.tasks(request.split)?, request, |task, seed| {
        let shown = set.demonstrate(task, seed)?;
        let turn = |(seen, action)| DemonstrationTurn::new(seen, request.keep_admissible, action, true, 0.0);
        let mut turns: Vec<DemonstrationTurn> = shown.turns.into_iter().map(turn).collect();
        if let Some(last) = turns.last_mut() {
            last.reward = 1.0;
        }
        let episode =
            Demonstration { task: task.clone(), tools: shown.tools, turns, final_observation: String::new() };
        Ok(shown.success.then_some(episode))
    })
}

impl World for ProcessSet {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        self.0.welcome.capabilities.demonstrate.then(|| demonstrate(self, request)).transpose()
    }

    fn has_expert(&self) -> bool {
        self.0.welcome.capabilities.demonstrate
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(self.0.welcome.phrases.clone())
    }
}

/// The environment kind `process`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessKind;

impl WorldKind for ProcessKind {
    type Settings = ProcessConfig;

    fn name(&self) -> &'static str {
        "process"
    }

    fn summary(&self) -> &'static str {
        "a world that another program serves over JSON lines"
    }

    fn open(
        &self,
        settings: &ProcessConfig,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(ProcessSet::open(settings, options.max_turns)?))
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults { template: "plain", ..EvalDefaults::default() }
    }
}

fn as_listed(task: &Task) -> Result<Value, EnvError> {
    serde_json::to_value(task).map_err(|error| EnvError::Other(error.to_string()))
}

/// Converts a seed to 53 bits, which every JSON parser reads exactly.
fn number_of(seed: Seed) -> u64 {
    seed.rng().bits() >> 11
}

/// Converts a reset's error to an environment error. Unlike a step, a reset can be retried even if
/// the program was lost.
fn of_reset(error: &ProcessError) -> EnvError {
    if error.is_transient() {
        EnvError::Transient(error.to_string())
    } else {
        EnvError::Other(error.to_string())
    }
}

fn of_step(error: &ProcessError) -> EnvError {
    if error.loses_episode() {
        EnvError::Other(error.to_string())
    } else {
        EnvError::Transient(error.to_string())
    }
}

fn observation(seen: Seen) -> Observation {
    match seen {
        Seen::Text(text) => Observation::new(text),
        Seen::Parts { text, admissible, state_key } => {
            Observation { state_key, ..Observation::new(text).with_admissible(admissible) }
        }
    }
}

impl TaskSet for ProcessSet {
    fn name(&self) -> &str {
        &self.0.welcome.name
    }

    fn splits(&self) -> Vec<String> {
        self.0.welcome.splits.clone()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let found = self.0.tasks.iter().find(|(name, _)| name == split);
        found.map(|(_, tasks)| tasks.clone()).ok_or_else(|| EnvError::UnknownSplit {
            split: split.to_owned(),
            known: self.0.welcome.splits.join(", "),
        })
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(ProcessEnvironment { served: Arc::clone(&self.0), episode: None }))
    }

    /// Returns true, because [`Process::call`] has its own timeout, which starts only when the
    /// program has a free slot.
    fn limits_calls(&self) -> bool {
        true
    }

    fn batch_limit(&self) -> usize {
        if self.0.welcome.capabilities.step_many { 64 } else { 1 }
    }

    fn step_many(&self, pending: &mut [PendingStep<'_>]) -> Vec<Result<Step, EnvError>> {
        let refused = |step: &mut PendingStep<'_>| {
            let action = step.action;
            playing(step)?.refuse(action).map(Ok)
        };
        let mut results: Vec<Option<Result<Step, EnvError>>> = pending.iter_mut().map(refused).collect();
        while let Some(first) = results.iter().position(Option::is_none) {
            let process = playing(&mut pending[first]).map(|episode| Arc::clone(&episode.process));
            let Some(process) = process else {
                results[first] = Some(Err(EnvError::NotReset));
                continue;
            };
            let mut indices = Vec::new();
            for (index, step) in pending.iter_mut().enumerate() {
                let same = playing(step).is_some_and(|episode| Arc::ptr_eq(&episode.process, &process));
                if results[index].is_none() && same {
                    indices.push(index);
                }
            }
            let texts: Vec<_> = indices.iter().map(|&index| pending[index].action.text()).collect();
            let mut steps = Vec::with_capacity(indices.len());
            for (&index, action) in indices.iter().zip(&texts) {
                let call = pending[index].action.call();
                if let Some(episode) = playing(&mut pending[index]) {
                    steps.push(EpisodeAction { episode: episode.number, action, call });
                }
            }
            let answered = process.ask::<ManyStepped>(&Request::StepMany { steps });
            let mut answers = match answered {
                Ok(many) if many.steps.len() == indices.len() => Ok(many.steps.into_iter()),
                Ok(many) => Err(ProcessError::Form {
                    op: "step_many",
                    reason: format!("{} answers to {} steps", many.steps.len(), indices.len()),
                }),
                Err(error) => Err(error),
            };
            for index in indices {
                let stepped = match &mut answers {
                    Ok(answers) => match answers.next() {
                        Some(answer) => read_answer::<Stepped>("step_many", answer),
                        None => Err(ProcessError::Form {
                            op: "step_many",
                            reason: "an answer is missing".to_owned(),
                        }),
                    },
                    Err(error) => Err(error.clone()),
                };
                results[index] = Some(match playing(&mut pending[index]) {
                    Some(episode) => stepped.map_err(|error| of_step(&error)).map(|step| episode.count(step)),
                    None => Err(EnvError::NotReset),
                });
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Err(EnvError::NotReset))).collect()
    }
}

fn playing<'a>(pending: &'a mut PendingStep<'_>) -> Option<&'a mut Episode> {
    let environment: &mut dyn Any = pending.environment;
    environment.downcast_mut::<ProcessEnvironment>()?.episode.as_mut()
}

#[derive(Debug)]
struct ProcessEnvironment {
    served: Arc<Served>,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    process: Arc<Process>,
    number: u64,
    task: Value,
    tools: Vec<Tool>,
    turns: usize,
    max_turns: usize,
}

#[derive(Serialize, Deserialize)]
struct SavedEpisode {
    task: Value,
    tools: Vec<Tool>,
    turns: usize,
    state: Box<RawValue>,
}

impl Episode {
    fn is_last(&mut self) -> bool {
        self.turns += 1;
        self.max_turns > 0 && self.turns >= self.max_turns
    }

    fn refuse(&mut self, action: &Action) -> Option<Step> {
        let Action::Malformed { error, .. } = action else { return None };
        if self.tools.is_empty() {
            return None;
        }
        let observation = Observation::new(error.as_str());
        Some(Step { observation, truncated: self.is_last(), ..Step::default() })
    }

    fn count(&mut self, stepped: Stepped) -> Step {
        let limit = self.is_last();
        let metrics = stepped.metrics.into_iter().map(|(name, value)| Metric::last(name, value)).collect();
        Step {
            observation: observation(stepped.observation),
            reward: stepped.reward,
            progress: stepped.progress,
            terminated: stepped.terminated,
            truncated: stepped.truncated || (limit && !stepped.terminated),
            success: stepped.success,
            understood: stepped.understood,
            metrics,
            rewards: Vec::new(),
        }
    }
}

impl ProcessEnvironment {
    fn next_episode(&mut self) -> Result<(u64, Arc<Process>), EnvError> {
        self.close();
        let number = self.served.next.fetch_add(1, Ordering::Relaxed);
        let programs = &self.served.programs;
        let process = programs[number as usize % programs.len()].process();
        Ok((number, process.map_err(|error| of_reset(&error))?))
    }
}

impl Environment for ProcessEnvironment {
    fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        let (number, process) = self.next_episode()?;
        let listed = as_listed(task)?;
        let request = Request::Reset { episode: number, task: &listed, seed: number_of(seed) };
        let started: Started = process.ask(&request).map_err(|error| of_reset(&error))?;
        let tools = started.tools.unwrap_or_else(|| self.served.welcome.tools.clone());
        let max_turns = self.served.max_turns;
        self.episode = Some(Episode { process, number, task: listed, tools, turns: 0, max_turns });
        Ok(observation(started.observation))
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if !self.served.welcome.capabilities.save {
            return Ok(None);
        }
        let request = Request::Save { episode: episode.number };
        let saved: Saved = episode.process.ask(&request).map_err(|error| of_step(&error))?;
        let saved = SavedEpisode {
            task: episode.task.clone(),
            tools: episode.tools.clone(),
            turns: episode.turns,
            state: saved.state,
        };
        let bytes = serde_json::to_vec(&saved).map_err(|error| EnvError::Other(error.to_string()))?;
        Ok(Some(Snapshot(bytes)))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved: SavedEpisode =
            serde_json::from_slice(&snapshot.0).map_err(|error| EnvError::State(error.to_string()))?;
        let (number, process) = self.next_episode()?;
        let request = Request::Restore { episode: number, task: &saved.task, state: &saved.state };
        process.ask::<IgnoredAny>(&request).map_err(|error| of_reset(&error))?;
        let SavedEpisode { task, tools, turns, .. } = saved;
        self.episode =
            Some(Episode { process, number, task, tools, turns, max_turns: self.served.max_turns });
        Ok(())
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        if let Some(step) = episode.refuse(action) {
            return Ok(step);
        }
        let text = action.text();
        let request = Request::Step { episode: episode.number, action: &text, call: action.call() };
        let stepped: Stepped = episode.process.ask(&request).map_err(|error| of_step(&error))?;
        Ok(episode.count(stepped))
    }

    fn tools(&self) -> &[Tool] {
        self.episode.as_ref().map_or(&[], |episode| &episode.tools)
    }

    fn close(&mut self) {
        if let Some(episode) = self.episode.take() {
            episode.process.notify(&Request::Close { episode: episode.number });
        }
    }
}

impl Drop for ProcessEnvironment {
    fn drop(&mut self) {
        self.close();
    }
}
