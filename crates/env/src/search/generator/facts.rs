//! Facts about people, towns, works and events.

use turnwise_core::Rng;

use super::SearchGenerator;
use super::names::Names;

/// Occupations. Only people with one of the first five occupations create works.
const OCCUPATIONS: [&str; 14] = [
    "writer", "painter", "composer", "poet", "sculptor", "builder", "doctor", "judge", "baker", "merchant",
    "botanist", "sailor", "potter", "weaver",
];
const BUILDER: usize = 5;
/// Kinds of work, each with the index of the occupation that creates them.
const WORKS: [(&str, usize); 8] = [
    ("novel", 0),
    ("play", 0),
    ("painting", 1),
    ("symphony", 2),
    ("ballet", 2),
    ("song", 2),
    ("poem", 3),
    ("statue", 4),
];
/// Range of birth years; the end is excluded.
const BIRTHS: (u16, u16) = (1700, 1900);
const FOUNDED: (u16, u16) = (1500, 1700);
/// Maximum number of draws for the mother or the teacher of a person.
const TRIES: usize = 40;

#[derive(Clone, Debug)]
pub(super) struct Person {
    pub(super) name: String,
    pub(super) female: bool,
    pub(super) occupation: usize,
    pub(super) born: u16,
    pub(super) birthplace: usize,
    pub(super) mother: Option<usize>,
    pub(super) teacher: Option<usize>,
    pub(super) died: u16,
    pub(super) deathplace: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Town {
    pub(super) name: String,
    pub(super) country: usize,
    pub(super) river: usize,
    pub(super) founded: u16,
    pub(super) builder: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) name: String,
    pub(super) kind: usize,
    pub(super) author: usize,
    pub(super) finished: u16,
    pub(super) setting: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) venue: usize,
    pub(super) held: u16,
    pub(super) winner: usize,
}

/// All facts. A mother was alive and old enough at the birth of her child. A teacher is older than
/// the pupil and has the same occupation. Nobody works before the age of 20 or after death.
#[derive(Clone, Debug)]
pub(super) struct Encyclopaedia {
    /// People, sorted by year of birth.
    pub(super) people: Vec<Person>,
    pub(super) towns: Vec<Town>,
    pub(super) works: Vec<Work>,
    pub(super) events: Vec<Event>,
    countries: Vec<String>,
    rivers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entity {
    Person(usize),
    Town(usize),
    Work(usize),
    Event(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Relation {
    Mother,
    Teacher,
    Birthplace,
    Deathplace,
    Born,
    Occupation,
    Country,
    River,
    Founded,
    Builder,
    Author,
    Finished,
    Setting,
    Venue,
    Held,
    Winner,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Entity(Entity),
    Text(String),
}

impl Encyclopaedia {
    pub(super) fn draw(config: &SearchGenerator, rng: &mut Rng) -> Self {
        let mut names = Names::shuffled(rng);
        let year = |from: u16, to: u16, rng: &mut Rng| from + rng.below(usize::from(to - from)) as u16;
        let mut births: Vec<u16> = (0..config.people).map(|_| year(BIRTHS.0, BIRTHS.1, rng)).collect();
        births.sort_unstable();
        let mut people: Vec<Person> = Vec::with_capacity(config.people);
        for born in births {
            let female = rng.chance(0.5);
            let occupation =
                if people.len() < OCCUPATIONS.len() { people.len() } else { rng.below(OCCUPATIONS.len()) };
            let older = |least: u16, most: u16, fits: &dyn Fn(&Person) -> bool, rng: &mut Rng| {
                let from = people.partition_point(|person| person.born + most < born);
                let to = people.partition_point(|person| person.born + least <= born);
                (0..TRIES)
                    .filter(|_| from < to)
                    .map(|_| from + rng.below(to - from))
                    .find(|&index| fits(&people[index]))
            };
            let mother = older(18, 40, &|person| person.female && person.died >= born, rng);
            let teacher =
                older(12, 50, &|person| person.occupation == occupation && person.died >= born + 12, rng);
            people.push(Person {
                name: names.person(female),
                female,
                occupation,
                born,
                birthplace: rng.below(config.towns),
                mother,
                teacher: teacher.filter(|_| teacher != mother),
                died: born + 40 + rng.below(45) as u16,
                deathplace: rng.below(config.towns),
            });
        }
        let of = |occupation: usize| -> Vec<usize> {
            (0..people.len()).filter(|&index| people[index].occupation == occupation).collect()
        };
        let makers: Vec<Vec<usize>> = (0..OCCUPATIONS.len()).map(of).collect();
        // Everybody lives to at least 40.
        let active =
            |person: &Person, rng: &mut Rng| year(person.born + 20, person.died.min(person.born + 60), rng);
        let works = (0..config.works)
            .map(|_| {
                let kind = rng.below(WORKS.len());
                let makers = &makers[WORKS[kind].1];
                let author = makers[rng.below(makers.len())];
                let finished = active(&people[author], rng);
                Work { name: names.work(), kind, author, finished, setting: rng.below(config.towns) }
            })
            .collect();
        let events = (0..config.events)
            .map(|_| {
                let winner = rng.below(people.len());
                let held = active(&people[winner], rng);
                Event { name: names.event(), venue: rng.below(config.towns), held, winner }
            })
            .collect();
        let builders = &makers[BUILDER];
        let towns = (0..config.towns)
            .map(|_| Town {
                name: names.town(),
                country: rng.below(names.countries.len()),
                river: rng.below(names.rivers.len()),
                founded: FOUNDED.0 + rng.below(usize::from(FOUNDED.1 - FOUNDED.0)) as u16,
                builder: builders[rng.below(builders.len())],
            })
            .collect();
        Self { people, towns, works, events, countries: names.countries, rivers: names.rivers }
    }

    pub(super) fn entities(&self) -> Vec<Entity> {
        let people = (0..self.people.len()).map(Entity::Person);
        let towns = (0..self.towns.len()).map(Entity::Town);
        let works = (0..self.works.len()).map(Entity::Work);
        people.chain(towns).chain(works).chain((0..self.events.len()).map(Entity::Event)).collect()
    }

    pub(super) fn name(&self, entity: Entity) -> &str {
        match entity {
            Entity::Person(index) => &self.people[index].name,
            Entity::Town(index) => &self.towns[index].name,
            Entity::Work(index) => &self.works[index].name,
            Entity::Event(index) => &self.events[index].name,
        }
    }

    pub(super) fn occupation(person: &Person) -> &'static str {
        OCCUPATIONS[person.occupation]
    }

    pub(super) fn kind_of_work(work: &Work) -> &'static str {
        WORKS[work.kind].0
    }

    pub(super) fn fact(&self, entity: Entity, relation: Relation) -> Option<Fact> {
        let person = |index: usize| Some(Fact::Entity(Entity::Person(index)));
        let town = |index: usize| Some(Fact::Entity(Entity::Town(index)));
        let text = |text: String| Some(Fact::Text(text));
        match (entity, relation) {
            (Entity::Person(index), relation) => {
                let found = &self.people[index];
                match relation {
                    Relation::Mother => found.mother.and_then(person),
                    Relation::Teacher => found.teacher.and_then(person),
                    Relation::Birthplace => town(found.birthplace),
                    Relation::Deathplace => town(found.deathplace),
                    Relation::Born => text(found.born.to_string()),
                    Relation::Occupation => text(Self::occupation(found).to_owned()),
                    _ => None,
                }
            }
            (Entity::Town(index), relation) => {
                let found = &self.towns[index];
                match relation {
                    Relation::Country => text(self.countries[found.country].clone()),
                    Relation::River => text(self.rivers[found.river].clone()),
                    Relation::Founded => text(found.founded.to_string()),
                    Relation::Builder => person(found.builder),
                    _ => None,
                }
            }
            (Entity::Work(index), relation) => {
                let found = &self.works[index];
                match relation {
                    Relation::Author => person(found.author),
                    Relation::Finished => text(found.finished.to_string()),
                    Relation::Setting => town(found.setting),
                    _ => None,
                }
            }
            (Entity::Event(index), relation) => {
                let found = &self.events[index];
                match relation {
                    Relation::Venue => town(found.venue),
                    Relation::Held => text(found.held.to_string()),
                    Relation::Winner => person(found.winner),
                    _ => None,
                }
            }
        }
    }

    pub(super) fn write(&self, fact: &Fact) -> String {
        match fact {
            Fact::Entity(entity) => self.name(*entity).to_owned(),
            Fact::Text(text) => text.clone(),
        }
    }
}

impl Relation {
    pub(super) fn of(entity: Entity) -> &'static [Self] {
        match entity {
            Entity::Person(_) => &[
                Self::Mother,
                Self::Teacher,
                Self::Birthplace,
                Self::Deathplace,
                Self::Born,
                Self::Occupation,
            ],
            Entity::Town(_) => &[Self::Country, Self::River, Self::Founded, Self::Builder],
            Entity::Work(_) => &[Self::Author, Self::Finished, Self::Setting],
            Entity::Event(_) => &[Self::Venue, Self::Held, Self::Winner],
        }
    }

