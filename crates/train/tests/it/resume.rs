//! Interrupted and resumed runs end bit-identical to uninterrupted ones.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_model::LoraConfig;
use turnwise_train::config::{Config, ConfigSource, TrainConfig, load};
use turnwise_train::record::earlier_configs::of_position;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{EvaluationPoint, Event, Observer, Run, RunEnd};

use crate::common;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tiny.toml");

/// Both phases, several checkpoints, several minibatches.
fn tiny(layout: &str) -> Config {
    let overrides = [
        "sft.steps=6",
        "sft.checkpoint_every=2",
        "train.steps=4",
        "train.num_minibatches=2",
        "train.ppo_epochs=2",
        "train.checkpoint_every=1",
        "train.skip_zero_advantage=false",
        "objective.kl.coef=0.01",
        "objective.entropy_coef=0.01",
    ];
    let mut overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    overrides.push(format!("prompt.layout={layout}"));
    load(&ConfigSource {
        preset: Some("quickstart".into()),
        files: vec![TINY.into()],
        overrides,
        ..ConfigSource::default()
    })
    .unwrap()
}

/// With a critic and an adaptive coefficient.
fn tiny_ppo() -> Config {
    ppo(tiny("concatenated"))
}

/// With an adapter with dropout, under a KL to the end of SFT.
fn tiny_lora() -> Config {
    let lora = LoraConfig { rank: 2, alpha: 4.0, dropout: 0.2, ..LoraConfig::default() };
    let mut config = tiny("windowed");
    config.policy.lora = Some(lora);
    config.sft.learning_rate = 1e-2;
    config
}

/// Two adapters on one base.
fn tiny_lora_ppo() -> Config {
    let mut config = ppo(tiny_lora());
    config.critic.lora =
        Some(LoraConfig { rank: 3, targets: vec!["v_proj".into()], ..LoraConfig::default() });
    config
}

fn ppo(mut config: Config) -> Config {
    let more = ["credit.estimator={kind=\"ppo\"}", "critic.learning_rate=1e-2", "critic.warmup_steps=1"];
    let more = more.iter().chain(&["objective.kl.adaptive.target=1e-4", "prompt.validity=admissible"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    config.preset = None;
    std::fs::write(&path, config.to_toml().unwrap()).unwrap();
    let overrides = more.map(|text| (*text).to_owned()).collect();
    load(&ConfigSource { files: vec![path], overrides, ..ConfigSource::default() }).unwrap()
}

/// With state values by continuations, which an interruption may leave unfinished.
fn tiny_vineppo() -> Config {
    let mut config = tiny("concatenated");
    let text = r#"{"kind": "monte-carlo", "continuations": 3}"#;
    config.credit.estimator = serde_json::from_str(text).unwrap();
    config
}

/// With summaries, which also have continuations.
fn tiny_compaction() -> Config {
    let mut config = tiny_vineppo();
    config.prompt.compact_after = Some(110);
    config.prompt.max_summary_tokens = 8;
    config
}

/// With a learned decomposer in rounds of two steps.
fn tiny_turnrd() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, Config { preset: None, ..tiny("windowed") }.to_toml().unwrap()).unwrap();
    let overrides = [
        "credit.refinements=[{kind=\"has\", decomposer=\"external\"}]",
        "decomposer={kind=\"turnrd\", round_steps=2, hold_out=4}",
        "decomposer.network.hidden=8",
        "decomposer.network.epochs=2",
        "train.learning_rate=1e-2",
        "prompt.validity=admissible",
    ];
    let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
    load(&ConfigSource { files: vec![path], overrides, ..ConfigSource::default() }).unwrap()
}

struct StopAfter<'a> {
    left: usize,
    stop: &'a AtomicBool,
}

