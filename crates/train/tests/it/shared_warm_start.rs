//! Starting from another run's SFT is bit-identical to its own SFT; and the best checkpoint is
//! kept.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_train::record::checkpoint;
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::run::{best, warm_start_settings};
use turnwise_train::{
    Config, EvaluationPoint, Event, NoopObserver, Observer, Registries, Run, RunDirectory, RunEnd,
};

use crate::common;

const SFT: &[&str] = &["sft.steps=4", "sft.warmup=1", "train.num_minibatches=2"];

fn config(preset: Option<&str>, more: &[&str]) -> Config {
    common::config(preset, &[SFT, more].concat()).unwrap()
}

fn to_end(mut run: Run) {
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
}

fn straight(config: &Config, root: &Path) {
    to_end(Run::builder(config.clone()).directory(root).start(&mut NoopObserver).unwrap());
}

fn from_warm_start(config: &Config, root: &Path, warm: &Path) -> Result<Run, String> {
    let run = Run::builder(config.clone()).directory(root);
    run.start_from(warm, &mut NoopObserver).map_err(|error| error.to_string())
}

/// Returns checkpoint files by name, metrics and trajectories.
fn outcome(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for label in ["sft-000004", "step-000000", "step-000002"] {
        let mut folders = vec![root.join("checkpoints").join(label)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                // An adapter names its base's folder, which differs by run; one loaded from files
                // writes its base's EOS tokens.
                let named = ["adapter_config.json", "generation_config.json", "COMPLETE", "state.json"];
                let named = named.iter().any(|file| name.ends_with(file));
                if path.is_dir() {
                    folders.push(path);
                } else if !(named && root.join("base").is_dir()) {
                    found.insert(name, std::fs::read(path).unwrap());
                }
            }
        }
    }
    for mut line in read_metrics(&root.join("metrics.jsonl")).unwrap() {
        line.metrics.0.retain(|tag, _| !tag.starts_with("perf/"));
        let name = format!("{:?} {}", line.phase, line.step);
        found.insert(name, serde_json::to_vec(&line.metrics).unwrap());
    }
    for step in 1..=2 {
        let file = root.join(format!("trajectories/step-{step:06}.jsonl.zst"));
        found.insert(
            format!("trajectories {step}"),
            serde_json::to_vec(&read_trajectories(&file).unwrap()).unwrap(),
        );
    }
    found
}

#[test]
fn a_shared_warm_start_gives_the_bits_of_ones_own() {
    let more = [
        "credit.estimator={kind=\"ppo\"}",
        "critic.learning_rate=1e-2",
        "objective.kl.coef=0.01",
        "objective.kl.adaptive.target=1e-4",
    ];
    let lora = ["policy.lora.rank=2", "policy.lora.dropout=0.1"];
    let others = [
        "rollout.group_size=2",
        "train.steps=0",
        "train.learning_rate=0.5",
        "objective.kl.coef=0.5",
        "eval.tasks=1",
        "prompt.validity=\"admissible\"",
    ];
    for (name, own, warm) in [
        ("group", config(Some("gigpo"), &[]), config(Some("grpo"), &others)),
        ("critic", config(None, &more), config(Some("grpo"), &others)),
        ("lora", config(Some("grpo"), &lora), config(Some("grpo"), &[&lora[..], &others].concat())),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        straight(&own, &at("own"));
        straight(&warm, &at("warm"));
        let settings = |config| warm_start_settings(config, &Registries::builtin()).unwrap();
        assert_eq!(settings(&own), settings(&warm), "{name}");
        drop(from_warm_start(&own, &at("shared"), &at("warm")).unwrap());
        std::fs::remove_dir_all(at("warm")).unwrap();
        to_end(common::resume(&at("shared"), &mut NoopObserver).unwrap());
        let (expected, found) = (outcome(&at("own")), outcome(&at("shared")));
        assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{name}");
        for (file, bytes) in &expected {
            assert!(found[file] == *bytes, "{name}: {file} differs");
        }
        straight(&Config { seed: 1, ..own }, &at("other"));
        assert!(outcome(&at("other")) != expected, "{name}");
    }
}

