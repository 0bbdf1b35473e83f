//! Reads the user's copy of the `bfcl-eval` package.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use turnwise_core::EnvError;

use super::apis::Api;
use super::long_context::LongContext;
use super::session::Scenario;
use crate::python::values::{Dict, Value};

/// A set of 200 tasks.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BfclSet {
    /// Each turn can be solved with the functions and values known when it begins.
    #[default]
    Base,
    /// One turn needs a function that only a later turn adds.
    MissFunc,
    /// One turn omits a needed value, which the next turn supplies.
    MissParam,
    /// The tasks of `base` with additional data in states and results.
    LongContext,
}

impl BfclSet {
    /// All sets.
    pub const ALL: [Self; 4] = [Self::Base, Self::MissFunc, Self::MissParam, Self::LongContext];

    /// Returns the set's name, as used in the package's file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::MissFunc => "miss_func",
            Self::MissParam => "miss_param",
            Self::LongContext => "long_context",
        }
    }
}

/// A multi-turn task.
#[derive(Debug)]
pub struct BfclTask {
    /// Task id.
    pub id: String,
    /// Name of the BFCL set. For a generated task, its level and what is missing at first, such as
    /// `hard-missing-value`.
    pub kind: String,
    /// Whether states and results are padded.
    pub is_long: bool,
    /// APIs in use.
    pub apis: Vec<Api>,
    /// Start state of each API, by the name of its Python class.
    pub config: Dict,
    /// The user's message in each turn; empty text in a turn that only adds functions.
    pub turns: Vec<String>,
    /// Names of the functions that the task offers; `None` means all functions of its APIs.
    pub functions: Option<Vec<String>>,
    /// Functions that become available later, by the index of the turn that adds them.
    pub added: HashMap<usize, Vec<String>>,
    /// The expert's replies in each turn; each reply is a list of calls.
    pub plan: Vec<Vec<Vec<String>>>,
    /// Gold calls per turn.
    pub gold: Vec<Vec<String>>,
}

/// The package's multi-turn data.
#[derive(Debug)]
pub struct Package {
    /// Tasks in the package's order.
    pub tasks: Vec<BfclTask>,
    /// Name and JSON description of each function, by API.
    pub documents: HashMap<Api, Vec<(String, String)>>,
    /// Padding for long-context tasks.
    pub long: Arc<LongContext>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    question: Vec<Vec<Message>>,
    initial_config: Value,
    involved_classes: Vec<String>,
    #[serde(default)]
    missed_function: HashMap<usize, Vec<String>>,
}

#[derive(Deserialize)]
struct Message {
    content: String,
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    ground_truth: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn read(path: &Path) -> Result<String, EnvError> {
    let name = path.display().to_string();
    std::fs::read_to_string(path).map_err(|source| EnvError::Io { path: name, source })
}

fn rows<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Vec<T>, EnvError> {
    let text = read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(place, line)| {
            serde_json::from_str(line).map_err(|error| EnvError::File {
                path: format!("{}, line {}", path.display(), place + 1),
                reason: error.to_string(),
            })
        })
        .collect()
}

fn root(folder: &Path) -> Result<PathBuf, EnvError> {
    let candidates = [folder.to_owned(), folder.join("bfcl_eval"), folder.join("..")];
    candidates.into_iter().find(|candidate| candidate.join("data/multi_turn_func_doc").is_dir()).ok_or_else(|| {
        EnvError::File {
            path: folder.display().to_string(),
            reason: "there is no `data/multi_turn_func_doc` here; name the folder `bfcl_eval` of the package bfcl-eval \
                     (pip download --no-deps bfcl-eval==2026.3.23, then unzip the wheel)"
                .to_owned(),
        }
    })
}

impl Package {
    /// Reads the tasks of these sets.
    ///
    /// # Errors
    /// Fails if the folder is not that of the package or a file cannot be read.
    pub fn read(folder: &Path, sets: &[BfclSet]) -> Result<Self, EnvError> {
        let root = root(folder)?;
        let data = root.join("data");
        let mut tasks = Vec::new();
        for set in sets {
            let name = format!("BFCL_v4_multi_turn_{}.json", set.name());
            let path = data.join(&name);
            let answers: Vec<Answer> = rows(&data.join("possible_answer").join(&name))?;
            let mut answers: HashMap<String, Vec<Vec<String>>> =
                answers.into_iter().map(|answer| (answer.id, answer.ground_truth)).collect();
            for row in rows::<Row>(&path)? {
                let fault = |reason: String| EnvError::file(&path, reason);
                let gold = answers
                    .remove(&row.id)
                    .ok_or_else(|| fault(format!("{}: there are no gold calls of this task", row.id)))?;
                tasks.push(task(row, *set, gold).map_err(fault)?);
            }
        }
        let mut documents = HashMap::new();
        for api in Api::ALL {
            let path = data.join("multi_turn_func_doc").join(api.document());
            let texts: Vec<Box<RawValue>> = rows(&path)?;
            let named = texts.into_iter().map(|text| {
                let name = serde_json::from_str::<Named>(text.get()).map(|named| named.name);
                name.map(|name| (name, text.get().to_owned())).map_err(|error| EnvError::File {
                    path: path.display().to_string(),
                    reason: error.to_string(),
                })
            });
            documents.insert(api, named.collect::<Result<_, _>>()?);
        }
        let path = root.join("eval_checker/multi_turn_eval/func_source_code/long_context.py");
        let long = LongContext::read(&read(&path)?).map_err(|reason| EnvError::file(&path, reason))?;
        Ok(Self { tasks, documents, long: Arc::new(long) })
    }
}

impl Package {
    /// Returns a task's initial conditions.
    pub fn scenario<'a>(&'a self, task: &'a BfclTask) -> Scenario<'a> {
        let long = task.is_long.then_some(&self.long);
        Scenario { id: &task.id, apis: &task.apis, config: &task.config, long }
    }
}

fn task(row: Row, set: BfclSet, gold: Vec<Vec<String>>) -> Result<BfclTask, String> {
    let id = row.id;
    let apis = row
        .involved_classes
        .iter()
        .map(|class| Api::of_class(class).ok_or_else(|| format!("{id}: there is no API `{class}`")));
    let apis: Vec<Api> = apis.collect::<Result<_, _>>()?;
    let Value::Dict(config) = row.initial_config else {
        return Err(format!("{id}: `initial_config` is not an object"));
    };
    let says = |messages: Vec<Message>| {
        messages.into_iter().map(|message| message.content).collect::<Vec<_>>().join("\n")
    };
    let turns: Vec<String> = row.question.into_iter().map(says).collect();
    if turns.len() != gold.len() {
        let (turns, gold) = (turns.len(), gold.len());
        return Err(format!("{id}: there are {turns} turns and gold calls of {gold}"));
    }
    let plan =
        gold.iter().map(|calls| if calls.is_empty() { Vec::new() } else { vec![calls.clone()] }).collect();
    Ok(BfclTask {
        id,
        kind: set.name().to_owned(),
        is_long: set == BfclSet::LongContext,
        apis,
        config,
        turns,
        functions: None,
        added: row.missed_function,
        plan,
        gold,
    })
}
