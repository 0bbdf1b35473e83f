use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use turnwise_core::{EnvError, Environment, Task, TaskList, TaskSet};

use super::catalogue::Catalogue;
use super::copies;
use super::environment::{DEFAULT_MAX_STEPS, WebshopEnv};
use super::goal::{Goal, GoalKind, Goals};
use super::goal_file::Divided;
use super::official::Size;
use super::page::{ObservationMode, StateKey};
use super::product::Product;
use super::reward::{Judge, Matching, Reward};
use super::shop::{Ranker, Shop};
use super::task_index::{IndexedTasks, Kept, TaskIndex};
use crate::python::PythonRandom;

/// How goals are divided into splits.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Splits {
    /// The goals of about 80, 10 and 10 % of the products become `train`, `valid` and `test`. The
    /// first byte of the SHA-256 of a product's ASIN decides the split.
    #[default]
    ByProduct,
    /// As in the original: the first 500 of the shuffled goals are `test`, the next 1,000 `eval`
    /// and the rest `train`, so splits share products. Unlike in the original, goals that recur in
    /// a later split (`test` is the last) are removed. From the official 1,000 products, two
    /// `train` goals and one `eval` goal are removed.
    Original,
    /// As in verl-agent: the first 500 of the shuffled goals are `test` and the rest `train`,
    /// except goals equal to a test goal. In verl-agent itself, each worker shuffles differently,
    /// and therefore trains on test goals of other workers.
    VerlAgent,
}

impl Splits {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::ByProduct => &["train", "valid", "test"],
            Self::Original => &["train", "eval", "test"],
            Self::VerlAgent => &["train", "test"],
        }
    }

    fn of(self, place: usize, byte: u8) -> usize {
        match self {
            Self::ByProduct => match byte {
                0..26 => 2,
                26..52 => 1,
                52.. => 0,
            },
            Self::Original => match place {
                0..500 => 2,
                500..1500 => 1,
                1500.. => 0,
            },
            Self::VerlAgent => usize::from(place < 500),
        }
    }
}

/// WebShop options.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebshopOptions {
    /// Which official catalogue to use. Default: the small catalogue if its files exist, else the
    /// full one.
    pub size: Option<Size>,
    /// How the instructions were written.
    pub goals: GoalKind,
    /// Maximum number of goals per product; `None` for no limit.
    #[schemars(range(min = 1, max = 1000000))]
    pub goals_per_product: Option<usize>,
    /// Seed for prices, price limits and the order of goals.
    pub seed: u64,
    /// Rule that divides goals into splits.
    pub splits: Splits,
    /// How option values are compared.
    pub matching: Matching,
    /// Reward for a purchase.
    pub reward: Reward,
    /// Text format of pages.
    pub observation: ObservationMode,
    /// Whether product pages have a button for attributes.
    pub show_attributes: bool,
    /// What credit methods compare to find equal states.
    pub state_key: StateKey,
}

impl Default for WebshopOptions {
    fn default() -> Self {
        Self {
            size: None,
            goals: GoalKind::Synthetic,
            goals_per_product: None,
            seed: 42,
            splits: Splits::ByProduct,
            matching: Matching::Original,
            reward: Reward::Success,
            observation: ObservationMode::Text,
            show_attributes: false,
            state_key: StateKey::Page,
        }
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) shop: Arc<Shop>,
    goals: Goals,
    drawn: bool,
    splits: Vec<(&'static str, Vec<u32>)>,
    matching: Matching,
    pub(super) reward: Reward,
    pub(super) observation: ObservationMode,
    pub(super) state_key: StateKey,
}

impl World {
    pub(super) fn judge(&self, id: &str) -> Result<Judge, EnvError> {
        let catalogue = self.shop.catalogue();
        let place = self.goals.position(catalogue, id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))?;
        let goal = self.goals.get(catalogue, place)?;
        let target = catalogue.product(goal.product)?;
        Ok(Judge::new(goal, &target, self.matching))
    }
}

