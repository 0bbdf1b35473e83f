//! The expert solves the tasks, wrong plans do not, and splits are disjoint.

use std::collections::{HashMap, HashSet};

use turnwise_core::{Action, Environment as _, Purpose, Seed};

use super::*;
use crate::bfcl::apis::Instance;
use crate::bfcl::document::BfclDocuments;
use crate::bfcl::reply::write_calls;
use crate::bfcl::set::{BfclOptions, BfclTasks};

fn generated(settings: &BfclGenerator) -> BfclTasks {
    BfclTasks::new(settings.package().unwrap(), BfclOptions::default())
}

fn reward(set: &BfclTasks, id: &str, plan: &[Vec<Vec<String>>]) -> f64 {
    let tasks = set.split("all").unwrap();
    let task = tasks.iter().find(|task| task.id == id).unwrap();
    let mut environment = set.bfcl();
    environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    let mut last = 0.0;
    for replies in plan {
        for calls in replies.iter().filter(|calls| !calls.is_empty()) {
            environment.step(&Action::from(write_calls(calls))).unwrap();
        }
        last = environment.step(&Action::from("Done.")).unwrap().reward;
    }
    last
}

fn outcome(task: &BfclTask, plan: &[Vec<Vec<String>>]) -> (Vec<String>, String) {
    let scenario = Scenario { id: &task.id, apis: &task.apis, config: &task.config, long: None };
    let mut session = Session::new(scenario, "plan");
    let results = plan.iter().flatten().flatten().map(|call| session.execute(call)).collect();
    (results, format!("{:?}", session.instances().map(Instance::state).collect::<Vec<_>>()))
}

fn wrong(task: &BfclTask) -> Vec<Vec<Vec<Vec<String>>>> {
    let mut plans = Vec::new();
    for (turn, replies) in task.plan.iter().enumerate() {
        for (reply, calls) in replies.iter().enumerate() {
            for (place, call) in calls.iter().enumerate().filter(|(_, call)| task.gold[turn].contains(call)) {
                let mut without = task.plan.clone();
                without[turn][reply].remove(place);
                plans.push(without);
                let mut other = task.plan.clone();
                other[turn][reply][place] =
                    match call.rsplit_once(|character: char| character.is_alphanumeric()) {
                        Some((head, tail)) if call.contains('=') => format!("{head}7{tail}"),
                        _ => continue,
                    };
                if outcome(task, &other) != outcome(task, &task.plan) {
                    plans.push(other);
                }
            }
        }
    }
    plans
}

#[test]
fn the_expert_is_graded_1_and_wrong_plays_0_on_a_thousand_tasks() {
    let set = generated(&BfclGenerator { train: 700, valid: 100, test: 200, ..BfclGenerator::default() });
    let (mut kinds, mut played) = (HashMap::new(), 0);
    let mut misgraded = Vec::new();
    for task in &set.shared.package.tasks {
        let solved = reward(&set, &task.id, &task.plan);
        assert_eq!(solved.to_bits(), 1.0_f64.to_bits(), "{}: {:?}", task.id, task.turns);
        for plan in wrong(task) {
            played += 1;
            if reward(&set, &task.id, &plan) > 0.0 {
                misgraded.push(format!("{}: {:?} {plan:?}", task.id, task.gold));
            }
        }
        *kinds.entry(task.kind.as_str()).or_insert(0) += 1;
    }
    assert!(misgraded.is_empty(), "{misgraded:#?}");
    assert_eq!(kinds.len(), 9, "{kinds:?}");
    assert!(played > 3000, "{played}");
}

#[test]
fn what_is_missing_cannot_be_called_or_guessed() {
    let set = generated(&BfclGenerator {
        missing_value: 0.5,
        missing_function: 0.5,
        train: 200,
        valid: 0,
        test: 0,
        ..BfclGenerator::default()
    });
    for task in &set.shared.package.tasks {
        let turn = task.gold.iter().position(Vec::is_empty).unwrap();
        let mut early = task.plan.clone();
        early.swap(turn, turn + 1);
        let is_function = !task.added.is_empty();
        if is_function {
            assert_eq!(reward(&set, &task.id, &early).to_bits(), 0, "{}", task.id);
        } else {
            let [vague, answer] = [&task.turns[turn], &task.turns[turn + 1]];
            let value = |text: &str| text.split([' ', '.', '\'']).map(str::to_owned).collect::<HashSet<_>>();
            let given: Vec<String> = value(answer).difference(&value(vague)).cloned().collect();
            let calls = task.gold[turn + 1].join(" ");
            assert!(
                given.iter().any(|word| !word.is_empty() && calls.contains(word.as_str())),
                "{}: {vague} {answer}",
                task.id
            );
        }
    }
}

#[test]
fn no_calls_are_in_two_splits_for_any_seed() {
    let mut splits: [HashSet<String>; 3] = Default::default();
    for seed in 0..3 {
        let set =
            generated(&BfclGenerator { seed, train: 400, valid: 60, test: 120, ..BfclGenerator::default() });
        for (place, (name, count)) in [("train", 400), ("valid", 60), ("test", 120)].into_iter().enumerate() {
            let tasks = set.split(name).unwrap();
            assert_eq!(tasks.len(), count);
            let gold = |id: &str| set.task(id).unwrap().gold.concat().join("\n");
            splits[place].extend(tasks.iter().map(|task| gold(&task.id)));
        }
    }
    let [train, valid, test] = &splits;
    assert!(train.is_disjoint(valid) && train.is_disjoint(test) && valid.is_disjoint(test));
    // Duplicates are rare, so the check above means something.
    assert!(train.len() > 1100, "{}", train.len());
}

#[test]
fn the_same_seed_gives_the_same_tasks_and_another_gives_others() {
    let digests = |seed: u64| -> Vec<String> {
        let settings = BfclGenerator { seed, train: 40, valid: 0, test: 0, ..BfclGenerator::default() };
        generated(&settings).shared.package.tasks.iter().map(BfclTask::digest).collect()
    };
    assert_eq!(digests(0), digests(0));
    assert!(digests(0).iter().all(|digest| !digests(1).contains(digest)));
}

#[test]
fn tasks_that_there_are_not_are_refused_with_what_to_do() {
    // Requests about numbers cannot omit a value.
    let settings = BfclGenerator {
        apis: vec![Api::Maths],
        missing_value: 1.0,
        missing_function: 0.0,
        train: 1,
        ..BfclGenerator::default()
    };
    let error = settings.package().unwrap_err().to_string();
    assert!(error.contains("0 different tasks in the split train, not 1"), "{error}");
    let settings = BfclGenerator { missing_value: 0.0, missing_function: 1.0, ..settings };
    assert_eq!(settings.package().unwrap().tasks.len(), 501);
}

#[test]
fn functions_that_a_task_needs_are_among_those_shown() {
    let set = generated(&BfclGenerator { train: 150, valid: 0, test: 0, ..BfclGenerator::default() });
    assert_eq!(set.shared.options.documents, BfclDocuments::Short);
    for task in &set.shared.package.tasks {
        let shown = task.functions.as_ref().unwrap();
        let name = |call: &String| call.split('(').next().unwrap_or_default().to_owned();
        let needed: HashSet<String> = task.plan.iter().flatten().flatten().map(name).collect();
        assert!(needed.iter().all(|name| shown.contains(name)), "{}", task.id);
        assert!(shown.len() > needed.len(), "{}: no distractor", task.id);
        assert!((1..=4).contains(&task.turns.len()), "{}", task.id);
    }
}
