use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Rng, Seed, digest};

use super::SearchGenerator;
use super::facts::{Encyclopaedia, Entity, Fact, Relation};
use crate::search::question::{PlannedSearch, Question};
use crate::splits::{SPLITS, split_of};

/// Question type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QuestionKind {
    /// Answered by the passage about the entity that the question names.
    SingleHop,
    /// Answered by a second passage, to which the passage about the named entity leads.
    TwoHop,
    /// Answered by a chain of three passages.
    ThreeHop,
    /// Answered by comparing two passages.
    Comparison,
}

/// Shares of the test and validation splits in 256ths.
const TEST: u8 = 26;
const VALID: u8 = 26;
/// Maximum number of consecutive draws without a new question.
const MOST_DRAWS: usize = 50_000;

impl QuestionKind {
    /// All types.
    pub const ALL: [Self; 4] = [Self::SingleHop, Self::TwoHop, Self::ThreeHop, Self::Comparison];

    /// Returns the question type's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleHop => "single-hop",
            Self::TwoHop => "two-hop",
            Self::ThreeHop => "three-hop",
            Self::Comparison => "comparison",
        }
    }
}

/// Draws distinct questions. A digest of the name from which a question starts decides the
/// question's split.
pub(super) fn draw(all: &Encyclopaedia, config: &SearchGenerator) -> Result<[Vec<Question>; 3], EnvError> {
    let mut subjects: [[Vec<Entity>; 4]; 3] = Default::default();
    for entity in all.entities() {
        let split = split_of(&digest([all.name(entity)]), TEST, VALID);
        let column = match entity {
            Entity::Person(_) => 0,
            Entity::Town(_) => 1,
            Entity::Work(_) => 2,
            Entity::Event(_) => 3,
        };
        subjects[split][column].push(entity);
    }
    let mut splits: [Vec<Question>; 3] = Default::default();
    for (split, count) in [config.train, config.valid, config.test].into_iter().enumerate() {
        let mut rng = Seed::derive(config.seed, Purpose::World, &[1, split as u64]).rng();
        let drawer = Drawer { all, subjects: &subjects[split] };
        let mut seen = HashSet::new();
        let mut missed = 0;
        while splits[split].len() < count {
            let kind = config.kinds[splits[split].len() % config.kinds.len()];
            match drawer.question(kind, &mut rng).filter(|question| seen.insert(question.text.clone())) {
                Some(question) => {
                    let id = format!("{}-{:05}", kind.name(), splits[split].len() + 1);
                    splits[split].push(Question { id, dataset: kind.name().to_owned(), ..question });
                    missed = 0;
                }
                None => missed += 1,
            }
            if missed > MOST_DRAWS {
                let (name, found) = (SPLITS[split], splits[split].len());
                return Err(EnvError::Other(format!(
                    "[env] generator.{name} = {count}: this encyclopaedia has no more {} questions for `{name}` after {found}; \
                     ask for fewer, or make it larger",
                    kind.name()
                )));
            }
        }
    }
    Ok(splits)
}

struct Drawer<'a> {
    all: &'a Encyclopaedia,
    subjects: &'a [Vec<Entity>; 4],
}

