use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use turnwise_core::{EnvError, Environment, Task, TaskSet};

use super::environment::{AlfworldEnv, DEFAULT_MAX_STEPS};
use super::files::{self, Found};
use super::game::Game;

const SPLITS: [&str; 3] = ["train", "valid_seen", "valid_unseen"];

#[derive(Debug, Default)]
pub(super) struct Games {
    splits: Vec<(String, Vec<Arc<Game>>)>,
    by_id: HashMap<String, Arc<Game>>,
}

impl Games {
    pub(super) fn get(&self, id: &str) -> Result<&Arc<Game>, EnvError> {
        self.by_id.get(id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))
    }
}

/// ALFWorld games as a task set.
///
/// Splits are `train`, `valid_seen`, `valid_unseen`, then other splits sorted by name. Games are
/// sorted by the SHA-256 of their ids, whereas the original uses the order of the file system.
#[derive(Clone, Debug)]
pub struct AlfworldSet {
    games: Arc<Games>,
    max_steps: usize,
    unsolvable: usize,
}

impl AlfworldSet {
    /// Loads the solvable games of a file, folder tree or `.tar.zst` archive, and returns them with
    /// the errors of broken files. If a folder contains archives, only the archives are read.
    ///
    /// # Errors
    /// Fails if `path` cannot be read or has no playable game.
    pub fn load(path: &Path) -> Result<(Self, Vec<EnvError>), EnvError> {
        Self::found(path, files::read(path, &|_| true)?)
    }

    /// Loads only the given splits.
    ///
    /// # Errors
    /// Fails like [`AlfworldSet::load`], or if a split has no playable game.
    pub fn load_splits(path: &Path, splits: &[&str]) -> Result<(Self, Vec<EnvError>), EnvError> {
        let others = Mutex::new(BTreeSet::new());
        let wanted = |id: &str| {
            let split = id.split('/').next().unwrap_or_default();
            let is_wanted = splits.contains(&split);
            if !is_wanted {
                others.lock().unwrap_or_else(PoisonError::into_inner).insert(split.to_owned());
            }
            is_wanted
        };
        let found = files::read(path, &wanted)?;
        let others = others.into_inner().unwrap_or_else(PoisonError::into_inner);
        if found.is_empty() && !others.is_empty() {
            let known = others.into_iter().collect::<Vec<_>>().join(", ");
            let reason = format!("no game here is of {}; there is {known}", splits.join(", "));
            return Err(EnvError::file(path, reason));
        }
        let (set, errors) = Self::found(path, found)?;
        for split in splits {
            set.split(split)?;
        }
        Ok((set, errors))
    }

    fn found(path: &Path, found: Found) -> Result<(Self, Vec<EnvError>), EnvError> {
        let Found { games, mut errors, unsolvable } = found;
        if games.is_empty() {
            if errors.len() == 1 {
                return Err(errors.remove(0));
            }
            let first = errors.first().map_or(String::new(), |error| format!("; the first: {error}"));
            return Err(EnvError::File {
                path: path.display().to_string(),
                reason: format!(
                    "no playable ALFWorld game here ({} broken, {unsolvable} marked unsolvable{first}). Point at a \
                     folder with `<split>/<task>/<trial>/{}` files, at one such file, or at a `.tar.zst` archive \
                     of them",
                    errors.len(),
                    files::GAME_FILE
                ),
            });
        }
        let (mut set, twice) = Self::collect(games);
        set.unsolvable = unsolvable;
        errors.extend(twice);
        Ok((set, errors))
    }

    /// Creates a set from games. If several games have the same id, only the first is kept.
    pub fn from_games(games: Vec<Game>) -> Self {
        Self::collect(games).0
    }

    fn collect(games: Vec<Game>) -> (Self, Vec<EnvError>) {
        let mut errors = Vec::new();
        let mut by_id: HashMap<String, Arc<Game>> = HashMap::with_capacity(games.len());
        let mut ordered: Vec<([u8; 32], Arc<Game>)> = Vec::with_capacity(games.len());
        for game in games {
            let game = Arc::new(game);
            if by_id.contains_key(game.id()) {
                let reason = "this id occurs twice; the first file counts. Remove or rename one".to_owned();
                errors.push(EnvError::File { path: game.id().to_owned(), reason });
                continue;
            }
            by_id.insert(game.id().to_owned(), Arc::clone(&game));
            ordered.push((Sha256::digest(game.id()).into(), game));
        }
        ordered.sort_unstable_by_key(|(digest, _)| *digest);
        let mut splits: Vec<(String, Vec<Arc<Game>>)> = Vec::new();
        for (_, game) in ordered {
            match splits.iter_mut().find(|(split, _)| split == game.split()) {
                Some((_, games)) => games.push(game),
                None => splits.push((game.split().to_owned(), vec![game])),
            }
        }
        let place = |split: &str| SPLITS.iter().position(|known| *known == split).unwrap_or(SPLITS.len());
        splits.sort_by(|(a, _), (b, _)| (place(a), a).cmp(&(place(b), b)));
        let games = Arc::new(Games { splits, by_id });
        (Self { games, max_steps: DEFAULT_MAX_STEPS, unsolvable: 0 }, errors)
    }

    /// Sets the step limit.
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Returns the step limit.
    pub fn max_steps(&self) -> usize {
        self.max_steps
    }

    /// Returns the number of skipped unsolvable games.
    pub fn unsolvable(&self) -> usize {
        self.unsolvable
    }

    /// Returns the number of games.
    pub fn len(&self) -> usize {
        self.games.by_id.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a game by id.
    ///
    /// # Errors
    /// Returns [`EnvError::UnknownTask`].
    pub fn game(&self, id: &str) -> Result<&Arc<Game>, EnvError> {
        self.games.get(id)
    }

    /// Returns a split's games, sorted by the SHA-256 of their ids.
    ///
    /// # Errors
    /// Returns [`EnvError::UnknownSplit`].
    pub fn split(&self, split: &str) -> Result<&[Arc<Game>], EnvError> {
        let found = self.games.splits.iter().find(|(name, _)| name == split);
        found.map(|(_, games)| games.as_slice()).ok_or_else(|| EnvError::UnknownSplit {
            split: split.to_owned(),
            known: self.splits().join(", "),
        })
    }

    /// Returns all games, split by split.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Game>> {
        self.games.splits.iter().flat_map(|(_, games)| games)
    }
}

impl TaskSet for AlfworldSet {
    fn name(&self) -> &'static str {
        "alfworld"
    }

    fn splits(&self) -> Vec<String> {
        self.games.splits.iter().map(|(split, _)| split.clone()).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        Ok(self.split(split)?.iter().map(|game| game.task()).collect())
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(AlfworldEnv::new(Arc::clone(&self.games), self.max_steps)))
    }
}
