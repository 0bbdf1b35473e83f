//! The environment kind `swe`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_settings::Problem;

use super::engine::{Engine, Host, Listed, SweContainer, SweLimits};
use super::expert::{adviser, demonstrate};
use super::instance::{SweFix, SweInstance};
use super::records;
use super::set::{DEFAULT_MAX_TURNS, SweTasks};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::search::TableReader;
use crate::world::{Advisor, EvalDefaults, OpenOptions, World, WorldKind};

const NAMED: usize = 3;

/// The environment kind `swe`. Its records are read from JSON lines; [`Self::with_tables`] adds
/// other formats.
#[derive(Clone, Default)]
pub struct SweKind {
    tables: Option<TableReader>,
}

impl SweKind {
    /// Adds a reader for table files such as Parquet.
    #[must_use]
    pub fn with_tables(self, read: TableReader) -> Self {
        Self { tables: Some(read) }
    }
}

/// Settings of the environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SweSettings {
    /// SWE-bench or R2E-Gym records: JSON lines, Parquet, or a folder of both. If `test_data` is
    /// not set, a hash of the instance id decides the split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Records of the test split. If `test_data` is set, all records of `data` are in the training
    /// split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_data: Option<PathBuf>,
    /// Container engine and images.
    pub container: SweContainer,
    /// Limits of commands and tests.
    pub limits: SweLimits,
}

/// An open environment.
#[derive(Clone, Debug)]
pub struct SweWorld {
    set: SweTasks,
}

impl SweWorld {
    /// Returns the task set.
    pub fn set(&self) -> &SweTasks {
        &self.set
    }
}

/// Drops instances whose image is missing. Fails instead if `skip` is false or no instance would be
/// left; the error contains the command that pulls the image.
fn with_images(
    instances: Vec<SweInstance>,
    host: &Host,
    listed: &Listed,
    skip: bool,
    note: &mut dyn FnMut(String),
) -> Result<Vec<SweInstance>, EnvError> {
    let images: Vec<&str> = instances.iter().map(|instance| instance.image.as_str()).collect();
    let missing = host.missing(listed, &images);
    let Some(first) = missing.first() else { return Ok(instances) };
    let named = missing.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let text = format!(
        "{} of {} images are missing ({named}{}); fetch each with `{}`",
        missing.len(),
        images.len(),
        if missing.len() > NAMED { ", ..." } else { "" },
        host.pull(first)
    );
    let gone: HashSet<&str> = missing.iter().map(String::as_str).collect();
    let kept: Vec<SweInstance> =
        instances.iter().filter(|instance| !gone.contains(instance.image.as_str())).cloned().collect();
    if kept.is_empty() || !skip {
        let advice = if kept.is_empty() { "" } else { ", or set `env.container.skip_missing = true`" };
        return Err(EnvError::Other(format!("the world swe: {text}{advice}")));
    }
    note(text);
    Ok(kept)
}

impl WorldKind for SweKind {
    type Settings = SweSettings;

    fn name(&self) -> &'static str {
        "swe"
    }

    fn summary(&self) -> &'static str {
        "issues of real repositories in containers: SWE-bench and R2E-Gym"
    }

    fn has_progress(&self) -> bool {
        false
    }

    fn rules(&self, settings: &SweSettings) -> Vec<Problem> {
        let mut problems = Vec::new();
        let container = &settings.container;
        if matches!(container.engine, Engine::Apptainer | Engine::Rootfs) && container.images.is_none() {
            let reason = "this engine needs the folder of its images; set `container.images`";
            problems.push(Problem::new("container.images", reason.to_owned()));
        }
        let path = &container.repository;
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if !path.starts_with('/') || parts.iter().any(|part| ["", ".", ".."].contains(part)) {
            let reason =
                format!("`{path}` is not an absolute path of a folder below `/`, such as `/testbed`");
            problems.push(Problem::new("container.repository", reason));
        }
        problems
    }

    fn open(
        &self,
        settings: &SweSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        if settings.data.is_none() && settings.test_data.is_none() {
            return Err(EnvError::Other(
                "[env] data is missing: set `env.data` to the records of R2E-Gym or SWE-bench (JSON lines or Parquet), or \
                 `env.test_data` to evaluate only"
                    .to_owned(),
            ));
        }
        let host = Arc::new(Host::new(settings.container.clone(), settings.limits));
        let container = &settings.container;
        let read = |path: &Option<PathBuf>| {
            let read = |path| records::read(path, &container.image, self.tables.as_ref());
            path.as_deref().map(read).transpose()
        };
        let (training, testing) = (read(&settings.data)?, read(&settings.test_data)?);
        let listed = host.listed()?;
        let mut checked = |instances: Option<Vec<SweInstance>>| {
            let check =
                |instances| with_images(instances, &host, &listed, container.skip_missing, options.note);
            instances.map(check).transpose()
        };
        let (training, testing) = (checked(training)?, checked(testing)?);
        let set = SweTasks::new(training.unwrap_or_default(), testing, host)?;
        Ok(Box::new(SweWorld { set: set.with_max_turns(options.max_turns) }))
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_TURNS,
            splits: &["test"],
            template: "tools",
            react_template: None,
        }
    }

    fn play_help(&self) -> &'static str {
        "  view({\"path\": \"a.py\"}), search({\"text\": \"x\"}), edit({\"path\": \"a.py\", \"old\": \"x\", \"new\": \"y\"}),\n  \
         run({\"command\": \"git diff\"}), submit({}); `turnwise play swe data=FILE container.engine=docker` opens records"
    }
}

impl World for SweWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request).map(Some)
    }

    fn has_expert(&self) -> bool {
        self.set.all().iter().any(|instance| instance.fix != SweFix::None)
    }

    fn split_numbers(&self) -> bool {
        true
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let adviser = adviser(self.set.instance(&task.id)?);
        Ok(adviser.map(|adviser| Box::new(adviser) as Box<dyn Advisor>))
    }
}
