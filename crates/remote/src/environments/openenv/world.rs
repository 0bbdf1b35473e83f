//! OpenEnv tasks and episodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};
use turnwise_core::{
    Action, EnvError, Environment, Observation, Seed, Step, Task, TaskLimits, TaskSet, Tool,
};
use turnwise_env::demonstration::{DemonstrationRequest, Demonstrations};
use turnwise_env::world::{EvalDefaults, OpenOptions, World, WorldKind};

use super::action::ActionSchema;
use super::session::{Limits, Session};
use super::settings::{ExecutionErrors, OpenEnvConfig};
use super::wire::{self, Answer, Seen};
use crate::environments::address::{addresses, below};
use crate::environments::demonstrations::{demonstrate, keep};
use crate::environments::error::ServerError;
use crate::environments::slots::{Slot, Slots};
use crate::environments::text::{LONGEST_GOAL, cut, plain};
use crate::http::{Http, api_key, seconds};
use crate::thread::RequestThread;
use turnwise_env::task_files::{Splits, read_splits};

const TEST_SEEDS: u64 = 1_000_000;

const SHORT: Duration = Duration::from_secs(30);

const AGAIN: Duration = Duration::from_millis(100);

/// OpenEnv tasks.
#[derive(Clone, Debug)]
pub struct OpenEnvSet(Arc<Served>);

#[derive(Debug)]
struct Served {
    thread: RequestThread,
    sockets: Vec<String>,
    key: Option<String>,
    limits: Limits,
    slots: Arc<Slots>,
    schema: ActionSchema,
    splits: Splits,
    name: String,
    config: OpenEnvConfig,
    max_turns: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    #[serde(default)]
    goal: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    seed: Option<u32>,
    #[serde(default)]
    reset: Map<String, Value>,
    #[serde(default)]
    demonstration: Vec<Value>,
    #[serde(default)]
    limits: TaskLimits,
}

impl OpenEnvSet {
    /// Requests schema and description from the servers. With `max_turns` above 0, episodes are
    /// truncated after that many actions.
    ///
    /// # Errors
    /// Fails if a setting is invalid, or if a server is unreachable or is not an OpenEnv server.
    pub fn open(config: &OpenEnvConfig, max_turns: usize) -> Result<Self, EnvError> {
        let urls = addresses(&config.urls)?;
        let key = api_key(&config.api_key_env).map_err(ServerError::from)?;
        let http = Http::new(key.as_deref()).map_err(ServerError::from)?;
        let thread = RequestThread::start().map_err(|error| ServerError::no_thread(&error))?;
        let mut described = Vec::new();
        for (server, url) in urls.iter().enumerate() {
            let read = read_description(&thread, &http, url, config);
            described.push(read.map_err(|error| error.of_server(server))?);
        }
        let Description { schema, name, about } = described.swap_remove(0);
        if let Some(other) = described.iter().position(|other| other.schema != schema) {
            let reason =
                format!("number {} takes other actions than number 0; they must be alike", other + 1);
            return Err(ServerError::setting("urls", reason).into());
        }
        let goal = if config.goal.is_empty() { about } else { config.goal.clone() };
        let splits = splits(config, &goal)?;
        let limits = Limits {
            connect: seconds(config.connect_timeout_s),
            answer: seconds(config.timeout_s),
            bytes: config.max_message_bytes,
        };
        let slots = Slots::new(urls.len(), config.sessions_per_server);
        // `https` becomes `wss`.
        let sockets = urls.iter().map(|url| below(url, "ws").replacen("http", "ws", 1)).collect();
        let config = config.clone();
        Ok(Self(Arc::new(Served {
            thread,
            sockets,
            key,
            limits,
            slots,
            schema,
            splits,
            name,
            config,
            max_turns,
        })))
    }
}

struct Description {
    schema: ActionSchema,
    name: String,
    about: String,
}

fn read_description(
    thread: &RequestThread,
    http: &Http,
    url: &Url,
    config: &OpenEnvConfig,
) -> Result<Description, ServerError> {
    let get = |path: &'static str| -> Result<Value, ServerError> {
        let (http, url, limit) = (http.clone(), below(url, path), config.max_message_bytes);
        let reply = thread.wait(async move { http.get(&url, SHORT, limit).await })??;
        if reply.status != 200 {
            return Err(ServerError::Answer(format!("it answers HTTP {} to GET /{path}", reply.status)));
        }
        serde_json::from_slice(&reply.body).map_err(|_| {
            ServerError::Answer(format!("its answer to GET /{path} is not JSON; is it an OpenEnv server?"))
        })
    };
    let schema =
        ActionSchema::read(get("schema")?.get("action").unwrap_or(&Value::Null), &config.action_field)?;
    let about = get("metadata")?;
    let text = |key: &str| about.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let name = if text("name").is_empty() { "openenv".to_owned() } else { text("name") };
    let about = text("description");
    // It becomes the goal of every task.
    if about.len() > LONGEST_GOAL {
        let reason = format!("its description has {} bytes; at most {LONGEST_GOAL} are read", about.len());
        return Err(ServerError::Answer(reason));
    }
    Ok(Description { schema, name, about })
}

