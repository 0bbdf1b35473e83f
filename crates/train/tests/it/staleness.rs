//! Rollouts during updates.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task, TaskSet, Trajectory};
use turnwise_env::registry::Registry;
use turnwise_env::world::{OpenOptions, World, WorldKind};
use turnwise_train::config::{Config, ConfigSource, Registries, load};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{EvaluationPoint, Event, NoopObserver, Observer, Run, RunEnd};

use crate::common;

const STEPS: u64 = 7;

fn config(max_staleness: u64, more: &[&str]) -> Config {
    let staleness = format!("rollout.max_staleness={max_staleness}");
    // Nothing is solved; the entropy bonus changes the weights.
    let entropy = "objective.entropy_coef=0.05";
    let mut settings =
        vec![entropy, "train.steps=7", "train.num_minibatches=2", "train.keep_last=0", &staleness];
    settings.extend(more);
    common::config(Some("quickstart"), &settings).unwrap()
}

fn train(config: Config, root: &Path) -> Vec<u32> {
    let mut run = Run::builder(config).directory(root).start(&mut NoopObserver).unwrap();
    finish(&mut run)
}

fn finish(run: &mut Run) -> Vec<u32> {
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    run.weights().unwrap().trained().iter().map(|weight| weight.to_bits()).collect()
}

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
    for step in 1..=STEPS {
        assert_eq!(versions(&root("turns"), step), BTreeSet::from([2 * (step - 1)]));
        assert_eq!(versions(&root("ahead"), step), BTreeSet::from([2 * (step - 1).saturating_sub(2)]));
    }
    assert_eq!(metric(&root("ahead"), "rollout/staleness"), [0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    assert!(metric(&root("turns"), "rollout/staleness").is_empty());
    // Old log-probs come from the sampler: with older weights they differ from the learner's.
    let mismatch = |name: &str| metric(&root(name), "rollout/mismatch_kl");
    let (same, older) = (mismatch("turns"), mismatch("ahead"));
    assert!(same.iter().chain(&older[..1]).all(|kl| *kl < 1e-6), "{same:?} {older:?}");
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    assert!(largest(&older) > 10.0 * largest(&same), "{same:?} {older:?}");
    assert!(ahead != turns, "the same weights from other rollouts");
    assert!(train(config(2, &more), &root("again")) == ahead);
}

#[test]
fn a_run_that_goes_on_from_a_checkpoint_has_the_same_bits() {
    for selection in ["all", "dynamic"] {
        let selected = format!("rollout.filter_groups={{kind=\"{selection}\"}}");
        let config = config(2, &["train.checkpoint_every=3", &selected]);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let expected = train(config.clone(), &root);
        assert_eq!(metric(&root, "rollout/staleness"), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0], "{selection}");
        for (left, gone) in [(6, 7), (3, 6)] {
            std::fs::remove_dir_all(root.join(format!("checkpoints/step-{gone:06}"))).unwrap();
            let mut run = common::resume(&root, &mut NoopObserver).unwrap();
            assert!(finish(&mut run) == expected, "{selection}: the weights differ after step {left}");
            std::fs::remove_dir_all(root.join("checkpoints/step-000007")).unwrap();
        }
        assert!(train(Config { seed: 1, ..config }, &folder.path().join("other")) != expected);
    }
}

#[test]
fn a_run_that_was_stopped_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let config = config(3, &["train.checkpoint_every=0"]);
    let mut run = Run::builder(config).directory(&root).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(true)).unwrap(), RunEnd::Interrupted);
    drop(run);
    let mut run = common::resume(&root, &mut NoopObserver).unwrap();
    finish(&mut run);
    assert_eq!(metric(&root, "rollout/staleness").len(), STEPS as usize);
}

/// The first few episodes end with their first step, every second one with success; later ones
/// never end.
#[derive(Clone)]
struct Endless {
    steps: Arc<AtomicU64>,
    short: Arc<AtomicI64>,
    /// Short episodes left at this one's first step.
    left: Option<i64>,
}

