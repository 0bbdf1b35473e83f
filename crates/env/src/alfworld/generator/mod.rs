//! Generated household games in the official file format.
//!
//! A **floor plan** is a room with receptacles, and with hidden probabilities of finding each
//! object in them. A **game** draws its objects from these probabilities and poses a task of one of
//! six types. The game's shortest plan is replayed to check that the game can be won.
//!
//! `train` and `valid_seen` share floor plans. `valid_unseen` uses sets of furniture that training
//! never uses, whatever the seed. Each game has its own random stream, but a game with the same
//! layout as an earlier one is drawn again.
//!
//! Unlike in the original, fixtures that no command uses, such as windows and stove knobs, are left
//! out, and no object starts cool or inside another object.

mod household;
mod names;
mod plan;
mod scene;
mod solve;
mod text;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use turnwise_core::{EnvError, Purpose, Seed};

use super::{AlfworldSet, Episode, Game, TaskType};
use household::Household;
use plan::{Class, FloorPlan, MOST_PLANS};
use scene::Scene;

/// Scene size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// 5-8 receptacles and 6-10 objects in addition to those of the task, for policies of about a
    /// million parameters.
    #[default]
    Tiny,
    /// 8-12 receptacles and 10-16 objects in addition to those of the task.
    Small,
    /// 12-18 receptacles and 16-26 objects in addition to those of the task.
    Medium,
    /// 15-30 receptacles and 24-45 objects in addition to those of the task, as in official scenes.
    Full,
}

impl Size {
    fn receptacles(self) -> (usize, usize) {
        [(5, 8), (8, 12), (12, 18), (15, 30)][self as usize]
    }

    fn fillers(self) -> (usize, usize) {
        [(6, 10), (10, 16), (16, 26), (24, 45)][self as usize]
    }

    fn most_receptacles_of_a_kind(self) -> usize {
        [3, 4, 6, usize::MAX][self as usize]
    }

    fn most_objects_of_a_kind(self) -> usize {
        [2, 2, 3, 3][self as usize]
    }

    fn shared_places(self) -> f64 {
        [0.1, 0.15, 0.2, 0.2][self as usize]
    }
}

/// Generator settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GeneratorConfig {
    /// Random seed.
    pub seed: u64,
    /// Scene size.
    pub size: Size,
    /// Number of training games.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Number of validation games on training floor plans.
    #[schemars(range(max = 1000000))]
    pub valid_seen: usize,
    /// Number of validation games on floor plans that do not occur in training.
    #[schemars(range(max = 1000000))]
    pub valid_unseen: usize,
    /// Number of training floor plans per room type, at most 499. `valid_unseen` has a quarter as
    /// many floor plans, and `valid_seen` uses only floor plans on which a training game is played.
    #[schemars(range(min = 1, max = 499))]
    pub floor_plans: usize,
    /// Official names of the task types, through which the generated games cycle.
    #[serde(serialize_with = "write_types", deserialize_with = "read_types")]
    #[schemars(with = "Vec<String>", length(min = 1), extend("items" = type_names()))]
    pub task_types: Vec<TaskType>,
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            size: Size::Tiny,
            train: 3000,
            valid_seen: 256,
            valid_unseen: 256,
            floor_plans: 100,
            task_types: TaskType::ALL.to_vec(),
        }
    }
}

fn type_names() -> serde_json::Value {
    serde_json::json!({ "type": "string", "enum": TaskType::ALL.map(TaskType::name) })
}

fn write_types<S: Serializer>(types: &[TaskType], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(types.iter().map(|kind| kind.name()))
}

fn read_types<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TaskType>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let read = |name: &String| {
        TaskType::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<&str> = TaskType::ALL.iter().map(|kind| kind.name()).collect();
            serde::de::Error::custom(format!("unknown task type `{name}`; there are {}", known.join(", ")))
        })
    };
    names.iter().map(read).collect()
}

/// Generated game file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameFile {
    /// Id, such as `valid_unseen/pick_heat_then_place_in_recep-Mug-None-Shelf-502/trial_G000007`.
    pub id: String,
    /// Content of `game.tw-pddl`.
    pub text: String,
}

impl GameFile {
    fn parse(&self) -> Result<Game, EnvError> {
        Game::parse(&format!("{}/game.tw-pddl", self.id), &self.text)
    }
}

const SPLITS: [(&str, Class); 3] =
    [("train", Class::Seen), ("valid_seen", Class::Seen), ("valid_unseen", Class::Unseen)];

const ATTEMPTS: u64 = 200;

/// Generates the game files, grouped by split and in the order of their trials.
///
/// # Errors
/// Returns [`EnvError::Other`] with the name of the setting if a setting is invalid.
pub(crate) fn generate_files(config: &GeneratorConfig) -> Result<Vec<GameFile>, EnvError> {
    make(config, game_file)
}

/// Generates and parses the games.
///
/// # Errors
/// Fails like `generate_files`.
pub fn generate(config: &GeneratorConfig) -> Result<AlfworldSet, EnvError> {
    let games = make(config, |house, scene, split, index| {
        let game = Arc::new(game_file(house, scene, split, index)?.parse()?);
        verify(&game)?;
        Ok(Arc::unwrap_or_clone(game))
    })?;
    Ok(AlfworldSet::from_games(games))
}

