//! Writes a scene as a `game.tw-pddl` file.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::super::TaskType;
use super::household::{Household, ability};
use super::scene::Scene;

#[derive(Serialize)]
struct File<'a> {
    pddl_domain: &'a str,
    grammar: String,
    pddl_problem: String,
    solvable: bool,
    walkthrough: &'a [String],
}

const DOMAIN: &str = "; The rules are those that all ALFWorld games share; the engine has them built in.\n\
                      (define (domain alfred))\n";

pub(super) fn game_file(house: &Household, scene: &Scene<'_>, trial: &str, walkthrough: &[String]) -> String {
    let sentence = scene.sentence(house);
    let file = File {
        pddl_domain: DOMAIN,
        grammar: format!(
            "grammar :: \"\"\"\n{{\"task\": [{{\"rhs\": \"Your task is to: {sentence}\"}}]}}\n\"\"\";\n"
        ),
        pddl_problem: problem(house, scene, trial),
        solvable: true,
        walkthrough,
    };
    serde_json::to_string(&file).unwrap_or_default()
}

fn problem(house: &Household, scene: &Scene<'_>, trial: &str) -> String {
    let plan = scene.plan;
    let mut text = String::with_capacity(16_384);
    let mut line = |parts: &[&str]| {
        text.push('(');
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                text.push(' ');
            }
            text.push_str(part);
        }
        text.push_str(")\n");
    };
    for receptacle in &plan.receptacles {
        let kind = &house.receptacles[receptacle.kind];
        line(&["receptacleType", &receptacle.id, &typed(kind.name)]);
        line(&["receptacleAtLocation", &receptacle.id, &plan.places[receptacle.place]]);
        if receptacle.openable {
            line(&["openable", &receptacle.id]);
        }
    }
    for object in &scene.objects {
        let kind = &house.objects[object.kind];
        let home = &plan.receptacles[object.receptacle];
        line(&["objectType", &object.id, &typed(kind.name)]);
        line(&["objectAtLocation", &object.id, &plan.places[home.place]]);
        line(&["inReceptacle", &object.id, &home.id]);
        let lamp = kind.abilities & ability::LAMP != 0;
        line(&[if lamp { "toggleable" } else { "pickupable" }, &object.id]);
        let abilities = [
            (ability::CLEANABLE, "cleanable"),
            (ability::HEATABLE, "heatable"),
            (ability::COOLABLE, "coolable"),
            (ability::SLICEABLE, "sliceable"),
            (ability::VESSEL, "isReceptacleObject"),
        ];
        for (_, fact) in abilities.iter().filter(|(bit, _)| kind.abilities & bit != 0) {
            line(&[fact, &object.id]);
        }
    }
    let kinds: BTreeSet<usize> = scene.objects.iter().map(|object| object.kind).collect();
    let places: BTreeSet<usize> = plan.receptacles.iter().map(|receptacle| receptacle.kind).collect();
    for &place in &places {
        for &kind in kinds.iter().filter(|&&kind| house.fits(place, kind)) {
            line(&["canContain", &typed(house.receptacles[place].name), &typed(house.objects[kind].name)]);
        }
    }
    line(&["atLocation", "agent1", &plan.start]);

    let mut problem = String::with_capacity(text.len() + 4096);
    let _ = write!(problem, "(define (problem {trial})\n(:domain alfred)\n(:objects\nagent1 - agent\n");
    for &kind in &kinds {
        let _ = writeln!(problem, "{} - otype", typed(house.objects[kind].name));
    }
    for &place in &places {
        let _ = writeln!(problem, "{} - rtype", typed(house.receptacles[place].name));
    }
    for object in &scene.objects {
        let _ = writeln!(problem, "{} - object", object.id);
    }
    for receptacle in &plan.receptacles {
        let _ = writeln!(problem, "{} - receptacle", receptacle.id);
    }
    for place in plan.places.iter().chain([&plan.start]) {
        let _ = writeln!(problem, "{place} - location");
    }
    let _ = write!(problem, ")\n(:init\n{text})\n(:goal {})\n)\n", goal(house, scene));
    problem
}

fn typed(kind: &str) -> String {
    format!("{kind}Type")
}

fn goal(house: &Household, scene: &Scene<'_>) -> String {
    let object = house.objects[scene.object].name;
    let treated = match scene.task {
        TaskType::LookInLight => {
            return format!(
                "(and (exists (?lamp - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?lamp {}) \
                 (toggleable ?lamp) (isToggled ?lamp) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) \
                 (inReceptacle ?lamp ?r))) (exists (?o - object ?a - agent) (and (objectType ?o {object}Type) \
                 (holds ?a ?o))))",
                typed(house.objects[scene.target].name)
            );
        }
        TaskType::PickAndPlace | TaskType::PickTwo => "",
        TaskType::PickCleanThenPlace => "(cleanable ?o) (isClean ?o) ",
        TaskType::PickHeatThenPlace => "(heatable ?o) (isHot ?o) ",
        TaskType::PickCoolThenPlace => "(coolable ?o) (isCool ?o) ",
    };
    let target = house.receptacles[scene.target].name;
    let second = if scene.task == TaskType::PickTwo {
        format!(
            " (exists (?p - object) (and (not (= ?o ?p)) (objectType ?p {object}Type) \
             (receptacleType ?r {target}Type) (inReceptacle ?p ?r)))"
        )
    } else {
        String::new()
    };
    format!(
        "(and (exists (?r - receptacle) (exists (?o - object) (and {treated}(objectType ?o {object}Type) \
         (receptacleType ?r {target}Type) (inReceptacle ?o ?r){second}))))"
    )
}