fn splits(config: &OpenEnvConfig, goal: &str) -> Result<Splits, EnvError> {
    if !config.tasks.is_empty() {
        return read_splits(&config.tasks, |line: Line| {
            let kind = line.kind.unwrap_or_else(|| "openenv".into());
            let goal = if line.goal.is_empty() { goal.to_owned() } else { line.goal };
            let mut task = Task { limits: line.limits, ..Task::new(line.id, kind, goal) };
            if let Some(seed) = line.seed {
                task.metadata.insert("seed".into(), seed.into());
            }
            task.metadata.insert("reset".into(), line.reset.into());
            // The server selects tasks by this name.
            task.metadata.insert("episode_id".into(), task.id.clone().into());
            keep(&mut task, line.demonstration);
            Ok(task)
        });
    }
    let seeds = |first: u64, count: usize| {
        let task = |seed: u64| {
            let mut task = Task::new(format!("seed/{seed}"), "openenv", goal);
            task.metadata.insert("seed".into(), seed.into());
            task
        };
        (first..first + count as u64).map(task).collect::<Vec<Task>>()
    };
    Splits::new(vec![
        ("train".to_owned(), seeds(0, config.train)),
        ("test".to_owned(), seeds(TEST_SEEDS, config.test)),
    ])
}

impl Served {
    fn ask(&self, session: &Session, message: String) -> Result<Answer, ServerError> {
        let session = session.clone();
        let text = self.thread.try_wait(async move { session.ask(message).await })?;
        wire::read(&text)
    }

    fn begin(&self, message: &str) -> Result<(Slot, Session, Seen), ServerError> {
        let until = Instant::now() + seconds(self.config.full_timeout_s);
        let mut avoid = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(slot) = self.slots.take(&avoid, left.min(AGAIN)) else {
                avoid.clear();
                if left.is_zero() {
                    return Err(ServerError::Full(
                        "every server of env.urls is full; start them with a larger `max_concurrent_envs`, name more of them, or \
                         lower env.sessions_per_server"
                            .into(),
                    ));
                }
                continue;
            };
            let server = slot.server;
            let begun = self.begin_on(server, message);
            self.slots.note(server, &begun);
            match begun {
                Ok((session, seen)) => return Ok((slot, session, seen)),
                Err(ServerError::Full(_)) => avoid.push(server),
                Err(error) => return Err(error.of_server(server)),
            }
        }
    }

    fn begin_on(&self, server: usize, message: &str) -> Result<(Session, Seen), ServerError> {
        let (url, key, limits) = (self.sockets[server].clone(), self.key.clone(), self.limits);
        let session =
            self.thread.try_wait(async move { Session::open(&url, key.as_deref(), limits).await })?;
        match self.ask(&session, message.to_owned())? {
            Answer::Seen(seen) if seen.done => {
                Err(ServerError::Answer("it says that an episode is done at its reset".into()))
            }
            Answer::Seen(seen) => Ok((session, seen)),
            Answer::Mcp(_) => Err(ServerError::Answer("it answered a reset with tools".into())),
            Answer::Error { code, message } => Err(match code.as_str() {
                "CAPACITY_REACHED" => ServerError::Full(message),
                "SESSION_ERROR" | "FACTORY_ERROR" => {
                    ServerError::Lost(format!("it began no session: {message}"))
                }
                _ => ServerError::Answer(format!("it refused a reset ({code}): {message}")),
            }),
        }
    }

    fn text(&self, fields: &Map<String, Value>) -> String {
        let text = match self.config.observation.as_slice() {
            [] => {
                let mut shown = fields.clone();
                shown.remove("metadata");
                Value::Object(shown).to_string()
            }
            [one] => fields.get(one).map(plain).unwrap_or_default(),
            several => {
                let line = |name: &String| Some(format!("{name}: {}", plain(fields.get(name)?)));
                several.iter().filter_map(line).collect::<Vec<_>>().join("\n")
            }
        };
        cut(text, self.config.observation_chars)
    }

    fn observation(&self, fields: &Map<String, Value>) -> Observation {
        let listed = fields.get(&self.config.admissible).and_then(Value::as_array);
        let admissible = listed.map(|actions| actions.iter().map(plain).collect()).unwrap_or_default();
        Observation::new(self.text(fields)).with_admissible(admissible)
    }
}

