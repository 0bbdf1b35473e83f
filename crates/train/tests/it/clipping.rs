//! Clipped tokens in the recorded trajectories.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{NoopObserver, Run, RunEnd};

use crate::common;

/// Trains one step of four updates; returns the tokens in all updates, and those clipped at the
/// lower and the upper bound.
fn counts(root: &Path, clip: &str) -> (i64, i64, i64) {
    let settings = [
        // Nothing is solved, so a critic's values provide the advantages.
        "credit.estimator={kind=\"ppo\"}",
        "train.steps=1",
        "train.ppo_epochs=2",
        "train.num_minibatches=2",
        "train.learning_rate=1e-2",
        "train.warmup=0",
        "objective.dual_clip=30.0",
        clip,
    ];
    let config = common::config(Some("quickstart"), &settings).unwrap();
    let mut run = Run::builder(config).directory(root).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    let (mut tokens, mut low, mut high) = (0, 0, 0);
    for trajectory in read_trajectories(&root.join("trajectories/step-000001.jsonl.zst")).unwrap() {
        for turn in &trajectory.turns {
            tokens += 2 * turn.response_ids.len() as i64;
            assert!(turn.clipped.is_empty() || turn.clipped.len() == turn.response_ids.len());
            assert!(turn.clipped.is_empty() || turn.clipped.iter().any(|&count| count != 0));
            low -=
                turn.clipped.iter().filter(|&&count| count < 0).map(|&count| i64::from(count)).sum::<i64>();
            high +=
                turn.clipped.iter().filter(|&&count| count > 0).map(|&count| i64::from(count)).sum::<i64>();
        }
    }
    (tokens, low, high)
}

#[test]
fn recorded_clipped_tokens_are_those_of_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("narrow");
    let (tokens, low, high) = counts(&root, "objective.clip={low=1e-3,high=1e-3}");
    assert!(low > 0 && high > 0, "{low} and {high} of {tokens} tokens are clipped");
    let metrics = read_metrics(&root.join("metrics.jsonl")).unwrap();
    let metric = |tag| metrics.iter().rev().find_map(|line| line.metrics.get(tag)).unwrap();
    for (tag, count) in [("loss/clip_frac_low", low), ("loss/clip_frac_high", high)] {
        let measured: f64 = metric(tag);
        assert!(
            (measured - count as f64 / tokens as f64).abs() < 1e-12,
            "{tag}: {measured}, {count} of {tokens}"
        );
    }
    let (_, low, high) = counts(&folder.path().join("wide"), "objective.clip={low=0.999,high=29.0}");
    assert_eq!((low, high), (0, 0));
}
