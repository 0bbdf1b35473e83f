//! The messages of the protocol: one JSON object a line, requests to the program, answers from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use turnwise_core::{Tool, ToolCall};

/// The version of the protocol that this program speaks. It rises when a program of the old version would misread a
/// request, or its answers would be misread.
pub const PROTOCOL: u32 = 1;

/// A request, without its `id`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request<'a> {
    /// The first request: which protocol is spoken, and the config's `env.settings`.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Name and version of this program.
        client: &'a str,
        /// The table `env.settings` of the config.
        settings: &'a Value,
    },
    /// Get at most `limit` tasks of a split from `offset`.
    Tasks {
        /// The split.
        split: &'a str,
        /// Number of tasks of the split before the first one asked for.
        offset: usize,
        /// Maximum number of tasks asked for.
        limit: usize,
    },
    /// Start a task in an episode; a running episode with this number is dropped.
    Reset {
        /// The episode's number, chosen by the trainer.
        episode: u64,
        /// The task as the program listed it.
        task: &'a Value,
        /// Seed of the episode's random draws.
        seed: u64,
    },
    /// Carries an action out.
    Step {
        /// The episode's number.
        episode: u64,
        /// The action as words.
        action: &'a str,
        /// The structured call, if the action is one; `action` is then `name(arguments as JSON)`.
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<&'a ToolCall>,
    },
    /// Carries one action out in each of several episodes.
    StepMany {
        /// Episodes and actions.
        steps: Vec<EpisodeAction<'a>>,
    },
    /// Ends an episode, wherever it is.
    Close {
        /// The episode's number.
        episode: u64,
    },
    /// Requests the state of an episode without changing it. Only sent to a program with the capability `save`.
    Save {
        /// The episode's number.
        episode: u64,
    },
    /// Starts an episode in a saved state, instead of `reset`.
    Restore {
        /// The episode's number, chosen by the trainer.
        episode: u64,
        /// The task as the program listed it.
        task: &'a Value,
        /// The state as the program gave it.
        state: &'a RawValue,
    },
    /// Plays a task as the program's expert would.
    Demonstrate {
        /// The task as the program listed it.
        task: &'a Value,
        /// Seed of the episode's random draws.
        seed: u64,
        /// Maximum turns.
        max_turns: usize,
    },
    /// The last request.
    Shutdown {},
}

impl Request<'_> {
    /// Answers that the program works out for the request: the limit of time of an answer counts for each.
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
    /// The episode's number.
    pub episode: u64,
    /// The action as words.
    pub action: &'a str,
    /// The structured call, if the action is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<&'a ToolCall>,
}

/// A request as it is sent.
#[derive(Serialize)]
pub(super) struct Envelope<'a> {
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) request: &'a Request<'a>,
}

/// A line of the program: the answer to the request of this id, `ok` or `error`.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) id: u64,
    #[serde(default, deserialize_with = "present")]
    ok: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Failure>,
}

impl Line {
    /// The answer.
    ///
    /// # Errors
    /// There is neither `ok` nor `error`.
    pub(super) fn answer(self) -> Result<Answer, &'static str> {
        Given { ok: self.ok, error: self.error }.try_into()
    }
}

/// Content of an answer. What was done stays JSON text, so that keys of schemas stay in their order.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub enum Answer {
    /// It was done; what came of it.
    Ok(Box<RawValue>),
    /// It was not done.
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

/// A value that is there, `null` included.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// Reason why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// Kind of the failure: it says if the same request may succeed when it is repeated.
    #[serde(default)]
    pub kind: FailureKind,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Where it happened in the program, over several lines; empty if the program does not say.
    #[serde(default)]
    pub traceback: String,
}

/// Kinds of failures, by the use of trying again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It may: a service was busy.
    Transient,
    /// A retry cannot succeed; the episode is over.
    #[default]
    Fatal,
}

/// The answer to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Welcome {
    /// The version of the protocol that the program speaks; must be [`PROTOCOL`].
    pub protocol: u32,
    /// The world's name, for people and for panels.
    pub name: String,
    /// Its splits, training first.
    pub splits: Vec<String>,
    /// Abilities of the program beyond resets and steps.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Requests that it works on at once; more are held back, so that their time does not run.
    #[serde(default = "one")]
    pub concurrency: usize,
    /// Texts that are frequent in its observations and actions, for the tokenizers of models from scratch.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// The functions that actions may call, in every episode whose `reset` names none of its own.
    #[serde(default)]
    pub tools: Vec<Tool>,
}

fn one() -> usize {
    1
}

/// Abilities of a program beyond resets and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// It understands `step_many`.
    pub step_many: bool,
    /// It understands `demonstrate`.
    pub demonstrate: bool,
    /// It understands `save` and `restore`.
    pub save: bool,
}

/// The answer to `tasks`.
#[derive(Clone, Debug, Deserialize)]
pub struct TaskPage {
    /// The tasks; `reset` sends them back to the program unchanged.
    pub tasks: Vec<Value>,
    /// The offset of the next page, if there is one.
    #[serde(default)]
    pub next: Option<usize>,
}

/// An observation: a text, or a text with admissible actions and state key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seen {
    /// A text.
    Text(String),
    /// A text with admissible actions and state key.
    Parts {
        /// The text.
        text: String,
        /// Every action that would be understood now.
        #[serde(default)]
        admissible: Vec<String>,
        /// Text that is equal for equal states; if absent, the observation's text.
        #[serde(default)]
        state_key: Option<String>,
    },
}

/// The answer to `reset`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Started {
    /// First observation.
    pub observation: Seen,
    /// The functions that actions of this episode may call; those of `hello` where absent.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
}

/// The answer to `step`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Stepped {
    /// Next observation.
    pub observation: Seen,
    /// The reward of this action.
    #[serde(default)]
    pub reward: f64,
    /// Fraction of the task that is done, from 0 to 1.
    #[serde(default)]
    pub progress: Option<f64>,
    /// Whether the episode ended by the environment's rules.
    #[serde(default)]
    pub terminated: bool,
    /// The episode was cut off.
    #[serde(default)]
    pub truncated: bool,
    /// The task is solved.
    #[serde(default)]
    pub success: bool,
    /// The action was understood.
    #[serde(default = "yes")]
    pub understood: bool,
    /// Metrics by name.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
}

fn yes() -> bool {
    true
}

/// The answer to `save`.
#[derive(Clone, Debug, Deserialize)]
pub struct Saved {
    /// The program's state: any JSON value, sent back unchanged.
    pub state: Box<RawValue>,
}

/// The answer to `step_many`: one answer for each step, in their order.
#[derive(Clone, Debug, Deserialize)]
pub struct ManyStepped {
    /// The answers.
    pub steps: Vec<Answer>,
}

/// The answer to `demonstrate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Demonstrated {
    /// The functions that actions of this episode may call; those of `hello` where absent.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    /// The turns in order.
    pub turns: Vec<DemonstratedTurn>,
    /// The task was solved.
    #[serde(default)]
    pub success: bool,
}

/// One turn of a demonstration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DemonstratedTurn {
    /// Observation that was acted on.
    pub observation: Seen,
    /// Action that was taken.
    pub action: String,
}

/// Parses a line of a program, and its answer as an answer to each request. For the fuzz targets of `fuzz/`.
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
