//! ALFWorld environment: step limit, rewards, saved states.

use turnwise_core::{
    Action, EnvError, Environment, Observation, Purpose, Seed, Snapshot, Step, Task, TaskSet as _,
};
use turnwise_env::alfworld::{AlfworldSet, DEFAULT_MAX_STEPS, Game};

use super::kitchen::{self, SIMPLE, TWO};

fn set() -> AlfworldSet {
    let game = |trial: u32, goal: &str| {
        Game::parse(&format!("train/kitchen/{trial}/game.tw-pddl"), &kitchen::file(goal)).unwrap()
    };
    AlfworldSet::from_games(vec![game(1, SIMPLE), game(2, TWO)])
}

fn task(id: &str) -> Task {
    Task::new(id, "", "")
}

fn started(set: &AlfworldSet, id: &str) -> (Box<dyn Environment>, Observation) {
    let mut environment = set.environment().unwrap();
    let observation = environment.reset(&task(id), Seed::derive(0, Purpose::Environment, &[])).unwrap();
    (environment, observation)
}

const WINNING: [&str; 3] =
    ["go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 11"];

#[test]
fn an_episode_is_won_once_and_then_over() {
    let set = set();
    let (mut environment, observation) = started(&set, "train/kitchen/1");
    assert!(observation.text().ends_with("Your task is to: tidy up."));
    assert_eq!(observation.admissible.len(), 20);
    let steps: Vec<Step> =
        WINNING.iter().map(|&action| environment.step(&Action::from(action)).unwrap()).collect();
    let flags = |step: &Step| (step.reward, step.terminated, step.truncated, step.success, step.understood);
    assert_eq!(flags(&steps[0]), (0.0, false, false, false, true));
    assert_eq!(flags(&steps[2]), (1.0, true, false, true, true));
    assert_eq!(steps.iter().map(|step| step.progress).collect::<Vec<_>>(), [Some(0.0), Some(0.5), Some(1.0)]);
    let error = environment.step(&Action::from("look")).unwrap_err().to_string();
    assert!(error.contains("train/kitchen/1") && error.contains("reset"), "{error}");
    environment.reset(&task("train/kitchen/2"), Seed::derive(0, Purpose::Environment, &[])).unwrap();
    assert!(!environment.step(&Action::from("look")).unwrap().terminated);
}

#[test]
fn the_step_limit_counts_everything_and_loses_to_a_win() {
    let set = set();
    let (mut environment, _) = started(&set, "train/kitchen/1");
    for step in 1..=DEFAULT_MAX_STEPS {
        let outcome = environment.step(&Action::from(if step % 2 == 0 { "look" } else { "sing" })).unwrap();
        assert_eq!(outcome.understood, step % 2 == 0);
        assert_eq!((outcome.truncated, outcome.terminated), (step == DEFAULT_MAX_STEPS, false));
    }
    assert!(environment.step(&Action::from("look")).is_err());

    let short = set.with_max_steps(3);
    let (mut environment, _) = started(&short, "train/kitchen/1");
    let steps = WINNING.map(|action| environment.step(&Action::from(action)).unwrap());
    let last = &steps[2];
    assert!(last.success && last.terminated && !last.truncated);
}

#[test]
fn a_saved_episode_goes_on_exactly_as_it_would_have() {
    let set = set();
    let (mut first, _) = started(&set, "train/kitchen/2");
    let actions = [
        "go to countertop 1",
        "take apple 2 from countertop 1",
        "go to microwave 1",
        "heat apple 2 with microwave 1",
        "go to shelf 11",
        "move apple 2 to shelf 11",
        "look",
        "open cabinet 1",
        "use desklamp 1",
        "nonsense",
        "go to fridge 1",
        "open fridge 1",
        "take apple 1 from fridge 1",
        "go to shelf 11",
        "move apple 1 to shelf 11",
    ];
    let mut states = vec![first.snapshot().unwrap().unwrap()];
    let mut steps = Vec::new();
    for action in actions {
        steps.push(first.step(&Action::from(action)).unwrap());
        states.push(first.snapshot().unwrap().unwrap());
    }
    assert!(steps.last().unwrap().success);
    for (at, state) in states.iter().enumerate() {
        let mut again = set.environment().unwrap();
        again.restore(state).unwrap();
        assert_eq!(&again.snapshot().unwrap().unwrap(), state);
        for (&action, expected) in actions[at..].iter().zip(&steps[at..]) {
            assert_eq!(&again.step(&Action::from(action)).unwrap(), expected);
        }
        assert!(again.step(&Action::from("look")).is_err(), "won is won, restored or not");
    }
}

#[test]
fn foreign_and_altered_states_are_refused() {
    let set = set();
    let (environment, _) = started(&set, "train/kitchen/1");
    let state = String::from_utf8(environment.snapshot().unwrap().unwrap().0).unwrap();
    let mut other = set.environment().unwrap();
    let mut refused = |state: &str, why: &str| {
        let error = other.restore(&Snapshot(state.as_bytes().to_vec())).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused("", "no saved ALFWorld episode");
    refused("{\"cards\":[1,2]}", "no saved ALFWorld episode");
    refused(&state.replace("\"version\":1", "\"version\":2"), "version 2");
    refused(&state.replace("turnwise.alfworld", "turnwise.sokoban"), "sokoban");
    refused(&state.replace("train/kitchen/1", "train/kitchen/9"), "unknown task `train/kitchen/9`");
    // The two games differ only in their goals.
    refused(&state.replace("train/kitchen/1", "train/kitchen/2"), "not the game the state was saved from");
    refused(&state.replace("\"state\":\"0", "\"state\":\"g"), "altered");
    refused(&state.replace("\"state\":\"0", "\"state\":\""), "altered");
    refused(&state.replace("\"state\":\"0", "\"state\":\"f"), "does not have");
    refused(&state.replace("\"holding\":null", "\"holding\":900"), "altered");
    assert!(matches!(other.snapshot(), Err(EnvError::NotReset)), "a refused state leaves nothing behind");
    other.restore(&Snapshot(state.as_bytes().to_vec())).unwrap();
}

#[test]
fn a_task_set_says_what_it_has() {
    let set = set();
    assert_eq!((set.name(), set.splits(), set.len()), ("alfworld", vec!["train".to_owned()], 2));
    let tasks = set.tasks("train").unwrap();
    // The SHA-256 of the ids decides the order.
    assert_eq!(tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ORDER);
    let two = tasks.iter().find(|task| task.id.ends_with('2')).unwrap();
    assert_eq!((two.kind.as_str(), two.goal.as_str()), ("pick_two_obj_and_place", "tidy up."));
    let error = set.tasks("test").unwrap_err().to_string();
    assert!(error.contains("`test`") && error.contains("train"), "{error}");
    let mut environment = set.environment().unwrap();
    assert!(matches!(environment.step(&Action::from("look")), Err(EnvError::NotReset)));
    assert!(matches!(
        environment.reset(&task("nowhere"), Seed::derive(0, Purpose::Environment, &[])),
        Err(EnvError::UnknownTask(_))
    ));
}

const ORDER: [&str; 2] = ["train/kitchen/2", "train/kitchen/1"];
