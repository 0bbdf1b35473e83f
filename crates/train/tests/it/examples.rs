//! The examples of methods of one's own train, and their numbers are what their papers say.
#![allow(clippy::unwrap_used)]

#[path = "../../../../examples/custom_objective.rs"]
mod custom_objective;
#[path = "../../../../examples/custom_refinement.rs"]
mod custom_refinement;

use std::sync::Arc;

use turnwise_core::{Batch, Group, PerTurn, StopReason, Task, TokenStatistics, Trajectory, Turn, TurnSpan};
use turnwise_credit::{Explanation, Inputs, Refinement as _, Supplies};
use turnwise_objective::{
    LossTerm as _, Minibatch, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, PolicyObjective,
};

use custom_objective::PositiveLm;
use custom_refinement::{Igpo, IgpoConfig, Standardise};

fn trajectory(rewards: &[f64]) -> Trajectory {
    let text = r#"{"schema_version":1,"task":{"id":"t","kind":"k","goal":"g"},"group":0,"sample":0,"turns":[],
        "stop":{"kind":"max_turns"},"success":false}"#;
    let mut trajectory: Trajectory = serde_json::from_str(text).unwrap();
    assert_eq!(trajectory.stop, StopReason::MaxTurns);
    trajectory.turns = rewards.iter().map(|&reward| Turn { reward, ..Turn::default() }).collect();
    trajectory
}

#[test]
fn information_gain_by_hand() {
    // Two trajectories of three turns and one; the answer's probability rises 0.25, 0.5, 0.25 | 0.25.
    let batch = Batch {
        groups: vec![Group { trajectories: vec![trajectory(&[0.0, 0.0, 1.0]), trajectory(&[0.0])] }],
    };
    let answer = |task: &Task| Some(task.goal.clone());
    let igpo = |config| Igpo::new(config, answer).unwrap();
    assert_eq!(igpo(IgpoConfig::default()).score_requests(&batch).len(), 4);
    let half = 0.5_f32.ln();
    // The mean over the answer's tokens, whatever their number.
    let scores = vec![vec![2.0 * half], vec![half, half], vec![2.0 * half, 2.0 * half], vec![2.0 * half]];
    let supplies = Supplies { scores: vec![scores], ..Supplies::default() };
    let refine = |config| {
        let mut advantages = PerTurn::filled(&batch, 9.0);
        let inputs = Inputs::new(&batch).with_supplies(&supplies);
        igpo(config).refine(&inputs, &mut advantages, &mut Explanation::new(true)).unwrap();
        advantages.values().copied().collect::<Vec<f64>>()
    };
    let close = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {expected:?}");
    };
    // Rewards 0.25, -0.25, 1 | 0: mean 0.25, sample deviation 0.540062.
    let [a, b, c, d] = [0.0, -0.925820, 1.388730, -0.462910];
    close(&refine(IgpoConfig::default()), &[a + b + c, b + c, c, d]);
    close(
        &refine(IgpoConfig { gamma: 0.5, ..IgpoConfig::default() }),
        &[a + 0.5 * (b + 0.5 * c), b + 0.5 * c, c, d],
    );
    // Gains 0.25, -0.25 and outcomes 1, 0 among themselves.
    let [gain, outcome] = [std::f64::consts::FRAC_1_SQRT_2; 2];
    let separate = IgpoConfig { standardise: Standardise::Separate, ..IgpoConfig::default() };
    close(&refine(separate), &[outcome, outcome - gain, outcome, -outcome]);
}

#[test]
fn the_refinement_of_another_crate_trains_with_a_pass_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let lines = custom_refinement::train(&folder.path().join("run")).unwrap();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(line.metrics.get("igpo/gain_abs_mean").unwrap() > 0.0, "the answer was not scored");
        assert!(line.metrics.get("credit/advantage/std").unwrap() > 0.0);
    }
    // Its settings are written down with the run's, every default spelled out.
    let text = std::fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    assert!(text.contains("kind = \"igpo\"") && text.contains("standardise = \"joint\""), "{text}");
}

#[test]
fn the_positive_examples_by_hand() {
    let sequence = |success: bool, tokens: usize| ObjectiveSequence {
        success,
        ..ObjectiveSequence::new(
            vec![TurnSpan { turn: 0, start: 1, end: 1 + tokens }],
            vec![-1.0; tokens],
            vec![0.0],
        )
    };
    let batch = ObjectiveBatch { sequences: vec![sequence(true, 3), sequence(false, 2), sequence(true, 1)] };
    let policy = Arc::new(PolicyObjective::new(&ObjectiveConfig::default(), batch).unwrap());
    let term = PositiveLm::default();
    assert!(term.acts_without_advantage());
    let parts = term.for_minibatch(&Minibatch { policy: &policy, masked: &[] }).unwrap();
    let objective = parts.tokens.unwrap();
    let of = |sequence: usize, logprobs: &[f32]| {
        objective
            .evaluate(sequence, TokenStatistics { logprobs, entropies: &[], reference_kls: &[] })
            .unwrap()
    };
    // Four tokens of solved trajectories: 0.1 / 4 each.
    let first = of(0, &[-1.0, -2.0, -3.0]);
    assert!((first.loss - 0.1 * 6.0 / 4.0).abs() < 1e-12);
    assert_eq!(first.d_logprobs, [-0.025; 3]);
    assert_eq!((of(1, &[-1.0; 2]).loss, of(1, &[-1.0; 2]).d_logprobs), (0.0, vec![0.0; 2]));
    assert!((of(2, &[-4.0]).loss - 0.1).abs() < 1e-12);
}

#[test]
fn the_term_of_another_crate_trains_and_acts() {
    let folder = tempfile::tempdir().unwrap();
    let run = |mu: f64| {
        let config = custom_objective::config(mu).unwrap();
        custom_objective::train(config, &folder.path().join(mu.to_string())).unwrap()
    };
    let (without, with) = (run(0.0), run(0.1));
    let loss =
        |lines: &[turnwise_train::run::metrics::MetricsLine]| lines[0].metrics.get("loss/total").unwrap();
    // Log-probabilities are negative, so that imitating them adds to the loss.
    assert!(loss(&with) > loss(&without), "{} {}", loss(&with), loss(&without));
}