impl Environment for Endless {
    fn reset(&mut self, _: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.left = None;
        Ok(Observation::new("wait"))
    }

    fn step(&mut self, _: &Action) -> Result<Step, EnvError> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        let short = &self.short;
        let left = *self.left.get_or_insert_with(|| short.fetch_sub(1, Ordering::SeqCst));
        let (terminated, success) = (left > 0, left > 0 && left % 2 == 0);
        if !terminated {
            std::thread::sleep(Duration::from_millis(1));
        }
        let reward = f64::from(u8::from(success));
        Ok(Step { observation: Observation::new("wait"), reward, terminated, success, ..Step::default() })
    }
}

impl TaskSet for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn splits(&self) -> Vec<String> {
        vec!["train".into(), "test".into()]
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        Ok(vec![Task::new(split, "wait", split)])
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.clone()))
    }

    /// Environments run on the sampling thread, so none is left on another.
    fn is_instant(&self) -> bool {
        true
    }
}

impl World for Endless {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }
}

#[derive(Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct EndlessSettings {
    short: i64,
}

struct EndlessKind(Arc<AtomicU64>);

impl WorldKind for EndlessKind {
    type Settings = EndlessSettings;

    fn name(&self) -> &'static str {
        "endless"
    }

    fn summary(&self) -> &'static str {
        "episodes without an end"
    }

    fn open(&self, settings: &EndlessSettings, _: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
        let short = Arc::new(AtomicI64::new(settings.short));
        Ok(Box::new(Endless { steps: Arc::clone(&self.0), short, left: None }))
    }
}

/// Fails at its second evaluation, once a rollout is running.
struct Failing(Arc<AtomicU64>);

impl Observer for Failing {
    fn event(&mut self, _: Event<'_>) {}

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        if point.position.step == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let before = self.0.load(Ordering::SeqCst);
        let until = Instant::now() + Duration::from_mins(1);
        while self.0.load(Ordering::SeqCst) == before {
            if Instant::now() > until {
                return Err("nothing is under way".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("the disk is full".into())
    }
}

#[test]
fn a_run_that_fails_leaves_nothing_under_way() {
    // Dynamic sampling draws tasks for one rollout at a time, so the first two steps get the short
    // episodes.
    let settings = "env.kind=endless env.short=4 prompt.template=plain prompt.layout=windowed prompt.history=0 \
                    policy.scratch.hidden_size=32 policy.scratch.layers=1 policy.scratch.heads=2 \
                    policy.scratch.key_value_heads=1 policy.scratch.intermediate_size=64 sft.steps=0 \
                    rollout.tasks_per_step=1 rollout.group_size=2 rollout.max_response_tokens=4 \
                    rollout.max_model_len=256 rollout.filter_groups={kind=\"dynamic\",max_rounds=1} rollout.max_staleness=3 \
                    train.steps=7 train.num_minibatches=1 train.checkpoint_every=0 eval.every=2 eval.splits=[\"test\"]";
    let overrides = settings.split_whitespace().map(str::to_owned).collect();
    let steps = Arc::new(AtomicU64::new(0));
    let environments = Registry::builtin().with(EndlessKind(Arc::clone(&steps)));
    let registries = Registries { environments: environments.clone(), ..Registries::builtin() };
    let config = load(&ConfigSource { overrides, registries, ..ConfigSource::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = Run::builder(config).environments(environments).directory(folder.path().join("run"));
    let mut run = run.start(&mut NoopObserver).unwrap();
    let error = run.train(&mut Failing(Arc::clone(&steps)), &AtomicBool::new(false)).unwrap_err();
    let left = steps.load(Ordering::SeqCst);
    assert_eq!(error.to_string(), "the disk is full");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(steps.load(Ordering::SeqCst), left, "a rollout goes on without its run");
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
