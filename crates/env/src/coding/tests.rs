//! Tests that need Python and sandbox support in the kernel; skipped otherwise.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use turnwise_core::{Action, Environment, Purpose, Seed, Snapshot, Step, Task};

use super::*;
use crate::demonstration::DemonstrationRequest;
use crate::world::{OpenOptions, World, WorldKind as _};

fn available() -> bool {
    match Workshop::new(&[Language::Python]) {
        Ok(_) => true,
        Err(error) => {
            assert!(std::env::var_os("TURNWISE_REQUIRE_SANDBOX").is_none(), "{error}");
            println!("skipped: {error}");
            false
        }
    }
}

fn settings(libraries: &[&str], per_library: usize) -> CodingSettings {
    let libraries = libraries.iter().map(|name| (*name).to_owned()).collect();
    let generator = CodingGenerator { per_library, libraries, ..CodingGenerator::default() };
    CodingSettings { generator, ..CodingSettings::default() }
}

pub(super) fn open(settings: &CodingSettings) -> (Box<dyn World>, Vec<String>) {
    let mut notes = Vec::new();
    let mut options = OpenOptions { splits: &[], max_turns: 20, note: &mut |note| notes.push(note) };
    let world = CodingKind.open(settings, &mut options).unwrap();
    (world, notes)
}

pub(super) fn coding(settings: &CodingSettings) -> CodingTasks {
    let (world, _) = open(settings);
    let any: Box<dyn std::any::Any> = world;
    any.downcast::<CodingWorld>().unwrap().set().clone()
}

pub(super) fn seed() -> Seed {
    Seed::derive(0, Purpose::Environment, &[])
}

pub(super) fn every_task(set: &CodingTasks) -> Vec<Task> {
    ["train", "valid", "test"].iter().flat_map(|split| set.split(split).unwrap().to_vec()).collect()
}

pub(super) fn play(set: &CodingTasks, task: &Task, actions: &[String]) -> Vec<Step> {
    let mut environment = set.coding();
    environment.reset(task, seed()).unwrap();
    actions.iter().map(|action| environment.step(&Action::from(action.as_str())).unwrap()).collect()
}

pub(super) fn call(name: &str, arguments: &serde_json::Value) -> String {
    format!("{name}({arguments})")
}

#[test]
fn the_expert_solves_generated_tasks_and_submitting_at_once_does_not() {
    if !available() {
        return;
    }
    let settings = settings(&[], 3);
    let (world, notes) = open(&settings);
    assert_eq!(notes, Vec::<String>::new());
    let set = coding(&settings);
    assert_eq!(set.all().len(), 30, "each library has enough defects");
    let mut played = 0;
    for split in ["train", "valid", "test"] {
        let count = set.split(split).unwrap().len();
        let request = DemonstrationRequest { split, count, max_turns: 20, ..DemonstrationRequest::default() };
        let shown = world.demonstrations(&request).unwrap().unwrap();
        assert_eq!((shown.episodes.len(), shown.dropped), (count, 0));
        played += count;
        for episode in &shown.episodes {
            assert_eq!((episode.turns.len(), episode.tools.len()), (4, 5));
            assert!(episode.turns[3].observation.contains(" passed, 0 failed"), "{episode:?}");
        }
    }
    assert_eq!(played, 30);
    for task in every_task(&set) {
        let steps =
            play(&set, &task, &["run({\"command\":\"python3 test_*.py\"})".to_owned(), "submit({})".into()]);
        let seen = steps[0].observation.text().into_owned();
        assert!(seen.contains("FAILED") || seen.contains("killed after"), "{}: {seen}", task.id);
        assert!(steps[1].terminated && !steps[1].success && steps[1].reward == 0.0, "{}", task.id);
        assert!(steps[1].metrics[0].value < 1.0);
    }
}

#[test]
fn splits_have_no_line_in_common_and_depend_on_the_settings_alone() {
    if !available() {
        return;
    }
    let all = settings(&["grid", "heap", "ledger", "roman"], 1000);
    let set = coding(&all);
    assert!(set.all().len() > 100, "{}", set.all().len());
    let ids: BTreeSet<&str> = set.all().iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids.len(), set.all().len(), "each task has another id");
    let sites = |split: &str| -> BTreeSet<String> {
        let tasks = set.split(split).unwrap();
        tasks.iter().map(|task| task.id.rsplit_once('-').unwrap().0.to_owned()).collect()
    };
    let [train, valid, test] = ["train", "valid", "test"].map(sites);
    println!("{} tasks; lines: {} {} {}", set.all().len(), train.len(), valid.len(), test.len());
    assert!(!train.is_empty() && !test.is_empty());
    assert!(train.is_disjoint(&valid) && train.is_disjoint(&test) && valid.is_disjoint(&test));
    assert_eq!(coding(&all).all(), set.all());
}