impl Observer for StopAfter<'_> {
    fn event(&mut self, _event: Event<'_>) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    fn evaluate(&mut self, _point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

fn bits(run: &Run) -> Vec<u32> {
    run.weights().unwrap().trained().iter().map(|weight| weight.to_bits()).collect()
}

fn straight(config: &Config, root: &Path) -> Vec<u32> {
    let mut silent = turnwise_train::NoopObserver;
    let mut run = Run::builder(config.clone()).directory(root).start(&mut silent).unwrap();
    assert_eq!(run.train(&mut silent, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    bits(&run)
}

/// Interrupts a run after each `every` events until it is finished. `every` grows, because on a
/// slow machine a rollout alone may have more events.
fn interrupted(config: &Config, root: &Path, every: usize) -> (Vec<u32>, usize) {
    let mut silent = turnwise_train::NoopObserver;
    drop(Run::builder(config.clone()).directory(root).start(&mut silent).unwrap());
    for round in 0..200 {
        let mut run = common::resume(root, &mut silent).unwrap();
        let stop = AtomicBool::new(false);
        let mut observer = StopAfter { left: every + round / 4, stop: &stop };
        if run.train(&mut observer, &stop).unwrap() == RunEnd::Finished {
            return (bits(&run), round);
        }
    }
    panic!("the run never finished");
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits() {
    type Make = fn() -> Config;
    let configs: [(&str, Make); 8] = [
        ("concatenated", || tiny("concatenated")),
        ("windowed", || tiny("windowed")),
        ("critic", tiny_ppo),
        ("turnrd", tiny_turnrd),
        ("state values", tiny_vineppo),
        ("summaries", tiny_compaction),
        ("lora", tiny_lora),
        ("lora critic", tiny_lora_ppo),
    ];
    for (layout, config) in configs {
        let config = config();
        let folder = tempfile::tempdir().unwrap();
        let expected = straight(&config, &folder.path().join("straight"));
        let lines = read_metrics(&folder.path().join("straight/metrics.jsonl")).unwrap();
        let written = lines.iter().any(|line| line.metrics.get("rollout/compactions") > Some(0.0));
        assert_eq!(written, layout == "summaries", "{layout}");
        for every in [4, 7] {
            let root = folder.path().join(format!("every-{every}"));
            let (found, rounds) = interrupted(&config, &root, every);
            assert!(rounds > 0, "{layout}: nothing was interrupted");
            assert!(found == expected, "{layout}: the weights differ after {rounds} interruptions");
        }
        let other = straight(&Config { seed: 1, ..config }, &folder.path().join("other"));
        assert!(other != expected);
    }
}

/// A kill before the next checkpoint leaves a record or network of rounds that the resumed run has
/// yet to reach.
#[test]
fn what_lies_beyond_the_checkpoint_is_made_again_with_the_same_bits() {
    let mut config = tiny_turnrd();
    config.train.keep_last = 0;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let expected = straight(&config, &root);
    let network = root.join("turnrd/round-0002/turnrd.safetensors");
    let trained = std::fs::read(&network).unwrap();
    for left in [1, 2, 3] {
        for step in left + 1..=4 {
            std::fs::remove_dir_all(root.join(format!("checkpoints/step-00000{step}"))).unwrap();
        }
        let mut silent = turnwise_train::NoopObserver;
        let mut run = common::resume(&root, &mut silent).unwrap();
        assert_eq!(run.train(&mut silent, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
        assert!(bits(&run) == expected, "the weights differ from step {left} on");
        assert!(std::fs::read(&network).unwrap() == trained, "the network differs from step {left} on");
    }
}

/// After rewinding, the network trains on the new records only.
#[test]
fn a_branch_that_was_left_teaches_the_network_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [back, ahead] = ["back", "ahead"].map(|name| folder.path().join(name));
    let mut config = tiny_turnrd();
    config.train.keep_last = 0;
    straight(&config, &back);
    straight(&Config { train: TrainConfig { steps: 2, ..config.train.clone() }, ..config }, &ahead);
    let left = std::fs::read(back.join("turnrd/round-0002/turnrd.safetensors")).unwrap();
    let mut silent = turnwise_train::NoopObserver;
    let mut results = Vec::new();
    for root in [&back, &ahead] {
        let overrides = ["train.steps=4", "train.learning_rate=3e-2"];
        let mut run = common::resume_with(root, &overrides, Some("step-2"), &mut silent).unwrap();
        assert_eq!(run.train(&mut silent, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
        results.push((bits(&run), std::fs::read(root.join("turnrd/round-0002/turnrd.safetensors")).unwrap()));
    }
    assert!(results[0] == results[1], "the two are not one run");
    assert!(results[0].1 != left, "the other rate changed nothing");
}

/// After rewinding before a change of settings, repeated steps belong to the current settings.
#[test]
fn steps_done_again_are_of_the_settings_that_they_were_done_with() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut config = tiny("windowed");
    config.train.keep_last = 0;
    straight(&config, &root);
    let mut silent = turnwise_train::NoopObserver;
    let mut go_on = |from: &str, overrides: &[&str]| {
        let mut run = common::resume_with(&root, overrides, Some(from), &mut silent).unwrap();
        assert_eq!(run.train(&mut silent, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    };
    go_on("step-2", &["train.learning_rate=3e-2"]);
    let directory = turnwise_train::RunDirectory::open(&root).unwrap();
    let of = |label: &str| {
        let path = of_position(&directory, label.parse().unwrap()).unwrap();
        let source = ConfigSource { files: vec![path], ..ConfigSource::of_run(&root) };
        load(&source).unwrap().train.learning_rate
    };
    assert_eq!((of("step-2"), of("step-3")), (config.train.learning_rate, 3e-2));
    go_on("step-1", &[]);
    assert_eq!((of("step-1"), of("step-2"), of("step-3")), (config.train.learning_rate, 3e-2, 3e-2));
}

#[test]
fn the_same_config_gives_the_same_trajectories() {
    let config = tiny("concatenated");
    let folder = tempfile::tempdir().unwrap();
    straight(&config, &folder.path().join("a"));
    straight(&config, &folder.path().join("b"));
    let read = |run: &str| {
        turnwise_train::record::directory::read_trajectories(
            &folder.path().join(run).join("trajectories/step-000004.jsonl.zst"),
        )
        .unwrap()
    };
    let (a, b) = (read("a"), read("b"));
    assert_eq!(a.len(), 6);
    assert_eq!(a, b);
    assert!(a.iter().all(|trajectory| trajectory.advantages.is_some()));
}
