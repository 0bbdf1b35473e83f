use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Task, TaskSet};

use super::action::ActionReading;
use super::environment::SokobanEnv;
use super::generator::{Generator, GeneratorConfig};
use super::level::{level_digest, room_digest};
use super::picture::Tiles;
use super::room::{Room, RoomText};
use crate::pictures::PictureStore;
use crate::splits::{SPLITS, split_of, tasks_of};

pub(super) const GOAL: &str = "push all the boxes (`X`) onto the target spots (`O`)";

/// Default step limit, as in verl-agent.
pub(super) const DEFAULT_MAX_STEPS: usize = 15;

/// Shares of the test and validation splits in 256ths.
const TEST: u8 = 26;
const VALID: u8 = 26;

/// Maximum and minimum number of levels generated in parallel.
const CHUNK: u64 = 2048;
const SMALL_CHUNK: u64 = 64;

/// Number of levels to generate per missing level; only one level in ten belongs to `test`.
const MADE_FOR_ONE: u64 = 16;

const MOST_IN_VAIN: usize = 10_240;

/// Reward of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SokobanReward {
    /// -0.1 per step, 1 for a box moved onto a target, -1 for a box moved off, and 10 for the
    /// solution, as in gym-sokoban.
    #[default]
    Original,
    /// 1 for the step that solves the level, else 0.
    Success,
}

/// Options of a [`SokobanSet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SokobanOptions {
    /// Text format of rooms.
    pub text: RoomText,
    /// How actions are parsed.
    pub actions: ActionReading,
    /// Reward of a step.
    pub reward: SokobanReward,
}

/// Tiles and the folder for observation images.
#[derive(Debug)]
pub struct SokobanPictures {
    /// Tiles.
    pub tiles: Tiles,
    /// Image folder.
    pub store: PictureStore,
}

