//! MCP tasks and episodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task, TaskSet, Tool};
use turnwise_env::demonstration::{DemonstrationRequest, Demonstrations};
use turnwise_env::world::{EvalDefaults, OpenOptions, World, WorldKind};
use turnwise_settings::Problem;

use super::judge::reward;
use super::session::{Called, Session, Transport};
use super::settings::McpConfig;
use super::tasks::{Call, Line, Rules, rules, task};
use super::tools::{Asked, Tools, name_of};
use crate::environments::address::addresses;
use crate::environments::demonstrations::demonstrate;
use crate::environments::error::ServerError;
use crate::environments::slots::{Slot, Slots};
use crate::environments::text::cut;
use crate::http::api_key;
use crate::thread::RequestThread;
use turnwise_env::task_files::{Splits, read_splits};

/// How long a reset waits for a session to become free if all are in use.
const WAIT: Duration = Duration::from_secs(20);

/// Tasks with tools from MCP servers.
#[derive(Clone, Debug)]
pub struct McpSet(Arc<Served>);

#[derive(Debug)]
struct Served {
    thread: RequestThread,
    transports: Vec<Transport>,
    key: Option<String>,
    slots: Arc<Slots>,
    tools: Tools,
    splits: Splits,
    config: Arc<McpConfig>,
    max_turns: usize,
}

impl McpSet {
    /// Reads the tasks and a server's tools. With `max_turns` above 0, episodes end after that many
    /// actions.
    ///
    /// # Errors
    /// Fails if a setting or task is invalid, or if a server is unreachable or lacks a task's tool.
    pub fn open(config: &McpConfig, max_turns: usize) -> Result<Self, EnvError> {
        if config.tasks.is_empty() {
            let reason =
                "is empty; name files of tasks, such as { train = \"train.jsonl\", test = \"test.jsonl\" }";
            return Err(ServerError::setting("tasks", reason).into());
        }
        let transports = transports(config)?;
        let splits = read_splits(&config.tasks, |line: Line| task(line))?;
        let key = api_key(&config.api_key_env).map_err(ServerError::from)?;
        let thread = RequestThread::start().map_err(|error| ServerError::no_thread(&error))?;
        let config = Arc::new(config.clone());
        let mut listed = Vec::new();
        for (server, transport) in transports.iter().enumerate() {
            let session = Session::open(transport.clone(), key.clone(), Arc::clone(&config));
            let tools = thread
                .try_wait(async move {
                    let session = session.await?;
                    let tools = session.caller.tools().await;
                    session.close().await;
                    tools
                })
                .map_err(|error| named(error, transport, server))?;
            if server == 0 {
                listed = tools;
            } else if !tools.iter().map(name_of).eq(listed.iter().map(name_of)) {
                let reason = format!("number {server} has other tools than number 0; they must be alike");
                return Err(ServerError::setting("urls", reason).into());
            }
        }
        let (judges, named_by_tasks) = tools_of(&splits)?;
        let has = |tool: &str| listed.iter().any(|known| name_of(known) == tool);
        if let Some(absent) = named_by_tasks.iter().find(|tool| !has(tool)) {
            let reason = format!(
                "a task names the tool `{absent}` in `verify` or `setup`, which the server does not have"
            );
            return Err(ServerError::setting("tasks", reason).into());
        }
        let names = judges.iter().map(String::as_str).collect();
        let tools = Tools::new(&listed, &config, &names)?;
        let slots = Slots::new(transports.len(), config.sessions);
        Ok(Self(Arc::new(Served { thread, transports, key, slots, tools, splits, config, max_turns })))
    }
}

fn transports(config: &McpConfig) -> Result<Vec<Transport>, ServerError> {
    match (config.command.is_empty(), config.urls.is_empty()) {
        (false, true) => Ok(vec![Transport::Stdio]),
        (true, false) => {
            Ok(addresses(&config.urls)?.into_iter().map(|url| Transport::Http(url.into())).collect())
        }
        _ => Err(ServerError::setting(
            "command",
            "name either a command such as [\"python3\", \"server.py\"] or addresses in env.urls",
        )),
    }
}

fn named(error: ServerError, transport: &Transport, server: usize) -> ServerError {
    match (transport, error) {
        (Transport::Http(_), error) => error.of_server(server),
        (Transport::Stdio, ServerError::Lost(text)) => ServerError::Lost(format!("env.command: {text}")),
        (Transport::Stdio, ServerError::Answer(text)) => ServerError::Answer(format!("env.command: {text}")),
        (Transport::Stdio, error) => error,
    }
}

fn tools_of(splits: &Splits) -> Result<(BTreeSet<String>, BTreeSet<String>), EnvError> {
    let (mut judges, mut all) = (BTreeSet::new(), BTreeSet::new());
    for split in splits.names() {
        for task in splits.tasks(&split)? {
            let rules = rules(&task).map_err(EnvError::Other)?;
            judges.extend(rules.verify.map(|call| call.tool));
            all.extend(rules.setup.into_iter().map(|call| call.tool));
        }
    }
    all.extend(judges.iter().cloned());
    Ok((judges, all))
}

impl TaskSet for McpSet {
    fn name(&self) -> &'static str {
        "mcp"
    }

    fn splits(&self) -> Vec<String> {
        self.0.splits.names()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.0.splits.tasks(split)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(McpEnvironment { served: Arc::clone(&self.0), episode: None }))
    }

    fn free_episodes(&self) -> Option<usize> {
        Some(self.0.slots.free())
    }
}

impl World for McpSet {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(self, request)
    }
}

