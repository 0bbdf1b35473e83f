//! Tests with small repositories and an image made of this machine's programs. They need git, bash,
//! `/usr/bin/python3` and sandbox support in the kernel; otherwise they are skipped.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use turnwise_core::{Action, Environment, Purpose, Seed, Snapshot, Step, Task};
use turnwise_sandbox::Sandbox;

use super::engine::Host;
use super::*;
use crate::demonstration::DemonstrationRequest;
use crate::world::{OpenOptions, World as _, WorldKind as _};

const PROGRAMS: [&str; 14] = [
    "sh", "bash", "cat", "cp", "ls", "mkdir", "head", "rm", "ln", "dirname", "git", "python3", "sleep",
    "timeout",
];

const RUNNER: &str = "import runpy, sys\nsys.path.insert(0, '.')\nsys.dont_write_bytecode = True\nfailed = 0\n\
    print('=== short test summary info ===')\nfor path in sys.argv[1:]:\n    \
    for name, test in list(runpy.run_path(path).items()):\n        if not name.startswith('test_'):\n            continue\n        \
    try:\n            test()\n            print('PASSED ' + path + '::' + name)\n        except Exception as error:\n            \
    failed = 1\n            print('FAILED ' + path + '::' + name + ' - ' + repr(error))\nsys.exit(failed)\n";

const PRICE: &str = "def total(prices, discount=0):\n    return sum(prices) - discount\n\n\ndef cheapest(prices):\n    return min(prices)\n";
const PRICE_FIX: &str = "--- a/price.py\n+++ b/price.py\n@@ -1,5 +1,5 @@\n def total(prices, discount=0):\n-    return sum(prices) - discount\n+    return sum(prices) * (100 - discount) / 100\n \n \n def cheapest(prices):\n";
const PRICE_TESTS: &str =
    "from price import total, cheapest\n\n\ndef test_sum():\n    assert total([1, 2]) == 3\n";
const PRICE_PATCH: &str = "diff --git a/tests/test_price.py b/tests/test_price.py\n--- a/tests/test_price.py\n+++ b/tests/test_price.py\n@@ -3,3 +3,7 @@\n \n def test_sum():\n     assert total([1, 2]) == 3\n+\n+\n+def test_discount():\n+    assert total([50, 150], 10) == 180\n";

const WORDS: &str = "def initials(name):\n    return ''.join(part[0] for part in name.split(' '))\n";
const WORDS_TESTS: &str = "from words import initials\n\n\ndef test_two():\n    assert initials('ann lee') == 'al'\n\n\ndef test_spaces():\n    assert initials('ann  lee ') == 'al'\n";

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "a")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@b")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn make_base(image: &Path) {
    let mut files: Vec<PathBuf> = Vec::new();
    for program in PROGRAMS {
        let path = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(program));
        let path = path.into_iter().find(|path| path.exists()).unwrap();
        let libraries = run("ldd", &[path.to_str().unwrap()], Path::new("/"));
        files.extend(libraries.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
        files.push(path);
    }
    let ask = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let library = PathBuf::from(run("/usr/bin/python3", &["-I", "-c", ask], Path::new("/")));
    for folder in ["", "encodings", "collections", "importlib", "re", "lib-dynload"] {
        let entries = fs::read_dir(library.join(folder)).into_iter().flatten().flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    for file in files {
        let target = image.join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        if !target.exists() {
            fs::copy(file.canonicalize().unwrap(), target).unwrap();
        }
    }
    write(image, &[("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")]);
}

fn make_repository(image: &Path, files: &[(&str, &str)]) -> String {
    let folder = image.join("testbed");
    write(&folder, files);
    write(&folder, &[("run.py", RUNNER), (".gitignore", "__pycache__\n")]);
    run("git", &["init", "-q", "-b", "main"], &folder);
    run("git", &["add", "-A"], &folder);
    run("git", &["commit", "-q", "-m", "first"], &folder);
    run("git", &["rev-parse", "HEAD"], &folder)
}