struct Made {
    room: Room,
    /// Digest of the room without the player's position.
    whole: String,
    digest: String,
    split: usize,
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

fn chunk(missing: usize) -> u64 {
    (missing as u64).saturating_mul(MADE_FOR_ONE).clamp(SMALL_CHUNK, CHUNK)
}

fn too_few(found: &[Vec<(Room, String)>; 3], wanted: [usize; 3]) -> EnvError {
    let counts: Vec<String> =
        found.iter().zip(wanted).map(|(found, wanted)| format!("{} of {wanted}", found.len())).collect();
    EnvError::Other(format!(
        "[env] generator: there are not as many different levels of this size: {} for train, valid and test; ask for \
         fewer, or for larger rooms or longer solutions",
        counts.join(", ")
    ))
}

/// Sokoban levels as a task set.
///
/// A task's kind is the number of boxes. A digest of the room, which ignores the player's position
/// and symmetries, decides the split (about 80, 10 and 10 % of the levels). A room is therefore
/// never in two splits.
#[derive(Clone, Debug)]
pub struct SokobanSet {
    shared: Arc<Shared>,
    max_steps: usize,
}

impl SokobanSet {
    /// Generates the levels. If `panel` is given, its levels become the `test` split, and the other
    /// splits exclude them.
    ///
    /// # Errors
    /// Fails if there are fewer distinct levels than requested.
    pub fn new(
        config: &GeneratorConfig,
        panel: Option<Vec<Room>>,
        options: SokobanOptions,
        pictures: Option<SokobanPictures>,
    ) -> Result<Self, EnvError> {
        let mut wanted = [config.train, config.valid, config.test];
        let mut found: [Vec<(Room, String)>; 3] = Default::default();
        let mut taken = HashSet::new();
        if let Some(panel) = panel {
            wanted[2] = 0;
            for room in panel {
                taken.insert(room_digest(&room));
                let digest = level_digest(&room);
                found[2].push((room, digest));
            }
        }
        let mut seen = HashSet::new();
        let (mut next, mut in_vain) = (0, 0);
        loop {
            let missing: usize =
                wanted.iter().zip(&found).map(|(wanted, found)| wanted.saturating_sub(found.len())).sum();
            if missing == 0 {
                break;
            }
            let count = chunk(missing);
            // An error matters only if its level is needed.
            let made: Vec<Result<Made, EnvError>> = (next..next + count)
                .into_par_iter()
                .map_init(Generator::default, |generator, index| {
                    let room = generator.level(config, index)?.room;
                    let (whole, digest) = (room_digest(&room), level_digest(&room));
                    Ok(Made { split: split_of(&whole, TEST, VALID), whole, digest, room })
                })
                .collect();
            next += count;
            for made in made {
                if wanted.iter().zip(&found).all(|(wanted, found)| found.len() >= *wanted) {
                    break;
                }
                let Made { room, whole, digest, split } = made?;
                let is_wanted = found[split].len() < wanted[split] && !taken.contains(&whole);
                if is_wanted && seen.insert(digest.clone()) {
                    found[split].push((room, digest));
                    in_vain = 0;
                } else {
                    in_vain += 1;
                }
                if in_vain >= MOST_IN_VAIN {
                    return Err(too_few(&found, wanted));
                }
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

    /// Sets the step limit.
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Returns the options.
    pub fn options(&self) -> SokobanOptions {
        self.shared.options
    }

    /// Returns a task's level.
    ///
    /// # Errors
    /// Fails if the task is unknown.
    pub fn level(&self, id: &str) -> Result<&Room, EnvError> {
        self.shared.level(id)
    }

    /// Returns a split's tasks without copying.
    ///
    /// # Errors
    /// Fails if the split is unknown.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        tasks_of(&self.shared.splits, split)
    }

    /// Creates an environment.
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
        GeneratorConfig { seed, train: 2000, valid: 120, test: 120, ..GeneratorConfig::default() }
    }

    fn digests(set: &SokobanSet, split: &str) -> HashSet<String> {
        set.split(split).unwrap().iter().map(|task| task.digest.clone()).collect()
    }

    fn plain(room: &Room) -> String {
        let rows: Vec<Vec<char>> = room.to_string().lines().map(|row| row.chars().collect()).collect();
        let mut reached: Vec<Vec<char>> = rows.iter().map(|row| vec!['#'; row.len()]).collect();
        let is_player = |symbol: &char| ['P', 'S'].contains(symbol);
        let row = rows.iter().position(|row| row.iter().any(is_player)).unwrap();
        let mut todo = vec![(row, rows[row].iter().position(is_player).unwrap())];
        while let Some((row, column)) = todo.pop() {
            if rows[row][column] == '#' || reached[row][column] != '#' {
                continue;
            }
            reached[row][column] = match rows[row][column] {
                'P' => '_',
                'S' => 'O',
                symbol => symbol,
            };
            todo.extend([(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]);
        }
        let turned = |rows: &[Vec<char>]| -> Vec<Vec<char>> {
            (0..rows[0].len()).map(|column| rows.iter().rev().map(|row| row[column]).collect()).collect()
        };
        let mut form = reached;
        for _ in 0..2 {
            form.retain(|row| row.iter().any(|symbol| *symbol != '#'));
            form = turned(&form);
        }
        let mut forms = Vec::new();
        for _ in 0..4 {
            form = turned(&form);
            let lines: Vec<String> = form.iter().map(|row| row.iter().collect()).collect();
            let upside_down: Vec<String> = lines.iter().rev().cloned().collect();
            forms.extend([lines.join("/"), upside_down.join("/")]);
        }
        forms.into_iter().min().unwrap()
    }

    fn rooms(set: &SokobanSet, split: &str) -> HashSet<String> {
        set.split(split).unwrap().iter().map(|task| plain(set.level(&task.id).unwrap())).collect()
    }

    #[test]
    fn no_split_has_a_room_of_another_whatever_the_seed() {
        let [first, second] =
            [0, 1].map(|seed| SokobanSet::new(&config(seed), None, SokobanOptions::default(), None).unwrap());
        for (left, right) in [("train", "test"), ("train", "valid"), ("valid", "test")] {
            for (one, other) in [(&first, &first), (&first, &second), (&second, &first)] {
                let shared: Vec<String> =
                    rooms(one, left).intersection(&rooms(other, right)).cloned().collect();
                assert!(shared.is_empty(), "{left} {right}: {shared:?}");
            }
        }
        assert_eq!(["train", "valid", "test"].map(|split| digests(&first, split).len()), [2000, 120, 120]);
        assert_ne!(digests(&first, "train"), digests(&second, "train"));
    }

    #[test]
    fn a_panel_is_the_test_and_nothing_else() {
        let made = SokobanSet::new(&config(0), None, SokobanOptions::default(), None).unwrap();
        let panel: Vec<Room> = made
            .split("train")
            .unwrap()
            .iter()
            .take(200)
            .map(|task| made.level(&task.id).unwrap().clone())
            .collect();
        let set = SokobanSet::new(&config(0), Some(panel), SokobanOptions::default(), None).unwrap();
        assert_eq!(set.split("test").unwrap().len(), 200);
        for other in ["train", "valid"] {
            assert!(rooms(&set, "test").is_disjoint(&rooms(&set, other)), "{other}");
        }
        assert!(set.split("dev").unwrap_err().to_string().contains("train, valid, test"));
    }

    #[test]
    fn levels_are_the_first_that_fit_however_many_are_made_at_a_time() {
        let small = GeneratorConfig { train: 30, valid: 5, test: 5, ..GeneratorConfig::default() };
        let set = SokobanSet::new(&small, None, SokobanOptions::default(), None).unwrap();
        let (mut generator, mut seen) = (Generator::default(), HashSet::new());
        let mut expected: [Vec<Room>; 3] = Default::default();
        let mut index = 0;
        while expected.iter().map(Vec::len).sum::<usize>() < 40 {
            let room = generator.level(&small, index).unwrap().room;
            index += 1;
            let split = split_of(&room_digest(&room), TEST, VALID);
            if expected[split].len() < [30, 5, 5][split] && seen.insert(level_digest(&room)) {
                expected[split].push(room);
            }
        }
        for (name, expected) in SPLITS.into_iter().zip(&expected) {
            let found = set.split(name).unwrap().iter().map(|task| set.level(&task.id).unwrap());
            assert!(found.eq(expected), "{name}");
        }
    }

    #[test]
    fn few_levels_are_not_made_by_the_thousand() {
        assert_eq!([1, 4, 50, 128, 20_512].map(chunk), [64, 64, 800, 2048, 2048]);
    }

    #[test]
    fn too_many_levels_are_refused() {
        let few = GeneratorConfig { width: 5, height: 5, max_moves: 3, train: 100_000, ..config(0) };
        let error = SokobanSet::new(&few, None, SokobanOptions::default(), None).unwrap_err().to_string();
        let (mut generator, mut seen) = (Generator::default(), HashSet::new());
        let (mut found, mut index, mut in_vain) = ([0; 3], 0, 0);
        while in_vain < MOST_IN_VAIN {
            let room = generator.level(&few, index).unwrap().room;
            index += 1;
            let split = split_of(&room_digest(&room), TEST, VALID);
            let is_new = found[split] < [100_000, 120, 120][split] && seen.insert(level_digest(&room));
            found[split] += usize::from(is_new);
            in_vain = if is_new { 0 } else { in_vain + 1 };
        }
        let [train, valid, test] = found;
        assert!(error.contains(&format!("{train} of 100000, {valid} of 120, {test} of 120")), "{error}");
    }
}