impl Drawer<'_> {
    fn question(&self, kind: QuestionKind, rng: &mut Rng) -> Option<Question> {
        match kind {
            QuestionKind::SingleHop => self.chain(1, rng),
            QuestionKind::TwoHop => self.chain(2, rng),
            QuestionKind::ThreeHop => self.chain(3, rng),
            QuestionKind::Comparison => self.comparison(rng),
        }
    }

    fn chain(&self, hops: usize, rng: &mut Rng) -> Option<Question> {
        let of = rng.below(4);
        let mut entity = *rng.choose(&self.subjects[of])?;
        let mut path = vec![entity];
        let mut noun = self.all.name(entity).to_owned();
        for _ in 1..hops {
            let relation = *rng.choose(Relation::of(entity))?;
            let Fact::Entity(next) = self.all.fact(entity, relation)? else { return None };
            noun = relation.noun(&noun);
            entity = next;
            path.push(entity);
        }
        let last = *rng.choose(Relation::of(entity))?;
        let answer = self.all.fact(entity, last)?;
        // A chain that returns to an entity would contain its answer.
        let unlike = path
            .iter()
            .enumerate()
            .all(|(place, entity)| answer != Fact::Entity(*entity) && !path[..place].contains(entity));
        if !unlike {
            return None;
        }
        let search = |(place, entity): (usize, &Entity)| PlannedSearch {
            query: self.all.name(*entity).to_owned(),
            // The name to look up next, or an invented one before any search.
            early_answer: if place == 0 {
                self.made_up(last, &answer, rng)
            } else {
                self.all.name(*entity).to_owned()
            },
        };
        let plan = path.iter().enumerate().map(search).collect();
        let golden = vec![self.all.write(&answer)];
        Some(Question { text: last.question(&noun), golden, plan, ..Question::default() })
    }

    fn made_up(&self, relation: Relation, answer: &Fact, rng: &mut Rng) -> String {
        for _ in 0..8 {
            let other = match answer {
                Fact::Entity(Entity::Person(_)) => Entity::Person(rng.below(self.all.people.len())),
                Fact::Entity(Entity::Town(_)) => Entity::Town(rng.below(self.all.towns.len())),
                _ => match relation {
                    Relation::Born | Relation::Occupation => Entity::Person(rng.below(self.all.people.len())),
                    Relation::Country | Relation::River | Relation::Founded => {
                        Entity::Town(rng.below(self.all.towns.len()))
                    }
                    Relation::Finished => Entity::Work(rng.below(self.all.works.len())),
                    _ => Entity::Event(rng.below(self.all.events.len())),
                },
            };
            let made_up = match answer {
                Fact::Entity(_) => Some(Fact::Entity(other)),
                Fact::Text(_) => self.all.fact(other, relation),
            };
            if let Some(made_up) = made_up.filter(|made_up| made_up != answer) {
                return self.all.write(&made_up);
            }
        }
        "unknown".to_owned()
    }

    fn comparison(&self, rng: &mut Rng) -> Option<Question> {
        let subjects = &self.subjects[rng.below(4)];
        let left = *rng.choose(subjects)?;
        let same = matches!(left, Entity::Person(_)) && rng.chance(0.5);
        let home = |entity: &Entity| self.all.fact(*entity, Relation::Birthplace);
        let right = if same && rng.chance(0.5) {
            // Equal birthplaces are rare among random pairs.
            let neighbours: Vec<Entity> =
                subjects.iter().filter(|entity| home(entity) == home(&left)).copied().collect();
            *rng.choose(&neighbours)?
        } else {
            *rng.choose(subjects)?
        };
        if left == right {
            return None;
        }
        let names = [left, right].map(|entity| self.all.name(entity).to_owned());
        let [first, second] = &names;
        let (text, golden, early) = if same {
            let alike = home(&left) == home(&right);
            let word = |alike: bool| if alike { "yes" } else { "no" }.to_owned();
            let text = format!("Were {first} and {second} born in the same town?");
            (text, word(alike), [word(rng.chance(0.5)), word(rng.chance(0.5))])
        } else {
            let (relation, question) = match left {
                Entity::Person(_) => (Relation::Born, "Who was born first,"),
                Entity::Town(_) => (Relation::Founded, "Which town was founded first,"),
                Entity::Work(_) => (Relation::Finished, "Which was finished first,"),
                Entity::Event(_) => (Relation::Held, "Which was held first,"),
            };
            let years =
                [left, right].map(|entity| self.all.fact(entity, relation).map(|fact| self.all.write(&fact)));
            let [Some(early), Some(late)] = &years else { return None };
            // Texts of four-digit years sort like numbers.
            let earlier = match early.cmp(late) {
                std::cmp::Ordering::Less => first,
                std::cmp::Ordering::Greater => second,
                std::cmp::Ordering::Equal => return None,
            };
            let guess = |rng: &mut Rng| names[rng.below(2)].clone();
            (format!("{question} {first} or {second}?"), earlier.clone(), [guess(rng), guess(rng)])
        };
        let plan = names.iter().zip(early);
        let plan =
            plan.map(|(query, early_answer)| PlannedSearch { query: query.clone(), early_answer }).collect();
        Some(Question { text, golden: vec![golden], plan, ..Question::default() })
    }
}
