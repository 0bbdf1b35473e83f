//! Runs with a rollout correction of samples from older weights.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_core::TokenBatch;

use turnwise_model::{LearnerConfig, NativeLearner};
use turnwise_policy::Policy;
use turnwise_train::config::Config;
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{NoopObserver, Run, RunEnd};

use crate::common;

fn config(correction: &str, more: &[&str]) -> Config {
    let correction = format!("train.rollout_correction={correction}");
    let mut settings = vec![
        "rollout.max_staleness=2",
        "train.recompute_old_logprobs=true",
        // Nothing is solved, so a critic's values provide the advantages.
        "credit.estimator={kind=\"ppo\"}",
        "objective.entropy_coef=0.05",
        "train.steps=5",
        "train.num_minibatches=2",
        "train.learning_rate=1e-2",
        "train.warmup=0",
        "train.keep_last=0",
        "train.checkpoint_every=3",
        &correction,
    ];
    settings.extend(more);
    common::config(Some("quickstart"), &settings).unwrap()
}

fn finish(run: &mut Run) -> Vec<u32> {
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    run.weights().unwrap().trained().iter().map(|weight| weight.to_bits()).collect()
}

fn train(config: Config, root: &Path) -> Vec<u32> {
    finish(&mut Run::builder(config).directory(root).start(&mut NoopObserver).unwrap())
}

fn metrics(root: &Path) -> Vec<MetricsLine> {
    read_metrics(&root.join("metrics.jsonl")).unwrap()
}

/// Returns `log pi_old - log mu` of the second step's tokens, with the checkpoint's policy as
/// `pi_old`.
fn log_ratios(root: &Path, checkpoint: &Path, temperature: f64) -> Vec<f64> {
    let policy = Policy::load(checkpoint).unwrap();
    let mut learner = NativeLearner::new(policy.weights, LearnerConfig::default()).unwrap();
    let mut ratios = Vec::new();
    for trajectory in read_trajectories(&root.join("trajectories/step-000002.jsonl.zst")).unwrap() {
        let scored = learner.score(&TokenBatch::of(&trajectory.sequences).sequences, temperature).unwrap();
        for (sequence, scored) in trajectory.sequences.iter().zip(scored) {
            let sampled = sequence.spans.iter().flat_map(|span| &trajectory.turns[span.turn].old_logprobs);
            ratios.extend(scored.logprobs.iter().zip(sampled).map(|(now, then)| f64::from(now - then)));
        }
    }
    ratios
}

#[test]
fn old_samples_are_weighted_and_a_resumed_run_has_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let root = |name: &str| folder.path().join(name);
    // The weights after the first step, which is never stale.
    let first = config("{}", &["rollout.max_staleness=0", "train.checkpoint_every=1", "train.steps=1"]);
    let temperature = first.rollout.temperature;
    train(first, &root("first"));
    let mut ends = Vec::new();
    for (name, correction) in [
        ("truncate", "{mode=\"truncate\", cap=1.0}"),
        ("mask", "{mode=\"mask\", floor=0.98, cap=1.02}"),
        ("sequence", "{level=\"sequence\", mode=\"truncate\", cap=1.5}"),
    ] {
        let (root, settings) = (root(name), config(correction, &[]));
        let expected = train(settings, &root);
        let lines = metrics(&root);
        let of = |tag: &str| lines.iter().map(|line| line.metrics.get(tag).unwrap()).collect::<Vec<_>>();
        let (kl, mean, largest, cut) = (
            of("correction/kl"),
            of("correction/weight/mean"),
            of("correction/weight/max"),
            of("correction/cut_frac"),
        );
        // A checkpoint begins a new queue.
        assert_eq!(of("rollout/staleness"), [0.0, 1.0, 2.0, 0.0, 1.0], "{name}");
        for fresh in [0, 3] {
            assert!(kl[fresh].abs() < 1e-6 && (mean[fresh] - 1.0).abs() < 1e-3, "{name}: {kl:?} {mean:?}");
        }
        let ratios =
            log_ratios(&root, &folder.path().join("first/checkpoints/step-000001"), temperature.into());
        let count = ratios.len() as f64;
        let sum = |of: &dyn Fn(f64) -> f64| ratios.iter().map(|ratio| of(*ratio)).sum::<f64>() / count;
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-3, "{name}: {found} is not {expected}");
        };
        close(kl[1], sum(&|ratio| -ratio));
        match name {
            "truncate" => {
                close(mean[1], sum(&|ratio| ratio.exp().min(1.0)));
                close(cut[1], sum(&|ratio| f64::from(u8::from(ratio > 0.0))));
                assert!(mean[1] < 1.0 && largest[1] > 1.0, "{mean:?} {largest:?}");
            }
            "mask" => {
                let kept = |ratio: f64| (0.98..=1.02).contains(&ratio.exp());
                close(mean[1], sum(&|ratio| if kept(ratio) { ratio.exp() } else { 0.0 }));
                close(cut[1], sum(&|ratio| f64::from(u8::from(!kept(ratio)))));
            }
            _ => {}
        }
        assert!(cut[1] > 0.0 && cut[1] < 1.0, "{name}: {cut:?}");
        let effective = of("correction/effective_share");
        assert!(effective.iter().all(|&share| share > 0.0 && share < 1.0 + 1e-9), "{name}: {effective:?}");
        std::fs::remove_dir_all(root.join("checkpoints/step-000005")).unwrap();
        let mut run = common::resume(&root, &mut NoopObserver).unwrap();
        assert!(finish(&mut run) == expected, "{name}: the weights differ after a resume");
        ends.push(expected);
    }
    assert!(ends[0] != ends[1] && ends[0] != ends[2], "the correction changes nothing");
}
