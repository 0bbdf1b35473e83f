//! Training on a Python program: `examples/python_environment`.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use turnwise_core::{StopReason, Trajectory};
use turnwise_train::config::{Config, ConfigSource, load};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{Run, RunEnd, TrainError};

use crate::common::Notes;

/// Without Python, the tests are skipped.
fn python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: python3 not found, so no world in Python was trained on");
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn config(more: &[&str]) -> Config {
    let file = root().join("examples/python_environment/guess.toml");
    let mut overrides = vec![format!("env.directory=\"{}\"", root().display())];
    overrides.extend(more.iter().map(|text| (*text).to_owned()));
    load(&ConfigSource { files: vec![file], overrides, ..ConfigSource::default() }).unwrap()
}

struct Played {
    metrics: Vec<MetricsLine>,
    trajectories: Vec<Vec<Trajectory>>,
    notes: Vec<String>,
}

fn train(config: Config) -> Result<Played, TrainError> {
    let folder = tempfile::tempdir().unwrap();
    let (root, steps) = (folder.path().join("run"), config.train.steps);
    let mut notes = Notes::default();
    let mut run = Run::builder(config).directory(&root).start(&mut notes)?;
    assert_eq!(run.train(&mut notes, &AtomicBool::new(false))?, RunEnd::Finished);
    let rl = |step| root.join(format!("trajectories/step-{step:06}.jsonl.zst"));
    let trajectories = (1..=steps).map(|step| read_trajectories(&rl(step)).unwrap()).collect();
    let metrics = read_metrics(&root.join("metrics.jsonl")).unwrap();
    Ok(Played { metrics, trajectories, notes: notes.0 })
}

const SHORT: &[&str] = &[
    "sft.steps=0",
    "sft.demonstrations=30",
    "train.steps=2",
    "rollout.group_size=4",
    "rollout.tasks_per_step=12",
];

fn short(more: &[&str]) -> Config {
    config(&[SHORT, more].concat())
}

#[test]
fn a_world_in_python_is_learnt() {
    if !python() {
        return;
    }
    let played = train(config(&[])).unwrap();
    let rl: Vec<f64> =
        played.metrics.iter().filter_map(|line| line.metrics.get("train/success_rate")).collect();
    assert_eq!(rl.len(), 40);
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&rl[35..]) > mean(&rl[..5]) + 0.1, "{rl:?}");
    assert_eq!(played.metrics.last().unwrap().metrics.get("rollout/error_rate"), Some(0.0));
    assert!(played.notes.iter().all(|note| !note.contains("fault of the policy")), "{:?}", played.notes);
}

#[test]
fn how_long_steps_take_changes_no_trajectory() {
    if !python() {
        return;
    }
    let quick = train(short(&["env.programs=3", "rollout.num_workers=1"])).unwrap();
    // Varying delays, with few and many threads.
    for more in [
        ["env.settings={ delay_ms = 8 }", "env.programs=2", "rollout.env_threads=2"],
        ["env.settings={ delay_ms = 8 }", "env.programs=4", "rollout.env_threads=32"],
    ] {
        let slow = train(short(&[&more[..], &["rollout.num_workers=1"]].concat())).unwrap();
        assert_eq!(slow.trajectories, quick.trajectories, "{more:?}");
    }
}

#[test]
fn trajectories_that_the_world_failed_are_left_out_and_kept_in_the_files() {
    if !python() {
        return;
    }
    let broken = "env.settings={ broken = [3, 4, 5] }";
    let played = train(short(&[broken])).unwrap();
    let secret = |trajectory: &Trajectory| trajectory.task.metadata["secret"].as_u64().unwrap();
    let mut seen = 0;
    for (trajectories, line) in played.trajectories.iter().zip(&played.metrics) {
        let (failed, others): (Vec<_>, Vec<_>) = trajectories
            .iter()
            .partition(|trajectory| matches!(trajectory.stop, StopReason::EnvironmentError(_)));
        assert_eq!(trajectories.len(), 48);
        assert!(failed.iter().all(|trajectory| (3..6).contains(&secret(trajectory))));
        assert!(failed.iter().all(|trajectory| trajectory.advantages.is_none()));
        assert!(others.iter().all(|trajectory| !(3..6).contains(&secret(trajectory))));
        assert!(others.iter().all(|trajectory| trajectory.advantages.is_some()));
        let of = |name: &str| line.metrics.get(name).unwrap_or_default();
        let count = failed.len() as f64;
        assert_eq!((of("rollout/error_rate"), of("rollout/masked")), (count / 48.0, count));
        assert_eq!((of("rollout/groups"), of("rollout/resampled")), (12.0 - count / 4.0, 0.0));
        assert_eq!(of("rollout/groups_masked"), count / 4.0);
        let solved = others.iter().filter(|trajectory| trajectory.success).count() as f64;
        assert_eq!(of("train/success_rate"), solved / others.len() as f64);
        seen += failed.len();
    }
    assert!(seen > 0, "no task of the broken numbers was drawn, so this shows nothing");
    let shown = |note: &&String| note.contains("trajectories failed") && note.contains("is broken");
    assert!(played.notes.iter().any(|note| shown(&note)), "{:?}", played.notes);
    let again = [broken, "rollout.on_error=resample", "rollout.max_resamples=3"];
    let played = train(short(&again)).unwrap();
    let of = |name: &str| -> f64 {
        played.metrics.iter().map(|line| line.metrics.get(name).unwrap_or_default()).sum()
    };
    assert_eq!((of("rollout/masked"), of("rollout/resampled")), (seen as f64, 3.0 * seen as f64));
    let all = format!("env.settings={{ broken = {:?} }}", (1..=16).collect::<Vec<_>>());
    let error = train(short(&[&all])).err().unwrap().to_string();
    assert!(error.contains("is broken"), "{error}");
}