#[test]
fn hidden_checks_are_neither_seen_nor_fooled() {
    if !available() {
        return;
    }
    let set = coding(&settings(&["roman"], 4));
    let task = every_task(&set).remove(0);
    let known = set.task(&task.id).unwrap();
    let tests = &known.files["test_roman.py"];
    let is_hidden =
        |check: &&Check| !tests.contains(&serde_json::Value::from(check.call.as_str()).to_string());
    let hidden = known.checks.iter().find(is_hidden).unwrap().call.as_str();
    assert!(!known.statement.contains(hidden));
    let look = "ls -a / /work /tmp; cat *; env; find / -newer /usr -type f 2>/dev/null | head";
    let steps = play(&set, &task, &[call("run", &serde_json::json!({"command": look}))]);
    assert!(!steps[0].observation.text().contains(hidden), "{:?}", steps[0]);
    // Programs that would pass tests run in their own process.
    let everything =
        "class Any:\n    def __eq__(self, other): return True\n    def __repr__(self): return '1994'\n";
    for cheat in [
        "import os\nos._exit(0)\n".to_owned(),
        "import sys\nsys.exit(0)\n".into(),
        "raise SystemExit\n".into(),
        "while True: pass\n".into(),
        "print('x' * 10**8)\n".into(),
        "import os\nopen('/work/results.json', 'w').write('[[]]')\nos.kill(os.getppid(), 9)\n".into(),
        format!("{everything}def to_roman(n): return Any()\nfrom_roman = is_roman = to_roman\n"),
        "import inspect, gc\ndef to_roman(n):\n    frame = inspect.currentframe().f_back.f_back\n    return str(frame.f_locals)\n".into(),
        "\0".into(),
        String::new(),
    ] {
        let edit = call("edit", &serde_json::json!({"path": "roman.py", "new": cheat}));
        let steps = play(&set, &task, &[edit, "submit({})".into()]);
        assert!(steps[1].terminated && !steps[1].success, "{cheat}: {:?}", steps[1]);
    }
    let fix = call("edit", &serde_json::json!({"path": "roman.py", "new": known.fix}));
    assert!(play(&set, &task, &[fix, "submit({})".into()])[1].success, "the fix itself passes");
}

#[test]
fn a_saved_episode_goes_on_as_it_would_have() {
    if !available() {
        return;
    }
    let set = coding(&settings(&["words"], 2));
    let task = every_task(&set).remove(0);
    let fix = set.task(&task.id).unwrap().fix.clone();
    let mut first = set.coding();
    first.reset(&task, seed()).unwrap();
    let begin = ["run({\"command\":\"mkdir d; printf '\\\\377' > d/odd; echo 1 > one\"})", "view({})"];
    for action in begin {
        first.step(&Action::from(action)).unwrap();
    }
    let saved = first.snapshot().unwrap().unwrap();
    let mut second = set.coding();
    second.restore(&saved).unwrap();
    assert_eq!(second.snapshot().unwrap().unwrap(), saved);
    let edit = call("edit", &serde_json::json!({"path": "words.py", "new": fix}));
    for action in
        ["view({})", "run({\"command\":\"od -c d/odd; cat one; echo 2 >> one\"})", &edit, "submit({})"]
    {
        let action = Action::from(action);
        assert_eq!(first.step(&action).unwrap(), second.step(&action).unwrap());
    }
    assert!(first.snapshot().is_err() && first.step(&Action::from("view({})")).is_err());
    for wrong in [b"{}".to_vec(), saved.0[..20].to_vec(), {
        String::from_utf8(saved.0.clone()).unwrap().replace("\"one\"", "\"../one\"").into_bytes()
    }] {
        assert!(second.restore(&Snapshot(wrong)).is_err());
    }
}

