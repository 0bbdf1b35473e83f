use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Purpose, Seed, Task, TaskSet};

use super::cards::Deal;
use super::environment::EzPointsEnv;
use super::formula::Symbol;
use super::game::REWARD;
use super::picture::Cards;
use crate::pictures::PictureStore;
use crate::splits::{SPLITS, split_of, tasks_of};

pub(super) const GOAL: &str =
    "build a math formula that evaluates to **12**, using only the two numbers shown on the playing cards";

/// Default step limit, as in verl-agent.
pub(super) const DEFAULT_MAX_STEPS: usize = 8;

/// Shares of the test and validation splits in 256ths.
const TEST: u8 = 64;
const VALID: u8 = 38;

/// Maximum number of consecutively drawn deals that are not in the training split.
const MOST_DRAWS: usize = 100_000;

/// Reward of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EzPointsReward {
    /// 10 for a formula that equals 12, else 0, as in verl-agent.
    #[default]
    Original,
    /// 1 for a formula that equals 12, else 0.
    Success,
}

impl EzPointsReward {
    pub(super) fn of(self, reward: f64) -> f64 {
        match self {
            Self::Original => reward,
            Self::Success => reward / REWARD,
        }
    }
}

/// Dealing of cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EzPointsGenerator {
    /// Random seed.
    pub seed: u64,
    /// Number of training tasks, drawn from gym-cards' distribution, so that tasks can repeat. In
    /// `valid` and `test`, each task occurs once.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
}

impl Default for EzPointsGenerator {
    fn default() -> Self {
        Self { seed: 0, train: 2000 }
    }
}

/// Card images and the folder for observation images.
#[derive(Debug)]
pub struct EzPointsPictures {
    /// Card images.
    pub cards: Cards,
    /// Image folder.
    pub store: PictureStore,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pictures: Option<EzPointsPictures>,
    pub(super) reward: EzPointsReward,
    deals: HashMap<String, Deal>,
    splits: [Vec<Task>; 3],
}

impl Shared {
    pub(super) fn deal(&self, id: &str) -> Result<Deal, EnvError> {
        self.deals.get(id).copied().ok_or_else(|| EnvError::UnknownTask(id.to_owned()))
    }
}

/// EZPoints as a task set.
///
/// A task is a pair of cards; its kind is `sum` or `product`. A digest of the pair, which ignores
/// the order of the cards, decides the split: `train`, `valid` and `test` get about 60, 15 and 25 %
/// of the 154 pairs. All ten pairs of ranks occur in training.
#[derive(Clone, Debug)]
pub struct EzPointsSet {
    shared: Arc<Shared>,
    max_steps: usize,
}

impl EzPointsSet {
    /// Creates the splits. If `panel` is given, its deals become the `test` split, and the other
    /// splits exclude them.
    ///
    /// # Errors
    /// Fails if no training tasks remain.
    pub fn new(
        config: &EzPointsGenerator,
        panel: Option<Vec<Deal>>,
        reward: EzPointsReward,
        pictures: Option<EzPointsPictures>,
    ) -> Result<Self, EnvError> {
        let taken: HashSet<String> = panel.iter().flatten().map(|deal| deal.digest()).collect();
        let split = |deal: &Deal| {
            let digest = deal.digest();
            if taken.contains(&digest) { 2 } else { split_of(&digest, TEST, VALID) }
        };
        let mut found: [Vec<Deal>; 3] = Default::default();
        let mut rng = Seed::derive(config.seed, Purpose::World, &[]).rng();
        let mut all = Deal::all();
        rng.shuffle(&mut all);
        for deal in all {
            match split(&deal) {
                0 => {}
                side => found[side].push(deal),
            }
        }
        if let Some(panel) = panel {
            found[2] = panel;
        }
        let mut missed = 0;
        while found[0].len() < config.train {
            let deal = Deal::draw(&mut rng);
            if split(&deal) == 0 {
                found[0].push(deal);
                missed = 0;
            } else {
                missed += 1;
            }
            if missed >= MOST_DRAWS {
                return Err(EnvError::Other(
                    "[env] data: its deals have all cards that there are, so none are left to train on; name fewer".into(),
                ));
            }
        }
        let mut deals = HashMap::new();
        let mut splits: [Vec<Task>; 3] = Default::default();
        for ((name, split), found) in SPLITS.into_iter().zip(&mut splits).zip(found) {
            for (number, deal) in (1..).zip(found) {
                let id = format!("{name}/{number:05}-{deal}");
                let kind = if deal.operator() == Some(Symbol::Plus) { "sum" } else { "product" };
                deals.insert(id.clone(), deal);
                split.push(Task { digest: deal.digest(), ..Task::new(id, kind, GOAL) });
            }
        }
        Ok(Self {
            shared: Arc::new(Shared { pictures, reward, deals, splits }),
            max_steps: DEFAULT_MAX_STEPS,
        })
    }

