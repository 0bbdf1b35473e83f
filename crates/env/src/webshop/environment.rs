use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Metric, Observation, Seed, Snapshot, Step, Task};

use super::action::Action;
use super::page::StateKey;
use super::reward::{Judge, Score};
use super::session::{Effect, Page, Session, Visit};
use super::set::World;
use crate::saved::SavedEpisode;

/// Default step limit.
pub const DEFAULT_MAX_STEPS: usize = 15;

/// Metric with the purchase's score, from 0 to 1.
pub const TASK_SCORE: &str = "task_score";

/// Metric: 1 if the type factor is approximate ([`Judge::type_score`]), else 0.
pub const TYPE_STAND_IN: &str = "type_stand_in";

/// Environment for the goals of a [`super::WebshopSet`].
///
/// A purchase ends the episode (`terminated`) and gives the episode's only reward
/// ([`super::reward::Reward`]). Actions without effect also count towards the step limit.
///
/// Progress is the fraction of the goal's attributes, options, price and type that the open product
/// meets. On a page of search results, only the price and type of the best listed product count.
/// Progress is 1 only if buying now reaches the goal.
#[derive(Debug)]
pub struct WebshopEnv {
    world: Arc<World>,
    max_steps: usize,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    judge: Judge,
    session: Session,
    steps: usize,
    score: Option<Score>,
    /// Number of attributes that each product meets, cached because comparing texts dominates the
    /// cost of progress.
    attributes: HashMap<u32, usize>,
    types: HashMap<u32, f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    task: String,
    /// Instruction at the time of saving, to detect a task id that now names a different goal.
    instruction: String,
    steps: usize,
    visit: Visit,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "WebShop";
    const FORMAT: &'static str = "turnwise.webshop.episode";
    const VERSION: u32 = 1;
}

impl WebshopEnv {
    pub(super) fn new(world: Arc<World>, max_steps: usize) -> Self {
        Self { world, max_steps, episode: None }
    }

    /// Returns the current episode's session.
    pub fn session(&self) -> Option<&Session> {
        self.episode.as_ref().map(|episode| &episode.session)
    }

    /// Returns the purchase's score, or `None` before a purchase.
    pub fn score(&self) -> Option<Score> {
        self.episode.as_ref()?.score
    }
}

fn observe(session: &Session, world: &World) -> Result<Observation, EnvError> {
    let view = session.view()?;
    let observation = Observation::new(view.render(world.observation)).with_admissible(view.admissible());
    let options = &session.visit().options;
    if world.state_key == StateKey::Page || options.is_empty() || session.product().is_none() {
        return Ok(observation);
    }
    let chosen: BTreeMap<&str, &str> =
        options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut key = observation.text().into_owned();
    for (name, value) in chosen {
        let _ = write!(key, "\nchosen: {name:?} = {value:?}");
    }
    Ok(observation.with_state_key(key))
}

impl Episode {
    fn new(judge: Judge, session: Session, steps: usize) -> Self {
        Self { judge, session, steps, score: None, attributes: HashMap::new(), types: HashMap::new() }
    }

    fn buy(&mut self, world: &World) -> Result<Score, EnvError> {
        let (index, product) =
            self.session.product().ok_or_else(|| EnvError::Other("nothing to buy is open".to_owned()))?;
        let price = world.shop.catalogue().price(index);
        let score = self.judge.score(product, price, &self.session.visit().options);
        self.session.close(score.total());
        self.score = Some(score);
        Ok(score)
    }

    fn progress(&mut self, world: &World) -> f64 {
        let goal = self.judge.goal();
        let asked = (goal.attributes.len() + goal.options.len() + 2) as f64;
        let price = |index: u32| f64::from(world.shop.catalogue().price(index) <= goal.price_upper);
        let judge = &self.judge;
        if let Some((index, product)) = self.session.product() {
            let attributes = *self.attributes.entry(index).or_insert_with(|| judge.attributes_met(product));
            let kind = *self.types.entry(index).or_insert_with(|| judge.type_score(product).factor);
            let options = judge.options_met(&self.session.visit().options);
            return ((attributes + options) as f64 + price(index) + kind) / asked;
        }
        let mut best = 0.0f64;
        for (index, product) in self.session.listed() {
            let kind = self.types.entry(*index).or_insert_with(|| judge.type_score(product).factor);
            best = best.max(price(*index) + *kind);
        }
        best / asked
    }
}

impl Environment for WebshopEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.episode = None;
        let judge = self.world.judge(&task.id)?;
        let session = Session::new(Arc::clone(&self.world.shop), judge.goal().instruction.clone());
        let observation = observe(&session, &self.world)?;
        self.episode = Some(Episode::new(judge, session, 0));
        Ok(observation)
    }

    fn step(&mut self, action: &turnwise_core::Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        if episode.score.is_some() || episode.steps >= self.max_steps {
            return Err(EnvError::Other(format!(
                "{}: the episode is over after {} steps; call `reset` before the next `step`",
                episode.judge.goal().id,
                episode.steps
            )));
        }
        let effect = episode.session.step(&Action::parse(&action.text()))?;
        episode.steps += 1;
        let mut metrics = Vec::new();
        let (mut success, mut reward) = (false, 0.0);
        if effect == Effect::Bought {
            let score = episode.buy(&self.world)?;
            success = score.success();
            reward = self.world.reward.of(score);
            metrics.push(Metric::last(TASK_SCORE, score.total()));
            metrics.push(Metric::last(TYPE_STAND_IN, f64::from(score.kind.type_stand_in)));
        }
        let progress = episode.progress(&self.world);
        let bought = effect == Effect::Bought;
        let truncated = !bought && episode.steps >= self.max_steps;
        Ok(Step {
            observation: observe(&episode.session, &self.world)?,
            reward,
            progress: Some(progress),
            terminated: bought,
            truncated,
            success,
            understood: effect != Effect::Nothing,
            metrics,
            rewards: Vec::new(),
        })
    }

    /// Saves the episode, but not the step limit, which is a setting. A finished episode cannot be
    /// saved.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if episode.session.visit().page == Page::Done {
            return Err(EnvError::State(
                "the episode has ended with a purchase; there is nothing to save".to_owned(),
            ));
        }
        let goal = episode.judge.goal();
        let saved = Saved {
            task: goal.id.clone(),
            instruction: goal.instruction.clone(),
            steps: episode.steps,
            visit: episode.session.visit().clone(),
        };
        saved.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let refuse = |reason: String| EnvError::State(reason);
        let saved = Saved::read(snapshot)?;
        let judge = self.world.judge(&saved.task)?;
        if judge.goal().instruction != saved.instruction {
            return Err(refuse(format!(
                "`{}` is not the goal the state was saved from; load the same files with the same seed",
                saved.task
            )));
        }
        let session = Session::resume(Arc::clone(&self.world.shop), saved.instruction, saved.visit)?;
        self.episode = Some(Episode::new(judge, session, saved.steps));
        Ok(())
    }
}