#[test]
fn hostile_actions_are_ordinary_steps() {
    if !available() {
        return;
    }
    let limits = CodingLimits { wall_s: 20, cpu_s: 1, ..CodingLimits::default() };
    let set = coding(&CodingSettings { limits, ..settings(&["heap"], 2) });
    let task = every_task(&set).remove(0);
    let run = |line: &str| call("run", &serde_json::json!({"command": line}));
    let deep = format!("view({}1{})", "[".repeat(100_000), "]".repeat(100_000));
    let actions = [
        String::new(),
        "\0".to_owned(),
        deep,
        "view({\"path\":\"../../etc/passwd\"})".into(),
        "edit({\"path\":\"/etc/passwd\",\"new\":\"\"})".into(),
        "edit({\"path\":\"heap.py\",\"first\":18446744073709551615,\"new\":\"\"})".into(),
        "search({\"text\":\"\"})".into(),
        run("a\0b"),
        run("while :; do :; done"),
        run("yes"),
        run("rm -rf /work/* /work/.* 2>/dev/null; ls -a | wc -l"),
        run("truncate -s 9M a; truncate -s 9M b; ln -s /etc/passwd c"),
        run("for i in 1 2 3 4 5 6 7 8; do head -c 1900000 /dev/zero > z$i; ln z$i y$i; done"),
        run("kill -9 -1; kill -9 $$"),
        "é".repeat(100_000),
    ];
    let steps = play(&set, &task, &actions);
    for (action, step) in actions.iter().zip(&steps) {
        let shown: String = action.chars().take(60).collect();
        assert!(!step.terminated && step.reward == 0.0, "{shown}");
        assert!(step.observation.text().chars().count() < 3000, "{shown}: {:?}", step.observation);
    }
    let text = |place: usize| steps[place].observation.text().into_owned();
    assert!(text(3).contains("there is no file") && text(4).contains("not a path"));
    assert!(text(8).contains("s of CPU time") && text(9).contains("too much output"));
    assert!(steps[7].understood && !steps[0].understood);
    assert!(steps.len() == actions.len() && !steps[14].truncated);
    let steps = play(&set, &task, &[run("head -c 15000000 /dev/zero > z"), "submit({})".into()]);
    assert!(steps[1].terminated && !steps[1].success, "{:?}", steps[1]);
}

#[test]
fn both_time_limits_are_shown_alike() {
    if !available() {
        return;
    }
    // On a busy machine, an endless loop exceeds the wall time before its CPU time.
    let limits = CodingLimits { wall_s: 3, cpu_s: 1, ..CodingLimits::default() };
    let set = coding(&CodingSettings { limits, ..settings(&["heap"], 2) });
    let task = every_task(&set).remove(0);
    let run = |line: &str| call("run", &serde_json::json!({"command": line}));
    let steps = play(&set, &task, &[run("while :; do :; done"), run("sleep 9"), run("sleep 0")]);
    assert_eq!(steps[0].observation.text(), "killed after 3 s, or 1 s of CPU time");
    assert_eq!(steps[1].observation, steps[0].observation);
    assert_ne!(steps[2].observation, steps[0].observation);
}