    /// Sets the step limit.
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Returns the cards of a task.
    ///
    /// # Errors
    /// Fails if the task is unknown.
    pub fn deal(&self, id: &str) -> Result<Deal, EnvError> {
        self.shared.deal(id)
    }

    /// Returns a split's tasks without copying.
    ///
    /// # Errors
    /// Fails if the split is unknown.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        tasks_of(&self.shared.splits, split)
    }

    /// Creates an environment.
    pub fn ezpoints(&self) -> EzPointsEnv {
        EzPointsEnv::new(Arc::clone(&self.shared), self.max_steps)
    }
}

impl TaskSet for EzPointsSet {
    fn name(&self) -> &'static str {
        "ezpoints"
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
        Ok(Box::new(self.ezpoints()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cards::Card;
    use super::*;

    fn digests(set: &EzPointsSet, split: &str) -> HashSet<String> {
        set.split(split).unwrap().iter().map(|task| task.digest.clone()).collect()
    }

    fn set(seed: u64, panel: Option<Vec<Deal>>) -> EzPointsSet {
        EzPointsSet::new(&EzPointsGenerator { seed, train: 1000 }, panel, EzPointsReward::Original, None)
            .unwrap()
    }

    #[test]
    fn no_split_has_the_cards_of_another_whatever_the_seed() {
        let (first, second) = (set(0, None), set(1, None));
        for (left, right) in [("train", "test"), ("train", "valid"), ("valid", "test")] {
            assert!(digests(&first, left).is_disjoint(&digests(&second, right)), "{left} {right}");
        }
        let pairs = SPLITS.map(|split| digests(&first, split).len());
        assert_eq!(pairs.iter().sum::<usize>(), 154, "{pairs:?}");
        assert!(pairs[2] >= 30, "{pairs:?}");
        assert_eq!(first.split("train").unwrap().len(), 1000);
    }

    #[test]
    fn the_training_has_all_ten_pairs_of_ranks() {
        let set = set(0, None);
        let ranks = |split: &str| -> HashSet<[u8; 2]> {
            let tasks = set.split(split).unwrap().iter();
            tasks
                .map(|task| {
                    let mut ranks = set.deal(&task.id).unwrap().0.map(Card::rank);
                    ranks.sort_unstable();
                    ranks
                })
                .collect()
        };
        assert_eq!(ranks("train").len(), 10);
        assert_eq!(ranks("train"), ranks("test"));
    }

    #[test]
    fn a_panel_is_the_test_and_nothing_else() {
        let panel: Vec<Deal> = Deal::all().into_iter().step_by(3).collect();
        let set = set(0, Some(panel.clone()));
        assert_eq!(set.split("test").unwrap().len(), panel.len());
        for other in ["train", "valid"] {
            assert!(digests(&set, "test").is_disjoint(&digests(&set, other)));
        }
        let error = EzPointsSet::new(
            &EzPointsGenerator::default(),
            Some(Deal::all()),
            EzPointsReward::Original,
            None,
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("none are left to train on"), "{error}");
    }
}
