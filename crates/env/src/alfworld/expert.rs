//! Expert that sees only observations and admissible commands.
//!
//! The expert first searches the receptacles in which it expects the highest number of wanted
//! objects per command ([`Prior`]). With [`SearchOrder::Listed`], the expert follows the order in
//! which the introduction lists the receptacles.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use turnwise_core::Observation;

use super::TaskType;
use super::prior::{Prior, kind_of};

/// Order in which the expert searches receptacles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchOrder {
    /// The receptacles most likely to contain a wanted object first.
    #[default]
    Likely,
    /// The order in which the introduction lists the receptacles, which is easier to imitate but
    /// takes more steps.
    Listed,
}

/// Parsed task sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Task type.
    pub task_type: TaskType,
    /// Type of the wanted object (`butterknife`).
    pub object: String,
    /// Type of the target receptacle or lamp.
    pub target: String,
}

impl Wish {
    /// Parses the task sentence of a game.
    pub fn parse(sentence: &str) -> Option<Self> {
        use TaskType as T;
        let words: Vec<&str> = sentence.trim().trim_end_matches('.').split(' ').collect();
        let (task_type, object, target) = match words.as_slice() {
            ["put", "two", o, "in", t] | ["find", "two", o, "and", "put", "them", "in", t] => {
                (T::PickTwo, o, t)
            }
            ["examine", "the", o, "with", "the", t] | ["look", "at", o, "under", "the", t] => {
                (T::LookInLight, o, t)
            }
            ["put", "a", "clean", o, "in", t] | ["clean", "some", o, "and", "put", "it", "in", t] => {
                (T::PickCleanThenPlace, o, t)
            }
            ["put", "a", "hot", o, "in", t] | ["heat", "some", o, "and", "put", "it", "in", t] => {
                (T::PickHeatThenPlace, o, t)
            }
            ["put", "a", "cool", o, "in", t] | ["cool", "some", o, "and", "put", "it", "in", t] => {
                (T::PickCoolThenPlace, o, t)
            }
            ["put", "a" | "some", o, "in" | "on", t] => (T::PickAndPlace, o, t),
            _ => return None,
        };
        Some(Self { task_type, object: (*object).to_owned(), target: (*target).to_owned() })
    }

