//! Ends and resumes of runs: interrupted evaluations, changed settings, broken checkpoints.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_policy::Policy;
use turnwise_train::config::{Config, ConfigSource, load};
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{EvaluationPoint, Event, NoopObserver, Observer, Run, RunDirectory, RunEnd};

use crate::common::{self, FILE, Notes};

fn tiny(overrides: &[&str]) -> Config {
    let overrides = ["train.steps=4", "train.checkpoint_every=1"].iter().chain(overrides);
    let overrides = overrides.map(|text| (*text).to_owned()).collect();
    load(&ConfigSource {
        preset: Some("quickstart".into()),
        files: vec![FILE.into()],
        overrides,
        ..ConfigSource::default()
    })
    .unwrap()
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn status(root: &Path) -> Status {
    RunDirectory::open(root).unwrap().read_json("status.json").unwrap()
}

fn go_on(
    root: &Path,
    overrides: &[&str],
    from: Option<&str>,
) -> Result<(Run, RunEnd), turnwise_train::TrainError> {
    let mut run = common::resume_with(root, overrides, from, &mut NoopObserver)?;
    let end = run.train(&mut NoopObserver, &never())?;
    Ok((run, end))
}

#[derive(Default)]
struct Evaluator {
    done: Vec<String>,
    interrupt_at: Option<&'static str>,
}

impl Observer for Evaluator {
    fn event(&mut self, _event: Event<'_>) {}

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        let label = point.position.label();
        if self.interrupt_at == Some(label.as_str()) {
            return Ok(ControlFlow::Break(()));
        }
        point.run.write(&format!("eval/{label}.json"), b"[]").map_err(|error| error.to_string())?;
        self.done.push(label);
        Ok(ControlFlow::Continue(()))
    }
}

#[test]
fn an_evaluation_that_is_cut_off_is_made_up_for() {
    for cut in ["step-000000", "step-000002", "step-000004"] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let config = tiny(&["sft.steps=2", "eval.every=2", "train.checkpoint_every=3"]);
        let mut first = Evaluator { interrupt_at: Some(cut), ..Evaluator::default() };
        let mut run = Run::builder(config).directory(&root).start(&mut first).unwrap();
        assert_eq!(run.train(&mut first, &never()).unwrap(), RunEnd::Interrupted, "{cut}");
        assert_eq!(status(&root).state, RunStatus::Interrupted);
        let mut second = Evaluator::default();
        let mut run = common::resume(&root, &mut second).unwrap();
        assert_eq!(run.train(&mut second, &never()).unwrap(), RunEnd::Finished);
        assert_eq!(second.done.first().map(String::as_str), Some(cut));
        let all: Vec<String> = first.done.into_iter().chain(second.done).collect();
        assert_eq!(all, ["step-000000", "step-000002", "step-000004"], "{cut}");
        assert_eq!(status(&root).state, RunStatus::Finished);
        let mut third = Evaluator::default();
        let mut run = common::resume(&root, &mut third).unwrap();
        run.train(&mut third, &never()).unwrap();
        assert!(third.done.is_empty());
    }
}

#[test]
fn a_resume_takes_what_it_can_carry_and_says_what_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let started = |name: &str, settings: &[&str]| {
        let root = folder.path().join(name);
        let settings = [&["train.steps=2", "sft.steps=0"], settings].concat();
        let mut run = Run::builder(tiny(&settings)).directory(&root).start(&mut NoopObserver).unwrap();
        run.train(&mut NoopObserver, &never()).unwrap();
        root
    };
    let error = |root: &Path, settings: &[&str]| {
        let before = std::fs::read(root.join("config.toml")).unwrap();
        let error = go_on(root, settings, None).err().unwrap().to_string();
        assert_eq!(std::fs::read(root.join("config.toml")).unwrap(), before, "the run stays as it was");
        error
    };
    let root = started("kl", &["objective.kl.coef=0.04", "objective.kl.adaptive={}"]);
    go_on(&root, &["train.steps=3"], None).unwrap();
    go_on(&root, &["train.steps=4", "objective.kl.coef=0.5"], None).unwrap();
    let coefficients: Vec<f64> = read_metrics(&root.join("metrics.jsonl"))
        .unwrap()
        .iter()
        .map(|line| line.metrics.get("train/kl_coef").unwrap())
        .collect();
    assert_eq!((coefficients[0], coefficients[3]), (0.04, 0.5));
    assert!(coefficients[2] != 0.04, "{coefficients:?}");
    let root = started("kl-twice", &["objective.kl.coef=0.04", "objective.kl.adaptive={}"]);
    let change = ["train.steps=3", "objective.kl.coef=0.5"];
    drop(common::resume_with(&root, &change, None, &mut NoopObserver).unwrap());
    go_on(&root, &[], None).unwrap();
    let last = read_metrics(&root.join("metrics.jsonl")).unwrap().pop().unwrap();
    assert_eq!(last.metrics.get("train/kl_coef"), Some(0.5));
    let root = started("ppo", &["credit.estimator={kind=\"ppo\"}"]);
    go_on(&root, &["train.steps=3", "credit.estimator={kind=\"grpo\"}"], None).unwrap();
    let has = "credit.refinements=[{kind=\"has\", decomposer=\"external\"}]";
    let said = error(&root, &["train.steps=4", has, "decomposer={kind=\"turnrd\"}"]);
    assert!(said.contains("decomposer.kind") && said.contains("start a new run"), "{said}");
    assert!(!root.join("turnrd").exists());
    assert!(error(&root, &["eval.tasks=3"]).contains("eval.tasks"));
}