#[test]
fn another_warm_start_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let warm = config(Some("grpo"), &["train.steps=0"]);
    straight(&warm, &at("warm"));
    let refused = |config: &Config| match from_warm_start(config, &at("new"), &at("warm")) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    };
    for (setting, key) in
        [("seed=1", "`seed`"), ("sft.batch_tokens=500", "`sft.batch_tokens`"), ("sft.steps=5", "`sft.steps`")]
    {
        let error = refused(&config(Some("grpo"), &[setting]));
        assert!(error.contains("warm/config.toml") && error.contains(key), "{error}");
    }
    let before = at("warm/config-before-sft-000002.toml");
    let other = config(Some("grpo"), &["train.steps=0", "sft.learning_rate=0.25"]);
    std::fs::write(&before, other.to_toml().unwrap()).unwrap();
    let error = refused(&config(Some("grpo"), &[]));
    assert!(
        error.contains("config-before-sft-000002.toml") && error.contains("`sft.learning_rate`"),
        "{error}"
    );
    std::fs::remove_file(before).unwrap();
    let error = refused(&common::config(Some("grpo"), &[]).unwrap());
    assert!(error.contains("sft.steps") && error.contains("no warm start to take over"), "{error}");
    std::fs::remove_dir_all(at("warm/checkpoints/sft-000004")).unwrap();
    assert!(refused(&config(Some("grpo"), &[])).contains("has no checkpoint sft-000004"));
    assert!(!at("new").exists());
}

#[test]
fn a_run_is_one_processes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let run = Run::builder(config(None, &[])).directory(&root).start(&mut NoopObserver).unwrap();
    let error = common::resume(&root, &mut NoopObserver).err().unwrap().to_string();
    assert!(error.contains("is working on this run"), "{error}");
    drop(run);
    assert!(common::resume(&root, &mut NoopObserver).is_ok());
}

struct Rates(&'static [f64]);

impl Observer for Rates {
    fn event(&mut self, _: Event<'_>) {}

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        let rate = self.0[point.position.step as usize];
        let result = serde_json::json!([{"split": "valid_unseen", "success": {"successes": 10.0 * rate, "trials": 10}}]);
        let name = format!("eval/{}.json", point.position.label());
        point.run.write_json(&name, &result).map_err(|error| error.to_string())?;
        Ok(ControlFlow::Continue(()))
    }
}

#[test]
fn the_best_checkpoint_survives_pruning_and_resuming() {
    let settings = [
        "train.steps=5",
        "eval.every=1",
        "train.checkpoint_every=0",
        "train.keep_last=1",
        "train.keep_best=valid_unseen",
    ];
    let config = config(None, &settings);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let directory = |root: &Path| RunDirectory::open(root).unwrap();
    let steps = |root: &Path| -> Vec<String> {
        let all = checkpoint::list(&directory(root)).unwrap();
        all.iter().map(|checkpoint| checkpoint.position.label()).collect()
    };
    let mut run = Run::builder(config.clone()).directory(&root).start(&mut NoopObserver).unwrap();
    let mut observer = Rates(&[0.1, 0.3, 0.9, 0.5, 0.9, 0.2]);
    assert_eq!(run.train(&mut observer, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    drop(run);
    let marked = best::read(&directory(&root)).unwrap().unwrap();
    assert_eq!((marked.position.step, marked.success_rate), (2, 0.9));
    assert_eq!(steps(&root), ["sft-000004", "step-000000", "step-000002", "step-000005"]);
    assert!(best::named(&directory(&root), "best").unwrap().ends_with("step-000002"));
    let mut run = common::resume_with(&root, &[], Some("step-0"), &mut NoopObserver).unwrap();
    let mut observer = Rates(&[0.1, 0.3, 0.2, 0.5, 0.4, 0.2]);
    assert_eq!(run.train(&mut observer, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    assert_eq!(best::read(&directory(&root)).unwrap().unwrap().position.step, 3);
    let plain = Config {
        train: turnwise_train::config::TrainConfig { keep_best: None, ..config.train.clone() },
        ..config
    };
    let other = folder.path().join("plain");
    let mut run = Run::builder(plain).directory(&other).start(&mut NoopObserver).unwrap();
    let mut observer = Rates(&[0.1, 0.3, 0.9, 0.5, 0.9, 0.2]);
    run.train(&mut observer, &AtomicBool::new(false)).unwrap();
    assert_eq!(steps(&other), ["sft-000004", "step-000000", "step-000005"]);
    let error = common::config(None, &["train.keep_best=train"]).unwrap_err().to_string();
    assert!(
        error.contains("train.keep_best") && error.contains("name one of eval.splits (valid_unseen)"),
        "{error}"
    );
}
