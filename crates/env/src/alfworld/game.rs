use sha2::{Digest as _, Sha256};
use turnwise_core::Task;

use super::goal::{Goal, TaskType};

/// Index of a receptacle in the original's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceptacleId(pub(super) u16);

/// Index of an object in the original's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(super) u16);

impl ReceptacleId {
    /// Returns the receptacle's index in [`Game::receptacles`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl ObjectId {
    /// Returns the object's index in [`Game::objects`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

pub(super) mod trait_bit {
    pub(in super::super) const PICKUPABLE: u16 = 1;
    pub(in super::super) const CLEANABLE: u16 = 1 << 1;
    pub(in super::super) const HEATABLE: u16 = 1 << 2;
    pub(in super::super) const COOLABLE: u16 = 1 << 3;
    pub(in super::super) const SLICEABLE: u16 = 1 << 4;
    pub(in super::super) const TOGGLEABLE: u16 = 1 << 5;
    pub(in super::super) const KNIFE: u16 = 1 << 6;
    pub(in super::super) const VESSEL: u16 = 1 << 7;
    pub(in super::super) const OPENABLE: u16 = 1 << 8;
    pub(in super::super) const CLEANS: u16 = 1 << 9;
    pub(in super::super) const HEATS: u16 = 1 << 10;
    pub(in super::super) const COOLS: u16 = 1 << 11;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strings {
    text: Box<str>,
    ends: Box<[u32]>,
}

impl Strings {
    pub(super) fn new<T: AsRef<str>>(items: &[T]) -> Self {
        let mut text = String::new();
        let mut ends = Vec::with_capacity(items.len());
        for item in items {
            text.push_str(item.as_ref());
            ends.push(text.len() as u32);
        }
        Self { text: text.into(), ends: ends.into() }
    }