fn without_expert(secret: &str) -> String {
    let program = format!(
        "import sys; sys.path.insert(0, 'examples/python_environment'); from guess import Guess, GAMES, task; \
         from turnwise_env import serve; games = [task({secret}, n) for s, n in GAMES if s == 1]; \
         serve(Guess, tasks={{'train': games[1:], 'test': games[:1]}})"
    );
    format!("env.command={:?}", ["python3", "-c", &program])
}

#[test]
fn a_warm_start_without_an_expert_is_refused_before_long_work() {
    if !python() {
        return;
    }
    let refusal = |more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let run = Run::builder(config(more)).directory(folder.path().join("run"));
        run.preflight(None, &mut Notes::default()).err().map(|error| error.to_string())
    };
    let command = without_expert("1");
    let error = refusal(&[&command]).unwrap();
    assert!(error.contains("sft.steps") && error.contains("no expert"), "{error}");
    assert_eq!(refusal(&[&command, "sft.steps=0", "eval.tasks=1"]), None);
    assert_eq!(refusal(&[]), None);
}

#[test]
fn a_selection_that_keeps_no_group_is_noted() {
    if !python() {
        return;
    }
    let dynamic = "rollout.filter_groups={kind=\"dynamic\",max_rounds=2}";
    let few = ["rollout.tasks_per_step=3", "train.steps=1", "eval.tasks=1"];
    let played = train(short(&[&[without_expert("0").as_str(), dynamic], &few[..]].concat())).unwrap();
    let note = "step 1: rollout.filter_groups kept none of the 6 groups of 2 rounds";
    assert!(played.notes.iter().any(|said| said.contains(note)), "{:?}", played.notes);
    let metrics = &played.metrics.last().unwrap().metrics;
    assert_eq!((metrics.get("rollout/turns/mean"), metrics.get("train/success_rate")), (None, Some(0.0)));
    let kept = train(short(&["train.steps=1"])).unwrap();
    assert!(!kept.notes.iter().any(|said| said.contains("rollout.filter_groups")), "{:?}", kept.notes);
}

fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block).collect()
}

#[test]
fn what_the_guide_prints_learns_when_it_is_copied() {
    if !python() {
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/worlds/process.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (world, settings) = (blocks(&page, "python")[0], blocks(&page, "toml")[0]);
    assert!(world.contains("serve(Guess") && settings.contains("command = [\"python3\", \"guess.py\"]"));
    std::fs::write(at("guess.py"), world).unwrap();
    std::fs::write(at("guess.toml"), settings).unwrap();
    let helper = "examples/python_environment/turnwise_env.py";
    std::fs::copy(root().join(helper), at("turnwise_env.py")).unwrap();
    let overrides = vec![format!("env.directory=\"{}\"", folder.path().display())];
    let config = load(&ConfigSource { files: vec![at("guess.toml")], overrides, ..ConfigSource::default() });
    let played = train(config.unwrap()).unwrap();
    let of = |tag: &str| -> Vec<f64> {
        let rl = played.metrics.iter().filter(|line| line.phase == turnwise_train::Phase::Rl);
        rl.filter_map(|line| line.metrics.get(tag)).collect()
    };
    let (rates, updates) = (of("train/success_rate"), of("train/updates"));
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&rates[25..]) > mean(&rates[..3]) + 0.1, "{rates:?}");
    assert!(updates[0] > 0.0, "{updates:?}");
}
