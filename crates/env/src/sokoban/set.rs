//! Levels as a task set: options, splits, order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Task, TaskSet};

use super::action::ActionReading;
use super::environment::SokobanEnv;
use super::generator::{Generator, GeneratorConfig};
use super::level::level_digest;
use super::picture::Tiles;
use super::room::{Room, RoomText};
use crate::pictures::PictureStore;
use crate::splits::{SPLITS, split_of, tasks_of};

/// The goal as the agent reads it.
pub(super) const GOAL: &str = "push all the boxes (`X`) onto the target spots (`O`)";

/// Steps that verl-agent gives.
pub(super) const DEFAULT_MAX_STEPS: usize = 15;

/// Of 256 levels, those of the test and of the validation.
const TEST: u8 = 26;
const VALID: u8 = 26;

/// Levels that are made at a time.
const CHUNK: u64 = 2048;

/// Chunks without a new level after which there are no others to be expected.
const MOST_EMPTY: usize = 4;

/// The reward of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SokobanReward {
    /// The original's: -0.1 a step, 1 for a box that comes onto a target, -1 for one that leaves it, 10 for the last.
    #[default]
    Original,
    /// 1 for the step that solves the level, 0 for all others.
    Success,
}

/// Data that all environments of a set share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SokobanOptions {
    /// The room as text.
    pub text: RoomText,
    /// The reading of actions.
    pub actions: ActionReading,
    /// The reward of a step.
    pub reward: SokobanReward,
}

/// Pictures of observations.
#[derive(Debug)]
pub struct SokobanPictures {
    /// Tiles that they are made of.
    pub tiles: Tiles,
    /// Folder that they are kept in.
    pub store: PictureStore,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: SokobanOptions,
    pub(super) pictures: Option<SokobanPictures>,
    levels: HashMap<String, Room>,
    splits: [Vec<Task>; 3],
}

impl Shared {
    pub(super) fn level(&self, id: &str) -> Result<&Room, EnvError> {
        self.levels.get(id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))
    }
}

/// Sokoban as a task set.
///
/// A task is a level; its kind is its number of boxes. No level of a split is in another one, turned or mirrored: the
/// first byte of the level's digest says where it belongs (about 80, 10 and 10 percent), whatever the seed.
#[derive(Clone, Debug)]
pub struct SokobanSet {
    shared: Arc<Shared>,
    max_steps: usize,
}

impl SokobanSet {
    /// Generated levels. With a `panel`, `test` is that and not generated, and its levels are in no other split.
    ///
    /// # Errors
    /// There are not as many different levels as asked for.
    pub fn new(
        config: &GeneratorConfig,
        panel: Option<Vec<Room>>,
        options: SokobanOptions,
        pictures: Option<SokobanPictures>,
    ) -> Result<Self, EnvError> {
        let mut wanted = [config.train, config.valid, config.test];
        let mut seen = HashSet::new();
        let mut found: [Vec<(Room, String)>; 3] = Default::default();
        if let Some(panel) = panel {
            wanted[2] = 0;
            for room in panel {
                let digest = level_digest(&room);
                seen.insert(digest.clone());
                found[2].push((room, digest));
            }
        }
        let (mut next, mut empty) = (0, 0);
        while (0..3).any(|split| found[split].len() < wanted[split]) {
            let made: Vec<(Room, String)> = (next..next + CHUNK)
                .into_par_iter()
                .map_init(Generator::default, |generator, index| {
                    let level = generator.level(config, index)?;
                    let digest = level_digest(&level.room);
                    Ok((level.room, digest))
                })
                .collect::<Result<_, EnvError>>()?;
            next += CHUNK;
            let before: usize = found.iter().map(Vec::len).sum();
            for (room, digest) in made {
                let split = split_of(&digest, TEST, VALID);
                if found[split].len() < wanted[split] && seen.insert(digest.clone()) {
                    found[split].push((room, digest));
                }
            }
            let grown = found.iter().map(Vec::len).sum::<usize>() > before;
            empty = if grown { 0 } else { empty + 1 };
            if empty >= MOST_EMPTY {
                let counts: Vec<String> =
                    (0..3).map(|split| format!("{} of {}", found[split].len(), wanted[split])).collect();
                return Err(EnvError::Other(format!(
                    "[env] generator: there are not as many different levels of this size: {} for train, valid and test; ask \
                     for fewer, or for larger rooms or longer solutions",
                    counts.join(", ")
                )));
            }
        }
        Ok(Self::from_levels(found, options, pictures))
    }