    /// Returns a noun phrase such as `the mother of X` if `of` is `X`. If `of` is itself a noun
    /// phrase, the relations are chained.
    pub(super) fn noun(self, of: &str) -> String {
        match self {
            Self::Mother => format!("the mother of {of}"),
            Self::Teacher => format!("the teacher of {of}"),
            Self::Birthplace => format!("the birthplace of {of}"),
            Self::Deathplace => format!("the town where {of} died"),
            Self::Builder => format!("the builder of the theatre of {of}"),
            Self::Author => format!("the author of {of}"),
            Self::Setting => format!("the setting of {of}"),
            Self::Venue => format!("the venue of {of}"),
            Self::Winner => format!("the winner of {of}"),
            Self::Born => format!("the year of birth of {of}"),
            Self::Occupation => format!("the occupation of {of}"),
            Self::Country => format!("the country of {of}"),
            Self::River => format!("the river of {of}"),
            Self::Founded => format!("the year of foundation of {of}"),
            Self::Finished => format!("the year of completion of {of}"),
            Self::Held => format!("the year of {of}"),
        }
    }

    pub(super) fn question(self, of: &str) -> String {
        match self {
            Self::Mother | Self::Teacher | Self::Author | Self::Builder | Self::Winner => {
                format!("Who was {}?", self.noun(of))
            }
            Self::Birthplace => format!("Where was {of} born?"),
            Self::Deathplace => format!("Where did {of} die?"),
            Self::Born => format!("In which year was {of} born?"),
            Self::Occupation => format!("What was the occupation of {of}?"),
            Self::Country => format!("In which country is {of}?"),
            Self::River => format!("On which river is {of}?"),
            Self::Founded => format!("In which year was {of} founded?"),
            Self::Finished => format!("In which year was {of} finished?"),
            Self::Setting => format!("Where is {of} set?"),
            Self::Venue => format!("Where was {of} held?"),
            Self::Held => format!("In which year was {of} held?"),
        }
    }
}