    fn treatment(&self) -> Option<(&'static str, &'static str)> {
        match self.task_type {
            TaskType::PickCleanThenPlace => Some(("clean", "sinkbasin")),
            TaskType::PickHeatThenPlace => Some(("heat", "microwave")),
            TaskType::PickCoolThenPlace => Some(("cool", "fridge")),
            TaskType::PickAndPlace | TaskType::LookInLight | TaskType::PickTwo => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Spot {
    name: String,
    /// Objects last seen in the receptacle, or `None` if it must still be searched.
    contents: Option<Vec<String>>,
    open: bool,
    /// Whether the expert found that nothing can be put into the receptacle.
    refused: bool,
}

/// Expert for one episode at a time.
#[derive(Clone, Debug)]
pub struct Expert<'a> {
    prior: &'a Prior,
    order: SearchOrder,
    wish: Option<Wish>,
    spots: Vec<Spot>,
    holding: Option<String>,
    treated: BTreeSet<String>,
    fixed: BTreeSet<String>,
}

impl<'a> Expert<'a> {
    /// Creates an expert that searches likely receptacles first.
    pub fn new(prior: &'a Prior) -> Self {
        Self {
            prior,
            order: SearchOrder::Likely,
            wish: None,
            spots: Vec::new(),
            holding: None,
            treated: BTreeSet::new(),
            fixed: BTreeSet::new(),
        }
    }

    /// Sets the search order.
    pub(crate) fn with_order(mut self, order: SearchOrder) -> Self {
        self.order = order;
        self
    }

    /// Starts an episode. Returns false if the task sentence cannot be parsed, in which case the
    /// expert only explores.
    pub fn reset(&mut self, introduction: &str, goal: &str) -> bool {
        self.wish = Wish::parse(goal);
        self.holding = None;
        self.treated.clear();
        self.fixed.clear();
        let list = introduction
            .split_once("Looking quickly around you, you see ")
            .and_then(|(_, rest)| rest.split_once(".\n"))
            .map_or("", |(list, _)| list);
        self.spots = names(list)
            .map(|name| Spot { name: name.to_owned(), contents: None, open: false, refused: false })
            .collect();
        self.wish.is_some()
    }

    /// Returns the next command, or `look` if the observation lists no admissible command.
    pub fn act(&mut self, observation: &Observation) -> String {
        self.observe(&observation.text());
        let scene = View::new(&self.spots, &observation.admissible);
        // Each round excludes a receptacle or an object.
        let rounds = 64 + self.spots.len();
        let mut chosen = None;
        for _ in 0..rounds {
            chosen = match self.decide(&scene) {
                Decision::Do(action) => Some(action),
                Decision::Refuse(spot) => {
                    self.spots[spot].refused = true;
                    continue;
                }
                Decision::Fixed(object) => {
                    self.fixed.insert(object);
                    continue;
                }
                Decision::Forget => {
                    for spot in &mut self.spots {
                        spot.contents = None;
                    }
                    continue;
                }
            };
            break;
        }
        chosen
            .filter(|action| scene.allows(action))
            .or_else(|| observation.admissible.first().cloned())
            .unwrap_or_else(|| "look".to_owned())
    }

    /// Updates the expert's knowledge from an observation. [`Expert::act`] calls this method
    /// itself.
    pub(crate) fn observe(&mut self, text: &str) {
        if let Some((object, receptacle)) = between(text, "You pick up the ", " from the ") {
            self.remove(object, receptacle);
            self.holding = Some(object.to_owned());
        } else if let Some((object, receptacle)) = between(text, "You move the ", " to the ") {
            if let Some(contents) = self.spot(receptacle).and_then(|spot| spot.contents.as_mut()) {
                contents.push(object.to_owned());
            }
            self.holding = None;
        } else if let Some(object) = text.strip_prefix("You are carrying: a ") {
            self.holding = Some(object.trim_end_matches('.').to_owned());
        } else if text.starts_with("You are not carrying") {
            self.holding = None;
        } else if let Some(closed) = text.strip_prefix("You close the ") {
            if let Some(spot) = self.spot(closed.trim_end_matches('.')) {
                spot.open = false;
            }
        } else if let Some((verb, _)) = self.wish.as_ref().and_then(Wish::treatment) {
            for done in ["clean", "heat", "cool"] {
                if let Some((object, _)) = between(text, &format!("You {done} the "), " using the ") {
                    if done == verb {
                        self.treated.insert(object.to_owned());
                    } else if done != "clean" {
                        // Heating ends cooling, and vice versa.
                        self.treated.remove(object);
                    }
                }
            }
        }
        let seen = |opening: &str, middle: &str| -> Option<(String, Vec<String>)> {
            let (_, rest) = text.split_once(opening)?;
            let (receptacle, list) = rest.split_once(middle)?;
            let list = list.strip_suffix('.').unwrap_or(list);
            Some((receptacle.to_owned(), names(list).map(str::to_owned).collect()))
        };
        let view = seen("On the ", ", you see ").or_else(|| seen("The ", " is open. In it, you see "));
        if let Some((receptacle, contents)) = view
            && let Some(spot) = self.spot(&receptacle)
        {
            spot.contents = Some(contents);
            spot.open = true;
        }
    }

    fn spot(&mut self, name: &str) -> Option<&mut Spot> {
        self.spots.iter_mut().find(|spot| spot.name == name)
    }

    fn remove(&mut self, object: &str, receptacle: &str) {
        if let Some(contents) = self.spot(receptacle).and_then(|spot| spot.contents.as_mut()) {
            contents.retain(|other| other != object);
        }
    }

    fn decide(&self, scene: &View<'_>) -> Decision {
        let Some(wish) = &self.wish else { return self.explore(scene, &[]) };
        match &self.holding {
            Some(held) if kind_of(held) != wish.object => self.put_away(scene, held),
            Some(_) if wish.task_type == TaskType::LookInLight => self.light(scene, wish),
            Some(held) => match wish.treatment().filter(|_| !self.treated.contains(held)) {
                Some((verb, tool)) => self.treat(scene, held, verb, tool),
                None => self.place(scene, wish, held),
            },
            None => self.fetch(scene, wish),
        }
    }

    fn fetch(&self, scene: &View<'_>, wish: &Wish) -> Decision {
        let keep = match wish.task_type {
            TaskType::PickTwo => self.destination(scene, wish),
            _ => None,
        };
        let wanted = |index: usize| {
            // Objects in their target stay there.
            let settled = match wish.task_type {
                TaskType::PickAndPlace => kind_of(&self.spots[index].name) == wish.target,
                TaskType::PickTwo => keep == Some(index),
                _ => false,
            };
            let contents = self.spots[index].contents.as_deref().filter(|_| !settled).unwrap_or_default();
            contents.iter().find(|object| kind_of(object) == wish.object && !self.fixed.contains(*object))
        };
        let known = (0..self.spots.len())
            .filter_map(|index| Some((index, wanted(index)?)))
            .min_by_key(|(index, _)| !scene.here(*index));
        let Some((index, object)) = known else {
            return match wish.task_type {
                TaskType::LookInLight if self.lamp(wish).is_none() => {
                    self.explore(scene, &[&wish.object, &wish.target])
                }
                _ => self.explore(scene, &[&wish.object]),
            };
        };
        let spot = &self.spots[index].name;
        let take = format!("take {object} from {spot}");
        if scene.allows(&take) {
            return Decision::Do(take);
        }
        if !scene.here(index) {
            return Decision::Do(format!("go to {spot}"));
        }
        let open = format!("open {spot}");
        if scene.allows(&open) && !self.spots[index].open {
            return Decision::Do(open);
        }
        Decision::Fixed(object.clone())
    }

    /// Returns the target receptacle with the highest number of wanted objects. On a tie, it
    /// prefers one at the agent's place.
    fn destination(&self, scene: &View<'_>, wish: &Wish) -> Option<usize> {
        let settled = |index: usize| {
            let contents = self.spots[index].contents.as_deref().unwrap_or_default();
            contents.iter().filter(|object| kind_of(object) == wish.object).count()
        };
        (0..self.spots.len())
            .filter(|&index| kind_of(&self.spots[index].name) == wish.target && !self.spots[index].refused)
            .max_by_key(|&index| {
                let known = self.spots[index].contents.is_some();
                (settled(index), scene.here(index), known, std::cmp::Reverse(index))
            })
    }

    fn place(&self, scene: &View<'_>, wish: &Wish, held: &str) -> Decision {
        let Some(index) = self.destination(scene, wish) else { return self.put_away(scene, held) };
        let spot = &self.spots[index].name;
        let put = format!("move {held} to {spot}");
        let open = format!("open {spot}");
        if scene.allows(&put) {
            Decision::Do(put)
        } else if !scene.here(index) {
            Decision::Do(format!("go to {spot}"))
        } else if scene.allows(&open) && !self.spots[index].open {
            Decision::Do(open)
        } else {
            Decision::Refuse(index)
        }
    }

    fn treat(&self, scene: &View<'_>, held: &str, verb: &str, tool: &str) -> Decision {
        let tools = || self.spots.iter().filter(|spot| kind_of(&spot.name) == tool);
        let treat = |spot: &Spot| format!("{verb} {held} with {}", spot.name);
        if let Some(action) = tools().map(treat).find(|action| scene.allows(action)) {
            return Decision::Do(action);
        }
        match tools().find(|spot| scene.allows(&format!("go to {}", spot.name))) {
            Some(spot) => Decision::Do(format!("go to {}", spot.name)),
            None => self.put_away(scene, held),
        }
    }

    fn lamp(&self, wish: &Wish) -> Option<(usize, &String)> {
        self.spots.iter().enumerate().find_map(|(index, spot)| {
            let contents = spot.contents.as_deref()?;
            Some((index, contents.iter().find(|object| kind_of(object) == wish.target)?))
        })
    }

    fn light(&self, scene: &View<'_>, wish: &Wish) -> Decision {
        match self.lamp(wish) {
            None => self.explore(scene, &[&wish.target]),
            Some((_, lamp)) if scene.allows(&format!("use {lamp}")) => Decision::Do(format!("use {lamp}")),
            Some((index, _)) => Decision::Do(format!("go to {}", self.spots[index].name)),
        }
    }

    fn put_away(&self, scene: &View<'_>, held: &str) -> Decision {
        let prefix = format!("move {held} to ");
        let put = |action: &&String| {
            let wanted = self.wish.as_ref().is_some_and(|wish| {
                action.strip_prefix(&prefix).is_some_and(|place| kind_of(place) == wish.target)
            });
            action.starts_with(&prefix) && !wanted
        };
        match scene.admissible.iter().find(put) {
            Some(action) => Decision::Do(action.clone()),
            None => self.explore(scene, &[]),
        }
    }

    fn explore(&self, scene: &View<'_>, kinds: &[&str]) -> Decision {
        let unseen = || (0..self.spots.len()).filter(|&index| self.spots[index].contents.is_none());
        let worth = |index: usize| {
            let kind = kind_of(&self.spots[index].name);
            let expected: f64 = kinds.iter().map(|object| self.prior.expected(object, kind)).sum();
            let door = matches!(kind, "cabinet" | "drawer" | "fridge" | "microwave" | "safe");
            let cost = match (scene.here(index), door) {
                (false, true) => 2.0,
                _ => 1.0,
            };
            expected / cost
        };
        let chosen = match self.order {
            SearchOrder::Listed => unseen().next(),
            // `max_by` returns the last of equals, hence `rev`.
            SearchOrder::Likely => unseen()
                .rev()
                .map(|index| (worth(index), index))
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .map(|best| best.1),
        };
        let Some(index) = chosen else {
            return if self.spots.is_empty() { Decision::Do("look".into()) } else { Decision::Forget };
        };
        let spot = &self.spots[index].name;
        let go = format!("go to {spot}");
        let open = format!("open {spot}");
        Decision::Do(if scene.allows(&go) {
            go
        } else if scene.allows(&open) && !self.spots[index].open {
            open
        } else {
            format!("examine {spot}")
        })
    }
}

enum Decision {
    Do(String),
    /// Exclude this receptacle as a target, because nothing can be put into it.
    Refuse(usize),
    Fixed(String),
    /// Everything was searched without success; search again.
    Forget,
}

struct View<'a> {
    admissible: &'a [String],
    here: Vec<bool>,
}

impl<'a> View<'a> {
    fn new(spots: &[Spot], admissible: &'a [String]) -> Self {
        let examined = |spot: &Spot| {
            admissible.iter().any(|action| action.strip_prefix("examine ") == Some(spot.name.as_str()))
        };
        let here: Vec<bool> = spots.iter().map(examined).collect();
        Self { admissible, here }
    }

    fn allows(&self, action: &str) -> bool {
        self.admissible.iter().any(|other| other == action)
    }

    fn here(&self, spot: usize) -> bool {
        self.here[spot]
    }
}

pub(super) fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(", ").filter_map(|item| {
        let item = item.strip_prefix("and ").unwrap_or(item);
        item.strip_prefix("a ")
    })
}

/// `(A, B)` from `<opening>A<middle>B.`
fn between<'t>(text: &'t str, opening: &str, middle: &str) -> Option<(&'t str, &'t str)> {
    let (first, second) = text.strip_prefix(opening)?.split_once(middle)?;
    Some((first, second.strip_suffix('.')?))
}

pub(super) mod summary;
#[cfg(test)]
mod tests;