#[test]
fn the_policys_schedule_begins_with_its_first_update() {
    let folder = tempfile::tempdir().unwrap();
    let rates = |name: &str, more: &[&str]| {
        let settings = ["sft.steps=0", "credit.estimator={kind=\"ppo\"}", "train.steps=3", "train.warmup=8"];
        let settings =
            [&settings[..], &["train.num_minibatches=4", "train.skip_zero_advantage=false"], more].concat();
        let root = folder.path().join(name);
        Run::builder(tiny(&settings))
            .directory(&root)
            .start(&mut NoopObserver)
            .unwrap()
            .train(&mut NoopObserver, &never())
            .unwrap();
        let lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
        lines.iter().map(|line| line.metrics.get("train/learning_rate").unwrap()).collect::<Vec<f64>>()
    };
    let (at_once, later) = (rates("at-once", &[]), rates("later", &["critic.warmup_steps=2"]));
    assert_eq!(later[2], at_once[0]);
    assert!(at_once[1] > at_once[0], "{at_once:?}");
}

struct Impatient<'a> {
    after: usize,
    stop: &'a AtomicBool,
    played: Vec<usize>,
    total: usize,
}

impl Observer for Impatient<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Demonstrations { played, total } = event {
            self.played.push(played);
            self.total = total;
            self.stop.store(played >= self.after, Ordering::Relaxed);
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

#[test]
fn demonstrations_are_counted_and_can_be_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let config = || tiny(&["sft.steps=2", "sft.demonstrations=20000", "train.steps=1"]);
    let watch = |after, root: &Path| {
        let stop = never();
        let mut observer = Impatient { after, stop: &stop, played: Vec::new(), total: 0 };
        let mut run = Run::builder(config()).directory(root).start(&mut NoopObserver).unwrap();
        let end = run.train(&mut observer, &stop).unwrap();
        (end, observer.played, observer.total, run.weights().unwrap())
    };
    let (end, played, total, expected) = watch(usize::MAX, &folder.path().join("whole"));
    assert_eq!((end, total), (RunEnd::Finished, 20_000));
    assert!(played.iter().copied().eq(1..=20_000));
    let root = folder.path().join("cut");
    let (end, played, ..) = watch(1, &root);
    assert_eq!(end, RunEnd::Interrupted);
    assert!(played.len() < 20_000, "no more are played once somebody has had enough");
    assert_eq!(status(&root).state, RunStatus::Interrupted);
    let (run, end) = go_on(&root, &[], None).unwrap();
    assert_eq!(end, RunEnd::Finished);
    assert!(run.weights().unwrap() == expected);
}

#[test]
fn steps_can_be_added_to_a_finished_run() {
    let folder = tempfile::tempdir().unwrap();
    let (short, long) = (folder.path().join("short"), folder.path().join("long"));
    let finish = |config, root: &Path| {
        let mut run = Run::builder(config).directory(root).start(&mut NoopObserver).unwrap();
        assert_eq!(run.train(&mut NoopObserver, &never()).unwrap(), RunEnd::Finished);
        run.weights().unwrap()
    };
    let expected = finish(tiny(&["sft.steps=2", "train.steps=4"]), &long);
    finish(tiny(&["sft.steps=2", "train.steps=2"]), &short);
    let (run, end) = go_on(&short, &["train.steps=4"], None).unwrap();
    assert_eq!(end, RunEnd::Finished);
    assert!(run.weights().unwrap() == expected, "as if it had had four steps from the start");
    let (run, _) = go_on(&short, &[], Some("step-3")).unwrap();
    assert!(run.weights().unwrap() == expected);
    assert!(short.join("checkpoints/abandoned-1-step-000004").is_dir());
    let error = go_on(&short, &[], Some("step-9")).err().unwrap().to_string();
    assert!(error.contains("there are: "), "{error}");
    let error = go_on(&short, &["seed=3"], None).err().unwrap().to_string();
    assert!(error.contains("cannot change"), "{error}");
}

