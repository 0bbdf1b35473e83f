//! A small hand-written kitchen as a game file.

pub(crate) const PROBLEM: &str = include_str!("kitchen.pddl");

pub(crate) const SIMPLE: &str = "(and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) (objectType ?o AppleType) \
     (receptacleType ?r ShelfType)))))";
pub(crate) const CLEAN: &str = "(and (exists (?r - receptacle) (exists (?o - object) (and (cleanable ?o) (objectType ?o MugType) \
     (receptacleType ?r CabinetType) (isClean ?o) (inReceptacle ?o ?r)))))";
pub(crate) const HEAT: &str = "(and (exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) (objectType ?o AppleType) \
     (receptacleType ?r CounterTopType) (isHot ?o) (inReceptacle ?o ?r)))))";
pub(crate) const COOL: &str = "(and (exists (?r - receptacle) (exists (?o - object) (and (coolable ?o) (objectType ?o AppleType) \
     (receptacleType ?r CounterTopType) (isCool ?o) (inReceptacle ?o ?r)))))";
pub(crate) const LOOK: &str = "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) \
     (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) \
     (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))";
pub(crate) const TWO: &str = "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType) (receptacleType ?r \
     ShelfType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 AppleType) \
     (receptacleType ?r ShelfType) (inReceptacle ?o2 ?r)))))))";

pub(crate) fn file(goal: &str) -> String {
    wrap(&PROBLEM.replace("GOAL", goal))
}

pub(crate) fn wrap(problem: &str) -> String {
    serde_json::json!({
        "pddl_domain": "(not read)",
        "grammar": "{ \"task\": [ { \"rhs\": \"Your task is to: tidy up.\" } ] }",
        "pddl_problem": problem,
        "solvable": true,
        "walkthrough": ["look"],
    })
    .to_string()
}
