//! The environment kind `bfcl`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_settings::Problem;

use super::apis::Api;
use super::document::BfclDocuments;
use super::expert::{Adviser, Form, demonstrate};
use super::generator::{BfclGenerator, FUNCTIONS};
use super::package::{BfclSet, Package};
use super::replay::replay;
use super::set::{BfclOptions, BfclTasks, DEFAULT_MAX_STEPS, DEFAULT_MAX_TURNS};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The environment kind `bfcl`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BfclKind;

/// Settings of the environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfclSettings {
    /// Folder `bfcl_eval` of the bfcl-eval package. Default: generated tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// BFCL task sets.
    #[schemars(length(min = 1))]
    pub sets: Vec<BfclSet>,
    /// Settings of the generated tasks; ignored if `data` is set.
    pub generator: BfclGenerator,
    /// How the first observation documents the functions.
    pub documents: BfclDocuments,
    /// Maximum replies with calls per user turn; an episode that exceeds it ends unsolved.
    #[schemars(range(min = 1, max = 1000))]
    pub max_steps: usize,
    /// Whether to end the episode at the first failed turn, since a failed turn makes the whole
    /// task fail.
    pub stop_at_failed_turn: bool,
    /// Expert for demonstrations.
    pub expert: BfclExpert,
}

/// Settings of the expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfclExpert {
    /// Fraction of demonstrations in which the expert omits the last call of a turn, so that after
    /// SFT the policy still makes mistakes that RL can correct.
    #[schemars(range(min = 0.0, max = 0.99))]
    pub hasty_prob: f64,
    /// Whether the expert makes one call per reply instead of all calls of a turn.
    pub one_by_one: bool,
}

impl Default for BfclSettings {
    fn default() -> Self {
        Self {
            data: None,
            sets: vec![BfclSet::Base],
            generator: BfclGenerator::default(),
            documents: BfclDocuments::default(),
            max_steps: DEFAULT_MAX_STEPS,
            stop_at_failed_turn: false,
            expert: BfclExpert::default(),
        }
    }
}

/// An open BFCL environment.
#[derive(Clone, Debug)]
pub struct BfclWorld {
    set: BfclTasks,
    expert: BfclExpert,
    form: Form,
    is_generated: bool,
}

const TEMPLATES: [(&str, &str); 4] = [
    ("bfcl", include_str!("../../templates/bfcl.toml")),
    ("bfcl-compact", include_str!("../../templates/bfcl-compact.toml")),
    ("bfcl-tools", include_str!("../../templates/bfcl-tools.toml")),
    ("bfcl-tools-llama", include_str!("../../templates/bfcl-tools-llama.toml")),
];

/// Fixed texts in observations and in the expert's replies, which a tokenizer trained from scratch
/// keeps as single tokens.
const RESULTS: [&str; 5] =
    [" -> None", " -> {\"", "\": \"", "User: ", "I cannot do that yet: something is missing."];

impl WorldKind for BfclKind {
    type Settings = BfclSettings;

    fn name(&self) -> &'static str {
        "bfcl"
    }

    fn summary(&self) -> &'static str {
        "function calling over several turns in BFCL's APIs: files, messages, tickets, trading, travel, a car"
    }

    fn rules(&self, settings: &BfclSettings) -> Vec<Problem> {
        let BfclGenerator { missing_value, missing_function, .. } = settings.generator;
        let is_possible = missing_value + missing_function <= 1.0;
        let reason = "missing_value and missing_function are fractions of all tasks, and add up to at most 1";
        if is_possible { Vec::new() } else { vec![Problem::new("generator.missing_value", reason)] }
    }

    fn open(
        &self,
        settings: &BfclSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let package = match &settings.data {
            Some(data) => Package::read(data, &settings.sets)?,
            None => settings.generator.package()?,
        };
        let kept = BfclOptions {
            documents: settings.documents,
            max_steps: settings.max_steps,
            stop_at_failed_turn: settings.stop_at_failed_turn,
        };
        let set = BfclTasks::new(package, kept).with_max_turns(options.max_turns);
        let form = Form::new(settings.expert, settings.documents);
        Ok(Box::new(BfclWorld { set, expert: settings.expert, form, is_generated: settings.data.is_none() }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_TURNS,
            splits: &["test"],
            template: "bfcl",
            react_template: None,
        }
    }

    fn play_settings(&self, seed: u64, whole: bool) -> BfclSettings {
        let generator = BfclGenerator { seed, ..BfclGenerator::default() };
        let few = BfclGenerator { train: 30, valid: 30, test: 60, ..generator.clone() };
        BfclSettings { generator: if whole { generator } else { few }, ..BfclSettings::default() }
    }

    fn play_help(&self) -> &'static str {
        "  [cd(folder='x'), ls()] calls functions; any other words end the user's turn"
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        if request.dump.is_some() {
            return Err(EnvError::Other("recordings of bfcl cannot be written, only replayed".into()));
        }
        let data = request.needed_data("the folder `bfcl_eval` of the package bfcl-eval")?;
        replay(request.name, request.recording, data)
    }
}

impl World for BfclWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert, self.form).map(Some)
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        if !self.is_generated {
            return Ok(Vec::new());
        }
        let methods = FUNCTIONS.iter().filter_map(|name| Api::ALL.iter().find_map(|api| api.method(name)));
        let mut phrases: Vec<String> = RESULTS.map(str::to_owned).to_vec();
        for method in methods {
            let mut parameters = method.parameters.iter().map(|parameter| parameter.name);
            let first = parameters.next().map(|name| format!("{name}=")).unwrap_or_default();
            phrases.push(format!("{}({first}", method.name));
            phrases.extend(parameters.map(|name| format!(", {name}=")));
        }
        Ok(phrases)
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(Adviser::new(self.set.task(&task.id)?, self.form))))
    }
}
