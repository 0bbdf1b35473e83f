//! The environment kind `coding`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_settings::Problem;

use super::data;
use super::expert::{adviser, demonstrate};
use super::generator::CodingGenerator;
use super::set::{CodingTasks, DEFAULT_MAX_TURNS};
use super::workshop::{CodingLimits, Workshop};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::world::{Advisor, EvalDefaults, OpenOptions, World, WorldKind};

/// The environment kind `coding`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodingKind;

/// Settings of the coding environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingSettings {
    /// QuixBugs folder, or JSON lines of HumanEval, MBPP or `turnwise env generate coding`.
    /// Default: generated tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Limits of commands and checks.
    pub limits: CodingLimits,
    /// Settings of the generated tasks; ignored if `data` is set.
    pub generator: CodingGenerator,
    /// Expert for demonstrations.
    pub expert: CodingExpert,
}

/// Settings of the expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingExpert {
    /// Whether the expert views the file before it edits it.
    pub look: bool,
    /// Whether the expert runs the visible tests before it submits.
    pub run_tests: bool,
}

impl Default for CodingExpert {
    fn default() -> Self {
        Self { look: true, run_tests: true }
    }
}

/// An open coding environment.
#[derive(Clone, Debug)]
pub struct CodingWorld {
    set: CodingTasks,
    expert: CodingExpert,
}

impl CodingWorld {
    /// Returns the task set.
    pub fn set(&self) -> &CodingTasks {
        &self.set
    }
}

const FILE: &str = "tasks.jsonl";

impl WorldKind for CodingKind {
    type Settings = CodingSettings;

    fn name(&self) -> &'static str {
        "coding"
    }

    fn summary(&self) -> &'static str {
        "fixing a defect in a small repository with tools, in a sandbox (Linux; Python or Rust)"
    }

    fn has_progress(&self) -> bool {
        false
    }

    fn rules(&self, settings: &CodingSettings) -> Vec<Problem> {
        let known = settings.generator.names();
        let problem = |name: String| {
            let reason = format!("there is no library `{name}`; there are {}", known.join(", "));
            Problem::new("generator.libraries", reason)
        };
        settings.generator.unknown().into_iter().map(problem).collect()
    }

    fn open(
        &self,
        settings: &CodingSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let (tasks, workshop) = if let Some(path) = &settings.data {
            let file = path.join(FILE);
            let path = if file.is_file() { &file } else { path };
            let read = data::read(path, options.note)?;
            let workshop = Workshop::new(&read.languages())?;
            (read.tasks(path, &workshop, options.note)?, workshop)
        } else {
            let workshop = Workshop::new(&settings.generator.languages)?;
            (settings.generator.tasks(&workshop)?, workshop)
        };
        let set = CodingTasks::new(tasks, workshop, settings.limits)?.with_max_turns(options.max_turns);
        Ok(Box::new(CodingWorld { set, expert: settings.expert }))
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_TURNS,
            splits: &["test"],
            template: "tools",
            react_template: None,
        }
    }

    fn play_settings(&self, seed: u64, _: bool) -> CodingSettings {
        let generator = CodingGenerator { seed, ..CodingGenerator::default() };
        CodingSettings { generator, ..CodingSettings::default() }
    }

    fn play_help(&self) -> &'static str {
        "  view({\"path\": \"a.py\"}), search({\"text\": \"x\"}), edit({\"path\": \"a.py\", \"old\": \"x\", \"new\": \"y\"}),\n  \
         run({\"command\": \"python3 test_a.py\"}), submit({})"
    }

    fn write_files(&self, settings: &CodingSettings, folder: &Path) -> Result<usize, EnvError> {
        let tasks = settings.generator.tasks(&Workshop::new(&settings.generator.languages)?)?;
        let path = folder.join(FILE);
        let io = |source| EnvError::io(&path, source);
        std::fs::create_dir_all(folder).map_err(io)?;
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).map_err(io)?);
        for task in &tasks {
            let line = serde_json::to_string(task).map_err(|error| EnvError::Other(error.to_string()))?;
            writeln!(file, "{line}").map_err(io)?;
        }
        file.flush().map_err(io)?;
        Ok(tasks.len())
    }
}

impl World for CodingWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert).map(Some)
    }

    fn has_expert(&self) -> bool {
        self.set.all().iter().any(|task| task.fix.is_some())
    }

    fn split_numbers(&self) -> bool {
        true
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let adviser = adviser(self.set.task(&task.id)?, self.expert);
        Ok(adviser.map(|adviser| Box::new(adviser) as Box<dyn Advisor>))
    }
}