    pub(super) fn get(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.text[start..self.ends[index] as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// Offsets of the parts of an episode's state, which is a list of 64-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateLayout {
    pub(super) receptacles: usize,
    pub(super) objects: usize,
    /// Number of places, including the agent's start place.
    pub(super) places: usize,
    /// Number of words in a set of objects, which has one bit per object.
    pub(super) words: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Clean,
    Hot,
    Cool,
    Sliced,
    Toggled,
}

impl StateLayout {
    pub(super) fn new(receptacles: usize, objects: usize, places: usize) -> Self {
        Self { receptacles, objects, places, words: objects.div_ceil(64).max(1) }
    }
    /// Offset of the set of objects in a receptacle (`inReceptacle`).
    pub(super) fn contents(self, receptacle: usize) -> usize {
        receptacle * self.words
    }
    /// Offset of the set of objects taken from the receptacle and not put back
    /// (`not_inReceptacle`).
    pub(super) fn taken(self, receptacle: usize) -> usize {
        (self.receptacles + receptacle) * self.words
    }
    /// Offset of the set of objects at a place (`objectAtLocation`).
    pub(super) fn at(self, place: usize) -> usize {
        (2 * self.receptacles + place) * self.words
    }
    pub(super) fn condition(self, condition: Condition) -> usize {
        (2 * self.receptacles + self.places + condition as usize) * self.words
    }
    pub(super) fn opened(self) -> usize {
        (2 * self.receptacles + self.places + 5) * self.words
    }
    pub(super) fn len(self) -> usize {
        self.opened() + self.receptacles.div_ceil(64)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub(super) layout: StateLayout,
    /// Names of the receptacles, then of the objects.
    pub(super) names: Strings,
    /// Indices into `names`, sorted.
    pub(super) by_name: Box<[u16]>,
    pub(super) receptacles_by_name: Box<[u16]>,
    /// Position of each name in `by_name`.
    pub(super) rank: Box<[u16]>,
    /// Index in `types` of each receptacle's type, then of each object's type.
    pub(super) type_of: Box<[u16]>,
    /// Type names in lower case, without the suffix `type`.
    pub(super) types: Strings,
    pub(super) traits: Box<[u16]>,
    pub(super) place_of: Box<[u16]>,
    /// Receptacles sorted by place; the slice for `place` ends at `mates_end[place]`.
    pub(super) mates: Box<[u16]>,
    pub(super) mates_end: Box<[u16]>,
    pub(super) start: u16,
    /// For each receptacle, the set of objects that fit into it (`canContain`).
    pub(super) accepts: Box<[u64]>,
    /// Pairs `(vessel, content)` of objects inside other objects (`inReceptacleObject`), in
    /// ascending order. The pairs never change.
    pub(super) nested: Box<[(u16, u16)]>,
    pub(super) initial: Box<[u64]>,
}

pub(super) fn has(words: &[u64], base: usize, index: usize) -> bool {
    words[base + index / 64] >> (index % 64) & 1 == 1
}

pub(super) fn put(words: &mut [u64], base: usize, index: usize, value: bool) {
    let bit = 1 << (index % 64);
    let word = &mut words[base + index / 64];
    if value { *word |= bit } else { *word &= !bit }
}

pub(super) fn members(set: &[u64]) -> impl Iterator<Item = u16> {
    set.iter().enumerate().flat_map(|(index, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                (index * 64) as u16 + bit as u16
            })
        })
    })
}

impl World {
    pub(super) fn receptacle_name(&self, receptacle: usize) -> &str {
        self.names.get(receptacle)
    }
    pub(super) fn object_name(&self, object: usize) -> &str {
        self.names.get(self.layout.receptacles + object)
    }
    pub(super) fn receptacle_is(&self, receptacle: usize, bit: u16) -> bool {
        self.traits[receptacle] & bit != 0
    }
    pub(super) fn object_is(&self, object: usize, bit: u16) -> bool {
        self.traits[self.layout.receptacles + object] & bit != 0
    }
    pub(super) fn place_of(&self, receptacle: usize) -> u16 {
        self.place_of[receptacle]
    }
    pub(super) fn at_place(&self, place: usize) -> &[u16] {
        let start = if place == 0 { 0 } else { self.mates_end[place - 1] };
        &self.mates[usize::from(start)..usize::from(self.mates_end[place])]
    }
    fn find(&self, name: &str) -> Option<usize> {
        let found =
            self.by_name.binary_search_by(|&index| self.names.get(usize::from(index)).cmp(name)).ok()?;
        Some(usize::from(self.by_name[found]))
    }
    pub(super) fn find_receptacle(&self, name: &str) -> Option<usize> {
        self.find(name).filter(|&index| index < self.layout.receptacles)
    }
    pub(super) fn find_object(&self, name: &str) -> Option<usize> {
        self.find(name)?.checked_sub(self.layout.receptacles)
    }
}

/// Immutable game of a few kilobytes, shared by its episodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    pub(super) id: Box<str>,
    pub(super) sentence: Box<str>,
    pub(super) floor_plan: Option<u16>,
    pub(super) walkthrough: Option<Strings>,
    pub(super) goal: Goal,
    pub(super) world: World,
}

impl Game {
    /// Returns the id: the split, the task folder and the trial folder, separated by `/`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the split, the first part of the id.
    pub fn split(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }

    /// Returns the task type.
    pub fn task_type(&self) -> TaskType {
        self.goal.task_type()
    }

    /// Returns the task sentence with its full stop.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Returns the goal.
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// Returns the floor plan's number if the task folder ends with one.
    pub fn floor_plan(&self) -> Option<u16> {
        self.floor_plan
    }

    /// Returns the game file's walkthrough, or `None` if it has none.
    pub fn walkthrough(&self) -> Option<impl ExactSizeIterator<Item = &str>> {
        self.walkthrough.as_ref().map(|plan| (0..plan.len()).map(|index| plan.get(index)))
    }

