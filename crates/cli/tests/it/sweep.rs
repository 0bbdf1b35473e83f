//! Tests of `turnwise sweep` and `turnwise compare`: a tiny sweep that is killed and resumed, job
//! arrays, failures, and all output formats.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml");

/// Settings that make its runs short.
const SETTINGS: [&str; 8] = [
    "env.generator.size=tiny",
    "sft.steps=6",
    "sft.checkpoint_every=1",
    "train.steps=2",
    "train.checkpoint_every=1",
    "train.learning_rate=1e-3",
    "eval.splits=[\"valid_unseen\"]",
    "eval.every=1",
];

/// Two methods and two seeds, two steps each.
const SWEEP: &str = r#"
name = "tiny"
base = ["TINY"]
preset = "grpo"
seeds = [0, 1]
set = SETTINGS
[[run]]
name = "grpo"
[[run]]
name = "gigpo"
preset = "gigpo"
baseline = "grpo"
[pool]
anchors = ["gigpo"]
"#;

const NAMES: [&str; 4] = ["grpo-seed-0", "grpo-seed-1", "gigpo-seed-0", "gigpo-seed-1"];

fn turnwise(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    command
}

fn output(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = turnwise(folder, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A folder with the sweep file.
fn prepared(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_sweep(folder.path(), text);
    folder
}

fn write_sweep(folder: &Path, text: &str) {
    // A list of Rust's is one of TOML's.
    let text = text.replace("SETTINGS", &format!("{SETTINGS:?}")).replace("TINY", TINY);
    fs::write(folder.join("tiny.toml"), text).unwrap();
}

fn started(folder: &Path, arguments: &[&str]) -> Child {
    turnwise(folder, arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The id in the lock of every run and warm start of the sweep, and whether a process holds it.
fn locks(sweep: &Path) -> Vec<(String, bool)> {
    let folders = run_folders(sweep).into_iter().chain(run_folders(&sweep.join("warm-starts")));
    // A lock may go while it is looked at.
    let of = |folder: PathBuf| {
        let path = folder.join("run.lock");
        let held = matches!(fs::File::open(&path).ok()?.try_lock(), Err(fs::TryLockError::WouldBlock));
        Some((fs::read_to_string(&path).ok()?.trim().to_owned(), held))
    };
    folders.filter_map(of).collect()
}

/// Kills a sweep and, at the same moment, whatever process works on a run of it; the number of these.
fn kill_with_runs(mut child: Child, sweep: &Path) -> usize {
    let mut ids: Vec<String> = locks(sweep).into_iter().filter_map(|(id, held)| held.then_some(id)).collect();
    // The sweep takes locks for moments itself.
    ids.retain(|id| *id != child.id().to_string() && !id.is_empty());
    let all = [&[child.id().to_string()], &ids[..]].concat();
    // One may have just ended.
    Command::new("kill").arg("-KILL").args(&all).status().unwrap();
    child.wait().unwrap();
    ids.len()
}

fn run_folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("run.lock").exists()).collect()
}

/// Final weights and evaluations of every run of the sweep.
fn outcomes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in NAMES {
        let run = folder.join("runs/tiny").join(name);
        let weights = run.join("checkpoints/step-000002/policy/model.safetensors");
        found.insert(format!("{name} weights"), fs::read(weights).unwrap());
        for step in 0..=2 {
            let text = fs::read_to_string(run.join(format!("eval/step-{step:06}.json"))).unwrap();
            let mut results: Value = serde_json::from_str(&text).unwrap();
            results[0].as_object_mut().unwrap().remove("seconds");
            found.insert(format!("{name} eval {step}"), serde_json::to_vec(&results).unwrap());
        }
    }
    found
}

fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let started = Instant::now();
    while !there() {
        assert!(started.elapsed() < Duration::from_mins(2), "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_sweep_ends_as_one_that_was_not_and_is_compared() {
    let straight = prepared(SWEEP);
    let (code, said, errors) = output(straight.path(), &["sweep", "tiny.toml", "--jobs", "2"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("4 of 4 runs are finished (0 were before), 0 failed"), "{said}");
    let expected = outcomes(straight.path());
    // One warm start a seed.
    assert_eq!(run_folders(&straight.path().join("runs/tiny/warm-starts")).len(), 2);

    // The program, and what works for it, is killed in the warm start and in a run.
    let killed = prepared(SWEEP);
    let sweep = killed.path().join("runs/tiny");
    let mut kills = 0;
    for place in ["warm-starts", ""] {
        let child = started(killed.path(), &["sweep", "tiny.toml"]);
        wait_until(place, || {
            run_folders(&sweep.join(place)).iter().any(|run| run.join("metrics.jsonl").exists())
        });
        kills += kill_with_runs(child, &sweep);
    }
    assert!(kills > 0, "nothing was killed");
    // The program alone is killed: what it had begun stops at a checkpoint, and the next one waits for it.
    let mut known: Vec<String> = locks(&sweep).into_iter().map(|(id, _)| id).collect();
    let mut child = started(killed.path(), &["sweep", "tiny.toml"]);
    // It takes locks for moments itself, to see whether they are free.
    known.extend([child.id().to_string(), String::new()]);
    let mut begun = None;
    wait_until("a run", || {
        begun = locks(&sweep).into_iter().find(|(id, held)| *held && !known.contains(id));
        begun.is_some()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, said, errors) =
        output(killed.path(), &["sweep", "tiny.toml", "--jobs", "2", "--retries", "0"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let found = outcomes(killed.path());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
    // Once more: nothing is run again.
    let (code, said, _) = output(killed.path(), &["sweep", "tiny.toml"]);
    assert!(code == Some(0) && said.contains("4 of 4 runs are finished (4 were before)"), "{said}");
    assert!(said.ends_with("turnwise compare tiny.toml\n"), "{said}");
    // In another folder than the default the command to go on with names it.
    fs::rename(killed.path().join("runs"), killed.path().join("elsewhere")).unwrap();
    let (_, said, _) = output(killed.path(), &["sweep", "tiny.toml", "--runs", "elsewhere"]);
    assert!(said.ends_with("turnwise compare tiny.toml --runs elsewhere\n"), "{said}");
    fs::rename(killed.path().join("elsewhere"), killed.path().join("runs")).unwrap();

    // A run on its own, with its own warm start, has the same bits.
    let own = ["train", TINY, "--preset", "gigpo", "seed=1", "name=gigpo-seed-1", "--runs", "alone"];
    let command = [&own[..], &SETTINGS].concat();
    let (code, said, errors) = output(straight.path(), &command);
    assert_eq!(code, Some(0), "{said}{errors}");
    let weights = "gigpo-seed-1/checkpoints/step-000002/policy/model.safetensors";
    assert!(
        fs::read(straight.path().join("alone").join(weights)).unwrap() == expected["gigpo-seed-1 weights"]
    );

    compared(straight.path());
    settings_that_change_are_noticed(straight.path());
}

/// All forms of the comparison, by sweep file, folder and run.
fn compared(folder: &Path) {
    let compare = |arguments: &[&str]| {
        let all = [&["compare", "--resamples", "500"], arguments].concat();
        let (code, said, errors) = output(folder, &all);
        assert_eq!(code, Some(0), "{arguments:?}: {said}{errors}");
        said
    };
    let text = compare(&["tiny.toml", "--svg", "curves.svg"]);
    for words in [
        "Success in percent on valid_unseen (4 tasks",
        "Against grpo on the same tasks",
        "McNemar p",
        "gigpo - grpo",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("note:"), "{text}");
    let svg = fs::read_to_string(folder.join("curves.svg")).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.matches("<polyline").count() == 4 && svg.contains(">gigpo</text>")
    );
    let json: Value =
        serde_json::from_str(&compare(&["tiny.toml", "--format", "json", "--baseline", "gigpo"])).unwrap();
    let split = &json["splits"][0];
    assert_eq!(
        (&json["baseline"], split["methods"][0]["seeds"].as_array().unwrap().len()),
        (&"gigpo".into(), 2)
    );
    assert_eq!(split["pairs"][0]["mcnemar"].as_array().unwrap().len(), 2);
    assert!(split["pairs"][0]["permutation"]["p"].as_f64().unwrap() <= 1.0);
    assert_eq!(split["curves"][0]["points"].as_array().unwrap().len(), 3);
    let markdown = compare(&["tiny.toml", "--format", "markdown"]);
    assert!(
        markdown.contains("| method | seeds | step |") && markdown.contains("| grpo | 2 | 2 |"),
        "{markdown}"
    );
    let latex = compare(&["tiny.toml", "--format", "latex"]);
    assert!(latex.contains("\\toprule") && latex.contains("valid\\_unseen"), "{latex}");
    let csv = compare(&["tiny.toml", "--format", "csv"]);
    let columns = |line: &str| line.split(',').count();
    assert!(csv.lines().all(|line| columns(line) == 10), "{csv}");
    assert!(csv.contains("valid_unseen,grpo,,success_of_run,,grpo-seed-0,2,"), "{csv}");
    // The same runs by their folder; of one seed; and at another step.
    assert!(compare(&["runs/tiny", "--baseline", "grpo"]).contains("Against grpo"));
    let single = compare(&["runs/tiny/grpo-seed-0", "runs/tiny/gigpo-seed-1", "--at", "1"]);
    assert!(single.contains("tasks"), "{single}");

    // Draws in folders of their own are averaged.
    for name in NAMES {
        for seed in ["1", "2"] {
            let (run, file) =
                (format!("runs/tiny/{name}"), format!("runs/tiny/{name}/sampled-{seed}/step-000002.json"));
            let arguments = ["eval", &run, "--temperature", "1", "--seed", seed, "--output", &file];
            let (code, _, errors) = output(folder, &arguments);
            assert_eq!(code, Some(0), "{errors}");
        }
    }
    let draws = ["tiny.toml", "--evaluations", "sampled-1", "--evaluations", "sampled-2", "--format"];
    let json: Value = serde_json::from_str(&compare(&[&draws[..], &["json"]].concat())).unwrap();
    let split = &json["splits"][0];
    assert_eq!((&split["tasks"], &split["temperature"]), (&4.into(), &1.0.into()));
    assert_eq!(split["methods"][0]["seeds"].as_array().unwrap().len(), 2);
    assert_eq!(split["pools"][0]["name"], "anchors");
    let twice = ["compare", "tiny.toml", "--evaluations", "sampled-1", "--evaluations", "sampled-1"];
    let (code, _, errors) = output(folder, &twice);
    assert!(code == Some(2) && errors.contains("have the same seed 1"), "{errors}");

    // A run on another panel is refused by both names.
    let other = [
        "train",
        TINY,
        "--preset",
        "grpo",
        "name=other",
        "env.generator.seed=9",
        "env.generator.size=tiny",
        "sft.steps=0",
        "train.steps=1",
        "eval.splits=[\"valid_unseen\"]",
    ];
    let (code, _, errors) = output(folder, &other);
    assert_eq!(code, Some(0), "{errors}");
    let (code, _, errors) = output(folder, &["compare", "runs/tiny/grpo-seed-0", "runs/other"]);
    assert!(
        code == Some(2) && errors.contains("runs/tiny/grpo-seed-0 and runs/other cannot be compared"),
        "{errors}"
    );
    // A result of before there were outcomes still reads; what cannot be computed is said.
    let path = folder.join("runs/tiny/grpo-seed-0/eval/step-000002.json");
    let kept = fs::read_to_string(&path).unwrap();
    let mut results: Value = serde_json::from_str(&kept).unwrap();
    assert!(results[0].as_object_mut().unwrap().remove("outcomes").is_some());
    fs::write(&path, serde_json::to_string(&results).unwrap()).unwrap();
    let text = compare(&["tiny.toml"]);
    assert!(
        text.contains("note: no paired tests of gigpo and grpo")
            && text.contains("grpo-seed-0/eval/step-000002.json"),
        "{text}"
    );
    // Lines of numbers stay so; the note is said beside them.
    let csv = ["compare", "tiny.toml", "--resamples", "500", "--format", "csv"];
    let (code, csv, errors) = output(folder, &csv);
    assert!(code == Some(0) && !csv.contains("paired tests"), "{csv}{errors}");
    assert!(errors.contains("note: no paired tests of gigpo and grpo"), "{errors}");
    fs::write(&path, kept).unwrap();
}

fn settings_that_change_are_noticed(folder: &Path) {
    let file = folder.join("tiny.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("train.learning_rate=1e-3", "train.learning_rate=1e-4")).unwrap();
    let (code, _, errors) = output(folder, &["sweep", "tiny.toml"]);
    assert_eq!(code, Some(2));
    let keys = "`train.learning_rate` (0.001, 0.0001)";
    assert!(
        errors.contains("grpo-seed-0: was begun with other settings") && errors.contains(keys),
        "{errors}"
    );
    fs::write(&file, text).unwrap();
}

#[test]
fn job_arrays_run_one_entry_each_and_share_warm_starts() {
    let folder = prepared(SWEEP);
    let (code, said, _) = output(folder.path(), &["sweep", "tiny.toml", "--list"]);
    assert_eq!((code, said.lines().count()), (Some(0), 4));
    assert!(
        said.lines().zip(NAMES).all(|(line, name)| line.contains(name) && line.contains("not begun")),
        "{said}"
    );
    // Indices 0 and 2 have the same seed, and start at once.
    let mut children: Vec<Child> =
        ["0", "2"].map(|index| started(folder.path(), &["sweep", "tiny.toml", "--index", index])).into();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let (_, said, _) = output(folder.path(), &["sweep", "tiny.toml", "--list"]);
    let finished: Vec<bool> = said.lines().map(|line| line.contains("  finished")).collect();
    assert_eq!(finished, [true, false, true, false], "{said}");
    let warm = run_folders(&folder.path().join("runs/tiny/warm-starts"));
    assert_eq!(warm.len(), 1);
    let lines = fs::read_to_string(warm[0].join("metrics.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 6, "the warm start was done once");
    let (code, _, errors) = output(folder.path(), &["sweep", "tiny.toml", "--index", "4"]);
    assert!(code == Some(2) && errors.contains("has 4 runs, numbered from 0 to 3"), "{errors}");
}

#[test]
fn runs_are_chosen_by_the_names_of_methods_and_of_runs() {
    let folder = prepared(SWEEP);
    let listed = |only: &[&str]| {
        let (code, said, errors) = output(folder.path(), &[&["sweep", "tiny.toml", "--list"], only].concat());
        assert_eq!(code, Some(0), "{errors}");
        let number = |line: &str| line.split_whitespace().next().unwrap().parse::<usize>().unwrap();
        said.lines().map(number).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), [0, 1, 2, 3]);
    // The numbers are those of all runs, for `--index`.
    assert_eq!(listed(&["--only", "gigpo"]), [2, 3]);
    assert_eq!(listed(&["--only", "gigpo-seed-1,grpo"]), [0, 1, 3]);
    let (code, said, errors) = output(folder.path(), &["sweep", "tiny.toml", "--only", "gigpo-seed-1"]);
    assert!(code == Some(0) && said.contains("1 of 1 runs are finished"), "{said}{errors}");
    let (code, _, errors) = output(folder.path(), &["sweep", "tiny.toml", "--only", "gigp"]);
    assert!(code == Some(2) && errors.contains("--only gigp: tiny.toml has no run of that name"), "{errors}");
    assert!(errors.contains("Did you mean `gigpo`? There are: grpo, gigpo;"), "{errors}");
    // With a grid a name of the file stands for all points.
    write_sweep(folder.path(), &format!("{SWEEP}\n[grid]\n\"train.ppo_epochs\" = [1, 2]\n"));
    assert_eq!(listed(&["--only", "gigpo"]), [4, 5, 6, 7]);
    assert_eq!(listed(&["--only", "gigpo-ppo_epochs-2"]), [6, 7]);
}

#[test]
fn failures_are_tried_again_and_reported_and_the_others_go_on() {
    // A folder in the place of a file that the run writes.
    let text = SWEEP.replace("seeds = [0, 1]", "seeds = [0]");
    let folder = prepared(&text);
    let run = folder.path().join("runs/tiny/gigpo-seed-0");
    let (code, said, errors) = output(folder.path(), &["sweep", "tiny.toml", "--index", "0"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    fs::create_dir_all(&run).unwrap();
    // What a kill leaves is cleared; a folder that may not be written to stays as it is.
    fs::create_dir_all(run.join("run.lock")).unwrap();
    let (code, said, errors) = output(folder.path(), &["sweep", "tiny.toml", "--retries", "2"]);
    assert_eq!(code, Some(1), "{said}{errors}");
    assert!(said.contains("1 of 2 runs are finished (1 were before), 1 failed"), "{said}");
    assert!(said.contains("gigpo-seed-0: ") && said.contains("run.lock"), "{said}");
    fs::remove_dir_all(&run).unwrap();

    // A model that is not there: the process fails, is tried again, and says why.
    let text =
        text.replace("preset = \"gigpo\"", "preset = \"gigpo\"\nset = [\"policy.model=no/such/model\"]");
    write_sweep(folder.path(), &text);
    let (code, said, errors) = output(folder.path(), &["sweep", "tiny.toml"]);
    assert_eq!(code, Some(1), "{said}{errors}");
    assert_eq!(errors.matches("failed, is tried again").count(), 1, "{errors}");
    assert!(said.contains("gigpo-seed-0: no/such/model"), "{said}");
    assert!(said.contains("log: runs/tiny/logs/gigpo-seed-0.log"), "{said}");
    let (code, _, errors) = output(folder.path(), &["sweep", "tiny.toml", "--dry-run"]);
    assert!(code == Some(2) && errors.contains("run `gigpo-seed-0`: no/such/model"), "{errors}");
}

#[test]
fn mistakes_in_configs_are_found_before_anything_is_trained() {
    let folder =
        prepared(&SWEEP.replace("preset = \"gigpo\"", "preset = \"gigpo\"\nset = [\"credit.omeg=1\"]"));
    let (code, _, errors) = output(folder.path(), &["sweep", "tiny.toml"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("tiny.toml: run `gigpo-seed-0`") && errors.contains("credit.omeg"), "{errors}");
    assert!(!folder.path().join("runs").exists());
    let folder = prepared(SWEEP);
    let (code, said, errors) = output(folder.path(), &["sweep", "tiny.toml", "--dry-run"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        said.contains("4 runs are sound; 2 warm starts are shared") && said.contains("memory:"),
        "{said}"
    );
    assert!(!folder.path().join("runs").exists());
    if cfg!(feature = "remote") {
        return;
    }
    // What this program cannot train is refused by the dry run, as by the run itself.
    let servers = r#"'rollout.engine.urls=["http://127.0.0.1:9"]', "rollout.engine.weights=full", "rollout.engine.adapter_dir=a""#;
    let gigpo = format!("preset = \"gigpo\"\nset = [{servers}]");
    write_sweep(folder.path(), &SWEEP.replace("preset = \"gigpo\"", &gigpo));
    let (code, _, errors) = output(folder.path(), &["sweep", "tiny.toml", "--dry-run"]);
    assert!(code == Some(2) && errors.contains("run `gigpo-seed-0`: rollout.engine"), "{errors}");
}

#[test]
fn the_best_checkpoint_is_evaluated_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let train = [
        "train",
        TINY,
        "--preset",
        "grpo",
        "name=r",
        "env.generator.size=tiny",
        "sft.steps=2",
        "train.steps=1",
        "eval.splits=[\"valid_unseen\"]",
        "train.keep_best=valid_unseen",
    ];
    let (code, _, errors) = output(folder.path(), &train);
    assert_eq!(code, Some(0), "{errors}");
    for name in ["best", "step-0", "sft-2"] {
        let (code, said, errors) = output(folder.path(), &["eval", "runs/r", "--checkpoint", name]);
        assert!(code == Some(0) && said.contains("valid_unseen  (4 tasks"), "{name}: {said}{errors}");
    }
    let (code, _, errors) = output(folder.path(), &["eval", "runs/r", "--checkpoint", "step-7"]);
    assert!(code == Some(2) && errors.contains("no checkpoint step-000007; there are: "), "{errors}");
    let (code, _, errors) =
        output(folder.path(), &["eval", "runs/r/checkpoints/step-000000", "--checkpoint", "best"]);
    assert!(code == Some(2) && errors.contains("a run directory is needed"), "{errors}");
}

/// Every sweep of the project: its first line runs it, and all its configs are sound.
#[test]
fn the_projects_sweeps_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut counts = Vec::new();
    for entry in fs::read_dir(root.join("configs/sweeps")).unwrap() {
        let path = entry.unwrap().path();
        let file = format!("configs/sweeps/{}", path.file_name().unwrap().to_str().unwrap());
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with(&format!("# turnwise sweep {file}")),
            "{file}: begins with the command that runs it"
        );
        let empty = tempfile::tempdir().unwrap();
        let (code, said, errors) =
            output(&root, &["sweep", &file, "--list", "--runs", empty.path().to_str().unwrap()]);
        assert_eq!(code, Some(0), "{errors}");
        let warm = said.lines().filter(|line| line.contains("warm start ")).count();
        assert_eq!(warm, said.lines().count(), "{file}: methods share their warm starts: {said}");
        counts.push(said.lines().count());
    }
    counts.sort_unstable();
    assert_eq!(counts, [6, 9, 9, 15]);
}

/// Every sweep of the evidence: its configs are sound, and what was expected of it stands in its head.
#[test]
fn the_sweeps_of_the_evidence_resolve_and_have_their_hypotheses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = 0;
    for entry in fs::read_dir(root.join("configs/evidence")).unwrap() {
        let path = entry.unwrap().path();
        let file = format!("configs/evidence/{}", path.file_name().unwrap().to_str().unwrap());
        let text = fs::read_to_string(&path).unwrap();
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(head[0].starts_with(&format!("# turnwise sweep {file}")), "{file}: begins with its command");
        assert!(head.iter().any(|line| line.contains("Written down")), "{file}: has no hypotheses");
        let empty = tempfile::tempdir().unwrap();
        let (code, said, errors) =
            output(&root, &["sweep", &file, "--list", "--runs", empty.path().to_str().unwrap()]);
        assert_eq!(code, Some(0), "{file}: {errors}");
        assert!(said.lines().count() > 3, "{file}: {said}");
        files += 1;
    }
    assert!(files >= 12, "{files}");
}