#[test]
fn fifty_episodes_at_once_have_the_results_of_one_at_a_time() {
    if !available() {
        return;
    }
    let limits = CodingLimits { wall_s: 300, cpu_s: 20, ..CodingLimits::default() };
    let set = coding(&CodingSettings { limits, ..settings(&["roman", "grid", "words"], 17) });
    let tasks = every_task(&set);
    let episode = |number: usize| {
        let task = &tasks[number % tasks.len()];
        let known = set.task(&task.id).unwrap();
        let new = if number.is_multiple_of(2) {
            known.fix.clone().unwrap()
        } else {
            known.files[&known.path()].clone()
        };
        let edit = call("edit", &serde_json::json!({"path": known.path(), "new": new}));
        let tests = call(
            "run",
            &serde_json::json!({"command": format!("python3 test_*.py; echo {number} > /tmp/n; cat /tmp/n")}),
        );
        play(&set, task, &[edit, tests, "submit({})".into()])
    };
    let episode = &episode;
    let together: Vec<Vec<Step>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..50).map(|number| scope.spawn(move || episode(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, steps) in together.iter().enumerate() {
        assert_eq!(steps[2].success, number % 2 == 0, "{number}");
        assert_eq!(*steps, episode(number), "{number}");
    }
}

#[test]
fn mbpp_and_own_files_are_read_and_other_lines_are_refused() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.jsonl");
    let open_file = |lines: &[&str]| {
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(lines.join("\n").as_bytes()).unwrap();
        let mut notes = Vec::new();
        let mut options = OpenOptions { splits: &[], max_turns: 20, note: &mut |note| notes.push(note) };
        let settings = CodingSettings { data: Some(path.clone()), ..CodingSettings::default() };
        CodingKind.open(&settings, &mut options).map(|_| notes)
    };
    let good = r#"{"task_id": 1, "text": "Add one.", "code": "def f(a):\r\n    return a + 1", "test_list": ["assert f(1) == 2", "assert f(-1)==0"]}"#;
    let one = good.replace("f(-1)==0", "f(-1) == 0");
    let wrong = one.replace("\"task_id\": 1", "\"task_id\": 2").replace("f(1) == 2", "f(1) == 3");
    let notes = open_file(&[&one, "", &wrong, &good.replace("\"task_id\": 1", "\"task_id\": 3")]).unwrap();
    assert!(notes[0].contains("1 tasks are left out") && notes[1].contains("mbpp/2"), "{notes:?}");
    let set = coding(&CodingSettings { data: Some(path.clone()), ..CodingSettings::default() });
    assert_eq!(set.all().len(), 1);
    assert_eq!(set.all()[0].files["solution.py"], "def f(a):\n    raise NotImplementedError\n");
    for (lines, said) in [
        (&["{}"][..], "line 1: has neither"),
        (&["[]"], "line 1"),
        (&[one.as_str(), "{\"checks\": 1}"], "line 2"),
        (&[one.as_str(), one.as_str()], "mbpp/1 is there twice"),
        (&["{\"entry_point\": \"f\"}"], "`name` is missing"),
        (&[wrong.as_str()], "no tasks in it"),
    ] {
        let error = open_file(lines).unwrap_err().to_string();
        assert!(error.contains("tasks.jsonl") && error.contains(said), "{error}");
    }
    let count = CodingKind.write_files(&settings(&["roman"], 5), folder.path()).unwrap();
    let set = coding(&CodingSettings { data: Some(folder.path().to_owned()), ..CodingSettings::default() });
    assert_eq!((count, set.all()), (5, coding(&settings(&["roman"], 5)).all()));
}

fn quixbugs(data: &Path, folder: &Path) -> PathBuf {
    let file = std::fs::File::open(data.join("swe/quixbugs_tasks.tar.zst")).unwrap();
    tar::Archive::new(zstd::Decoder::new(file).unwrap()).unpack(folder).unwrap();
    let inner = ["", "quixbugs", "QuixBugs"].map(|name| folder.join(name));
    inner.into_iter().find(|path| path.join("json_testcases").is_dir()).unwrap()
}

#[test]
fn quixbugs_and_human_eval_are_read_from_the_data() {
    let Some(data) = std::env::var_os("TURNWISE_DATA").map(PathBuf::from) else {
        println!("skipped: TURNWISE_DATA is not set");
        return;
    };
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let quixbugs = quixbugs(&data, folder.path());
    let settings = CodingSettings { data: Some(quixbugs), ..CodingSettings::default() };
    let (world, notes) = open(&settings);
    let set = coding(&settings);
    println!("QuixBugs: {} tasks; {notes:?}", set.all().len());
    assert!(set.all().len() >= 28);
    let mut solved = 0;
    for split in ["train", "valid", "test"] {
        let count = set.split(split).unwrap().len();
        let request = DemonstrationRequest { split, count, max_turns: 20, ..DemonstrationRequest::default() };
        solved += world.demonstrations(&request).unwrap().unwrap().episodes.len();
    }
    assert_eq!(solved, set.all().len(), "the corrected programs pass");
    let mut passing = Vec::new();
    for task in every_task(&set) {
        if play(&set, &task, &["submit({})".into()])[0].success {
            passing.push(task.id);
        }
    }
    assert_eq!(passing, Vec::<String>::new(), "the defects are found by the checks");
    let path = data.join("swe/humaneval-py.jsonl");
    let settings = CodingSettings { data: Some(path), ..CodingSettings::default() };
    let (world, notes) = open(&settings);
    let set = coding(&settings);
    println!("HumanEval: {} tasks; {notes:?}", set.all().len());
    assert!(set.all().len() > 100 && !world.has_expert(), "this file has no solutions");
    let task = set.task("HumanEval_23_strlen").unwrap();
    let code = "def strlen(string):\n    return len(string)\n";
    let edit = call("edit", &serde_json::json!({"path": "solution.py", "new": code}));
    let task = every_task(&set).into_iter().find(|other| other.id == task.id).unwrap();
    assert!(play(&set, &task, &[edit, "submit({})".into()])[1].success);
    assert!(!play(&set, &task, &["submit({})".into()])[0].success);
}