#[test]
fn a_broken_checkpoint_is_said_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut run = Run::builder(tiny(&["sft.steps=2"])).directory(&root).start(&mut NoopObserver).unwrap();
    run.train(&mut NoopObserver, &never()).unwrap();
    let expected = run.weights().unwrap();
    std::fs::write(root.join("checkpoints/step-000004/optimizer.safetensors"), b"short").unwrap();
    let mut notes = Notes::default();
    let mut run = common::resume(&root, &mut notes).unwrap();
    assert!(notes.have(&["step-000004", "optimizer"]));
    assert!(notes.have(&["resuming at step-000003"]));
    let stop = never();
    run.train(&mut notes, &stop).unwrap();
    assert!(run.weights().unwrap() == expected);
    assert!(!stop.load(Ordering::Relaxed));
}

#[test]
fn a_checkpoint_without_a_full_manifest_is_said_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut run = Run::builder(tiny(&["sft.steps=2"])).directory(&root).start(&mut NoopObserver).unwrap();
    run.train(&mut NoopObserver, &never()).unwrap();
    let expected = run.weights().unwrap();
    let checkpoint = root.join("checkpoints/step-000004");
    let weights = checkpoint.join("policy/model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    for manifest in ["", r#"{"files":{}}"#] {
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        std::fs::write(&weights, flipped).unwrap();
        std::fs::write(checkpoint.join("COMPLETE"), manifest).unwrap();
        let error = Policy::load(&checkpoint).err().unwrap().to_string();
        assert!(error.contains("COMPLETE lists no files"), "{error}");
        let error = go_on(&root, &[], Some("step-4")).err().unwrap().to_string();
        assert!(error.contains("COMPLETE lists no files"), "{error}");
        let mut notes = Notes::default();
        let mut run = common::resume(&root, &mut notes).unwrap();
        assert!(notes.have(&["step-000004", "COMPLETE lists no files"]), "{:?}", notes.0);
        assert!(notes.have(&["resuming at step-000003"]), "{:?}", notes.0);
        run.train(&mut notes, &never()).unwrap();
        assert!(run.weights().unwrap() == expected);
        assert_eq!(std::fs::read(&weights).unwrap(), whole, "the position is written again");
    }
}

#[test]
fn lost_metrics_are_said_and_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut run = Run::builder(tiny(&["sft.steps=2"])).directory(&root).start(&mut NoopObserver).unwrap();
    run.train(&mut NoopObserver, &never()).unwrap();
    drop(run);
    let path = root.join("metrics.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let before = read_metrics(&path).unwrap();
    let middle = text.match_indices('\n').nth(2).unwrap().0;
    for damaged in
        [None, Some(text[..middle + 10].to_owned()), Some(text.replacen("\"step\"", "\"ste\u{0}", 3))]
    {
        match &damaged {
            None => std::fs::remove_file(&path).unwrap(),
            Some(text) => std::fs::write(&path, text).unwrap(),
        }
        let mut notes = Notes::default();
        common::resume(&root, &mut notes).unwrap().train(&mut notes, &never()).unwrap();
        assert!(notes.have(&["metrics.jsonl", "missing", "rebuilt"]), "{:?}", notes.0);
        let after = read_metrics(&path).unwrap();
        assert_eq!(after.len(), before.len());
        for (after, before) in after.iter().zip(&before) {
            assert_eq!((after.phase, after.step, after.time), (before.phase, before.step, before.time));
            let tags = |line: &MetricsLine| line.metrics.0.keys().cloned().collect::<Vec<_>>();
            assert_eq!(tags(after), tags(before));
            for (tag, value) in &before.metrics.0 {
                let rebuilt = after.metrics.get(tag).unwrap();
                assert!((rebuilt - value).abs() <= 1e-6 * value.abs(), "{tag}: {rebuilt} was {value}");
            }
        }
    }
}
