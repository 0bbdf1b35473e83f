use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Observation, Task, TaskSet};

use super::demonstrations::{Source, demonstrate};
use super::expert::summary::summary;
use super::expert::{Expert, SearchOrder};
use super::generator::{GeneratorConfig, generate, write_games};
use super::replay::replay;
use super::{AlfworldSet, DEFAULT_MAX_STEPS, PHRASES, Prior};
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The environment kind `alfworld`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlfworldKind;

/// Settings of ALFWorld.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlfworldSettings {
    /// Folder, file or archive with official games. Default: generated games.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Settings of the generated games; ignored if `data` is set.
    pub generator: GeneratorConfig,
    /// Demonstrations.
    pub expert: AlfworldExpert,
}

/// Demonstrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlfworldExpert {
    /// Source of the demonstrations: the expert, which sees only observations, or the walkthroughs,
    /// which were made with full knowledge of the game.
    pub source: Source,
    /// Order in which the expert searches receptacles.
    pub search_order: SearchOrder,
}

/// ALFWorld environment with its loaded games.
#[derive(Clone, Debug)]
pub struct AlfworldWorld {
    set: AlfworldSet,
    expert: AlfworldExpert,
}

impl AlfworldWorld {
    /// Returns the games.
    pub fn set(&self) -> &AlfworldSet {
        &self.set
    }
}

const TEMPLATES: [(&str, &str); 5] = [
    ("alfworld", include_str!("../../templates/alfworld.toml")),
    ("alfworld-compact", include_str!("../../templates/alfworld-compact.toml")),
    ("alfworld-react", include_str!("../../templates/alfworld-react.toml")),
    ("alfworld-stapo", include_str!("../../templates/alfworld-stapo.toml")),
    ("alfworld-verl-agent", include_str!("../../templates/alfworld-verl-agent.toml")),
];

impl WorldKind for AlfworldKind {
    type Settings = AlfworldSettings;

    fn name(&self) -> &'static str {
        "alfworld"
    }

    fn summary(&self) -> &'static str {
        "household tasks in text: find things, clean, heat or cool them, put them away"
    }

    fn open(
        &self,
        settings: &AlfworldSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let set = match &settings.data {
            Some(path) => {
                let (set, broken) = if options.splits.is_empty() {
                    AlfworldSet::load(path)?
                } else {
                    AlfworldSet::load_splits(path, options.splits)?
                };
                for error in &broken {
                    (options.note)(format!("left out: {error}"));
                }
                if set.unsolvable() > 0 {
                    let count = set.unsolvable();
                    (options.note)(format!("left out: {count} games that their files call unsolvable"));
                }
                set
            }
            None => generate(&settings.generator)?,
        };
        let set = set.with_max_steps(options.max_turns);
        Ok(Box::new(AlfworldWorld { set, expert: settings.expert.clone() }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_STEPS,
            splits: &["valid_seen", "valid_unseen"],
            template: "alfworld",
            react_template: Some("alfworld-react"),
        }
    }

    fn play_settings(&self, seed: u64, whole: bool) -> AlfworldSettings {
        let mut generator = GeneratorConfig { seed, ..GeneratorConfig::default() };
        if !whole {
            let count = generator.task_types.len();
            (generator.train, generator.valid_seen, generator.valid_unseen) = (count, count, count);
        }
        AlfworldSettings { generator, ..AlfworldSettings::default() }
    }

    fn play_help(&self) -> &'static str {
        "  !help       the world's own help, which costs a step"
    }

    fn write_files(&self, settings: &AlfworldSettings, folder: &Path) -> Result<usize, EnvError> {
        write_games(&settings.generator, folder)
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let data = request.needed_data("a folder of games, a game file or an archive")?;
        let ReplayRequest { name, recording, unanswered, dump, .. } = request;
        if !unanswered.is_empty() {
            return Err(EnvError::Other("alfworld has no search, and so no unanswered queries".into()));
        }
        let (set, broken) = AlfworldSet::load(data)?;
        let report = replay(name, recording, &set, dump).map_err(|error| match broken.first() {
            Some(first) => {
                let reason = format!("{error} ({} games were left out; the first: {first})", broken.len());
                EnvError::Other(reason)
            }
            None => error,
        })?;
        let counts = format!(
            "{} episodes, {} steps, {} differences",
            report.episodes,
            report.steps,
            report.differences.len()
        );
        Ok(ReplayReport { counts, unit: "episode", differences: report.differences })
    }
}

impl World for AlfworldWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert.source, self.expert.search_order).map(Some)
    }

    fn summarize(&self, episode: &Demonstration, turn: usize) -> String {
        summary(episode, turn)
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(PHRASES.iter().map(|phrase| (*phrase).to_owned()).collect())
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let expert = Expert::new(Prior::embedded()?);
        Ok(Some(Box::new(Searcher { expert, goal: task.goal.clone(), begun: false })))
    }
}

struct Searcher {
    expert: Expert<'static>,
    goal: String,
    begun: bool,
}

impl Advisor for Searcher {
    fn advise(&mut self, observation: &Observation) -> String {
        if !self.begun {
            self.expert.reset(&observation.text(), &self.goal);
            self.begun = true;
        }
        self.expert.act(observation)
    }
}