    fn from_levels(
        found: [Vec<(Room, String)>; 3],
        options: SokobanOptions,
        pictures: Option<SokobanPictures>,
    ) -> Self {
        let mut levels = HashMap::new();
        let mut splits: [Vec<Task>; 3] = Default::default();
        for ((name, split), found) in SPLITS.into_iter().zip(&mut splits).zip(found) {
            for (number, (room, digest)) in (1..).zip(found) {
                let id = format!("{name}/{number:06}-{}", &digest[..8]);
                let boxes = room.boxes();
                let kind = if boxes == 1 { "1 box".to_owned() } else { format!("{boxes} boxes") };
                levels.insert(id.clone(), room);
                split.push(Task { digest, ..Task::new(id, kind, GOAL) });
            }
        }
        Self { shared: Arc::new(Shared { options, pictures, levels, splits }), max_steps: DEFAULT_MAX_STEPS }
    }

    /// The same levels with another step limit.
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Data that the environments share.
    pub fn options(&self) -> SokobanOptions {
        self.shared.options
    }

    /// The level of a task.
    ///
    /// # Errors
    /// There is no such task.
    pub fn level(&self, id: &str) -> Result<&Room, EnvError> {
        self.shared.level(id)
    }

    /// The tasks of a split, as they are kept.
    ///
    /// # Errors
    /// There is no such split.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        tasks_of(&self.shared.splits, split)
    }

    /// A fresh environment, as its own type.
    pub fn sokoban(&self) -> SokobanEnv {
        SokobanEnv::new(Arc::clone(&self.shared), self.max_steps)
    }
}

impl TaskSet for SokobanSet {
    fn name(&self) -> &'static str {
        "sokoban"
    }

    fn splits(&self) -> Vec<String> {
        SPLITS.map(str::to_owned).to_vec()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split).map(<[Task]>::to_vec)
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.sokoban()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(seed: u64) -> GeneratorConfig {
        GeneratorConfig { seed, train: 300, valid: 40, test: 40, ..GeneratorConfig::default() }
    }

    fn digests(set: &SokobanSet, split: &str) -> HashSet<String> {
        set.split(split).unwrap().iter().map(|task| task.digest.clone()).collect()
    }

    #[test]
    fn no_split_has_a_level_of_another_whatever_the_seed() {
        let [first, second] =
            [0, 1].map(|seed| SokobanSet::new(&config(seed), None, SokobanOptions::default(), None).unwrap());
        for (left, right) in [("train", "test"), ("train", "valid"), ("valid", "test")] {
            assert!(digests(&first, left).is_disjoint(&digests(&second, right)), "{left} {right}");
            assert!(digests(&first, left).is_disjoint(&digests(&first, right)), "{left} {right}");
        }
        assert_eq!(["train", "valid", "test"].map(|split| digests(&first, split).len()), [300, 40, 40]);
        assert_ne!(digests(&first, "train"), digests(&second, "train"));
    }

    #[test]
    fn a_panel_is_the_test_and_nothing_else() {
        let made = SokobanSet::new(&config(0), None, SokobanOptions::default(), None).unwrap();
        let panel: Vec<Room> = made
            .split("train")
            .unwrap()
            .iter()
            .take(50)
            .map(|task| made.level(&task.id).unwrap().clone())
            .collect();
        let set = SokobanSet::new(&config(0), Some(panel), SokobanOptions::default(), None).unwrap();
        assert_eq!(set.split("test").unwrap().len(), 50);
        assert!(digests(&set, "test").is_disjoint(&digests(&set, "train")));
        assert!(set.split("dev").unwrap_err().to_string().contains("train, valid, test"));
    }

    #[test]
    fn too_many_levels_are_refused() {
        let few = GeneratorConfig { width: 5, height: 5, max_moves: 3, train: 100_000, ..config(0) };
        let error = SokobanSet::new(&few, None, SokobanOptions::default(), None).unwrap_err().to_string();
        assert!(error.contains("of 100000"), "{error}");
    }
}