/// WebShop goals as a task set, in shuffled order. A task's kind is its product's department.
#[derive(Clone, Debug)]
pub struct WebshopSet {
    world: Arc<World>,
    max_steps: usize,
    notes: Arc<Vec<String>>,
    kept: Option<Arc<Kept>>,
    indices: Arc<Mutex<BTreeMap<String, Arc<TaskIndex>>>>,
}

impl WebshopSet {
    /// Creates a set from products. `ranker` must have an index of these products.
    ///
    /// # Errors
    /// Fails if an ASIN is repeated, or no product yields a goal of the requested kind.
    pub fn from_products(
        products: Vec<Product>,
        ranker: Box<dyn Ranker>,
        options: &WebshopOptions,
    ) -> Result<Self, EnvError> {
        let mut random = PythonRandom::new(options.seed);
        let catalogue = Catalogue::from_products(products, &mut random)?;
        Self::new(catalogue, ranker, &mut random, options)
    }

    pub(super) fn new(
        catalogue: Catalogue,
        ranker: Box<dyn Ranker>,
        random: &mut PythonRandom,
        options: &WebshopOptions,
    ) -> Result<Self, EnvError> {
        let divided = Self::divide(&catalogue, random, options)?;
        Self::with_goals(catalogue, ranker, options, divided)
    }

    pub(super) fn divide(
        catalogue: &Catalogue,
        random: &mut PythonRandom,
        options: &WebshopOptions,
    ) -> Result<Divided, EnvError> {
        let goals = Goals::make(catalogue, options.goals, random, options.seed, options.goals_per_product)?;
        let mut splits: Vec<Vec<u32>> = options.splits.names().iter().map(|_| Vec::new()).collect();
        for place in 0..goals.len() {
            let byte = goals.product_byte(catalogue, place)?;
            splits[options.splits.of(place, byte)].push(place as u32);
        }
        // `ByProduct` never separates equal goals.
        if options.splits != Splits::ByProduct {
            copies::take_out(&goals, catalogue, &mut splits)?;
        }
        Ok((goals, splits))
    }

