//! Scenes: a floor plan with objects and a solvable task.

use std::collections::BTreeSet;

use turnwise_core::Rng;

use super::super::TaskType;
use super::household::Household;
use super::plan::{FloorPlan, weighted};
use super::{Size, names};

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) kind: usize,
    pub(super) id: String,
    pub(super) name: String,
    /// Index into [`FloorPlan::receptacles`].
    pub(super) receptacle: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Scene<'a> {
    pub(super) plan: &'a FloorPlan,
    pub(super) task: TaskType,
    pub(super) object: usize,
    /// Type of the target receptacle; for `look_at_obj_in_light`, the type of the lamp.
    pub(super) target: usize,
    pub(super) objects: Vec<Object>,
    pub(super) wording: usize,
}

/// Probability that a game has one more object of the wanted type than its task needs.
const SPARE: f64 = 0.3;

impl<'a> Scene<'a> {
    pub(super) fn draw(
        house: &Household,
        size: Size,
        plan: &'a FloorPlan,
        task: TaskType,
        rng: &mut Rng,
    ) -> Option<Self> {
        let choices = &plan.choices[TaskType::ALL.iter().position(|&other| other == task)?];
        let choice = rng.choose(choices)?;
        let target = *rng.choose(&choice.targets)?;
        let mut layout = SceneBuilder { house, plan, objects: Vec::new(), ids: BTreeSet::new() };

        // The task's objects never start in the target.
        let wanted = &plan.things[choice.thing];
        let needed = if task == TaskType::PickTwo { 2 } else { 1 };
        let spare = usize::from(rng.chance(SPARE) && needed < size.most_objects_of_a_kind());
        for _ in 0..needed + spare {
            let places: Vec<f64> = wanted
                .places
                .iter()
                .map(|&(place, share)| if plan.receptacles[place].kind == target { 0.0 } else { share })
                .collect();
            let place = wanted.places[weighted(&places, rng)?].0;
            layout.put(wanted.kind, place, rng);
        }
        if task == TaskType::LookInLight || (!plan.lamp.is_empty() && rng.chance(0.5)) {
            let shares: Vec<f64> = plan.lamp.iter().map(|&(_, share)| share).collect();
            layout.put(house.lamp, plan.lamp[weighted(&shares, rng)?].0, rng);
        }

        let mut counts = vec![0usize; plan.things.len()];
        let (least, most) = size.fillers();
        let room_for = (plan.things.len() - 1) * size.most_objects_of_a_kind() * 3 / 4;
        let most = most.min(room_for).max(least.min(room_for));
        let least = least.min(most);
        for _ in 0..least + rng.below(most - least + 1) {
            let weights: Vec<f64> = plan
                .things
                .iter()
                .zip(&counts)
                .enumerate()
                .map(|(index, (thing, &count))| {
                    let full = index == choice.thing || count >= size.most_objects_of_a_kind();
                    if full { 0.0 } else { thing.share / (1 + count) as f64 }
                })
                .collect();
            let Some(chosen) = weighted(&weights, rng) else { break };
            counts[chosen] += 1;
            let thing = &plan.things[chosen];
            let shares: Vec<f64> = thing.places.iter().map(|&(_, share)| share).collect();
            layout.put(thing.kind, thing.places[weighted(&shares, rng)?].0, rng);
        }

        let mut objects = layout.objects;
        objects.sort_by_cached_key(|object| object.id.to_ascii_lowercase());
        let labels = names::number(objects.iter().map(|object| object.id.as_str()));
        for (object, name) in objects.iter_mut().zip(labels) {
            object.name = name;
        }
        Some(Self { plan, task, object: wanted.kind, target, objects, wording: rng.below(2) })
    }

    pub(super) fn content(&self) -> (u16, TaskType, usize, usize, Vec<(usize, usize)>) {
        let mut things: Vec<(usize, usize)> =
            self.objects.iter().map(|object| (object.kind, object.receptacle)).collect();
        things.sort_unstable();
        (self.plan.number, self.task, self.object, self.target, things)
    }

    pub(super) fn sentence(&self, house: &Household) -> String {
        let o = house.objects[self.object].name.to_ascii_lowercase();
        let t = if self.task == TaskType::LookInLight {
            house.objects[self.target].name.to_ascii_lowercase()
        } else {
            house.receptacles[self.target].name.to_ascii_lowercase()
        };
        match (self.task, self.wording) {
            (TaskType::PickAndPlace, 0) => format!("put a {o} in {t}."),
            (TaskType::PickAndPlace, _) => format!("put some {o} on {t}."),
            (TaskType::LookInLight, 0) => format!("examine the {o} with the {t}."),
            (TaskType::LookInLight, _) => format!("look at {o} under the {t}."),
            (TaskType::PickCleanThenPlace, 0) => format!("put a clean {o} in {t}."),
            (TaskType::PickCleanThenPlace, _) => format!("clean some {o} and put it in {t}."),
            (TaskType::PickHeatThenPlace, 0) => format!("put a hot {o} in {t}."),
            (TaskType::PickHeatThenPlace, _) => format!("heat some {o} and put it in {t}."),
            (TaskType::PickCoolThenPlace, 0) => format!("put a cool {o} in {t}."),
            (TaskType::PickCoolThenPlace, _) => format!("cool some {o} and put it in {t}."),
            (TaskType::PickTwo, 0) => format!("put two {o} in {t}."),
            (TaskType::PickTwo, _) => format!("find two {o} and put them in {t}."),
        }
    }

    pub(super) fn folder(&self, house: &Household) -> String {
        let target = if self.task == TaskType::LookInLight {
            house.objects[self.target].name
        } else {
            house.receptacles[self.target].name
        };
        format!("{}-{}-None-{target}-{}", self.task, house.objects[self.object].name, self.plan.number)
    }
}

struct SceneBuilder<'a> {
    house: &'a Household,
    plan: &'a FloorPlan,
    objects: Vec<Object>,
    ids: BTreeSet<String>,
}

impl SceneBuilder<'_> {
    fn put(&mut self, kind: usize, receptacle: usize, rng: &mut Rng) {
        let [x, y, z] = self.plan.receptacles[receptacle].at;
        loop {
            let at = [x + rng.below(41) as i32 - 20, y + rng.below(10) as i32, z + rng.below(41) as i32 - 20];
            let id = names::object(self.house.objects[kind].name, at);
            if self.ids.insert(id.clone()) {
                self.objects.push(Object { kind, id, name: String::new(), receptacle });
                return;
            }
        }
    }
}
