//! Generates an encyclopaedia about people, towns, works and events.
//!
//! Each entity has a passage, and each question needs one to three linked passages. Names are
//! combinations of a few hundred words, so small vocabularies suffice, and searches also find
//! passages about entities with similar names.

mod facts;
mod names;
mod passages;
mod questions;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Seed};
use turnwise_retrieval::Passage;

use self::facts::Encyclopaedia;
pub use self::questions::QuestionKind;
use super::question::Question;

/// Generated encyclopaedia and questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchGenerator {
    /// Random seed.
    pub seed: u64,
    /// Number of people.
    #[schemars(range(min = 100, max = 12000))]
    pub people: usize,
    /// Number of towns.
    #[schemars(range(min = 10, max = 480))]
    pub towns: usize,
    /// Number of works.
    #[schemars(range(min = 10, max = 2000))]
    pub works: usize,
    /// Number of events.
    #[schemars(range(min = 10, max = 600))]
    pub events: usize,
    /// Question types to generate, all equally often.
    #[schemars(length(min = 1))]
    pub kinds: Vec<QuestionKind>,
    /// Number of training questions.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Number of validation questions.
    #[schemars(range(min = 0, max = 100000))]
    pub valid: usize,
    /// Number of test questions.
    #[schemars(range(min = 0, max = 100000))]
    pub test: usize,
}

impl Default for SearchGenerator {
    fn default() -> Self {
        Self {
            seed: 0,
            people: 3200,
            towns: 480,
            works: 1100,
            events: 520,
            kinds: QuestionKind::ALL.to_vec(),
            train: 20_000,
            valid: 500,
            test: 500,
        }
    }
}

/// Encyclopaedia with questions.
#[derive(Clone, Debug)]
pub struct Generated {
    /// A passage per entity.
    pub passages: Vec<Passage>,
    /// Questions of `train`, `valid` and `test`. All questions that start from the same name are in
    /// the same split, for every seed.
    pub splits: [Vec<Question>; 3],
}

/// Generates an encyclopaedia with questions.
///
/// # Errors
/// Fails if too few distinct questions exist.
pub fn generate(config: &SearchGenerator) -> Result<Generated, EnvError> {
    let mut rng = Seed::derive(config.seed, Purpose::World, &[0]).rng();
    let encyclopaedia = Encyclopaedia::draw(config, &mut rng);
    let passages = passages::all(&encyclopaedia);
    let splits = questions::draw(&encyclopaedia, config)?;
    Ok(Generated { passages, splits })
}

#[cfg(test)]
mod tests;
