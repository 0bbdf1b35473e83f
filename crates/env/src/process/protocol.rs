//! Protocol messages, one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use turnwise_core::{Tool, ToolCall};

/// Protocol version, increased by each incompatible change.
pub(crate) const PROTOCOL: u32 = 1;

/// A request, without its `id`, which is added when the request is sent.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request<'a> {
    /// The first request.
    Hello {
        /// `PROTOCOL`.
        protocol: u32,
        /// Name and version of Turnwise.
        client: &'a str,
        /// The config's `env.settings`.
        settings: &'a Value,
    },
    /// Requests a page of tasks.
    Tasks {
        /// Split name.
        split: &'a str,
        /// Index of the first task.
        offset: usize,
        /// Maximum number of tasks.
        limit: usize,
    },
    /// Starts an episode of the task and gives it the number `episode`; an existing episode with
    /// this number is dropped.
    Reset {
        /// Episode number, chosen by the trainer.
        episode: u64,
        /// Task as listed.
        task: &'a Value,
        /// Seed of the episode's random draws.
        seed: u64,
    },
    /// Executes an action.
    Step {
        /// Episode number.
        episode: u64,
        /// Action text.
        action: &'a str,
        /// The action as a structured call. `action` is then `name(arguments as JSON)`.
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<&'a ToolCall>,
    },
    /// Executes one action in each of several episodes.
    StepMany {
        /// Episodes and actions.
        steps: Vec<EpisodeAction<'a>>,
    },
    /// Ends an episode, finished or not.
    Close {
        /// Episode number.
        episode: u64,
    },
    /// Requests an episode's state (capability `save`).
    Save {
        /// Episode number.
        episode: u64,
    },
    /// Starts an episode from a saved state.
    Restore {
        /// Episode number, chosen by the trainer.
        episode: u64,
        /// Task as listed.
        task: &'a Value,
        /// State from `save`.
        state: &'a RawValue,
    },
    /// Plays a task with the program's expert.
    Demonstrate {
        /// Task as listed.
        task: &'a Value,
        /// Seed of the episode's random draws.
        seed: u64,
        /// Turn limit.
        max_turns: usize,
    },
    /// The last request.
    Shutdown {},
}

impl Request<'_> {
    /// Returns the number of steps in the request, by which its timeout is multiplied.
    pub(super) fn answers(&self) -> u32 {
        match self {
            Self::StepMany { steps } => u32::try_from(steps.len()).unwrap_or(u32::MAX).max(1),
            _ => 1,
        }
    }

    /// Returns the request's protocol name.
    pub fn op(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Tasks { .. } => "tasks",
            Self::Reset { .. } => "reset",
            Self::Step { .. } => "step",
            Self::StepMany { .. } => "step_many",
            Self::Close { .. } => "close",
            Self::Save { .. } => "save",
            Self::Restore { .. } => "restore",
            Self::Demonstrate { .. } => "demonstrate",
            Self::Shutdown {} => "shutdown",
        }
    }
}

/// One action of [`Request::StepMany`].
#[derive(Clone, Debug, Serialize)]
pub struct EpisodeAction<'a> {
    /// Episode number.
    pub episode: u64,
    /// Action text.
    pub action: &'a str,
    /// The action as a structured call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<&'a ToolCall>,
}

#[derive(Serialize)]
pub(super) struct Envelope<'a> {
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) request: &'a Request<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) id: u64,
    #[serde(default, deserialize_with = "present")]
    ok: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Failure>,
}

impl Line {
    pub(super) fn answer(self) -> Result<Answer, &'static str> {
        Given { ok: self.ok, error: self.error }.try_into()
    }
}

/// A response's content, kept as JSON text to preserve key order.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub enum Answer {
    /// Result.
    Ok(Box<RawValue>),
    /// Failure.
    Error(Failure),
}

#[derive(Deserialize)]
struct Given {
    #[serde(default, deserialize_with = "present")]
    ok: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Failure>,
}

impl TryFrom<Given> for Answer {
    type Error = &'static str;

    fn try_from(given: Given) -> Result<Self, &'static str> {
        match given {
            Given { error: Some(failure), .. } => Ok(Self::Error(failure)),
            Given { ok: Some(value), .. } => Ok(Self::Ok(value)),
            Given { .. } => Err("an answer has `ok` or `error`"),
        }
    }
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// Whether a retry may succeed.
    #[serde(default)]
    pub kind: FailureKind,
    /// Error message.
    #[serde(default)]
    pub message: String,
    /// The program's traceback; may be empty.
    #[serde(default)]
    pub traceback: String,
}

