//! BFCL as a [`WorldKind`]: settings, templates, expert.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};

use super::document::BfclDocuments;
use super::expert::{Adviser, demonstrate};
use super::package::{BfclSet, Package};
use super::replay::replay;
use super::set::{BfclOptions, BfclTasks, DEFAULT_MAX_STEPS, DEFAULT_MAX_TURNS};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::world::{Advisor, OpenOptions, ReplayRequest, Usual, World, WorldKind};

/// The kind `bfcl`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BfclKind;

/// Settings of the tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfclSettings {
    /// Folder `bfcl_eval` of the package bfcl-eval, which has tasks, gold calls and documents. It has to be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Sets whose tasks are played.
    #[schemars(length(min = 1))]
    pub sets: Vec<BfclSet>,
    /// How much the first observation says of the functions.
    pub documents: BfclDocuments,
    /// Replies with calls at one turn of the user after which the episode ends unsolved.
    #[schemars(range(min = 1, max = 1000))]
    pub max_steps: usize,
    /// True if the episode ends with the first turn of the user that fails; it cannot be solved any more.
    pub stop_at_failed_turn: bool,
    /// The player of demonstrations.
    pub expert: BfclExpert,
}

/// The player of demonstrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfclExpert {
    /// True if it makes one call in a reply instead of all calls of a turn.
    pub one_by_one: bool,
}

impl Default for BfclSettings {
    fn default() -> Self {
        Self {
            data: None,
            sets: vec![BfclSet::Base],
            documents: BfclDocuments::default(),
            max_steps: DEFAULT_MAX_STEPS,
            stop_at_failed_turn: false,
            expert: BfclExpert::default(),
        }
    }
}

/// The open world.
#[derive(Clone, Debug)]
pub struct BfclWorld {
    set: BfclTasks,
    expert: BfclExpert,
}

const TEMPLATES: [(&str, &str); 1] = [("bfcl", include_str!("../../templates/bfcl.toml"))];

impl WorldKind for BfclKind {
    type Settings = BfclSettings;

    fn name(&self) -> &'static str {
        "bfcl"
    }

    fn summary(&self) -> &'static str {
        "BFCL's multi-turn function calling: files, messages, tickets, trading, travel, a car"
    }

    fn open(
        &self,
        settings: &BfclSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let data = settings.data.as_ref().ok_or_else(|| {
            EnvError::Other(
                "[env] data: name the folder `bfcl_eval` of the package bfcl-eval (pip download --no-deps \
                 bfcl-eval==2026.3.23, then unzip the wheel)"
                    .to_owned(),
            )
        })?;
        let package = Package::read(data, &settings.sets)?;
        let kept = BfclOptions {
            documents: settings.documents,
            max_steps: settings.max_steps,
            stop_at_failed_turn: settings.stop_at_failed_turn,
        };
        let set = BfclTasks::new(package, kept).with_max_turns(options.max_turns);
        Ok(Box::new(BfclWorld { set, expert: settings.expert }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn usual(&self) -> Usual<'static> {
        Usual { max_turns: DEFAULT_MAX_TURNS, splits: &["test"], template: "bfcl", react_template: None }
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
        demonstrate(&self.set, request, self.expert.one_by_one).map(Some)
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(Adviser::new(self.set.task(&task.id)?, self.expert.one_by_one))))
    }
}
