//! Protocol messages: requests to the program and responses from it, one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use turnwise_core::{Tool, ToolCall};

/// Protocol version, increased for incompatible changes.
pub(crate) const PROTOCOL: u32 = 1;

/// A request without its `id`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request<'a> {
    /// The first request, which contains the protocol version and the settings.
    Hello {
        /// `PROTOCOL`.
        protocol: u32,
        /// Name and version of the Turnwise release.
        client: &'a str,
        /// The `env.settings` table of the config.
        settings: &'a Value,
    },
    /// Requests at most `limit` tasks of a split, starting at `offset`.
    Tasks {
        /// Name of the split.
        split: &'a str,
        /// Index of the first requested task in the split.
        offset: usize,
        /// Maximum number of tasks to return.
        limit: usize,
    },
    /// Starts a task. A running episode with the same number is dropped.
    Reset {
        /// Episode number, chosen by the trainer.
        episode: u64,
        /// The task as listed by the program.
        task: &'a Value,
        /// Seed for the episode's random draws.
        seed: u64,
    },
    /// Executes an action.
    Step {
        /// Episode number.
        episode: u64,
        /// Action text.
        action: &'a str,
        /// The action as a structured call, if the action is a call. `action` is then
        /// `name(arguments as JSON)`.
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<&'a ToolCall>,
    },
    /// Executes one action in each of several episodes.
    StepMany {
        /// Episodes and actions.
        steps: Vec<EpisodeAction<'a>>,
    },
    /// Ends an episode, whether or not it is finished.
    Close {
        /// Episode number.
        episode: u64,
    },
    /// Requests the state of an episode without modifying it. Needs the capability `save`.
    Save {
        /// Episode number.
        episode: u64,
    },
    /// Starts an episode from a saved state instead of with `reset`.
    Restore {
        /// Episode number, chosen by the trainer.
        episode: u64,
        /// The task as listed by the program.
        task: &'a Value,
        /// The state as returned by the program.
        state: &'a RawValue,
    },
    /// Plays a task with the program's own expert.
    Demonstrate {
        /// The task as listed by the program.
        task: &'a Value,
        /// Seed for the episode's random draws.
        seed: u64,
        /// Maximum number of turns.
        max_turns: usize,
    },
    /// The last request.
    Shutdown {},
}

impl Request<'_> {
    /// Returns the number of steps, each of which gets the full timeout.
    pub(super) fn answers(&self) -> u32 {
        match self {
            Self::StepMany { steps } => u32::try_from(steps.len()).unwrap_or(u32::MAX).max(1),
            _ => 1,
        }
    }

    /// Returns the request's name in the protocol.
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
    /// The action as a structured call, if the action is a call.
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

/// Content of a response. The result is kept as JSON text, which preserves the key order in
/// schemas.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub enum Answer {
    /// The request's result.
    Ok(Box<RawValue>),
    /// The request failed.
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

/// Deserializes a field that is present, even if it is `null`.
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
    /// Traceback from the program. May be empty.
    #[serde(default)]
    pub traceback: String,
}

/// Whether a failed request may be retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A retry may succeed, for example if a service was busy.
    Transient,
    /// A retry cannot succeed, so the episode is over.
    #[default]
    Fatal,
}

/// Response to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Welcome {
    /// Protocol version of the program. Must be `PROTOCOL`.
    pub protocol: u32,
    /// Name of the environment, used in messages and panels.
    pub name: String,
    /// Splits, training first.
    pub splits: Vec<String>,
    /// Optional requests that the program supports.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Maximum number of concurrent requests. Further requests wait, and their timeout starts only
    /// when they are sent.
    #[serde(default = "one")]
    pub concurrency: usize,
    /// Frequent phrases in observations and actions, for tokenizers trained from scratch.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// Functions that actions may call, unless `reset` returns a different list.
    #[serde(default)]
    pub tools: Vec<Tool>,
}

fn one() -> usize {
    1
}

/// Optional requests that a program supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Supports `step_many`.
    pub step_many: bool,
    /// Supports `demonstrate`.
    pub demonstrate: bool,
    /// Supports `save` and `restore`.
    pub save: bool,
}

/// Response to `tasks`.
#[derive(Clone, Debug, Deserialize)]
pub struct TaskPage {
    /// The tasks, which `reset` sends back unchanged.
    pub tasks: Vec<Value>,
    /// Offset of the next page, or `None` on the last page.
    #[serde(default)]
    pub next: Option<usize>,
}

/// An observation: a text, optionally with admissible actions and a state key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seen {
    /// A text.
    Text(String),
    /// A text with admissible actions and a state key.
    Parts {
        /// Observation text.
        text: String,
        /// Admissible actions.
        #[serde(default)]
        admissible: Vec<String>,
        /// A string that is equal for equal states. Defaults to `text`.
        #[serde(default)]
        state_key: Option<String>,
    },
}

/// Response to `reset`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Started {
    /// First observation.
    pub observation: Seen,
    /// Functions that actions may call in this episode. Defaults to the functions in `hello`.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
}

/// Response to `step`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Stepped {
    /// Next observation.
    pub observation: Seen,
    /// Reward for the action.
    #[serde(default)]
    pub reward: f64,
    /// Fraction of the task completed, from 0 to 1.
    #[serde(default)]
    pub progress: Option<f64>,
    /// Whether the episode ended according to the environment's rules.
    #[serde(default)]
    pub terminated: bool,
    /// Whether the episode was truncated.
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
    /// The program's state. The state can be any JSON value and is sent back unchanged.
    pub state: Box<RawValue>,
}

/// Response to `step_many`, with one response per step in order.
#[derive(Clone, Debug, Deserialize)]
pub struct ManyStepped {
    /// The responses to the individual steps.
    pub steps: Vec<Answer>,
}

/// Response to `demonstrate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Demonstrated {
    /// Functions that actions may call in this episode. Defaults to the functions in `hello`.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    /// Turns in the order played.
    pub turns: Vec<DemonstratedTurn>,
    /// Whether the task was solved.
    #[serde(default)]
    pub success: bool,
}

/// One turn of a demonstration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DemonstratedTurn {
    /// Observation before the action.
    pub observation: Seen,
    /// The expert's action.
    pub action: String,
}

/// Parses a line as the response to each kind of request. Used by the fuzz targets.
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
