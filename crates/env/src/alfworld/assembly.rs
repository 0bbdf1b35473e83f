//! Builds a game's world and goal from PDDL facts.

use std::collections::HashMap;

use super::facts::Facts;
use super::game::{StateLayout, Strings, World, put, trait_bit};
use super::goal::{Goal, Shape, TaskType};

pub(super) fn world(facts: &Facts<'_>, shape: &Shape) -> Result<(World, Goal), String> {
    let things = Things::of(facts)?;
    let names = things.names()?;
    let types = things.types()?;
    let places = things.places()?;
    let traits = things.traits(&types)?;
    let layout = StateLayout::new(things.receptacles.len(), things.objects.len(), places.ids.len());
    let initial = things.initial(layout, &places)?;
    let nested = things.nested()?;
    let kinds = types.kinds();
    let kinds = kinds.split_at(things.receptacles.len());
    let accepts = things.accepts(layout, kinds);
    let goal = things.goal(shape, layout, &traits, kinds)?;
    let (by_name, rank) = order(&names);
    let (mates, mates_end) = places.mates();
    let untyped = types.ids.len() as u16;
    let type_names: Vec<&str> =
        types.ids.iter().map(|&id| short(facts.text(id))).chain(std::iter::once("")).collect();
    let world = World {
        layout,
        names: Strings::new(&names),
        receptacles_by_name: by_name
            .iter()
            .copied()
            .filter(|&index| usize::from(index) < things.receptacles.len())
            .collect(),
        by_name: by_name.into(),
        rank: rank.into(),
        types: Strings::new(&type_names),
        type_of: types.of.into_iter().map(|kind| kind.unwrap_or(untyped)).collect(),
        traits: traits.into(),
        place_of: places.of.into(),
        mates: mates.into(),
        mates_end: mates_end.into(),
        start: places.start,
        accepts: accepts.into(),
        nested: nested.into(),
        initial: initial.into(),
    };
    Ok((world, goal))
}

struct Things<'f> {
    facts: &'f Facts<'f>,
    receptacles: Vec<u32>,
    objects: Vec<u32>,
    role: Vec<Option<Role>>,
}

#[derive(Clone, Copy)]
enum Role {
    Receptacle(usize),
    Object(usize),
}

struct Types {
    ids: Vec<u32>,
    of: Vec<Option<u16>>,
}

impl Types {
    fn kinds(&self) -> Vec<Option<u32>> {
        self.of.iter().map(|kind| kind.map(|kind| self.ids[usize::from(kind)])).collect()
    }
}

/// Distinct places of the receptacles, then the agent's start place if no receptacle is there.
struct Places {
    ids: Vec<u32>,
    of: Vec<u16>,
    start: u16,
}

impl Places {
    fn mates(&self) -> (Vec<u16>, Vec<u16>) {
        let mut mates = Vec::with_capacity(self.of.len());
        let mut ends = Vec::with_capacity(self.ids.len());
        for place in 0..self.ids.len() as u16 {
            let here = (0..self.of.len() as u16).filter(|&index| self.of[usize::from(index)] == place);
            mates.extend(here);
            ends.push(mates.len() as u16);
        }
        (mates, ends)
    }
}

impl<'f> Things<'f> {
    fn of(facts: &'f Facts<'f>) -> Result<Self, String> {
        let firsts = |pairs: &[(u32, u32)]| pairs.iter().map(|&(a, _)| a).collect::<Vec<_>>();
        let receptacles = facts.sorted(firsts(&facts.receptacle_type).into_iter());
        let objects = facts.sorted(
            [&facts.object_type, &facts.object_at, &facts.in_receptacle, &facts.in_object]
                .into_iter()
                .flat_map(|pairs| firsts(pairs))
                .chain(facts.in_object.iter().map(|&(_, outer)| outer))
                .chain(facts.traits.iter().map(|&(a, _)| a))
                .chain(facts.conditions.iter().map(|&(a, _)| a)),
        );
        if receptacles.is_empty() {
            return Err(
                "`pddl_problem` has no receptacle (`receptacleType` facts); it is no ALFWorld game".into()
            );
        }
        if receptacles.len() + objects.len() > usize::from(u16::MAX) {
            return Err("`pddl_problem` has more than 65,535 things".into());
        }
        let mut role: Vec<Option<Role>> = vec![None; facts.words.len()];
        for (index, &id) in receptacles.iter().enumerate() {
            role[id as usize] = Some(Role::Receptacle(index));
        }
        for (index, &id) in objects.iter().enumerate() {
            if role[id as usize].is_some() {
                return Err(format!("`{}` is an object and a receptacle", facts.text(id)));
            }
            role[id as usize] = Some(Role::Object(index));
        }
        Ok(Self { facts, receptacles, objects, role })
    }

