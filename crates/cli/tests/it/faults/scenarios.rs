//! The commands that faults are injected into, and the files that each must have written in the
//! end.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use turnwise_cli::train::record::tensorboard::read_scalars;

use super::{is_of_kind, survives, walk};
use crate::kill::without_time;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml");

/// Arguments, in parts.
type Arguments = &'static [&'static [&'static str]];

/// A command and what it writes.
pub(super) struct Scenario {
    /// Fills the folder before the command, without faults.
    pub(super) prepare: fn(&Path),
    pub(super) start: Arguments,
    /// Returns the arguments that go on after a fault; none if all is there.
    pub(super) again: fn(&Path, Arguments) -> Vec<&'static str>,
    /// Try one fault only of each kind of operation, unless all operations are tried. For commands that write what others do.
    pub(super) one_each: bool,
    /// Returns what must be the same with and without faults, by name.
    pub(super) outcome: fn(&Path) -> BTreeMap<String, Vec<u8>>,
}

/// Resumes a run that was created, and starts the others over in the same folder.
fn resumed(folder: &Path, start: Arguments) -> Vec<&'static str> {
    let exists = folder.join("runs/run/config.toml").exists();
    if exists { vec!["train", "--resume", "runs/run"] } else { start.concat() }
}

fn the_same(_: &Path, start: Arguments) -> Vec<&'static str> {
    start.concat()
}

fn forced(_: &Path, start: Arguments) -> Vec<&'static str> {
    [start, &[&["--force"]]].concat().concat()
}

/// A run with a warm start and evaluations, which keeps one checkpoint only.
const TRAIN: Scenario = Scenario {
    prepare: |_| (),
    start: &[
        &["train", "--preset", "quickstart", TINY, "name=run"],
        &["sft.steps=4", "sft.checkpoint_every=2", "train.steps=3", "train.checkpoint_every=1"],
        &["train.keep_last=1", "train.keep_best=valid_unseen"],
        &["eval.every=1", "eval.splits=[\"valid_unseen\"]"],
    ],
    again: resumed,
    one_each: false,
    outcome: |folder| outcome_of_run(&folder.join("runs/run")),
};

/// A run with learned credit: replay, rounds and TurnRD's network.
const TURNRD: Scenario = Scenario {
    start: &[
        &["train"],
        crate::turnrd_run::TINY,
        &["name=run", "train.steps=2", "train.checkpoint_every=1", "train.keep_last=1"],
    ],
    ..TRAIN
};