struct Bench {
    folder: tempfile::TempDir,
    settings: SweSettings,
}

impl Bench {
    /// `None` if this machine cannot run the tests.
    fn new() -> Option<Self> {
        let needed = PROGRAMS.iter().find(|program| {
            !["/bin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(program).exists())
        });
        let refused = Sandbox::new(&[]).err().map(|error| error.to_string());
        if let Some(reason) = needed.map(|program| format!("there is no {program} in /usr/bin")).or(refused) {
            assert!(std::env::var_os("TURNWISE_REQUIRE_SANDBOX").is_none(), "{reason}");
            println!("skipped: {reason}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("images");
        let base = images.join("base");
        make_base(&base);
        let image = |name: &str| {
            run("cp", &["-al", "base", name], &images);
            images.join(name)
        };
        let mut lines = Vec::new();
        for number in [1, 2] {
            let id = format!("shop__price-{number}");
            let path = image(&format!("local_sweb.eval.shop_1776_price-{number}_latest"));
            let base = make_repository(&path, &[("price.py", PRICE), ("tests/test_price.py", PRICE_TESTS)]);
            lines.push(json!({"instance_id": id, "repo": "shop/price", "base_commit": base, "version": "1",
                "problem_statement": "The discount is not in percent.", "test_patch": PRICE_PATCH, "test_cmd": "python3 run.py",
                "patch": format!("diff --git a/price.py b/price.py\n{PRICE_FIX}"),
                "FAIL_TO_PASS": "[\"tests/test_price.py::test_discount\"]", "PASS_TO_PASS": ["tests/test_price.py::test_sum"]}));
        }
        let text = |lines: &[Value]| lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
        fs::write(folder.path().join("swe-bench.jsonl"), text(&lines)).unwrap();
        lines.clear();
        for number in [1, 2] {
            let path = image(&format!("local_words_{number}"));
            make_repository(&path, &[("words.py", WORDS)]);
            write(
                &path,
                &[
                    ("r2e_tests/test_1.py", WORDS_TESTS),
                    ("testbed/run_tests.sh", "python3 run.py r2e_tests/test_1.py\n"),
                ],
            );
            let fixed = WORDS.replace("split(' ')", "split()");
            lines.push(json!({"docker_image": format!("local/words:{number}"), "repo_name": "words", "commit_hash": format!("{number}abc"),
                "problem_statement": "Spaces break it.", "expected_output_json": "{\"test_two\": \"PASSED\", \"test_spaces\": \"PASSED\"}",
                "parsed_commit_content": {"file_diffs": [{"header": {"file": {"path": "words.py"}}, "new_file_content": fixed}]}}));
        }
        fs::write(folder.path().join("r2e.jsonl"), text(&lines)).unwrap();
        let container = SweContainer {
            engine: Engine::Rootfs,
            images: Some(images),
            image: "local/sweb.eval.{id}:latest".to_owned(),
            ..SweContainer::default()
        };
        let settings = SweSettings {
            data: Some(folder.path().join("r2e.jsonl")),
            test_data: Some(folder.path().join("swe-bench.jsonl")),
            container,
            limits: SweLimits { wall_s: 60, tests_s: 120, ..SweLimits::default() },
        };
        Some(Self { folder, settings })
    }

    fn open(settings: &SweSettings) -> Result<(Box<SweWorld>, Vec<String>), String> {
        let mut notes = Vec::new();
        let mut options = OpenOptions { splits: &[], max_turns: 40, note: &mut |note| notes.push(note) };
        let world = SweKind::default().open(settings, &mut options).map_err(|error| error.to_string())?;
        let any: Box<dyn std::any::Any> = world;
        Ok((any.downcast::<SweWorld>().unwrap(), notes))
    }
}

fn seed() -> Seed {
    Seed::derive(0, Purpose::Environment, &[])
}

fn play(set: &SweTasks, task: &Task, actions: &[String]) -> Vec<Step> {
    let mut environment = set.swe();
    environment.reset(task, seed()).unwrap();
    actions.iter().map(|action| environment.step(&Action::from(action.as_str())).unwrap()).collect()
}

fn edit(path: &str, new: &str) -> String {
    format!("edit({})", json!({"path": path, "new": new}))
}

fn shell(command: &str) -> String {
    format!("run({})", json!({ "command": command }))
}

fn submit() -> String {
    "submit({})".to_owned()
}

#[test]
fn known_fixes_solve_instances_of_both_kinds_and_nothing_else_does() {
    let Some(bench) = Bench::new() else { return };
    let (world, notes) = Bench::open(&bench.settings).unwrap();
    assert!(notes.is_empty() && world.has_expert());
    let set = world.set();
    for split in ["train", "test"] {
        let tasks = set.split(split).unwrap();
        assert_eq!(tasks.len(), 2, "{split}");
        let request =
            DemonstrationRequest { split, count: 2, max_turns: 20, ..DemonstrationRequest::default() };
        let shown = world.demonstrations(&request).unwrap().unwrap();
        assert_eq!((shown.episodes.len(), shown.dropped), (2, 0), "{split}");
        for task in tasks {
            let steps = play(set, task, &[submit()]);
            assert!(steps[0].terminated && !steps[0].success && steps[0].reward == 0.0, "{}", task.id);
            assert!(steps[0].metrics[0].value == 0.5, "one of two tests passes: {:?}", steps[0]);
        }
    }
    assert!(set.split("valid").unwrap().is_empty());
    let swe_bench = &set.split("test").unwrap()[0];
    let good = PRICE.replace("sum(prices) - discount", "sum(prices) * (100 - discount) / 100");
    let breaks = "def total(prices, discount=0):\n    return 180\n\n\ndef cheapest(prices):\n    return 0\n";
    let steps = play(set, swe_bench, &[edit("price.py", breaks), submit()]);
    assert!(!steps[1].success && steps[1].metrics[0].value == 0.5, "it breaks a test: {:?}", steps[1]);
    // Tests are reset before grading; commits count as changes, leftovers outside the repository do
    // not.
    for (actions, solved) in [
        (
            vec![
                edit("price.py", &good),
                shell("git config user.name a && git config user.email a@b && git commit -qam x"),
            ],
            true,
        ),
        (vec![edit("tests/test_price.py", "def test_sum(): pass\ndef test_discount(): pass\n")], false),
        (vec![edit("price.py", &good), edit("tests/test_price.py", "raise SystemExit(1)\n")], true),
        (vec![edit("price.py", &good), shell("rm -rf .git")], false),
        (vec![edit("run.py", "import sys\nsys.exit(1)\n"), edit("price.py", &good)], false),
        (
            vec![shell("echo 'def total(*a): return 3' > /tmp/price.py; echo x > /usr/lib/x || echo no")],
            false,
        ),
    ] {
        let steps = play(set, swe_bench, &[actions.clone(), vec![submit()]].concat());
        let last = steps.last().unwrap();
        assert!(last.terminated && last.success == solved, "{actions:?}: {steps:?}");
    }
    let r2e = &set.split("train").unwrap()[0];
    let look = shell("cat run_tests.sh r2e_tests/* /r2e_tests/* 2>&1; git status --porcelain");
    let steps = play(
        set,
        r2e,
        &[
            look,
            edit(
                "run_tests.sh",
                "echo short test summary info; echo PASSED a::test_two; echo PASSED a::test_spaces\n",
            ),
            submit(),
        ],
    );
    assert!(!steps[0].observation.text().contains("test_spaces"), "{:?}", steps[0]);
    assert!(!steps[2].success, "{:?}", steps[2]);
}

#[test]
fn tools_act_in_the_container_and_states_are_saved() {
    let Some(bench) = Bench::new() else { return };
    let (world, _) = Bench::open(&bench.settings).unwrap();
    let set = world.set();
    let task = &set.split("test").unwrap()[0];
    let mut first = set.swe();
    let start = first.reset(task, seed()).unwrap();
    assert_eq!(start.text(), "The repository is in /testbed. Files: price.py, run.py, tests/");
    let say = |environment: &mut SweEnv, action: &str| {
        let step = environment.step(&Action::from(action)).unwrap();
        (step.observation.text().into_owned(), step.understood)
    };
    assert_eq!(say(&mut first, "view({})").0, ".gitignore, price.py, run.py, tests/test_price.py");
    assert_eq!(say(&mut first, "view({\"path\":\"/testbed/tests\"})").0, "tests/test_price.py");
    let two = "view({\"path\":\"/testbed/price.py\",\"first\":2,\"last\":2})";
    assert_eq!(say(&mut first, two).0, "2     return sum(prices) - discount");
    assert_eq!(say(&mut first, "search({\"text\":\"min(\"})").0, "price.py:6:    return min(prices)");
    assert_eq!(say(&mut first, "search({\"text\":\"nowhere\"})").0, "nothing found");
    let change = "edit({\"path\":\"price.py\",\"old\":\"min(prices)\",\"new\":\"max(prices)\"})";
    assert_eq!(say(&mut first, change), ("changed price.py".to_owned(), true));
    assert_eq!(say(&mut first, "edit({\"path\":\"a/b c.py\",\"new\":\"x = 1\\n\"})").0, "changed a/b c.py");
    assert_eq!(say(&mut first, "edit({\"path\":\"./café.py\",\"new\":\"y = 1\\n\"})").0, "changed café.py");
    let files = ".gitignore, a/b c.py, café.py, price.py, run.py, tests/test_price.py";
    for folder in ["/testbed", "/testbed/", ".", "./"] {
        let listed = say(&mut first, &format!("view({})", json!({ "path": folder }))).0;
        assert_eq!(listed.split(", ").collect::<BTreeSet<_>>(), files.split(", ").collect(), "{folder}");
    }
    for path in ["café.py", "./café.py", "/testbed/café.py"] {
        assert_eq!(say(&mut first, &format!("view({})", json!({ "path": path }))).0, "1 y = 1", "{path}");
    }
    assert_eq!(say(&mut first, "search({\"text\":\"y = 1\"})").0, "café.py:1:y = 1");
    assert_eq!(
        say(&mut first, &shell("cat 'a/b c.py'; pwd; id -u 2>/dev/null || echo $UID; exit 4")).0,
        "x = 1\n/testbed\n0\nexit code 4"
    );
    for (action, said) in [
        ("view({\"path\":\"none.py\"})", "error: there is no file none.py"),
        ("view({\"path\":\"../etc/passwd\"})", "is not a path in the repository"),
        ("view({\"path\":\"/\"})", "is not a path in the repository"),
        ("view({\"path\":\"/testbed2\"})", "is not a path in the repository"),
        ("edit({\"path\":\"/etc/passwd\",\"new\":\"x\"})", "is not a path in the repository"),
        ("edit({\"path\":\"tests\",\"new\":\"x\"})", "is a folder"),
        ("edit({\"path\":\"none.py\",\"old\":\"x\",\"new\":\"x\"})", "there is no file"),
        ("edit({\"path\":\"price.py/x\",\"new\":\"x\"})", "cannot be written"),
        ("search({\"text\":\"\"})", "is empty"),
        ("nothing({})", "no function nothing"),
    ] {
        let (text, understood) = say(&mut first, action);
        assert!(text.contains(said) && !understood, "{action}: {text}");
    }
    let look = shell("git diff; git status --porcelain; ls .git");
    let before = say(&mut first, &look);
    assert!(before.0.contains("+    return max(prices)"), "{before:?}");
    first.snapshot().unwrap();
    assert_eq!(say(&mut first, &look), before, "a snapshot leaves the repository as it was");
    let saved = first.snapshot().unwrap().unwrap();
    let keys: Value = serde_json::from_slice(&saved.0).unwrap();
    assert!(keys["patch"].as_str().unwrap().starts_with("diff --git a/a/b c.py"), "{keys}");
    let mut second = set.swe();
    second.restore(&saved).unwrap();
    assert_eq!(second.snapshot().unwrap().unwrap(), saved);
    for action in ["search({\"text\":\"max(\"})".to_owned(), shell("cat a/*; git diff"), submit()] {
        let action = Action::from(action.as_str());
        assert_eq!(first.step(&action).unwrap(), second.step(&action).unwrap());
    }
    assert!(first.snapshot().is_err() && first.step(&Action::from("view({})")).is_err());
    let wrong = String::from_utf8(saved.0.clone()).unwrap().replace("shop__price-1", "none");
    assert!(second.restore(&Snapshot(wrong.into_bytes())).is_err());
}

#[test]
fn hostile_actions_are_ordinary_steps() {
    let Some(bench) = Bench::new() else { return };
    let limits =
        SweLimits { wall_s: 3, tests_s: 5, memory_mib: 512, processes: 32, disk_mib: 8, output_chars: 500 };
    let (world, _) = Bench::open(&SweSettings { limits, ..bench.settings.clone() }).unwrap();
    let set = world.set();
    let task = &set.split("test").unwrap()[0];
    let actions = [
        String::new(),
        "\0".to_owned(),
        format!("view({}1{})", "[".repeat(100_000), "]".repeat(100_000)),
        shell("a\0b"),
        "view({\"path\":\"a\\u0000b\"})".into(),
        "search({\"text\":\"\\u0000\"})".into(),
        shell("while :; do :; done"),
        shell("cat /dev/zero"),
        shell(":(){ :|:& };:"),
        shell("i=0; while :; do head -c 1000000 /dev/zero > z$i; i=$((i+1)); done"),
        shell("python3 -c 'x = b\"x\" * (2 << 30)'"),
        shell("rm -f z*; ln -s /etc/passwd p; ln -s / root; rm -rf .git /usr/* /etc/* 2>/dev/null; ls"),
        shell("kill -9 -1; kill -9 $$"),
        "view({\"path\":\"p\"})".into(),
        "é".repeat(100_000),
    ];
    let steps = play(set, task, &actions);
    for (action, step) in actions.iter().zip(&steps) {
        let shown: String = action.chars().take(60).collect();
        assert!(!step.terminated && step.reward == 0.0, "{shown}");
        assert!(step.observation.text().chars().count() < 1500, "{shown}: {:?}", step.observation);
    }
    let text = |place: usize| steps[place].observation.text().into_owned();
    assert!(text(6).contains("killed after 3 s") && text(7).contains("killed"), "{} {}", text(6), text(7));
    assert!(steps[3].understood && !steps[1].understood, "as in coding, a command with a NUL is a call");
    assert!(text(9).contains("MiB of new files"), "{}", text(9));
    assert!(text(13).contains("root:x:0:0"), "the link leads to the image's file: {}", text(13));
    let images = bench.settings.container.images.as_ref().unwrap();
    let passwd = images.join("local_sweb.eval.shop_1776_price-1_latest/etc/passwd");
    assert!(task.id == "shop__price-1" && passwd.exists(), "the image is as it was");
    let endless = edit("price.py", "while True: pass\n");
    let steps = play(set, task, &[endless, submit()]);
    assert!(steps[1].terminated && !steps[1].success, "{:?}", steps[1]);
}

#[test]
fn missing_engines_images_and_repositories_are_errors_that_say_what_to_do() {
    let Some(bench) = Bench::new() else { return };
    let said = |change: &dyn Fn(&mut SweSettings)| {
        let mut settings = bench.settings.clone();
        change(&mut settings);
        Bench::open(&settings).map(drop).unwrap_err()
    };
    let error = said(&|settings| (settings.data, settings.test_data) = (None, None));
    assert!(error.contains("env.data") && error.contains("env.test_data"), "{error}");
    let error = said(&|settings| settings.container.images = Some(bench.folder.path().join("none")));
    assert!(error.contains("2 of 2 images are missing") && error.contains("docker export"), "{error}");
    let error = said(&|settings| settings.data.clone_from(&settings.test_data));
    assert!(error.contains("shop__price-1 is there twice"), "{error}");
    let images = bench.settings.container.images.clone().unwrap();
    fs::rename(images.join("local_words_1"), images.join("away")).unwrap();
    let error = said(&|_| ());
    assert!(error.contains("1 of 2 images") && error.contains("skip_missing"), "{error}");
    let mut settings = bench.settings.clone();
    settings.container.skip_missing = true;
    let (world, notes) = Bench::open(&settings).unwrap();
    assert_eq!((world.set().all().len(), notes.len()), (3, 1));
    assert!(notes[0].contains("local/words:1"), "{notes:?}");
    settings.container.repository = "/etc".to_owned();
    let (world, _) = Bench::open(&settings).unwrap();
    let error = world.set().swe().reset(&world.set().split("test").unwrap()[0], seed()).unwrap_err();
    assert!(error.to_string().contains("env.container.repository"), "{error}");
    // Without `rm`, R2E-Gym's tests would stay visible.
    for folder in ["bin", "usr/bin"] {
        let _ = fs::remove_file(images.join("local_words_2").join(folder).join("rm"));
    }
    settings.container.repository = "/testbed".to_owned();
    let (world, _) = Bench::open(&settings).unwrap();
    let error = world.set().swe().reset(&world.set().split("train").unwrap()[0], seed()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("local/words:2") && error.contains("run_tests.sh, r2e_tests"), "{error}");
    let problems = |text: &str| {
        crate::registry::Registry::builtin().kind("swe").unwrap().resolve(&text.parse().unwrap())
    };
    for (text, key) in [
        ("container = { engine = \"rootfs\" }", "container.images"),
        ("container = { repository = \"testbed\" }", "container.repository"),
        ("container = { repository = \"/a/../b\" }", "container.repository"),
    ] {
        let error = problems(text).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
    assert!(problems("").is_ok());
    for engine in [Engine::Docker, Engine::Podman, Engine::Apptainer] {
        let images = Some(PathBuf::from("/none"));
        let container = SweContainer { engine, images, ..SweContainer::default() };
        let host = Host::new(container, SweLimits::default());
        match host.listed().map(|listed| host.missing(&listed, &["local/none:none"])) {
            Ok(missing) => assert_eq!(missing, ["local/none:none"]),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("env.container.engine") && error.contains("install"), "{error}");
            }
        }
    }
}

#[test]
fn other_engines_solve_an_instance_where_they_run() {
    let Some(bench) = Bench::new() else { return };
    let images = bench.settings.container.images.clone().unwrap();
    let name = "local/sweb.eval.shop_1776_price-1:latest";
    let file = "local_sweb.eval.shop_1776_price-1_latest";
    for engine in [Engine::Docker, Engine::Podman, Engine::Apptainer] {
        let container = SweContainer { engine, ..bench.settings.container.clone() };
        let host = Arc::new(Host::new(container.clone(), SweLimits::default()));
        if let Err(error) = host.listed() {
            println!("skipped: {engine:?}: {error}");
            continue;
        }
        let script = match engine {
            Engine::Apptainer => format!("apptainer build {file}.sif {file}"),
            Engine::Podman => format!("tar -C {file} -c . | podman import - {name}"),
            _ => format!("tar -C {file} -c . | docker import - {name}"),
        };
        run("sh", &["-c", &script], &images);
        let settings = SweSettings {
            container: SweContainer { skip_missing: true, ..container },
            data: None,
            ..bench.settings.clone()
        };
        let (world, _) = Bench::open(&settings).unwrap();
        let request = DemonstrationRequest {
            split: "test",
            count: 1,
            max_turns: 20,
            ..DemonstrationRequest::default()
        };
        assert_eq!(world.demonstrations(&request).unwrap().unwrap().episodes.len(), 1, "{engine:?}");
        match engine {
            Engine::Apptainer => {}
            Engine::Podman => drop(run("podman", &["rmi", name], &images)),
            _ => drop(run("docker", &["rmi", name], &images)),
        }
    }
}