/// Writes or overwrites `DIR/<split>/<task>/<trial>/game.tw-pddl` and returns the number of games.
///
/// # Errors
/// Fails like `generate_files`, or with [`EnvError::Io`].
pub fn write_games(config: &GeneratorConfig, dir: &Path) -> Result<usize, EnvError> {
    let files = generate_files(config)?;
    files.par_iter().try_for_each(|file| {
        let folder = dir.join(&file.id);
        let path = folder.join(super::files::GAME_FILE);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, &file.text))
            .map_err(|source| EnvError::io(&path, source))
    })?;
    Ok(files.len())
}

fn game_file(house: &Household, scene: &Scene<'_>, split: &str, index: usize) -> Result<GameFile, EnvError> {
    let trial = format!("trial_G{index:06}");
    let id = format!("{split}/{}/{trial}", scene.folder(house));
    let walkthrough = solve::walkthrough(house, scene)
        .ok_or_else(|| EnvError::Other(format!("{id}: the generated task has no solution")))?;
    let text = text::game_file(house, scene, &trial, &walkthrough);
    Ok(GameFile { id, text })
}

/// Fails unless the walkthrough wins the game, with its last command and not earlier.
fn verify(game: &Arc<Game>) -> Result<(), EnvError> {
    let fail = |what: &str| EnvError::Other(format!("{}: {what}", game.id()));
    let mut episode = Episode::new(Arc::clone(game));
    if episode.won() {
        return Err(fail("the generated task is solved from the start"));
    }
    let plan = game.walkthrough().ok_or_else(|| fail("the generated game has no walkthrough"))?;
    let last = plan.len();
    for (step, command) in plan.enumerate() {
        let outcome = episode.step(command);
        if !outcome.understood || outcome.won != (step + 1 == last) {
            return Err(fail(&format!("step {} of its walkthrough, `{command}`, goes wrong", step + 1)));
        }
    }
    Ok(())
}

fn make<T: Send>(
    config: &GeneratorConfig,
    finish: impl Fn(&Household, &Scene<'_>, &str, usize) -> Result<T, EnvError> + Sync,
) -> Result<Vec<T>, EnvError> {
    let house = Household::embedded()?;
    if config.task_types.is_empty() {
        return Err(EnvError::Other("task_types: name at least one kind of task".into()));
    }
    if !(1..=MOST_PLANS).contains(&config.floor_plans) {
        return Err(EnvError::Other(format!(
            "floor_plans: {} is not between 1 and {MOST_PLANS}",
            config.floor_plans
        )));
    }
    let plans = |class: Class, count: usize| -> Vec<Vec<FloorPlan>> {
        let rooms = 0..house.rooms.len();
        rooms.map(|room| plan::draw_all(house, config.seed, config.size, room, class, count)).collect()
    };
    let seen = plans(Class::Seen, config.floor_plans);
    let unseen = if config.valid_unseen == 0 {
        Vec::new()
    } else {
        plans(Class::Unseen, config.floor_plans.div_ceil(4))
    };

    let mut known = BTreeSet::new();
    let mut used = BTreeSet::new();
    let mut all = Vec::new();
    for (split, &(name, class)) in SPLITS.iter().enumerate() {
        let restricted = name == "valid_seen" && !used.is_empty();
        let count = [config.train, config.valid_seen, config.valid_unseen][split];
        let plans: Vec<Vec<&FloorPlan>> = (if class == Class::Seen { &seen } else { &unseen })
            .iter()
            .map(|plans| plans.iter().filter(|plan| !restricted || used.contains(&plan.number)).collect())
            .collect();
        let plans = plans.as_slice();
        let draw = |index: usize, attempt: u64| draw_scene(house, config, plans, split, index, attempt);
        let first: Vec<Option<Scene<'_>>> = (0..count).into_par_iter().map(|index| draw(index, 0)).collect();
        for (index, scene) in first.into_iter().enumerate() {
            let mut scene = scene;
            let mut attempt = 0;
            let scene = loop {
                if let Some(scene) = scene.take()
                    && known.insert(scene.content())
                {
                    break scene;
                }
                attempt += 1;
                if attempt > ATTEMPTS {
                    let kind = config.task_types[index % config.task_types.len()];
                    return Err(EnvError::Other(format!(
                        "{name}: {ATTEMPTS} draws gave no new `{kind}` game after {index} games; ask for fewer \
                         games, more floor_plans or a larger size"
                    )));
                }
                scene = draw(index, attempt);
            };
            if name == "train" {
                used.insert(scene.plan.number);
            }
            all.push((name, index, scene));
        }
    }
    all.into_par_iter().map(|(split, index, scene)| finish(house, &scene, split, index)).collect()
}

fn draw_scene<'a>(
    house: &Household,
    config: &GeneratorConfig,
    plans: &[Vec<&'a FloorPlan>],
    split: usize,
    index: usize,
    attempt: u64,
) -> Option<Scene<'a>> {
    let coordinates = [2, config.size as u64, split as u64, index as u64, attempt];
    let mut rng = Seed::derive(config.seed, Purpose::World, &coordinates).rng();
    let task = config.task_types[index % config.task_types.len()];
    let kind = TaskType::ALL.iter().position(|&other| other == task)?;
    let rooms: Vec<&Vec<&'a FloorPlan>> =
        plans.iter().filter(|plans| plans.iter().any(|plan| !plan.choices[kind].is_empty())).collect();
    let room = *rng.choose(&rooms)?;
    let plan = *rng.choose(room)?;
    Scene::draw(house, config.size, plan, task, &mut rng)
}

#[cfg(test)]
mod tests;