    pub(super) fn with_goals(
        catalogue: Catalogue,
        ranker: Box<dyn Ranker>,
        options: &WebshopOptions,
        (goals, places): Divided,
    ) -> Result<Self, EnvError> {
        if goals.is_empty() {
            return Err(EnvError::Other(format!(
                "the {} products of this catalogue give no goals of the kind asked for; for human goals the files \
                 need `items_human_ins.json`",
                catalogue.len()
            )));
        }
        let mut splits: Vec<(&'static str, Vec<u32>)> =
            options.splits.names().iter().copied().zip(places).collect();
        splits.retain(|(_, places)| !places.is_empty());
        let shop = Arc::new(Shop::new(catalogue, ranker, options.show_attributes));
        let WebshopOptions { goals_per_product, matching, reward, observation, state_key, .. } = *options;
        let drawn = goals_per_product.is_some();
        let world = Arc::new(World { shop, goals, drawn, splits, matching, reward, observation, state_key });
        Ok(Self {
            world,
            max_steps: DEFAULT_MAX_STEPS,
            notes: Arc::default(),
            kept: None,
            indices: Arc::default(),
        })
    }

    pub(super) fn with_kept(mut self, kept: Option<Kept>) -> Self {
        self.kept = kept.map(Arc::new);
        self
    }

    pub(super) fn with_note(mut self, note: Option<String>) -> Self {
        Arc::make_mut(&mut self.notes).extend(note);
        self
    }

    /// Returns notes on skipped products, removed goals and an approximate type factor.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.to_vec();
        let divided: usize = self.world.splits.iter().map(|(_, places)| places.len()).sum();
        let copies = self.world.goals.len() - divided;
        if copies > 0 {
            notes.push(format!(
                "{copies} goals are in no split: each is equal in everything to one of a later split (tests come last)"
            ));
        }
        if self.world.goals.skipped() > 0 {
            let reason = if self.world.drawn {
                "more than 4,294,967,295 combinations, too many to draw from"
            } else {
                "more than a million combinations; set goals_per_product to draw some of them"
            };
            notes.push(format!(
                "{} products give no goals: their options have {reason}",
                self.world.goals.skipped()
            ));
        }
        notes
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

    /// Returns the number of goals.
    pub fn len(&self) -> usize {
        self.world.goals.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the shop.
    pub fn shop(&self) -> &Arc<Shop> {
        &self.world.shop
    }

    /// Returns the goal at an index in the shuffled order.
    ///
    /// # Errors
    /// Fails for an unknown index or unreadable product.
    pub fn goal(&self, place: usize) -> Result<Goal, EnvError> {
        self.world.goals.get(self.world.shop.catalogue(), place)
    }

    /// Returns a task's goal, prepared for scoring.
    ///
    /// # Errors
    /// Fails for an unknown goal or unreadable product.
    pub fn judge(&self, id: &str) -> Result<Judge, EnvError> {
        self.world.judge(id)
    }

    /// Returns the indices of a split's goals.
    ///
    /// # Errors
    /// Returns [`EnvError::UnknownSplit`].
    pub fn split(&self, split: &str) -> Result<&[u32], EnvError> {
        let found = self.world.splits.iter().find(|(name, _)| *name == split);
        found.map(|(_, places)| places.as_slice()).ok_or_else(|| EnvError::UnknownSplit {
            split: split.to_owned(),
            known: self.splits().join(", "),
        })
    }

    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.world.goals.position(self.world.shop.catalogue(), id)
    }

    pub(super) fn id(&self, place: usize) -> Result<String, EnvError> {
        self.world.goals.id(self.world.shop.catalogue(), place)
    }

    /// Returns the goal at an index as a task.
    ///
    /// # Errors
    /// Fails for an unknown index or unreadable product.
    pub fn task(&self, place: usize) -> Result<Task, EnvError> {
        let goal = self.goal(place)?;
        let kind = self.world.shop.catalogue().product(goal.product)?.category.clone();
        Ok(Task {
            digest: goal.digest(self.world.shop.catalogue())?,
            ..Task::new(goal.id, kind, goal.instruction)
        })
    }

    /// Returns phrases that a word-level tokenizer keeps as one token: texts of pages and, for
    /// small catalogues, ASINs.
    ///
    /// # Errors
    /// Fails if a record is corrupt.
    pub fn phrases(&self) -> Result<Vec<String>, EnvError> {
        super::phrases::phrases(self.world.shop.catalogue())
    }

    /// Creates an environment.
    pub fn webshop(&self) -> WebshopEnv {
        WebshopEnv::new(Arc::clone(&self.world), self.max_steps)
    }
}

impl TaskSet for WebshopSet {
    fn name(&self) -> &'static str {
        "webshop"
    }

    fn splits(&self) -> Vec<String> {
        self.world.splits.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split)?.par_iter().map(|place| self.task(*place as usize)).collect()
    }

    fn list(&self, split: &str) -> Result<Option<Arc<dyn TaskList>>, EnvError> {
        let Some(kept) = &self.kept else { return Ok(None) };
        self.split(split)?;
        let Some(split) = self.world.splits.iter().map(|(name, _)| *name).find(|name| *name == split) else {
            return Ok(None);
        };
        // Not locked while all threads build an index.
        let indices = || self.indices.lock().unwrap_or_else(PoisonError::into_inner);
        let known = indices().get(split).map(Arc::clone);
        let index = if let Some(index) = known {
            index
        } else {
            let made = Arc::new(TaskIndex::of(self, split, kept)?);
            indices().insert(split.to_owned(), Arc::clone(&made));
            made
        };
        Ok(Some(Arc::new(IndexedTasks { set: self.clone(), split, index })))
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.webshop()))
    }
}