#[derive(Debug)]
struct McpEnvironment {
    served: Arc<Served>,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    session: Session,
    slot: Slot,
    rules: Rules,
    turns: usize,
    max_turns: usize,
}

impl Served {
    fn call(
        &self,
        server: usize,
        session: &Session,
        name: String,
        arguments: Map<String, Value>,
    ) -> Result<Called, ServerError> {
        let caller = session.caller.clone();
        let called = self.thread.try_wait(async move { caller.call(name, arguments).await });
        called.map_err(|error| named(error, &self.transports[server], server))
    }

    fn begin(&self, rules: Rules, max_turns: usize) -> Result<Episode, ServerError> {
        let slot = self
            .slots
            .take(&[], WAIT)
            .ok_or_else(|| ServerError::Full("all sessions of env.sessions are in use".to_owned()))?;
        let server = slot.server;
        let begun = self.begin_on(slot, rules, max_turns);
        self.slots.note(server, &begun);
        begun
    }

    fn begin_on(&self, slot: Slot, rules: Rules, max_turns: usize) -> Result<Episode, ServerError> {
        let server = slot.server;
        let session =
            Session::open(self.transports[server].clone(), self.key.clone(), Arc::clone(&self.config));
        let session =
            self.thread.try_wait(session).map_err(|error| named(error, &self.transports[server], server))?;
        let episode = Episode { session, slot, rules, turns: 0, max_turns };
        for Call { tool, arguments, .. } in episode.rules.setup.clone() {
            let called = self.call(server, &episode.session, tool.clone(), arguments)?;
            if called.failed {
                let text = format!("`setup` of the task: `{tool}` failed: {}", called.text);
                return Err(named(ServerError::Answer(text), &self.transports[server], server));
            }
        }
        Ok(episode)
    }

    fn judge(&self, episode: &Episode, answer: Option<&str>) -> Result<(f64, bool), ServerError> {
        let server = episode.slot.server;
        let Some(Call { tool, mut arguments, answer_argument }) = episode.rules.verify.clone() else {
            let right = answer.is_some_and(|answer| episode.rules.is_answer(answer));
            return Ok((f64::from(u8::from(right)), right));
        };
        if let Some(name) = answer_argument {
            arguments.insert(name, answer.unwrap_or_default().into());
        }
        let called = self.call(server, &episode.session, tool, arguments)?;
        let reward = reward(&called).map_err(|error| named(error, &self.transports[server], server))?;
        Ok((reward, reward >= self.config.success_reward))
    }

    fn end(&self, episode: Episode) {
        let Episode { session, slot, .. } = episode;
        self.thread.handle().spawn(async move {
            session.close().await;
            drop(slot);
        });
    }
}

impl Environment for McpEnvironment {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.close();
        let rules = rules(task).map_err(|_| EnvError::UnknownTask(task.id.clone()))?;
        let max_turns = task.limits.turns_within(self.served.max_turns);
        self.episode = Some(self.served.begin(rules, max_turns).map_err(ServerError::of_reset)?);
        Ok(Observation::default())
    }

    fn tools(&self) -> &[Tool] {
        self.served.tools.shown()
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        let served = &self.served;
        episode.turns += 1;
        let cut_off = episode.turns >= episode.max_turns;
        let mut answer = None;
        let (text, understood) = match served.tools.read(action) {
            // The policy's template explains other formats best.
            Err(reason) => match action {
                Action::Malformed { error, .. } => (error.clone(), false),
                _ => (format!("That is no call of a tool: {reason}."), false),
            },
            Ok(Asked::Answer(given)) => {
                answer = Some(given);
                (String::new(), true)
            }
            Ok(Asked::Tool(name, arguments)) => {
                let called = served.call(episode.slot.server, &episode.session, name, arguments);
                let called = called?;
                (called.text, !called.failed)
            }
        };
        let (reward, success) = if answer.is_some() || cut_off {
            served.judge(episode, answer.as_deref())?
        } else {
            (0.0, false)
        };
        Ok(Step {
            observation: Observation::new(cut(text, served.config.observation_chars)),
            reward,
            terminated: answer.is_some(),
            truncated: cut_off && answer.is_none(),
            success,
            understood,
            ..Step::default()
        })
    }

    fn close(&mut self) {
        if let Some(episode) = self.episode.take() {
            self.served.end(episode);
        }
    }
}

impl Drop for McpEnvironment {
    fn drop(&mut self) {
        self.close();
    }
}

/// Environment kind `mcp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct McpKind;

impl WorldKind for McpKind {
    type Settings = McpConfig;

    fn name(&self) -> &'static str {
        "mcp"
    }

    fn summary(&self) -> &'static str {
        "tasks that are solved with the tools of an MCP server"
    }

    fn rules(&self, settings: &McpConfig) -> Vec<Problem> {
        let McpConfig { command, directory, environment, urls, api_key_env, .. } = settings;
        let of_command = "is of a program that is started, and env.command names none; leave it out";
        let of_urls =
            "is the key of env.urls, which names no server; a program gets its key with env.environment";
        let mut problems = Vec::new();
        if command.is_empty() && directory.is_some() {
            problems.push(Problem::new("directory", of_command));
        }
        if command.is_empty() && !environment.is_empty() {
            problems.push(Problem::new("environment", of_command));
        }
        if urls.is_empty() && !api_key_env.is_empty() {
            problems.push(Problem::new("api_key_env", of_urls));
        }
        problems
    }

    fn open(&self, settings: &McpConfig, options: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(McpSet::open(settings, options.max_turns)?))
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults { template: "tools", ..EvalDefaults::default() }
    }
}
