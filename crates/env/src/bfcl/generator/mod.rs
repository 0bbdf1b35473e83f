//! Generates tasks for BFCL's APIs, without the package's data.
//!
//! A task is redrawn if one of the expert's calls fails. A hash of the gold calls decides the split
//! ([`SPLITS`]), so no sequence of gold calls is in two splits.

mod car;
mod files;
mod functions;
mod money;
mod office;
mod request;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Seed};

use self::request::{Draw, Request, Scene};
use super::apis::Api;
use super::long_context::LongContext;
use super::package::{BfclTask, Package};
use super::session::{Scenario, Session};
use super::set::split_by;
use crate::python::values::{Dict, Value};
use crate::splits::SPLITS;

pub(super) use self::functions::NAMES as FUNCTIONS;

/// Maximum number of draws per task; about one draw in four falls into the wanted split and counts.
const ATTEMPTS: u64 = 400;

/// Difficulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BfclLevel {
    /// One request, whose text contains all values that the calls need.
    Easy,
    /// Two requests to one API; some needed values must first be looked up by other calls.
    Medium,
    /// Two or three requests to two APIs; the model sees more unneeded functions than at the other
    /// levels.
    Hard,
}

impl BfclLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Medium => "medium",
            Self::Hard => "hard",
        }
    }

    fn distractors(self) -> usize {
        match self {
            Self::Easy => 3,
            Self::Medium => 6,
            Self::Hard => 10,
        }
    }
}

/// Settings of the generated tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfclGenerator {
    /// Random seed.
    pub seed: u64,
    /// APIs to use; empty means all eight.
    pub apis: Vec<Api>,
    /// Difficulty levels; each gets an equal share of the tasks.
    #[schemars(length(min = 1))]
    pub levels: Vec<BfclLevel>,
    /// Fraction of tasks in which one request omits a needed value, so that the right reply is to
    /// ask for it in text.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub missing_value: f64,
    /// Fraction of tasks in which a needed function is missing at first, so that the right reply is
    /// to say so in text.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub missing_function: f64,
    /// Number of training tasks.
    #[schemars(range(min = 1, max = 100000))]
    pub train: usize,
    /// Number of validation tasks.
    #[schemars(range(min = 0, max = 100000))]
    pub valid: usize,
    /// Number of test tasks.
    #[schemars(range(min = 0, max = 100000))]
    pub test: usize,
}

impl Default for BfclGenerator {
    fn default() -> Self {
        Self {
            seed: 0,
            apis: Vec::new(),
            levels: vec![BfclLevel::Easy, BfclLevel::Medium, BfclLevel::Hard],
            missing_value: 0.15,
            missing_function: 0.15,
            train: 2000,
            valid: 200,
            test: 300,
        }
    }
}

#[derive(Clone, Copy)]
enum Gap {
    Value(usize),
    Function(usize),
}

impl BfclGenerator {
    /// Generates tasks and function documents.
    ///
    /// # Errors
    /// Fails if a split has too few distinct tasks.
    pub fn package(&self) -> Result<Package, EnvError> {
        let mut tasks = Vec::new();
        for (split, count) in [self.train, self.valid, self.test].into_iter().enumerate() {
            tasks.extend(self.split(split, count)?);
        }
        Ok(Package { tasks, documents: functions::documents(), long: Arc::new(LongContext::default()) })
    }

    fn split(&self, split: usize, count: usize) -> Result<Vec<BfclTask>, EnvError> {
        let mut seen = HashSet::new();
        let mut tasks = Vec::with_capacity(count);
        let mut first = 0;
        while tasks.len() < count {
            // At least 64, so that one duplicate does not end the search.
            let wanted = (count - tasks.len()).max(64) as u64;
            let drawn: Vec<Option<BfclTask>> =
                (first..first + wanted).into_par_iter().map(|number| self.task(split, number)).collect();
            first += wanted;
            let before = tasks.len();
            tasks.extend(drawn.into_iter().flatten().filter(|task| seen.insert(task.digest())));
            let after = tasks.len();
            tasks.truncate(count);
            if after == before {
                return Err(EnvError::Other(format!(
                    "[env] generator: there are only {before} different tasks in the split {}, not {count}; ask for fewer, \
                     or name more APIs and levels",
                    SPLITS[split]
                )));
            }
        }
        Ok(tasks)
    }

    fn task(&self, split: usize, number: u64) -> Option<BfclTask> {
        (0..ATTEMPTS).find_map(|attempt| {
            let seed = Seed::derive(self.seed, Purpose::World, &[split as u64, number, attempt]);
            let mut draw = Draw(seed.rng());
            let place = usize::try_from(number).unwrap_or_default() % self.levels.len();
            let id = format!("{}-{}-{number}", SPLITS[split], self.levels[place].name());
            let task = self.draw(id, self.levels[place], &mut draw)?;
            (split_by(&task.gold.concat().join("\n")) == split && succeeds(&task)).then_some(task)
        })
    }