    fn receptacle(&self, id: u32, fact: &str) -> Result<usize, String> {
        match self.role[id as usize] {
            Some(Role::Receptacle(index)) => Ok(index),
            _ => Err(format!("`{fact}` speaks of `{}`, which has no `receptacleType`", self.facts.text(id))),
        }
    }

    fn object(&self, id: u32, fact: &str) -> Result<usize, String> {
        match self.role[id as usize] {
            Some(Role::Object(index)) => Ok(index),
            _ => Err(format!("`{fact}` speaks of `{}`, which is no object", self.facts.text(id))),
        }
    }

    /// Returns names such as `mug 2`. Within a type, the greatest PDDL id gets number 1.
    fn names(&self) -> Result<Vec<String>, String> {
        let ids = self.receptacles.iter().chain(&self.objects);
        let mut all: Vec<(&str, usize)> =
            ids.enumerate().map(|(index, &id)| (self.facts.text(id), index)).collect();
        all.sort_unstable();
        let mut kinds = Vec::with_capacity(all.len());
        let mut left: HashMap<String, usize> = HashMap::new();
        for &(id, _) in &all {
            let Some((kind, _)) = id.split_once("_bar_") else {
                return Err(format!(
                    "`{id}` has no `_bar_`, so it cannot be given a name as in the original"
                ));
            };
            let kind = if id.contains("basin") { format!("{kind}basin") } else { kind.to_owned() };
            *left.entry(kind.clone()).or_default() += 1;
            kinds.push(kind);
        }
        let mut names = vec![String::new(); all.len()];
        for (&(_, index), kind) in all.iter().zip(&kinds) {
            if let Some(number) = left.get_mut(kind) {
                names[index] = format!("{kind} {number}");
                *number -= 1;
            }
        }
        Ok(names)
    }

    fn types(&self) -> Result<Types, String> {
        let mut ids: Vec<u32> = Vec::new();
        let mut of = vec![None; self.receptacles.len() + self.objects.len()];
        let mut set = |index: usize, id: u32, kind: u32| {
            set_once(&mut of[index], number(&mut ids, kind)).map_err(|()| self.facts.twice(id, "type"))
        };
        for &(id, kind) in &self.facts.receptacle_type {
            set(self.receptacle(id, "receptacleType")?, id, kind)?;
        }
        for &(id, kind) in &self.facts.object_type {
            set(self.receptacles.len() + self.object(id, "objectType")?, id, kind)?;
        }
        Ok(Types { ids, of })
    }

    fn places(&self) -> Result<Places, String> {
        let mut ids: Vec<u32> = Vec::new();
        let mut of = Vec::with_capacity(self.receptacles.len());
        for &id in &self.receptacles {
            let mut own = None;
            for &(_, place) in self.facts.receptacle_at.iter().filter(|&&(other, _)| other == id) {
                set_once(&mut own, number(&mut ids, place)).map_err(|()| self.facts.twice(id, "location"))?;
            }
            let missing = || format!("`{}` has no `receptacleAtLocation`", self.facts.text(id));
            of.push(own.ok_or_else(missing)?);
        }
        let start = match self.facts.agent_at.as_slice() {
            [place] => number(&mut ids, *place),
            others => {
                return Err(format!("`pddl_problem` has {} `atLocation` facts, one is needed", others.len()));
            }
        };
        Ok(Places { ids, of, start })
    }

    fn traits(&self, types: &Types) -> Result<Vec<u16>, String> {
        let mut traits = vec![0u16; types.of.len()];
        for &id in &self.facts.openable {
            traits[self.receptacle(id, "openable")?] |= trait_bit::OPENABLE;
        }
        for &(id, bit) in &self.facts.traits {
            traits[self.receptacles.len() + self.object(id, "a trait")?] |= bit;
        }
        for (index, kind) in types.kinds().into_iter().enumerate() {
            let kind = kind.map_or("", |kind| self.facts.text(kind));
            traits[index] |= match (index < self.receptacles.len(), kind) {
                (true, "sinktype" | "sinkbasintype") => trait_bit::CLEANS,
                (true, "microwavetype") => trait_bit::HEATS,
                (true, "fridgetype") => trait_bit::COOLS,
                (false, "knifetype" | "butterknifetype") => trait_bit::KNIFE,
                _ => 0,
            };
        }
        Ok(traits)
    }

    fn initial(&self, layout: StateLayout, places: &Places) -> Result<Vec<u64>, String> {
        let mut initial = vec![0u64; layout.len()];
        for &(what, receptacle) in &self.facts.in_receptacle {
            let base = layout.contents(self.receptacle(receptacle, "inReceptacle")?);
            put(&mut initial, base, self.object(what, "inReceptacle")?, true);
        }
        for &(what, place) in &self.facts.object_at {
            let index = self.object(what, "objectAtLocation")?;
            if let Some(place) = places.ids.iter().position(|&known| known == place) {
                put(&mut initial, layout.at(place), index, true);
            }
        }
        for &id in &self.facts.opened {
            put(&mut initial, layout.opened(), self.receptacle(id, "opened")?, true);
        }
        for &(id, condition) in &self.facts.conditions {
            put(&mut initial, layout.condition(condition), self.object(id, "a condition")?, true);
        }
        Ok(initial)
    }

