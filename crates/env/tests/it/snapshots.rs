//! Saves and restores the states of every native environment at every turn.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use turnwise_core::{Action, Environment, Purpose, Seed, Step};
use turnwise_env::demonstration::DemonstrationRequest;

use crate::worlds::{WORLDS, open};

const TURNS: usize = 8;
const EPISODES: usize = 6;

struct Played {
    states: Vec<turnwise_core::Snapshot>,
    actions: Vec<Action>,
    steps: Vec<Step>,
}

fn play(environment: &mut dyn Environment, expert: &[String], seed: Seed) -> Played {
    let mut rng = seed.rng();
    let mut played = Played { states: Vec::new(), actions: Vec::new(), steps: Vec::new() };
    let (mut next, mut admissible) = (expert.iter(), Vec::new());
    while played.steps.last().is_none_or(|step: &Step| !step.terminated && !step.truncated) {
        let chosen = rng.choose(&admissible).cloned();
        let other = if rng.chance(0.3) { Some("nonsense".to_owned()) } else { chosen };
        let action = if rng.chance(0.6) { next.next().cloned().or(other) } else { other };
        let action = Action::from(action.unwrap_or_default());
        played.states.push(environment.snapshot().unwrap().unwrap());
        let step = environment.step(&action).unwrap();
        admissible.clone_from(&step.observation.admissible);
        played.actions.push(action);
        played.steps.push(step);
    }
    played
}

#[test]
fn an_episode_goes_on_from_every_turn_as_it_did() {
    for (kind, settings) in WORLDS {
        let Some(world) = open(kind, settings, TURNS) else { continue };
        let split = world.task_set().splits().remove(0);
        let request =
            DemonstrationRequest { split: &split, count: EPISODES, ..DemonstrationRequest::default() };
        let demonstrations = world.demonstrations(&request).unwrap().unwrap();
        assert!(!demonstrations.episodes.is_empty(), "{kind}");
        let mut other = world.task_set().environment().unwrap();
        let mut differing = 0;
        for (number, episode) in demonstrations.episodes.iter().enumerate() {
            let seed = Seed::derive(1, Purpose::Environment, &[number as u64]);
            let mut environment = world.task_set().environment().unwrap();
            environment.reset(&episode.task, seed).unwrap();
            let expert: Vec<String> = episode.turns.iter().map(|turn| turn.action.clone()).collect();
            let played = play(&mut *environment, &expert, seed);
            for (turn, state) in played.states.iter().enumerate() {
                // Restores into an environment with another state and task.
                other.restore(state).unwrap();
                assert_eq!(&other.snapshot().unwrap().unwrap(), state, "{kind}, turn {turn}");
                for (later, action) in played.actions.iter().enumerate().skip(turn) {
                    assert_eq!(other.step(action).unwrap(), played.steps[later], "{kind}, {turn} to {later}");
                }
                // States differ, so another one continues differently.
                if turn > 0 {
                    other.restore(&played.states[turn - 1]).unwrap();
                    let goes_on = |action| other.step(action).ok();
                    let again: Vec<Option<Step>> = played.actions[turn..].iter().map(goes_on).collect();
                    let same = again.iter().zip(&played.steps[turn..]).all(|(a, b)| a.as_ref() == Some(b));
                    differing += usize::from(!same);
                }
            }
        }
        assert!(differing > 0, "{kind}: the comparison could not fail");
    }
}