/// Whether a retry may succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A retry may succeed, for example if a service was busy.
    Transient,
    /// A retry cannot succeed; the episode is over.
    #[default]
    Fatal,
}

/// Response to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Welcome {
    /// The program's protocol version, which must be `PROTOCOL`.
    pub protocol: u32,
    /// Environment name, used in messages and pinned panels.
    pub name: String,
    /// Splits, training first.
    pub splits: Vec<String>,
    /// Supported optional requests.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Maximum number of concurrent requests. Turnwise queues further requests and starts their
    /// timeout only when it sends them.
    #[serde(default = "one")]
    pub concurrency: usize,
    /// Frequent phrases, which a tokenizer trained from scratch keeps as single tokens.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// Functions that actions may call, unless the response to `reset` lists others.
    #[serde(default)]
    pub tools: Vec<Tool>,
}

fn one() -> usize {
    1
}

/// Supported optional requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// `step_many`
    pub step_many: bool,
    /// `demonstrate`
    pub demonstrate: bool,
    /// `save` and `restore`
    pub save: bool,
}

/// Response to `tasks`.
#[derive(Clone, Debug, Deserialize)]
pub struct TaskPage {
    /// Tasks; `reset` sends a task back to the program unchanged.
    pub tasks: Vec<Value>,
    /// Next page's offset, or `None` at the end.
    #[serde(default)]
    pub next: Option<usize>,
}

/// An observation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seen {
    /// Text alone.
    Text(String),
    /// Text with admissible actions, a state key, or both.
    Parts {
        /// Observation text.
        text: String,
        /// Admissible actions.
        #[serde(default)]
        admissible: Vec<String>,
        /// Key by which equal states are recognised; by default the observation's `text`.
        #[serde(default)]
        state_key: Option<String>,
    },
}

/// Response to `reset`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Started {
    /// First observation.
    pub observation: Seen,
    /// Functions that actions may call in this episode; by default those of the response to
    /// `hello`.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
}

/// Response to `step`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Stepped {
    /// Next observation.
    pub observation: Seen,
    /// Reward.
    #[serde(default)]
    pub reward: f64,
    /// Completed fraction of the task, 0 to 1.
    #[serde(default)]
    pub progress: Option<f64>,
    /// Whether the episode ended by the environment's rules.
    #[serde(default)]
    pub terminated: bool,
    /// Whether the episode ended because of a limit, such as a maximum number of turns.
    #[serde(default)]
    pub truncated: bool,
    /// Whether the task is solved.
    #[serde(default)]
    pub success: bool,
    /// Whether the action was valid.
    #[serde(default = "yes")]
    pub understood: bool,
    /// Metrics by name.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
}

fn yes() -> bool {
    true
}

/// Response to `save`.
#[derive(Clone, Debug, Deserialize)]
pub struct Saved {
    /// Saved state of the episode: any JSON value, which `restore` sends back unchanged.
    pub state: Box<RawValue>,
}

/// Response to `step_many`.
#[derive(Clone, Debug, Deserialize)]
pub struct ManyStepped {
    /// One response per step, in order.
    pub steps: Vec<Answer>,
}

/// Response to `demonstrate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Demonstrated {
    /// Functions that actions may call in this episode; by default those of the response to
    /// `hello`.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    /// Turns in order.
    pub turns: Vec<DemonstratedTurn>,
    /// Whether the task was solved.
    #[serde(default)]
    pub success: bool,
}

/// A turn of a demonstration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DemonstratedTurn {
    /// Observation before the action.
    pub observation: Seen,
    /// The expert's action.
    pub action: String,
}

/// Parses a line as each kind of response, for fuzzing.
#[doc(hidden)]
pub fn parse(line: &[u8]) {
    fn read<T: serde::de::DeserializeOwned>(value: &RawValue) {
        let _ = serde_json::from_str::<T>(value.get());
    }
    let Ok(line) = serde_json::from_slice::<Line>(line) else { return };
    if let Ok(Answer::Ok(value)) = line.answer() {
        read::<Welcome>(&value);
        read::<TaskPage>(&value);
        read::<Started>(&value);
        read::<Stepped>(&value);
        read::<ManyStepped>(&value);
        read::<Saved>(&value);
        read::<Demonstrated>(&value);
    }
}