impl TaskSet for OpenEnvSet {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn splits(&self) -> Vec<String> {
        self.0.splits.names()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.0.splits.tasks(split)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(OpenEnvEnvironment { served: Arc::clone(&self.0), episode: None }))
    }

    fn free_episodes(&self) -> Option<usize> {
        Some(self.0.slots.free())
    }
}

impl World for OpenEnvSet {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(self, request)
    }
}

#[derive(Debug)]
struct OpenEnvEnvironment {
    served: Arc<Served>,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    session: Session,
    slot: Slot,
    tools: Vec<Tool>,
    turns: usize,
    total: f64,
    /// Last admissible actions, shown again after an invalid action.
    admissible: Vec<String>,
}

impl OpenEnvEnvironment {
    /// Returns the reset arguments. If the task has no seed, draws a seed of 31 bits, a size that
    /// every random number generator accepts.
    fn arguments(&self, task: &Task, seed: Seed) -> Map<String, Value> {
        let mut arguments: Map<String, Value> = self.served.config.reset.clone().into_iter().collect();
        let seed = task.metadata.get("seed").cloned().unwrap_or_else(|| (seed.rng().bits() >> 33).into());
        arguments.insert("seed".into(), seed);
        arguments.insert("episode_id".into(), task.id.clone().into());
        if let Some(Value::Object(own)) = task.metadata.get("reset") {
            arguments.extend(own.clone());
        }
        arguments
    }
}

impl Environment for OpenEnvEnvironment {
    fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        self.close();
        let message = wire::reset(&self.arguments(task, seed));
        let (slot, session, seen) = self.served.begin(&message).map_err(ServerError::of_reset)?;
        let observation = self.served.observation(&seen.fields);
        let mut tools = Vec::new();
        if self.served.schema.calls_tools {
            let listed = self.served.ask(&session, wire::list_tools());
            let failed = |reason: String| EnvError::Other(format!("env.urls[{}]: {reason}", slot.server));
            let listed = match listed.map_err(|error| error.of_server(slot.server).of_reset())? {
                Answer::Mcp(result) => {
                    result.get("tools").and_then(Value::as_array).cloned().unwrap_or_default()
                }
                other => return Err(failed(format!("it cannot list its tools: {other:?}"))),
            };
            for tool in listed {
                tools.push(Tool::from_json(&tool.to_string()).map_err(|error| failed(error.to_string()))?);
            }
        }
        let admissible = observation.admissible.clone();
        self.episode = Some(Episode { session, slot, tools, turns: 0, total: 0.0, admissible });
        Ok(observation)
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        let served = &self.served;
        episode.turns += 1;
        let cut_off = served.max_turns > 0 && episode.turns >= served.max_turns;
        let refused = |reason: String, admissible: &[String]| Step {
            observation: Observation::new(cut(reason, served.config.observation_chars))
                .with_admissible(admissible.to_vec()),
            truncated: cut_off,
            ..Step::default()
        };
        let action = match served.schema.action(action) {
            Ok(action) => action,
            Err(reason) => return Ok(refused(format!("That is no action: {reason}."), &episode.admissible)),
        };
        let answer = served.ask(&episode.session, wire::step(&action));
        match answer.map_err(|error| error.of_server(episode.slot.server))? {
            Answer::Seen(seen) => {
                episode.total += seen.reward;
                let observation = served.observation(&seen.fields);
                episode.admissible.clone_from(&observation.admissible);
                Ok(Step {
                    observation,
                    reward: seen.reward,
                    terminated: seen.done,
                    truncated: cut_off && !seen.done,
                    success: seen.done && episode.total >= served.config.success_return,
                    understood: true,
                    ..Step::default()
                })
            }
            Answer::Error { code, message } => match (code.as_str(), served.config.execution_errors) {
                ("VALIDATION_ERROR", _) | ("EXECUTION_ERROR", ExecutionErrors::Observation) => {
                    Ok(refused(message, &episode.admissible))
                }
                _ => {
                    let text = format!("it failed ({code}): {message}");
                    Err(ServerError::Answer(text).of_server(episode.slot.server).into())
                }
            },
            Answer::Mcp(_) => {
                let error = ServerError::Answer("it answered a step with tools".into());
                Err(error.of_server(episode.slot.server).into())
            }
        }
    }

    fn tools(&self) -> &[Tool] {
        self.episode.as_ref().map_or(&[], |episode| &episode.tools)
    }

    fn close(&mut self) {
        self.episode = None;
    }
}

/// Environment kind `openenv`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenEnvKind;

impl WorldKind for OpenEnvKind {
    type Settings = OpenEnvConfig;

    fn name(&self) -> &'static str {
        "openenv"
    }

    fn summary(&self) -> &'static str {
        "an OpenEnv environment behind a server"
    }

    fn open(
        &self,
        settings: &OpenEnvConfig,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(OpenEnvSet::open(settings, options.max_turns)?))
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults { template: "plain", ..EvalDefaults::default() }
    }
}