/// A run in an environment that is a program with a pool of workers.
const WORKERS: Scenario = Scenario {
    start: &[
        &["train", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python_environment/guess.toml")],
        &[concat!(
            "env.command=[\"python3\",\"",
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/python_environment/guess.py\"]"
        )],
        &["name=run", "policy.scratch.hidden_size=16", "policy.scratch.layers=1"],
        &["sft.steps=2", "train.steps=2", "train.checkpoint_every=1", "train.keep_last=1"],
        &["rollout.tasks_per_step=2", "rollout.group_size=2", "eval.every=1", "eval.tasks=2"],
    ],
    one_each: true,
    ..TRAIN
};

/// Two methods that share a warm start, as processes of a sweep.
const SWEEP: Scenario = Scenario {
    prepare: |folder| {
        let text = format!(
            "name = \"sweep\"\nbase = [{TINY:?}]\npreset = \"grpo\"\nseeds = [0]\n\
             set = [\"env.generator.size=tiny\", \"sft.steps=2\", \"train.steps=1\", \"eval.splits=[\\\"valid_unseen\\\"]\"]\n\
             [[run]]\nname = \"grpo\"\n[[run]]\nname = \"gigpo\"\npreset = \"gigpo\"\n"
        );
        std::fs::write(folder.join("sweep.toml"), text).unwrap();
    },
    start: &[&["sweep", "sweep.toml", "--jobs", "1"]],
    again: the_same,
    one_each: true,
    outcome: |folder| {
        let runs = walk(folder).into_iter().filter(|path| path.ends_with("config.toml"));
        let files = runs.flat_map(|config| {
            let run = config.parent().unwrap().to_owned();
            let name = run.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            outcome_of_run(&run).into_iter().map(move |(file, bytes)| (format!("{name}/{file}"), bytes))
        });
        files.collect()
    },
};

/// The trajectories of the dumps.
const TRAJECTORIES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/credit/two-trajectories.jsonl");

/// Dumps: advantages of given trajectories.
const DUMP: Scenario = Scenario {
    prepare: |_| (),
    start: &[&["credit", TRAJECTORIES, "--preset", "gigpo", "--output", "out.parquet"]],
    again: the_same,
    one_each: false,
    outcome: output,
};

const DUMP_LINES: Scenario = Scenario {
    start: &[&["credit", TRAJECTORIES, "--preset", "gigpo", "--output", "out.jsonl.zst"]],
    ..DUMP
};

/// Trajectories that a policy plays.
const ROLLOUT: Scenario = Scenario {
    prepare: |folder| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .current_dir(folder)
            .args(["train", "--preset", "quickstart", TINY, "name=run", "sft.steps=2", "train.steps=1"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    },
    start: &[&["rollout", "runs/run", "--output", "out.jsonl.zst", "--tasks", "2"]],
    ..DUMP
};

/// A benchmark's truth, measured task by task.
const BENCHMARK: Scenario = Scenario {
    start: &[
        &["benchmark", "credit", "runs/run", "--output", "out.jsonl.zst"],
        &["--tasks", "2", "--samples", "2", "-k", "2"],
    ],
    // It does not overwrite a result.
    again: |folder, start| if folder.join("out.jsonl.zst").exists() { Vec::new() } else { start.concat() },
    // The measured tasks stay beside a whole result, and are never removed without it.
    outcome: |folder| {
        let mut found = output(folder);
        found.retain(|name, _| !name.contains(".parts/") || !folder.join("out.jsonl.zst").exists());
        found
    },
    ..ROLLOUT
};

/// A model as a folder with a card.
const EXPORT: Scenario =
    Scenario { start: &[&["export", "runs/run", "out", "--card"]], again: forced, ..ROLLOUT };

const EXPORT_TRAJECTORIES: Scenario =
    Scenario { start: &[&["export", "runs/run", "out", "--format", "atif"]], ..EXPORT };

/// Returns every file of an output, which is called `out`, but for what a kill left behind under a hidden name.
fn output(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = walk(folder).into_iter().map(|path| {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(&path).unwrap())
    });
    files.filter(|(name, _)| name.starts_with("out") && !name.contains("/.")).collect()
}

/// Returns the files of a run that interruptions must not change.
fn outcome_of_run(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in walk(run) {
        let name = entry.strip_prefix(run).unwrap().to_str().unwrap().to_owned();
        // Logs, locks and dates; the parts of checkpoints that were left behind or given up.
        let own =
            |part: &str| part.starts_with('.') || part.starts_with("abandoned") || is_of_kind(part, "part");
        if name.split('/').any(own)
            || ["log.jsonl", "run.lock"].contains(&name.as_str())
            || name.starts_with("events.")
        {
            continue;
        }
        let bytes = std::fs::read(&entry).unwrap();
        let same = match name.as_str() {
            "metrics.jsonl" => {
                let lines: Vec<Value> = String::from_utf8(bytes)
                    .unwrap()
                    .lines()
                    .map(|line| without_time(serde_json::from_str(line).unwrap()))
                    .collect();
                serde_json::to_vec(&lines).unwrap()
            }
            // The rest of the file has times.
            "status.json" => {
                let status: Value = serde_json::from_slice(&bytes).unwrap();
                status["state"].to_string().into_bytes()
            }
            _ if is_of_kind(&name, "json") && name.starts_with("eval/") => {
                serde_json::to_vec(&without_time(serde_json::from_slice(&bytes).unwrap())).unwrap()
            }
            _ => bytes,
        };
        found.insert(name, same);
    }
    let mut scalars = BTreeMap::new();
    for step in read_scalars(run).unwrap() {
        for (tag, value) in step.scalars.into_iter().filter(|(tag, _)| !tag.starts_with("perf/")) {
            scalars.insert((step.step, tag), value.to_bits());
        }
    }
    found.insert("TensorBoard".into(), format!("{scalars:?}").into_bytes());
    found
}

#[test]
fn a_run_survives_faults_at_any_operation() {
    survives(&TRAIN);
}

#[test]
fn a_run_with_learned_credit_survives_faults_at_any_operation() {
    survives(&TURNRD);
}

#[test]
fn a_run_with_workers_survives_faults_at_any_operation() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3");
        return;
    }
    survives(&WORKERS);
}

#[test]
fn a_sweep_survives_faults_at_any_operation() {
    survives(&SWEEP);
}

#[test]
fn dumps_survive_faults_at_any_operation() {
    survives(&DUMP);
    survives(&DUMP_LINES);
}

#[test]
fn rollouts_and_benchmarks_survive_faults_at_any_operation() {
    survives(&ROLLOUT);
    survives(&BENCHMARK);
}

#[test]
fn exports_survive_faults_at_any_operation() {
    survives(&EXPORT);
    survives(&EXPORT_TRAJECTORIES);
}
