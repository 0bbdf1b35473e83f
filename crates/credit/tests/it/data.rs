//! Selection of training groups, filters, and the penalty of long responses.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{group, peer_batch, turn};
use turnwise_core::{Group, StopReason};
use turnwise_credit::compact::{CompactFilterConfig, Filtered};
use turnwise_credit::overlong::OverlongConfig;
use turnwise_credit::selection::{Selection, SelectionConfig};

fn pair(first: f64, second: f64) -> Group {
    let mut group = group(vec![vec![turn("s", first)], vec![turn("s", second)]]);
    for trajectory in &mut group.trajectories {
        trajectory.success = trajectory.outcome_return() > 0.5;
    }
    group
}

fn config(text: &str) -> SelectionConfig {
    serde_json::from_str(text).unwrap()
}

#[test]
fn dynamic_sampling_fills_the_batch_and_cuts_the_surplus() {
    let mut selection = Selection::new(&config(r#"{"kind":"dynamic","max_rounds":3}"#), 3).unwrap();
    assert_eq!(selection.missing(), 3);
    selection.add(vec![pair(1.0, 1.0), pair(1.0, 0.0), pair(0.0, 0.0)]);
    assert_eq!(selection.missing(), 3);
    selection.add(vec![pair(0.0, 1.0), pair(0.25, 0.0), pair(0.0, 1.0)]);
    assert_eq!((selection.missing(), selection.dropped(), selection.surplus()), (0, 2, 1));
    let batch = selection.finish();
    let numbers: Vec<usize> = batch.trajectories().map(|trajectory| trajectory.group).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn dynamic_sampling_gives_up_after_its_rounds() {
    let mut selection = Selection::new(&config(r#"{"kind":"dynamic","max_rounds":2}"#), 2).unwrap();
    selection.add(vec![pair(1.0, 1.0); 2]);
    assert_eq!(selection.missing(), 2);
    selection.add(vec![pair(0.0, 1.0), pair(0.0, 0.0)]);
    assert_eq!((selection.missing(), selection.rounds()), (0, 2));
    assert_eq!(selection.finish().groups.len(), 1);
}

#[test]
fn rejection_looks_at_success_in_one_larger_round() {
    let mut selection = Selection::new(&config(r#"{"kind":"rejection"}"#), 2).unwrap();
    assert_eq!(selection.missing(), 4);
    // The second group's returns differ, but both failed.
    selection.add(vec![pair(1.0, 1.0), pair(0.25, 0.0), pair(0.0, 1.0), pair(1.0, 0.0)]);
    assert_eq!((selection.missing(), selection.dropped(), selection.finish().groups.len()), (0, 2, 2));
}

#[test]
fn everything_is_taken_by_default_and_nonsense_is_refused() {
    let mut selection = Selection::new(&SelectionConfig::default(), 1).unwrap();
    selection.add(vec![pair(0.0, 0.0)]);
    assert_eq!(selection.finish().groups.len(), 1);
    assert!(Selection::new(&config(r#"{"kind":"dynamic","max_rounds":0}"#), 1).is_err());
    assert!(serde_json::from_str::<SelectionConfig>(r#"{"kind":"dynamic","rounds":1}"#).is_err());
}

#[test]
fn compact_filtering_tells_cut_off_failed_and_looping_trajectories() {
    let act = |state: &str, action: &str| {
        let mut turn = turn(state, 0.0);
        action.clone_into(&mut turn.action);
        turn
    };
    // The same action in another state, or another action in the same state, is not a loop.
    let wandering = vec![act("a", "go"), act("b", "go"), act("a", "look"), act("a", "go"), act("b", "look")];
    let looping = vec![act("a", "go"), act("b", "go"), act("a", "go"), act("a", "go")];
    let reason = |turns: &Vec<turnwise_core::Turn>, stop: StopReason, config: &CompactFilterConfig| {
        let mut trajectory = group(vec![turns.clone()]).trajectories.remove(0);
        trajectory.stop = stop;
        config.reason(&trajectory)
    };
    let strict = CompactFilterConfig { max_repeats: 2, ..CompactFilterConfig::default() };
    let ended = StopReason::Terminated;
    assert_eq!(reason(&wandering, ended.clone(), &strict), None);
    assert_eq!(reason(&looping, ended.clone(), &strict), Some(Filtered::Looping));
    assert_eq!(
        reason(&looping, ended.clone(), &CompactFilterConfig::default()),
        None,
        "three times are allowed"
    );
    let patient = CompactFilterConfig { max_repeats: 0, ..strict.clone() };
    assert_eq!(reason(&looping, ended, &patient), None);
    for cut in [StopReason::MaxTurns, StopReason::ContextOverflow] {
        assert_eq!(reason(&wandering, cut.clone(), &strict), Some(Filtered::Truncated));
        let lenient = CompactFilterConfig { truncated: false, ..strict.clone() };
        assert_eq!(reason(&wandering, cut.clone(), &lenient), None);
        assert_eq!(reason(&looping, cut, &lenient), Some(Filtered::Looping));
    }
    let timeout = StopReason::EnvironmentError("no answer within 120 s".into());
    assert_eq!(reason(&wandering, timeout, &strict), Some(Filtered::Failed));
}

#[test]
fn overlong_shaping_by_hand() {
    let config: OverlongConfig = serde_json::from_str(r#"{"limit":100,"buffer":20}"#).unwrap();
    let shaping: Vec<f64> = [0, 80, 85, 99, 100, 130].map(|tokens| config.shaping(tokens)).to_vec();
    assert_eq!(shaping, [0.0, 0.0, -0.25, -0.95, -1.0, -1.0]);
    let mut batch = peer_batch();
    batch.groups[0].trajectories[0].turns[2].response_ids = vec![0; 90];
    assert_eq!(config.apply(&mut batch).unwrap(), 1);
    let turn = &batch.groups[0].trajectories[0].turns[2];
    assert_eq!((turn.reward, turn.credited_reward()), (10.0, 9.5));
    batch.groups[0].trajectories[0].task.limits.response_tokens = Some(50);
    batch.groups[0].trajectories[0].turns[1].response_ids = vec![0; 45];
    let before = batch.groups[0].trajectories[0].turns[1].credited_reward();
    assert_eq!(config.apply(&mut batch).unwrap(), 2);
    assert_eq!(batch.groups[0].trajectories[0].turns[1].credited_reward(), before - 0.5);
    assert!(OverlongConfig { buffer: 200, ..config }.apply(&mut batch).is_err());
}
