//! Tests of prompts over whole environments, and of parsing compared with Python.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;

use turnwise_core::{Action, ContextMask, Purpose, Seed, TaskSet};
use turnwise_env::alfworld::AlfworldSet;
use turnwise_env::alfworld::generator::{GeneratorConfig, generate};
use turnwise_env::panel::{Choice, Panel};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView};

/// Plays admissible actions of every game and searches for its goal in prompts that hide it.
/// Returns the number of prompts.
fn look_for_the_goal(set: &AlfworldSet) -> usize {
    let mut looked = 0;
    let templates: Vec<PromptTemplate> =
        ["alfworld", "alfworld-compact"].map(|name| PromptTemplate::named(name).unwrap()).to_vec();
    for split in set.splits() {
        for task in set.tasks(&split).unwrap() {
            let goal = task.goal.trim_end_matches('.');
            assert!(goal.len() > 10, "{task:?}");
            let mut world = set.environment().unwrap();
            let mut observation = world.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
            let mut history: Vec<(String, String)> = Vec::new();
            for step in 0..3 {
                let view = PromptView {
                    goal: &task.goal,
                    history: &history,
                    window: 2,
                    observation: &observation.text(),
                    admissible: &observation.admissible,
                    step,
                };
                for template in &templates {
                    let shows = |kind| template.render(&view, kind).contains(goal);
                    assert!(shows(PromptKind::Full), "{} step {step}", task.id);
                    assert!(shows(PromptKind::Masked(ContextMask::History)), "{} step {step}", task.id);
                    assert!(!shows(PromptKind::Masked(ContextMask::Goal)), "{} step {step}", task.id);
                    assert!(
                        !shows(PromptKind::Masked(ContextMask::GoalAndHistory)),
                        "{} step {step}",
                        task.id
                    );
                    looked += 4;
                }
                let action = observation.admissible[(7 * step) % observation.admissible.len()].clone();
                let next = world.step(&Action::from(&action)).unwrap();
                history.push((std::mem::replace(&mut observation, next.observation).into_text(), action));
            }
        }
    }
    looked
}

#[test]
fn the_goal_stays_hidden_in_generated_worlds() {
    let config =
        GeneratorConfig { train: 60, valid_seen: 12, valid_unseen: 12, ..GeneratorConfig::default() };
    assert_eq!(look_for_the_goal(&generate(&config).unwrap()), 84 * 3 * 2 * 4);
}

#[test]
fn the_goal_stays_hidden_in_official_games() {
    let Ok(data) = std::env::var("TURNWISE_DATA") else {
        println!("skipped: TURNWISE_DATA not set");
        return;
    };
    let splits = ["valid_seen", "valid_unseen"];
    let (set, broken) = AlfworldSet::load_splits(&Path::new(&data).join("alfworld"), &splits).unwrap();
    assert!(broken.is_empty());
    assert_eq!(look_for_the_goal(&set), 274 * 3 * 2 * 4);
}

#[test]
fn panels_of_a_world_are_pinned_and_disjoint() {
    let config =
        GeneratorConfig { train: 60, valid_seen: 12, valid_unseen: 12, ..GeneratorConfig::default() };
    let set = generate(&config).unwrap();
    let pin = |split: &str, count| {
        Panel::pin(&set, split, Choice { count: Some(count), seed: None, balanced: true }).unwrap()
    };
    let (train, unseen) = (pin("train", 30), pin("valid_unseen", 12));
    train.check_disjoint(&unseen).unwrap();
    train.verify(&set).unwrap();
    let other = generate(&GeneratorConfig { seed: 1, ..config }).unwrap();
    assert!(train.verify(&other).is_err(), "another world is another set of tasks");
}

#[test]
fn verl_agents_parsing_is_pythons() {
    let cases: Vec<(String, String, bool)> =
        serde_json::from_str(include_str!("../golden/verl_agent_parsing.json")).unwrap();
    let template = PromptTemplate::named("alfworld-verl-agent").unwrap();
    let parser = ActionParser::new(template.rules().clone(), false);
    let same = |response: &str, action: &str, valid: bool| {
        let parsed = parser.parse(response, &[]);
        parsed.action == action && parsed.valid == valid
    };
    for (response, action, valid) in &cases {
        assert!(
            same(response, action, *valid),
            "{response:?}: {:?}, not {action:?}",
            parser.parse(response, &[])
        );
        // The comparison detects a change of either.
        assert!(!same(response, &format!("{action}."), *valid) && !same(response, action, !valid));
    }
    assert_eq!(cases.len(), 601);
}