    fn nested(&self) -> Result<Vec<(u16, u16)>, String> {
        let mut nested = Vec::with_capacity(self.facts.in_object.len());
        for &(inner, outer) in &self.facts.in_object {
            let index = |id: u32| Ok::<_, String>(self.object(id, "inReceptacleObject")? as u16);
            nested.push((index(outer)?, index(inner)?));
        }
        nested.sort_unstable();
        nested.dedup();
        Ok(nested)
    }

    /// Returns, for each receptacle, the set of objects that fit into it.
    fn accepts(
        &self,
        layout: StateLayout,
        (receptacle_kinds, object_kinds): (&[Option<u32>], &[Option<u32>]),
    ) -> Vec<u64> {
        let mut accepts = vec![0u64; layout.receptacles * layout.words];
        let mut fits: HashMap<u32, Vec<u32>> = HashMap::new();
        for &(receptacle, object) in &self.facts.can_contain {
            fits.entry(receptacle).or_default().push(object);
        }
        for (receptacle, kind) in receptacle_kinds.iter().enumerate() {
            let Some(allowed) = kind.and_then(|kind| fits.get(&kind)) else { continue };
            for (object, kind) in object_kinds.iter().enumerate() {
                if kind.is_some_and(|kind| allowed.contains(&kind)) {
                    put(&mut accepts, receptacle * layout.words, object, true);
                }
            }
        }
        accepts
    }

    fn goal(
        &self,
        shape: &Shape,
        layout: StateLayout,
        traits: &[u16],
        (receptacle_kinds, object_kinds): (&[Option<u32>], &[Option<u32>]),
    ) -> Result<Goal, String> {
        let able = match shape.task_type {
            TaskType::PickCleanThenPlace => trait_bit::CLEANABLE,
            TaskType::PickHeatThenPlace => trait_bit::HEATABLE,
            TaskType::PickCoolThenPlace => trait_bit::COOLABLE,
            _ => 0,
        };
        let is = |kind: &Option<u32>, name: &str| kind.is_some_and(|kind| self.facts.text(kind) == name);
        let set = |name: &str, able: u16| {
            let mut set = vec![0u64; layout.words];
            for (index, kind) in object_kinds.iter().enumerate() {
                if is(kind, name) && traits[layout.receptacles + index] & able == able {
                    put(&mut set, 0, index, true);
                }
            }
            set.into_boxed_slice()
        };
        let look = shape.task_type == TaskType::LookInLight;
        let objects = set(&shape.object, able);
        let lamps = if look { set(&shape.target, trait_bit::TOGGLEABLE) } else { set("", 0) };
        let receptacles: Box<[u16]> = (0..layout.receptacles as u16)
            .filter(|&index| !look && is(&receptacle_kinds[usize::from(index)], &shape.target))
            .collect();
        let count = objects.iter().map(|word| word.count_ones()).sum::<u32>();
        let needed = if shape.task_type == TaskType::PickTwo { 2 } else { 1 };
        let targets = if look { lamps.iter().any(|&word| word != 0) } else { !receptacles.is_empty() };
        if count < needed || !targets {
            return Err(format!(
                "the goal ({}: {} / {}) can never be met: the room has {count} such objects and {} such targets",
                shape.task_type,
                shape.object,
                shape.target,
                if targets { "some" } else { "no" },
            ));
        }
        Ok(Goal {
            task_type: shape.task_type,
            object: short(&shape.object).into(),
            target: short(&shape.target).into(),
            objects,
            lamps,
            receptacles,
        })
    }
}

fn order(names: &[String]) -> (Vec<u16>, Vec<u16>) {
    let mut by_name: Vec<u16> = (0..names.len() as u16).collect();
    by_name.sort_unstable_by(|&a, &b| names[usize::from(a)].cmp(&names[usize::from(b)]));
    let mut rank = vec![0u16; names.len()];
    for (place, &index) in by_name.iter().enumerate() {
        rank[usize::from(index)] = place as u16;
    }
    (by_name, rank)
}

fn short(name: &str) -> &str {
    name.strip_suffix("type").unwrap_or(name)
}

fn number(known: &mut Vec<u32>, id: u32) -> u16 {
    let index = known.iter().position(|&other| other == id).unwrap_or_else(|| {
        known.push(id);
        known.len() - 1
    });
    index as u16
}

/// Sets a slot to a value. Fails if the slot already holds another value.
fn set_once(slot: &mut Option<u16>, value: u16) -> Result<(), ()> {
    match slot {
        Some(old) if *old != value => Err(()),
        _ => {
            *slot = Some(value);
            Ok(())
        }
    }
}