    /// Returns the receptacles in the original's order.
    pub fn receptacles(&self) -> impl ExactSizeIterator<Item = ReceptacleId> + use<> {
        (0..self.world.layout.receptacles as u16).map(ReceptacleId)
    }

    /// Returns the objects in the original's order.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = ObjectId> + use<> {
        (0..self.world.layout.objects as u16).map(ObjectId)
    }

    /// Returns a receptacle's name (`cabinet 10`).
    pub(crate) fn receptacle_name(&self, receptacle: ReceptacleId) -> &str {
        self.world.receptacle_name(receptacle.index())
    }

    /// Returns an object's name (`apple 1`).
    pub fn object_name(&self, object: ObjectId) -> &str {
        self.world.object_name(object.index())
    }

    /// Finds a receptacle by name.
    pub fn receptacle(&self, name: &str) -> Option<ReceptacleId> {
        self.world.find_receptacle(name).map(|index| ReceptacleId(index as u16))
    }

    /// Finds an object by name.
    pub fn object(&self, name: &str) -> Option<ObjectId> {
        self.world.find_object(name).map(|index| ObjectId(index as u16))
    }

    /// Returns a receptacle's type (`sinkbasin`).
    pub fn receptacle_type(&self, receptacle: ReceptacleId) -> &str {
        self.world.types.get(usize::from(self.world.type_of[receptacle.index()]))
    }

    /// Returns an object's type (`butterknife`), or an empty text for the few objects without a
    /// type.
    pub fn object_type(&self, object: ObjectId) -> &str {
        self.world.types.get(usize::from(self.world.type_of[self.world.layout.receptacles + object.index()]))
    }

    /// Returns true if the receptacle has a door, which starts closed.
    pub fn is_openable(&self, receptacle: ReceptacleId) -> bool {
        self.world.receptacle_is(receptacle.index(), trait_bit::OPENABLE)
    }

    /// Returns true if the object can be taken.
    pub fn is_pickupable(&self, object: ObjectId) -> bool {
        self.world.object_is(object.index(), trait_bit::PICKUPABLE)
    }

    /// Returns true if the object can be switched on.
    pub(crate) fn is_toggleable(&self, object: ObjectId) -> bool {
        self.world.object_is(object.index(), trait_bit::TOGGLEABLE)
    }

    /// Returns true if the object fits into the receptacle.
    pub fn accepts(&self, receptacle: ReceptacleId, object: ObjectId) -> bool {
        let world = &self.world;
        has(&world.accepts, receptacle.index() * world.layout.words, object.index())
    }

    /// Returns the index of the receptacle's place; several receptacles may share a place.
    pub fn place(&self, receptacle: ReceptacleId) -> usize {
        usize::from(self.world.place_of(receptacle.index()))
    }

    /// Returns a digest of all data that affects episodes.
    pub fn fingerprint(&self) -> String {
        let first = self.content().iter().take(8).fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        format!("{first:016x}")
    }

    /// Returns the game as a task.
    pub fn task(&self) -> Task {
        Task {
            digest: turnwise_core::digest([self.content()]),
            ..Task::new(self.id(), self.task_type().name(), self.sentence())
        }
    }

    fn content(&self) -> [u8; 32] {
        let world = &self.world;
        let mut hash = Sha256::new();
        for text in world.names.iter().chain(world.types.iter()) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        for numbers in [&world.type_of, &world.traits, &world.place_of, &world.mates_end] {
            hash.update((numbers.len() as u64).to_le_bytes());
            numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
        }
        for words in [&world.accepts, &world.initial] {
            hash.update((words.len() as u64).to_le_bytes());
            words.iter().for_each(|word| hash.update(word.to_le_bytes()));
        }
        for (outer, inner) in &world.nested {
            hash.update(outer.to_le_bytes());
            hash.update(inner.to_le_bytes());
        }
        hash.update(world.start.to_le_bytes());
        hash.update(self.goal.to_string());
        hash.update(&*self.sentence);
        hash.finalize().into()
    }
}
