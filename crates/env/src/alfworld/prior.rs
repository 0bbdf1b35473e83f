use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::EnvError;

use super::generator::{GeneratorConfig, Size, generate};
use super::{Episode, Game};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    /// Number of objects of one type found in receptacles of one type.
    found: u64,
    /// Number of receptacles of the receptacle type, in games that contain an object of the object
    /// type.
    searched: u64,
}

/// How often objects of each type are in receptacles of each type at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prior {
    counts: BTreeMap<String, BTreeMap<String, Count>>,
}

/// Added to `found`. The value is small, so that receptacles of types in which the object was never
/// found are searched last.
const SMOOTHING: f64 = 0.02;

static EMBEDDED: LazyLock<Result<Prior, String>> = LazyLock::new(|| {
    let mut prior = Prior::default();
    for (size, train) in [(Size::Tiny, 600), (Size::Full, 200)] {
        let config = GeneratorConfig { size, train, valid_seen: 0, valid_unseen: 0, ..Default::default() };
        let games = generate(&config).map_err(|error| error.to_string())?;
        prior.merge(&Prior::from_games(games.iter()));
    }
    Ok(prior)
});

impl Prior {
    /// Counts objects in the games' start states.
    pub fn from_games<'a>(games: impl IntoIterator<Item = &'a Arc<Game>>) -> Self {
        let games: Vec<&Arc<Game>> = games.into_iter().collect();
        games
            .par_chunks(64)
            .map(|chunk| {
                let mut prior = Self::default();
                for game in chunk {
                    prior.add(game);
                }
                prior
            })
            .reduce(Self::default, |mut left, right| {
                left.merge(&right);
                left
            })
    }

    /// Returns how often each object is in each receptacle of a fixed set of
    /// [generated](super::generator) games.
    ///
    /// # Errors
    /// Fails only if the embedded household file is invalid.
    pub fn embedded() -> Result<&'static Self, EnvError> {
        EMBEDDED.as_ref().map_err(|reason| EnvError::Other(reason.clone()))
    }

    /// Returns the expected number of objects of this type in a receptacle of this type, if the
    /// scene contains the object. The estimate is `(found + 0.02) / (searched + 1)`, with the
    /// numbers of objects found and of receptacles searched.
    pub fn expected(&self, object_kind: &str, receptacle_kind: &str) -> f64 {
        let count = self.counts.get(object_kind).and_then(|kinds| kinds.get(receptacle_kind));
        let Count { found, searched } = count.copied().unwrap_or_default();
        (found as f64 + SMOOTHING) / (searched as f64 + 1.0)
    }

    /// Returns true if nothing has been counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    fn add(&mut self, game: &Arc<Game>) {
        let episode = Episode::new(Arc::clone(game));
        let mut furniture: BTreeMap<&str, u64> = BTreeMap::new();
        let mut things: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for receptacle in game.receptacles() {
            let kind = kind_of(game.receptacle_name(receptacle));
            *furniture.entry(kind).or_default() += 1;
            for object in episode.contents(receptacle) {
                let found = things.entry(kind_of(game.object_name(object))).or_default();
                *found.entry(kind).or_default() += 1;
            }
        }
        for (object, found) in things {
            let counts = entry(&mut self.counts, object);
            for (&receptacle, &searched) in &furniture {
                let count = entry(counts, receptacle);
                count.found += found.get(receptacle).copied().unwrap_or_default();
                count.searched += searched;
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        for (object, kinds) in &other.counts {
            let counts = entry(&mut self.counts, object);
            for (receptacle, add) in kinds {
                let count = entry(counts, receptacle);
                count.found += add.found;
                count.searched += add.searched;
            }
        }
    }
}

fn entry<'a, T: Default>(map: &'a mut BTreeMap<String, T>, key: &str) -> &'a mut T {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), T::default());
    }
    map.entry(key.to_owned()).or_default()
}

pub(super) fn kind_of(name: &str) -> &str {
    name.rsplit_once(' ').map_or(name, |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits_are_counted_per_receptacle() {
        let prior = Prior::embedded().unwrap();
        assert!(prior.expected("pillow", "bed") > 5.0 * prior.expected("pillow", "shelf"));
        assert!(prior.expected("egg", "fridge") > prior.expected("egg", "cabinet"));
        assert!(prior.expected("pan", "stoveburner") > prior.expected("pan", "drawer"));
        assert!(prior.expected("desklamp", "desk") > 0.1);
        let never = prior.expected("unicorn", "bed");
        assert!(never > 0.0 && never < 0.03, "{never}");
    }

    #[test]
    fn order_does_not_matter_and_json_keeps_it() {
        let config = GeneratorConfig { train: 200, valid_seen: 0, valid_unseen: 0, ..Default::default() };
        let set = generate(&config).unwrap();
        let games: Vec<&Arc<Game>> = set.iter().collect();
        let prior = Prior::from_games(games.iter().copied());
        assert_eq!(prior, Prior::from_games(games.iter().rev().copied()));
        assert_ne!(prior, Prior::from_games(games[1..].iter().copied()));
        let text = serde_json::to_string(&prior).unwrap();
        assert_eq!(serde_json::from_str::<Prior>(&text).unwrap(), prior);
        assert!(Prior::default().is_empty() && !prior.is_empty());
    }
}
