use serde::Deserialize;

use super::*;
use crate::turns::tests::line;

#[derive(Deserialize)]
struct Golden {
    turns: Vec<GoldenTurn>,
    pearson: f64,
    pearson_corrected: f64,
    spearman: f64,
    within: f64,
    within_corrected: f64,
    within_spearman: f64,
    spearman_corrected: f64,
    within_spearman_corrected: f64,
    signs: f64,
    signed_turns: usize,
    slope: f64,
    reliability: f64,
    within_reliability: f64,
    deviation: f64,
    error_solved: f64,
    error_first: f64,
    against_second: Second,
}

#[derive(Deserialize)]
struct GoldenTurn {
    task: usize,
    trajectory: usize,
    place: usize,
    success: bool,
    halves: [f64; 2],
    truth: f64,
    error: f64,
    advantage: f64,
}

#[derive(Deserialize)]
struct Second {
    pearson: f64,
    pearson_corrected: f64,
}

fn golden() -> (Golden, ScoredTurns, Vec<f64>) {
    let golden: Golden = serde_json::from_str(include_str!("../../tests/golden/benchmark.json")).unwrap();
    let turn = |turn: &GoldenTurn| ScoredTurn {
        place: [0, turn.task, turn.trajectory, turn.place],
        task: turn.task,
        trajectory: turn.trajectory,
        success: turn.success,
        truth: turn.truth,
        error: turn.error,
        halves: turn.halves,
        ..ScoredTurn::default()
    };
    let turns = ScoredTurns {
        turns: golden.turns.iter().map(turn).collect(),
        tasks: 5,
        trajectories: 15,
        ..ScoredTurns::default()
    };
    let advantages = golden.turns.iter().map(|turn| turn.advantage).collect();
    (golden, turns, advantages)
}

fn close(found: Option<Estimate>, expected: f64) -> bool {
    found.is_some_and(|found| (found.value - expected).abs() < 1e-9)
}

#[test]
fn numbers_are_those_of_their_definitions() {
    let (golden, turns, advantages) = golden();
    let settings = ScoreSettings::default();
    let found = score("m", &turns, &advantages, Against::All, &settings);
    assert!(close(found.pearson, golden.pearson), "{:?} {}", found.pearson, golden.pearson);
    assert!(close(found.pearson_corrected, golden.pearson_corrected));
    assert!(close(found.spearman, golden.spearman));
    assert!(close(found.within, golden.within));
    assert!(close(found.within_corrected, golden.within_corrected));
    assert!(close(found.within_spearman, golden.within_spearman));
    assert!(close(found.spearman_corrected, golden.spearman_corrected));
    assert!(close(found.within_spearman_corrected, golden.within_spearman_corrected));
    assert!(close(found.signs, golden.signs));
    assert_eq!(found.signed_turns, golden.signed_turns);
    assert!(close(found.slope, golden.slope));
    let noise = 1.0 - golden.pearson_corrected.powi(2);
    assert!(found.noise.is_some_and(|found| (found - noise).abs() < 1e-9));
    let error = |part: &str| found.errors.iter().find(|error| error.part == part).unwrap().error.unwrap();
    assert!((error("solved") - golden.error_solved).abs() < 1e-9);
    assert!((error("turn 1") - golden.error_first).abs() < 1e-9);
    assert!(!close(found.pearson, golden.spearman) && !close(found.within, golden.pearson));
    assert!((error("solved") - error("not solved")).abs() > 1e-3);

    let second = score("m", &turns, &advantages, Against::SecondHalf, &settings);
    assert!(close(second.pearson, golden.against_second.pearson));
    assert!(close(second.pearson_corrected, golden.against_second.pearson_corrected));

    let summary = summarise(&turns, &settings);
    assert!(close(summary.reliability, golden.reliability));
    assert!(close(summary.within_reliability, golden.within_reliability));
    assert!((summary.deviation - golden.deviation).abs() < 1e-9 && (summary.error - 0.14).abs() < 1e-9);
}

#[test]
fn intervals_are_over_tasks_and_not_over_turns() {
    let (_, turns, advantages) = golden();
    let settings = ScoreSettings::default();
    let of = |turns: &ScoredTurns| score("m", turns, &advantages, Against::All, &settings);
    let found = of(&turns);
    let interval = found.pearson.unwrap().interval.unwrap();
    let value = found.pearson.unwrap().value;
    assert!(interval.low < value && value < interval.high, "{interval:?} {value}");
    assert_eq!(of(&turns), found, "the seed decides");
    let mut repeated = turns.clone();
    repeated.turns = turns.turns.iter().flat_map(|turn| vec![turn.clone(); 4]).collect();
    let four: Vec<f64> = advantages.iter().flat_map(|value| vec![*value; 4]).collect();
    let again = score("m", &repeated, &four, Against::All, &settings).pearson.unwrap().interval.unwrap();
    assert!((again.low - interval.low).abs() < 1e-9 && (again.high - interval.high).abs() < 1e-9);
    let mut apart = turns.clone();
    apart.turns.iter_mut().for_each(|turn| turn.task = turn.trajectory);
    apart.tasks = 15;
    assert_ne!(of(&apart).pearson.unwrap().interval, found.pearson.unwrap().interval);
    let mut one = turns;
    one.turns.iter_mut().for_each(|turn| turn.task = 0);
    one.tasks = 1;
    assert_eq!(of(&one).pearson.unwrap().interval, None);
}

#[test]
fn perfect_credit_is_perfect_and_the_outcome_has_nothing_within_trajectories() {
    let (good, bad): (&[f64], &[f64]) = (&[1.0, 1.0, 1.0, 0.0], &[0.0, 0.0, 0.0, 1.0]);
    let half: &[f64] = &[1.0, 0.0, 0.0, 1.0];
    let lines = vec![
        line(("a", 0, 0), 1.0, &[half, good, good]),
        line(("a", 0, 1), 0.0, &[half, bad]),
        line(("b", 1, 0), 1.0, &[half, bad, good]),
        line(("b", 1, 1), 0.0, &[half, good, bad]),
    ];
    let turns = ScoredTurns::new(lines);
    let truth: Vec<f64> = turns.turns.iter().map(|turn| turn.truth).collect();
    let settings = ScoreSettings { sign_errors: 0.0, ..ScoreSettings::default() };
    let of = |advantages: &[f64]| score("m", &turns, advantages, Against::All, &settings);
    let doubled = of(&truth.iter().map(|truth| 2.0 * truth).collect::<Vec<f64>>());
    for correlation in [doubled.pearson, doubled.spearman, doubled.within, doubled.within_spearman] {
        assert!(close(correlation, 1.0), "{correlation:?}");
    }
    assert!(close(doubled.signs, 1.0) && close(doubled.slope, 0.5));
    let against = of(&truth.iter().map(|truth| -truth).collect::<Vec<f64>>());
    assert!(close(against.within, -1.0) && close(against.signs, 0.0));
    let outcome: Vec<f64> =
        turns.turns.iter().map(|turn| if turn.success { 0.1 + 0.2 } else { -0.3 }).collect();
    let outcome = of(&outcome);
    assert_eq!((outcome.within, outcome.within_spearman), (None, None), "{outcome:?}");
    assert!(outcome.pearson.is_some_and(|r| r.value > 0.1));
    let nothing = of(&vec![0.0; truth.len()]);
    assert_eq!((nothing.pearson, nothing.slope), (None, None));
    assert!(close(nothing.signs, 0.5));
    assert!(nothing.errors.iter().all(|part| part.error.is_none_or(|error| (error - 1.0).abs() < 1e-9)));
}
