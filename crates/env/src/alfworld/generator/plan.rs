//! Floor plans: receptacles, their places and typical contents.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use turnwise_core::{Purpose, Rng, Seed};

use super::super::TaskType;
use super::household::{Household, Openable, ability};
use super::{Size, names};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// For `train` and `valid_seen`.
    Seen,
    /// For `valid_unseen`.
    Unseen,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Receptacle {
    pub(super) kind: usize,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) openable: bool,
    /// Index into [`FloorPlan::places`].
    pub(super) place: usize,
    /// Position in hundredths of a metre.
    pub(super) at: [i32; 3],
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Thing {
    pub(super) kind: usize,
    pub(super) share: f64,
    /// Indices of the receptacles in which the object can be, with weights that the agent does not
    /// see.
    pub(super) places: Vec<(usize, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// Index into [`FloorPlan::things`].
    pub(super) thing: usize,
    /// Types of the possible target receptacles; for `look_at_obj_in_light`, the type of the lamp.
    pub(super) targets: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FloorPlan {
    pub(super) number: u16,
    pub(super) receptacles: Vec<Receptacle>,
    pub(super) places: Vec<String>,
    pub(super) start: String,
    pub(super) things: Vec<Thing>,
    pub(super) lamp: Vec<(usize, f64)>,
    /// Possible pairs of object and targets for each task type, in the order of [`TaskType::ALL`].
    pub(super) choices: [Vec<Choice>; 6],
}

/// Maximum number of floor plans per room type; with more, two plans would have the same number.
pub(super) const MOST_PLANS: usize = 499;

/// Factors that randomly change the household's receptacle weights. The factors are constants,
/// because the results of `exp` differ between math libraries.
const HABITS: [f64; 6] = [0.2, 0.5, 1.0, 1.0, 2.0, 4.0];

/// Maximum number of times that a floor plan is redrawn before a duplicate is accepted.
const ATTEMPTS: u64 = 400;

/// Returns a floor plan's number. As in the original, the range of the number shows the room type.
fn plan_number(room: usize, class: Class, index: usize) -> u16 {
    let base = if class == Class::Seen { 1 } else { MOST_PLANS + 2 };
    (if room == 0 { 0 } else { (room + 1) * 1000 } + base + index) as u16
}

/// Draws the floor plans of a room type. A hash of a plan's furniture makes one plan in four
/// unseen. The hash does not depend on the seed, so seen and unseen plans never overlap.
pub(super) fn draw_all(
    house: &Household,
    seed: u64,
    size: Size,
    room: usize,
    class: Class,
    count: usize,
) -> Vec<FloorPlan> {
    let mut known = BTreeSet::new();
    (0..count)
        .map(|index| {
            let coordinates = [1, size as u64, room as u64, class as u64, index as u64];
            let mut rng = Seed::derive(seed, Purpose::World, &coordinates).rng();
            let mut furniture = furnish(house, size, room, &mut rng);
            let mut attempt = 0;
            while class_of(room, &furniture) != class || (attempt < ATTEMPTS && known.contains(&furniture)) {
                furniture = furnish(house, size, room, &mut rng);
                attempt += 1;
            }
            known.insert(furniture.clone());
            FloorPlan::build(house, size, room, plan_number(room, class, index), &furniture, &mut rng)
        })
        .collect()
}

fn class_of(room: usize, furniture: &[usize]) -> Class {
    let mut hash = Sha256::new();
    hash.update([room as u8]);
    hash.update(furniture.iter().map(|&kind| kind as u8).collect::<Vec<_>>());
    if hash.finalize()[0].is_multiple_of(4) { Class::Unseen } else { Class::Seen }
}

fn furnish(house: &Household, size: Size, room: usize, rng: &mut Rng) -> Vec<usize> {
    let furniture = &house.rooms[room].furniture;
    let limit = |entry: &super::household::Furniture| entry.max.min(size.most_receptacles_of_a_kind());
    let mut counts: Vec<usize> = furniture.iter().map(|entry| usize::from(entry.essential)).collect();
    let lamps: Vec<f64> = furniture.iter().map(|entry| if entry.lamp { entry.mean } else { 0.0 }).collect();
    if let Some(chosen) = weighted(&lamps, rng) {
        counts[chosen] = counts[chosen].max(1);
    }
    let (least, most) = size.receptacles();
    // Rooms with every type at its maximum would look alike.
    let room_for = furniture.iter().map(limit).sum::<usize>() * 3 / 4;
    let most = most.min(room_for).max(least);
    let wanted = least + rng.below(most - least + 1);
    while counts.iter().sum::<usize>() < wanted {
        let weights: Vec<f64> = furniture
            .iter()
            .zip(&counts)
            .map(|(entry, &count)| if count < limit(entry) { entry.mean / (1 + count) as f64 } else { 0.0 })
            .collect();
        let Some(chosen) = weighted(&weights, rng) else { break };
        counts[chosen] += 1;
    }
    let mut kinds: Vec<usize> = furniture
        .iter()
        .zip(&counts)
        .flat_map(|(entry, &count)| std::iter::repeat_n(entry.kind, count))
        .collect();
    kinds.sort_unstable();
    kinds
}

impl FloorPlan {
    fn build(
        house: &Household,
        size: Size,
        room: usize,
        number: u16,
        furniture: &[usize],
        rng: &mut Rng,
    ) -> Self {
        let (mut receptacles, places, start) = arrange(house, size, furniture, rng);
        receptacles.sort_by_cached_key(|receptacle| receptacle.id.to_ascii_lowercase());
        let labels = names::number(receptacles.iter().map(|receptacle| receptacle.id.as_str()));
        for (receptacle, name) in receptacles.iter_mut().zip(labels) {
            receptacle.name = name;
        }
        let mut habits = |shares: &[(usize, f64)]| -> Vec<(usize, f64)> {
            receptacles
                .iter()
                .enumerate()
                .filter_map(|(index, receptacle)| {
                    let (_, share) = shares.iter().find(|(kind, _)| *kind == receptacle.kind)?;
                    let alike = receptacles.iter().filter(|other| other.kind == receptacle.kind).count();
                    Some((index, share / alike as f64 * HABITS[rng.below(HABITS.len())]))
                })
                .collect()
        };
        let things: Vec<Thing> = house.rooms[room]
            .things
            .iter()
            .map(|thing| Thing { kind: thing.kind, share: thing.share, places: habits(&thing.places) })
            .filter(|thing| !thing.places.is_empty())
            .collect();
        let lamp = habits(&house.rooms[room].lamp);
        let mut plan = Self { number, receptacles, places, start, things, lamp, choices: Default::default() };
        for (index, task) in TaskType::ALL.into_iter().enumerate() {
            plan.choices[index] = plan.allowed(house, task);
        }
        plan
    }

    fn has(&self, kind: Option<usize>) -> bool {
        self.receptacles.iter().any(|receptacle| Some(receptacle.kind) == kind)
    }

    fn allowed(&self, house: &Household, task: TaskType) -> Vec<Choice> {
        let needed = |name| house.receptacle(name);
        // A mug cleaned in the sink would already be in that target.
        let (ability, tool) = match task {
            TaskType::PickAndPlace | TaskType::PickTwo => (0, None),
            TaskType::PickCleanThenPlace => (ability::CLEANABLE, needed("SinkBasin")),
            TaskType::PickHeatThenPlace => (ability::HEATABLE, needed("Microwave")),
            TaskType::PickCoolThenPlace => (ability::COOLABLE, needed("Fridge")),
            TaskType::LookInLight if self.lamp.is_empty() => return Vec::new(),
            TaskType::LookInLight => {
                let choice = |thing| Choice { thing, targets: vec![house.lamp] };
                return (0..self.things.len()).map(choice).collect();
            }
        };
        if tool.is_some() && !self.has(tool) {
            return Vec::new();
        }
        let sink = needed("SinkBasin");
        let kinds: BTreeSet<usize> = self.receptacles.iter().map(|receptacle| receptacle.kind).collect();
        let allowed = |(thing, entry): (usize, &Thing)| {
            if house.objects[entry.kind].abilities & ability != ability {
                return None;
            }
            let elsewhere =
                |target| entry.places.iter().any(|&(place, _)| self.receptacles[place].kind != target);
            let targets: Vec<usize> = kinds
                .iter()
                .copied()
                .filter(|&kind| house.fits(kind, entry.kind) && elsewhere(kind))
                .filter(|&kind| Some(kind) != tool && Some(kind) != sink)
                .collect();
            (!targets.is_empty()).then_some(Choice { thing, targets })
        };
        self.things.iter().enumerate().filter_map(allowed).collect()
    }
}

fn arrange(
    house: &Household,
    size: Size,
    furniture: &[usize],
    rng: &mut Rng,
) -> (Vec<Receptacle>, Vec<String>, String) {
    let mut ids = BTreeSet::new();
    let mut spots = BTreeSet::new();
    let mut places: Vec<String> = Vec::new();
    let mut receptacles: Vec<Receptacle> = Vec::new();
    let mut spot = |x: i32, z: i32, rng: &mut Rng| {
        loop {
            let (turn, tilt) = (rng.below(4) as i32, [-30, 0, 30, 60][rng.below(4)]);
            let id = names::place([x / 25 + rng.below(3) as i32, z / 25 + rng.below(3) as i32, turn, tilt]);
            if spots.insert(id.clone()) {
                return id;
            }
        }
    };
    for &kind in furniture {
        let entry = &house.receptacles[kind];
        let neighbour = receptacles.last().filter(|last| last.kind == kind).cloned();
        let shared = neighbour.filter(|_| rng.chance(size.shared_places()));
        let near = shared.as_ref().map(|mate| mate.at);
        let (id, at) = loop {
            let at = match near {
                Some([x, y, z]) => [x + 1 + rng.below(60) as i32, y, z],
                None => [rng.below(700) as i32 - 350, rng.below(180) as i32, rng.below(700) as i32 - 350],
            };
            let id = names::receptacle(entry.name, at);
            if ids.insert(id.clone()) {
                break (id, at);
            }
        };
        let openable = match entry.openable {
            Openable::Never => false,
            Openable::Mostly => rng.chance(0.85),
            Openable::Always => true,
        };
        let place = if let Some(mate) = shared {
            mate.place
        } else {
            places.push(spot(at[0], at[2], rng));
            places.len() - 1
        };
        receptacles.push(Receptacle { kind, id, name: String::new(), openable, place, at });
    }
    let start = spot(0, 0, rng);
    (receptacles, places, start)
}

pub(super) fn weighted(weights: &[f64], rng: &mut Rng) -> Option<usize> {
    let total: f64 = weights.iter().sum();
    let mut left = rng.uniform() * total;
    let mut last = None;
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            if left < weight {
                return Some(index);
            }
            left -= weight;
            last = Some(index);
        }
    }
    last
}
