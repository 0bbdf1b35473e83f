//! Rollouts that are under way while the policy is updated.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_core::Trajectory;
use turnwise_train::config::Config;
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{NoopObserver, Run, RunEnd};

use crate::common;

const STEPS: u64 = 7;

fn config(max_staleness: u64, more: &[&str]) -> Config {
    let staleness = format!("rollout.max_staleness={max_staleness}");
    // Nothing is solved in so short a run; entropy is what moves the weights.
    let entropy = "objective.entropy_coef=0.05";
    let mut settings =
        vec![entropy, "train.steps=7", "train.num_minibatches=2", "train.keep_last=0", &staleness];
    settings.extend(more);
    common::config(Some("quickstart"), &settings).unwrap()
}

fn train(config: Config, root: &Path) -> Vec<u32> {
    let mut run = Run::start(config, root, &mut NoopObserver).unwrap();
    finish(&mut run)
}

fn finish(run: &mut Run) -> Vec<u32> {
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    run.weights().unwrap().trained().iter().map(|weight| weight.to_bits()).collect()
}

/// Versions of the weights that the tokens of a step were sampled with.
fn versions(root: &Path, step: u64) -> BTreeSet<u64> {
    let path = root.join(format!("trajectories/step-{step:06}.jsonl.zst"));
    let turns = |trajectory: Trajectory| trajectory.turns.into_iter().map(|turn| turn.weights_version);
    read_trajectories(&path).unwrap().into_iter().flat_map(turns).collect()
}

fn metric(root: &Path, tag: &str) -> Vec<f64> {
    let lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
    lines.iter().filter_map(|line| line.metrics.get(tag)).collect()
}

#[test]
fn every_token_is_sampled_by_the_weights_of_so_many_steps_before() {
    let folder = tempfile::tempdir().unwrap();
    let root = |name: &str| folder.path().join(name);
    let more = ["train.checkpoint_every=0", "train.learning_rate=1e-2", "train.warmup=0"];
    let turns = train(config(0, &more), &root("turns"));
    let ahead = train(config(2, &more), &root("ahead"));
    // Two updates a step.
    for step in 1..=STEPS {
        assert_eq!(versions(&root("turns"), step), BTreeSet::from([2 * (step - 1)]));
        assert_eq!(versions(&root("ahead"), step), BTreeSet::from([2 * (step - 1).saturating_sub(2)]));
    }
    assert_eq!(metric(&root("ahead"), "rollout/staleness"), [0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    assert!(metric(&root("turns"), "rollout/staleness").is_empty());
    // What samples is what the update measures its ratios against: with old weights they differ from the learner's.
    let mismatch = |name: &str| metric(&root(name), "rollout/mismatch_kl");
    let (same, older) = (mismatch("turns"), mismatch("ahead"));
    assert!(same.iter().chain(&older[..1]).all(|kl| *kl < 1e-6), "{same:?} {older:?}");
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    assert!(largest(&older) > 10.0 * largest(&same), "{same:?} {older:?}");
    assert!(ahead != turns, "the same weights from other rollouts");
    // The same once more: timing decides nothing.
    assert!(train(config(2, &more), &root("again")) == ahead);
}

#[test]
fn a_run_that_goes_on_from_a_checkpoint_has_the_same_bits() {
    for selection in ["all", "dynamic"] {
        let selected = format!("rollout.selection={{kind=\"{selection}\"}}");
        let config = config(2, &["train.checkpoint_every=3", &selected]);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let expected = train(config.clone(), &root);
        assert_eq!(metric(&root, "rollout/staleness"), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0], "{selection}");
        for (left, gone) in [(6, 7), (3, 6)] {
            std::fs::remove_dir_all(root.join(format!("checkpoints/step-{gone:06}"))).unwrap();
            let mut run = Run::resume(&root, &mut NoopObserver).unwrap();
            assert!(finish(&mut run) == expected, "{selection}: the weights differ after step {left}");
            std::fs::remove_dir_all(root.join("checkpoints/step-000007")).unwrap();
        }
        // The comparison can fail.
        assert!(train(Config { seed: 1, ..config }, &folder.path().join("other")) != expected);
    }
}

#[test]
fn a_run_that_is_stopped_leaves_nothing_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let config = config(3, &["train.checkpoint_every=0"]);
    let mut run = Run::start(config, &root, &mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(true)).unwrap(), RunEnd::Interrupted);
    drop(run);
    let mut run = Run::resume(&root, &mut NoopObserver).unwrap();
    finish(&mut run);
    assert_eq!(metric(&root, "rollout/staleness").len(), STEPS as usize);
}

#[test]
fn weights_that_are_trained_in_place_are_not_sampled_meanwhile() {
    let error = |more: &[&str]| common::config(None, more).unwrap_err().to_string();
    let anew = error(&["rollout.max_staleness=1", "train.recompute_old_logprobs=true"]);
    assert!(anew.contains("train.recompute_old_logprobs") && anew.contains("sampled"), "{anew}");
    let device = error(&["rollout.max_staleness=1", "policy.device=cuda"]);
    assert!(device.contains("rollout.max_staleness") && device.contains("device"), "{device}");
    let service = "policy.learner={kind=\"tinker\", url=\"http://127.0.0.1:1\"}";
    let service = error(&["rollout.max_staleness=1", service]);
    assert!(service.contains("rollout.max_staleness") && service.contains("Tinker"), "{service}");
}