    fn draw(&self, id: String, level: BfclLevel, draw: &mut Draw) -> Option<BfclTask> {
        let share = draw.0.uniform();
        let lacks_value = share < self.missing_value;
        let has_gap = share < self.missing_value + self.missing_function;
        let mut apis = Api::ALL.to_vec();
        apis.retain(|api| self.apis.is_empty() || self.apis.contains(api));
        draw.0.shuffle(&mut apis);
        let (api_count, request_count) = match level {
            BfclLevel::Easy => (1, 1),
            BfclLevel::Medium => (1, 2),
            BfclLevel::Hard => (2, if has_gap { 2 } else { 3 }),
        };
        apis.truncate(api_count);
        let mut config = Dict::new();
        let mut scenes: Vec<Vec<Request>> = Vec::new();
        for api in &apis {
            let scene = scene(*api, draw);
            config.insert(api.class(), scene.config);
            let mut requests = scene.requests;
            requests.retain(|one| level != BfclLevel::Easy || (!one.has_lookups() && one.calls.len() <= 2));
            draw.0.shuffle(&mut requests);
            scenes.push(requests);
        }
        let requests: Vec<Request> =
            (0..request_count).filter_map(|place| scenes[place % apis.len()].pop()).collect();
        let gap = if has_gap { Some(gap(&requests, lacks_value, draw)?) } else { None };
        Some(assemble(id, level, apis, config, &requests, gap, draw))
    }
}

fn scene(api: Api, draw: &mut Draw) -> Scene {
    match api {
        Api::Files => files::scene(draw),
        Api::Maths => car::maths(draw),
        Api::Messages => office::messages(draw),
        Api::Posting => office::posting(draw),
        Api::Tickets => office::tickets(draw),
        Api::Trading => money::trading(draw),
        Api::Travel => money::travel(draw),
        Api::Vehicle => car::vehicle(draw),
    }
}

fn gap(requests: &[Request], lacks_value: bool, draw: &mut Draw) -> Option<Gap> {
    let needs = |request: &Request, name: &str| request.calls.iter().any(|call| call.name == name);
    let mut gaps = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        if lacks_value {
            gaps.extend(request.vague.as_ref().map(|_| Gap::Value(place)));
            continue;
        }
        let name = request.calls.last()?.name;
        if requests.iter().enumerate().all(|(other, request)| other == place || !needs(request, name)) {
            gaps.push(Gap::Function(place));
        }
    }
    draw.0.choose(&gaps).copied()
}

fn assemble(
    id: String,
    level: BfclLevel,
    apis: Vec<Api>,
    config: Dict,
    requests: &[Request],
    gap: Option<Gap>,
    draw: &mut Draw,
) -> BfclTask {
    let (mut turns, mut plan, mut gold) = (Vec::new(), Vec::new(), Vec::new());
    let mut added = HashMap::new();
    for (place, request) in requests.iter().enumerate() {
        let first = match (gap, &request.vague) {
            (Some(Gap::Value(at)), Some([vague, answer])) if at == place => {
                turns.push(vague.clone());
                answer.clone()
            }
            (Some(Gap::Function(at)), _) if at == place => {
                turns.push(request.says.clone());
                let missing = request.calls.last().map(|call| call.name.to_owned());
                added.insert(turns.len(), missing.into_iter().collect());
                String::new()
            }
            _ => request.says.clone(),
        };
        turns.push(first);
        // The incomplete turn allows no calls.
        plan.resize(turns.len() - 1, Vec::new());
        gold.resize(turns.len() - 1, Vec::new());
        let replies = request.calls.chunk_by(|one, next| one.is_graded == next.is_graded);
        plan.push(replies.map(|calls| calls.iter().map(|call| call.text.clone()).collect()).collect());
        gold.push(request.calls.iter().filter(|call| call.is_graded).map(|call| call.text.clone()).collect());
    }
    let mut functions: Vec<String> = Vec::new();
    let needed = requests.iter().flat_map(|request| &request.calls).map(|call| call.name);
    let mut others: Vec<&str> = functions::NAMES
        .iter()
        .copied()
        .filter(|name| apis.iter().any(|api| api.method(name).is_some()))
        .collect();
    draw.0.shuffle(&mut others);
    let mut left = level.distractors();
    let is_needed = |name: &str| needed.clone().any(|needed| needed == name);
    for name in others {
        if is_needed(name) {
            functions.push(name.to_owned());
        } else if left > 0 {
            left -= 1;
            functions.push(name.to_owned());
        }
    }
    let kind = match gap {
        None => level.name().to_owned(),
        Some(Gap::Value(_)) => format!("{}-missing-value", level.name()),
        Some(Gap::Function(_)) => format!("{}-missing-function", level.name()),
    };
    BfclTask { id, kind, is_long: false, apis, config, turns, functions: Some(functions), added, plan, gold }
}

fn succeeds(task: &BfclTask) -> bool {
    let scenario = Scenario { id: &task.id, apis: &task.apis, config: &task.config, long: None };
    let mut session = Session::new(scenario, "plan");
    task.plan.iter().flatten().flatten().all(|call| {
        let result = session.execute(call);
        !result.starts_with("Error during execution")
            && !result.contains("\"error\"")
            && !result.contains("'error'")
    })
}

impl BfclTask {
    pub(super) fn digest(&self) -> String {
        let state = Value::Dict(self.config.clone()).repr();
        let gold = self.gold.concat().join("\n");
        turnwise_core::digest([state.as_bytes(), self.turns.join("\n").as_bytes(), gold.as_bytes()])
    }
}

#[cfg(test)]
mod tests;
