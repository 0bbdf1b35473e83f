//! Shortest plans.

use super::super::TaskType;
use super::household::Household;
use super::scene::Scene;

#[derive(Clone)]
struct Walk<'a> {
    scene: &'a Scene<'a>,
    here: Option<usize>,
    opened: Vec<usize>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
enum Step {
    Go(usize),
    Open(usize),
    Take(usize, usize),
    Move(usize, usize),
    Treat(&'static str, usize, usize),
    Use(usize),
}

impl<'a> Walk<'a> {
    fn new(scene: &'a Scene<'a>) -> Self {
        Self { scene, here: None, opened: Vec::new(), steps: Vec::new() }
    }

    fn go(&mut self, receptacle: usize) {
        let place = self.scene.plan.receptacles[receptacle].place;
        if self.here != Some(place) {
            self.here = Some(place);
            self.steps.push(Step::Go(receptacle));
        }
    }

    fn reach(&mut self, receptacle: usize) {
        self.go(receptacle);
        if self.scene.plan.receptacles[receptacle].openable && !self.opened.contains(&receptacle) {
            self.opened.push(receptacle);
            self.steps.push(Step::Open(receptacle));
        }
    }

    fn take(&mut self, object: usize) {
        let receptacle = self.scene.objects[object].receptacle;
        self.reach(receptacle);
        self.steps.push(Step::Take(object, receptacle));
    }

    fn put(&mut self, object: usize, receptacle: usize) {
        self.reach(receptacle);
        self.steps.push(Step::Move(object, receptacle));
    }

    fn commands(&self) -> Vec<String> {
        let r = |index: usize| &self.scene.plan.receptacles[index].name;
        let o = |index: usize| &self.scene.objects[index].name;
        self.steps
            .iter()
            .map(|&step| match step {
                Step::Go(receptacle) => format!("go to {}", r(receptacle)),
                Step::Open(receptacle) => format!("open {}", r(receptacle)),
                Step::Take(object, receptacle) => format!("take {} from {}", o(object), r(receptacle)),
                Step::Move(object, receptacle) => format!("move {} to {}", o(object), r(receptacle)),
                Step::Treat(verb, object, tool) => format!("{verb} {} with {}", o(object), r(tool)),
                Step::Use(object) => format!("use {}", o(object)),
            })
            .collect()
    }
}

/// Returns a shortest plan. Plans never move other objects or close doors, because that cannot
/// shorten them.
pub(super) fn walkthrough(house: &Household, scene: &Scene<'_>) -> Option<Vec<String>> {
    let of_kind = |kind: usize| -> Vec<usize> {
        (0..scene.objects.len()).filter(|&index| scene.objects[index].kind == kind).collect()
    };
    let receptacles = |kind: Option<usize>| -> Vec<usize> {
        let all = &scene.plan.receptacles;
        (0..all.len()).filter(|&index| Some(all[index].kind) == kind).collect()
    };
    let wanted = of_kind(scene.object);
    let mut plans = Vec::new();
    match scene.task {
        TaskType::LookInLight => {
            for &object in &wanted {
                for lamp in of_kind(scene.target) {
                    let mut walk = Walk::new(scene);
                    walk.take(object);
                    walk.go(scene.objects[lamp].receptacle);
                    walk.steps.push(Step::Use(lamp));
                    plans.push(walk);
                }
            }
        }
        TaskType::PickTwo => {
            for target in receptacles(Some(scene.target)) {
                for &first in &wanted {
                    for &second in wanted.iter().filter(|&&second| second != first) {
                        let mut walk = Walk::new(scene);
                        walk.take(first);
                        walk.put(first, target);
                        walk.take(second);
                        walk.put(second, target);
                        plans.push(walk);
                    }
                }
            }
        }
        task => {
            let treatment = match task {
                TaskType::PickCleanThenPlace => Some(("clean", "SinkBasin")),
                TaskType::PickHeatThenPlace => Some(("heat", "Microwave")),
                TaskType::PickCoolThenPlace => Some(("cool", "Fridge")),
                _ => None,
            };
            for target in receptacles(Some(scene.target)) {
                for &object in &wanted {
                    let mut walk = Walk::new(scene);
                    walk.take(object);
                    let Some((verb, tool)) = treatment else {
                        walk.put(object, target);
                        plans.push(walk);
                        continue;
                    };
                    for tool in receptacles(house.receptacle(tool)) {
                        let mut walk = walk.clone();
                        walk.go(tool);
                        walk.steps.push(Step::Treat(verb, object, tool));
                        walk.put(object, target);
                        plans.push(walk);
                    }
                }
            }
        }
    }
    plans.iter().min_by_key(|walk| walk.steps.len()).map(Walk::commands)
}
