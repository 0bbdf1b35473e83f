use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_settings::Problem;

use super::action::ActionReading;
use super::expert::{Expert, demonstrate};
use super::generator::GeneratorConfig;
use super::level;
use super::phrases::phrases;
use super::picture::Tiles;
use super::replay::replay;
use super::room::RoomText;
use super::set::{DEFAULT_MAX_STEPS, SokobanOptions, SokobanPictures, SokobanReward, SokobanSet};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::pictures::PictureStore;
use crate::replay::ReplayReport;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The environment kind `sokoban`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SokobanKind;

/// Settings of Sokoban.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SokobanSettings {
    /// File with the levels of `test`, optionally zstd-compressed: JSON Lines with `room_fixed` and
    /// `room_state`, or lines of symbols with empty lines between levels. The file's levels are
    /// excluded from training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Text format of rooms.
    pub text: RoomText,
    /// How actions are parsed.
    pub actions: ActionReading,
    /// Reward of a step.
    pub reward: SokobanReward,
    /// Folder for observation images (PNG files named by SHA-256). Default: no images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pictures: Option<PathBuf>,
    /// Folder of tiles, 16 x 16 pixels each: `wall.png`, `floor.png`, `box_target.png`,
    /// `box_on_target.png`, `box.png`, `player.png`, `player_on_target.png`. Default: built-in
    /// tiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiles: Option<PathBuf>,
    /// Generated levels.
    pub generator: GeneratorConfig,
    /// Demonstration expert.
    pub expert: SokobanExpert,
}

/// Demonstration expert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SokobanExpert {
    /// Probability that the expert makes a random move instead of the next move of a shortest
    /// solution. SFT imitates random moves even if the episode fails.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub random_move_prob: f64,
}

/// Sokoban environment with its levels.
#[derive(Clone, Debug)]
pub struct SokobanWorld {
    set: SokobanSet,
    expert: SokobanExpert,
    width: usize,
    boxes: usize,
}

impl SokobanWorld {
    /// Returns the task set.
    pub fn set(&self) -> &SokobanSet {
        &self.set
    }
}

const TEMPLATES: [(&str, &str); 2] = [
    ("sokoban-verl-agent", include_str!("../../templates/sokoban-verl-agent.toml")),
    ("sokoban-compact", include_str!("../../templates/sokoban-compact.toml")),
];

impl WorldKind for SokobanKind {
    type Settings = SokobanSettings;

    fn name(&self) -> &'static str {
        "sokoban"
    }

    fn summary(&self) -> &'static str {
        "pushing boxes onto targets in a small room"
    }

    fn rules(&self, settings: &SokobanSettings) -> Vec<Problem> {
        let GeneratorConfig { width, height, min_boxes, max_boxes, min_moves, max_moves, .. } =
            settings.generator;
        let mut problems = Vec::new();
        if min_boxes > max_boxes {
            let reason = format!("is {min_boxes}, more than generator.max_boxes = {max_boxes}");
            problems.push(Problem::new("generator.min_boxes", reason));
        }
        if min_moves > max_moves {
            let reason = format!("is {min_moves}, more than generator.max_moves = {max_moves}");
            problems.push(Problem::new("generator.min_moves", reason));
        }
        if settings.tiles.is_some() && settings.pictures.is_none() {
            let reason =
                "says what pictures are made of, and none are drawn; name a folder for them with pictures";
            problems.push(Problem::new("tiles", reason));
        }
        let (inside, needed) = ((width.max(2) - 2) * (height.max(2) - 2), 2 * max_boxes + 2);
        if needed > inside {
            let reason =
                format!("is {max_boxes}, too many for {inside} cells inside the walls; they need {needed}");
            problems.push(Problem::new("generator.max_boxes", reason));
        }
        problems
    }

    fn open(
        &self,
        settings: &SokobanSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let panel = settings.data.as_deref().map(level::read).transpose()?;
        let SokobanSettings { text, actions, reward, .. } = *settings;
        let pictures = match &settings.pictures {
            None => None,
            Some(folder) => Some(SokobanPictures {
                tiles: settings.tiles.as_deref().map_or_else(|| Ok(Tiles::own()), Tiles::read)?,
                store: PictureStore::new(folder)?,
            }),
        };
        let set =
            SokobanSet::new(&settings.generator, panel, SokobanOptions { text, actions, reward }, pictures)?;
        let set = set.with_max_steps(options.max_turns);
        let GeneratorConfig { width, max_boxes: boxes, .. } = settings.generator;
        Ok(Box::new(SokobanWorld { set, expert: settings.expert.clone(), width, boxes }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_STEPS,
            splits: &["test"],
            template: "sokoban-verl-agent",
            react_template: None,
        }
    }

    fn play_settings(&self, seed: u64, _: bool) -> SokobanSettings {
        let generator =
            GeneratorConfig { seed, train: 64, valid: 64, test: 64, ..GeneratorConfig::default() };
        SokobanSettings { text: RoomText::Ragen, generator, ..SokobanSettings::default() }
    }

    fn play_help(&self) -> &'static str {
        "  # wall  _ floor  O target  X box  √ box on target  P you  S you on a target\n  an arrow key    walks that way"
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        if request.dump.is_some() {
            return Err(EnvError::Other("recordings of sokoban cannot be written, only replayed".into()));
        }
        replay(request.name, request.recording)
    }
}

impl World for SokobanWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert.random_move_prob).map(Some)
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(phrases(self.set.options().text, self.width, self.boxes))
    }

    fn advisor(&self, _: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(Expert::default())))
    }
}
