//! Tests of `turnwise view`: pages of a run and of files, and their explanations of advantages.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use turnwise_core::{Task, Trajectory, Turn};
use turnwise_train::record::directory::write_trajectories;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/credit/two-trajectories.jsonl");

fn view(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.arg("view").args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    view(arguments).output().unwrap()
}

/// The page that a command writes.
fn page(folder: &Path, arguments: &[&str]) -> String {
    let path = folder.join("page.html");
    let output = output(&[arguments, &["--output", path.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(path).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?} was not refused");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: ") && !text.contains("panicked"), "{text}");
    text
}

/// A run directory of one step of two trajectories under GRPO without a division: 0.5 and -0.5.
fn run(second: f64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("mug-run");
    let config =
        "seed = 1\n[credit.estimator]\nkind = \"grpo\"\nnormalize = \"mean\"\ninvalid_penalty = 0.0\n";
    std::fs::create_dir_all(root.join("trajectories")).unwrap();
    std::fs::write(root.join("config.toml"), config).unwrap();
    std::fs::write(
        root.join("status.json"),
        r#"{"state": "finished", "position": {"phase": "rl", "step": 1}}"#,
    )
    .unwrap();
    let lines = "{\"phase\": \"rl\", \"step\": 1, \"time\": 0.0, \"train/success_rate\": 0.5}\n";
    std::fs::write(root.join("metrics.jsonl"), lines).unwrap();
    let trajectory = |sample: usize, reward: f64, advantage: f64| {
        let turn = Turn {
            observation: "a <mug> on a shelf".into(),
            action: "take mug".into(),
            valid: true,
            reward,
            ..Turn::default()
        };
        let mut trajectory = Trajectory::new(Task::new("t", "k", "find the mug"), vec![turn]);
        (trajectory.sample, trajectory.success) = (sample, reward > 0.0);
        trajectory.advantages = Some(vec![advantage]);
        trajectory
    };
    let trajectories = [trajectory(0, 1.0, 0.5), trajectory(1, 0.0, second)];
    write_trajectories(&root.join("trajectories/step-000001.jsonl.zst"), trajectories.iter()).unwrap();
    (folder, root)
}

#[test]
fn a_page_says_how_every_advantage_came_about() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), &[EXAMPLE, "--preset", "stapo"]);
    // The numbers of `turnwise credit --preset stapo --explain`.
    assert!(
        page.contains("Advantages: <b>gigpo, with outliers</b>. Computed by the preset <code>stapo</code>, not recorded."),
        "{page}"
    );
    assert!(page.contains("<span class=\"number\">+1.4142</span><span class=\"action\">take mug</span><span class=\"badge\">outlier</span>"));
    assert!(page.contains("<span class=\"number\">-0.7212</span><span class=\"action\">fly</span><span class=\"badge\">invalid</span>"));
    assert!(page.contains(">anchor_mean <b>4.513</b></span>"));
    // Both first turns are in one state: each leads to the other.
    assert!(page.contains("the same state (trajectory.turn): <a href=\"#g0t1u0\">1.0</a>"));
    assert!(
        page.contains("id=\"g0t1u0\"")
            && page.contains("<dt>step_return</dt><dd>discounted return from this turn on, ")
    );
    assert!(!page.contains("<script"));
    assert!(page.contains("group 0 (a)") && page.contains("line 2"), "a file's own names");
    // Without a method there are turns and no advantages.
    let bare = self::page(folder.path(), &[EXAMPLE]);
    assert!(bare.contains("`--preset NAME` computes advantages") && bare.contains(">put mug in cabinet<"));
    assert!(!bare.contains("1.4142"));
}

#[test]
fn a_runs_advantages_are_computed_again_and_held_against_the_recorded_ones() {
    let (folder, run) = self::run(-0.5);
    let page = self::page(folder.path(), &[run.to_str().unwrap()]);
    assert!(page.contains("every advantage is the recorded one to the last bit"), "{page}");
    assert!(page.contains("a &lt;mug&gt; on a shelf") && !page.contains("<mug>"));
    let (folder, other) = self::run(-0.25);
    let page = self::page(folder.path(), &[other.to_str().unwrap()]);
    assert!(page.contains("differs from the recorded one by as much as 0.25"), "{page}");
    assert!(page.contains(">-0.2500</span>"), "what was recorded is shown");
    // Another method on the same trajectories.
    let page = self::page(folder.path(), &[other.to_str().unwrap(), "--preset", "rloo"]);
    assert!(
        page.contains("Computed by the preset <code>rloo</code>") && page.contains(">-1.0000</span>"),
        "{page}"
    );
}

/// A file of these lines.
fn lines(name: &str, lines: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    (folder, path)
}

#[test]
fn a_method_gets_no_fields_that_are_not_there() {
    // As `turnwise credit` refuses them: numbers made of nothing would look like others.
    let out = tempfile::tempdir().unwrap();
    let html = out.path().join("x.html");
    let error =
        |file: &str, preset: &str| refused(&[file, "--preset", preset, "--output", html.to_str().unwrap()]);
    let error_of_example = error(EXAMPLE, "ppo");
    assert!(
        error_of_example.contains("needs `values`") && error_of_example.contains("line 1"),
        "{error_of_example}"
    );
    let line = r#"{"group": 1, "turns": [{"action": "look", "reward": 1}]}"#;
    let (_folder, path) = lines("bare.jsonl", &[line, line]);
    for preset in ["gigpo", "hgpo", "salt-grpo"] {
        assert!(error(path.to_str().unwrap(), preset).contains("needs `observation`"), "{preset}");
    }
    assert!(!html.exists());
}

#[test]
fn a_folder_of_a_dump_is_its_steps() {
    let line = |step: u64| {
        format!(
            r#"{{"input": "user\nq\nassistant\n", "output": "a", "gts": null, "score": 1.0, "step": {step}}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    for step in [1, 2] {
        let both = [line(step), line(step)].join("\n");
        std::fs::write(folder.path().join(format!("{step}.jsonl")), both).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let out = tempfile::tempdir().unwrap();
    assert!(page(out.path(), &[path, "--step", "1"]).contains("step 1: "));
    assert!(page(out.path(), &[path]).contains("step 2: "), "the last one");
    // A folder of runs is served as a list; a page of one step has to be of one of them.
    let (runs, run) = self::run(-0.5);
    let html = out.path().join("y.html");
    let error = refused(&[runs.path().to_str().unwrap(), "--output", html.to_str().unwrap()]);
    assert!(error.contains(run.to_str().unwrap()), "{error}");
    assert!(refused(&[runs.path().to_str().unwrap(), "--step", "1"]).contains("name one of them"));
}

#[test]
fn an_explanation_of_other_turns_is_refused() {
    let (folder, run) = self::run(-0.5);
    let path = run.join("trajectories/step-000001.jsonl.zst");
    let mut trajectories = turnwise_train::record::directory::read_trajectories(&path).unwrap();
    // The file of a run on its own: its step has the run's number.
    let page = self::page(folder.path(), &[path.to_str().unwrap(), "--step", "1"]);
    assert!(page.contains("step 1: 2 trajectories"), "{page}");
    trajectories[0].explanation = Some(vec![Vec::new(), Vec::new()]);
    write_trajectories(&path, trajectories.iter()).unwrap();
    let error =
        refused(&[path.to_str().unwrap(), "--output", folder.path().join("x.html").to_str().unwrap()]);
    assert!(error.contains("`explanation` has 2 entries and there are 1 turns"), "{error}");
}

/// Pages being served; closed when dropped.
struct Served(Child, String);

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let mut command = view(&[arguments, &["--address", "127.0.0.1:0"]].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self(child, address)
    }

    fn get(&self, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_is_served_to_this_machine_alone() {
    let (_folder, run) = self::run(-0.5);
    let served = Served::start(&[run.to_str().unwrap()]);
    let get = |path: &str| served.get(&served.1, path);
    let first = get("/");
    assert!(first.contains("<h1>mug-run</h1>") && first.contains("finished at step-000001"), "{first}");
    assert!(first.contains("train/success_rate <b>0.5</b>") && first.contains("<a href=\"/step/1\">1</a>"));
    assert!(get("/step/1").contains("<a href=\"/step/1/group/0\">group 0</a>"));
    let group = get("/step/1/group/0");
    assert!(group.contains("trajectory 1") && group.contains("the recorded one to the last bit"), "{group}");
    assert!(!group.contains("<details open") && get("/step/1/group/0/open").contains("<details open"));
    assert!(get("/step/1").contains("metrics of the step"));
    for missing in ["/step/2", "/step/1/group/1", "/step/x", "/favicon.ico", "/../etc/passwd"] {
        assert!(get(missing).starts_with("HTTP/1.1 404 "), "{missing}");
    }
    // A page of the web that is led here by its name must not read trajectories.
    assert!(served.get("example.org", "/").starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_folder_of_runs_is_a_list_and_follows_them() {
    let (runs, run) = self::run(-0.5);
    let served = Served::start(&[runs.path().to_str().unwrap()]);
    let get = |path: &str| served.get(&served.1, path);
    let list = get("/");
    assert!(list.contains("<a href=\"/run/mug-run\">mug-run</a>") && list.contains("finished"), "{list}");
    assert!(list.contains("50.0 %") && list.contains("<td>grpo</td>"), "{list}");
    assert!(get("/?q=nothing").contains("0 of 1 runs"));
    assert!(get("/run/mug-run").contains("<a href=\"/run/mug-run/step/1\">1</a>"));
    // Links keep the filter and the order, and the first group is one that teaches something.
    let step = get("/run/mug-run/step/1?show=mixed&sort=turns");
    assert!(step.contains("href=\"/run/mug-run/step/1/group/0?show=mixed&amp;sort=turns\""), "{step}");
    assert!(get("/run/mug-run/step/1?show=failed").contains("0 of 1 groups"));
    let first = get("/run/mug-run/step/1/first?show=mixed");
    assert!(first.contains("\r\nLocation: /run/mug-run/step/1/group/0?show=mixed\r\n"), "{first}");
    let found = get("/run/mug-run/search?q=a%20%3CMUG%3E");
    assert!(
        found.contains("2 results in 1 steps") && found.contains("<mark>a &lt;mug&gt;</mark>"),
        "{found}"
    );
    assert!(found.contains("/run/mug-run/step/1/group/0?q=a%20%3CMUG%3E#g0t1u0"), "{found}");
    // The numbers that pages ask for change with the run, and say nothing else of it.
    let data = |path: &str| get(path).split("\r\n\r\n").nth(1).unwrap().to_owned();
    let (before, of_run) = (data("/data.json"), data("/run/mug-run/data.json"));
    assert!(serde_json::from_str::<serde_json::Value>(&before).unwrap()["version"].is_string(), "{before}");
    let mut metrics = std::fs::OpenOptions::new().append(true).open(run.join("metrics.jsonl")).unwrap();
    writeln!(metrics, r#"{{"phase": "rl", "step": 2, "time": 0.0, "train/success_rate": 0.75}}"#).unwrap();
    assert_ne!(data("/data.json"), before);
    assert_ne!(data("/run/mug-run/data.json"), of_run);
    assert!(get("/").contains("75.0 %"));
}

#[test]
fn hostile_addresses_lead_nowhere_and_stay_text() {
    let (runs, _run) = self::run(-0.5);
    std::fs::create_dir(runs.path().join("empty")).unwrap();
    let served = Served::start(&[runs.path().to_str().unwrap()]);
    let get = |path: &str| served.get(&served.1, path);
    for missing in [
        "/run/..",
        "/run/%2e%2e",
        "/run/mug-run%2F..%2Fmug-run",
        "/run/%2Fetc",
        "/run/..%2F..%2Fetc%2Fpasswd",
        "/run/mug-run%00",
        "/run/empty",
        "/run/mug-run/config.toml",
        "/run/mug-run/step/1/group/0/../../../..",
        "/run/mug-run/step/99999999999999999999",
        "/mug-run",
        "/run",
    ] {
        assert!(get(missing).starts_with("HTTP/1.1 404 "), "{missing}: {}", get(missing));
    }
    // What an address says is text, in the page and in its links.
    let script = "%3Cscript%3Ealert(1)%3C/script%3E%22%27";
    for path in
        ["/", "/run/mug-run", "/run/mug-run/search", "/run/mug-run/step/1", "/run/mug-run/step/1/group/0"]
    {
        for key in ["q", "show", "sort", "page", "smooth", "color", "before"] {
            let page = get(&format!("{path}?{key}={script}"));
            assert!(page.starts_with("HTTP/1.1 200 "), "{path} {key}: {page}");
            assert!(!page.contains("<script>") && !page.contains("\"'"), "{path} {key}: {page}");
        }
    }
    // No line of a header can be added.
    let led = get("/run/mug-run/step/1/first?q=take%0d%0aX-Evil:%201");
    assert!(!led.contains("\r\nX-Evil") && led.starts_with("HTTP/1.1 303 "), "{led}");
    // A page may run the viewer's script and no other, and numbers are no page.
    let head = |path: &str| get(path).split("\r\n\r\n").next().unwrap().to_owned();
    for path in ["/", "/run/mug-run", "/viewer.js", "/data.json", "/run/mug-run/data.json", "/nowhere"] {
        let head = head(path);
        assert!(head.contains("Content-Security-Policy: default-src 'none';"), "{path}: {head}");
        assert!(head.contains("script-src 'self';") && !head.contains("unsafe-eval"), "{path}: {head}");
        assert!(head.contains("X-Content-Type-Options: nosniff"), "{path}: {head}");
    }
    assert!(head("/viewer.js").contains("Content-Type: text/javascript"));
    assert!(head("/data.json").contains("Content-Type: application/json"));
    assert!(!head("/run/mug-run/search?q=mug").contains("javascript"));
    for path in ["/data.json", "/run/mug-run/data.json", "/run/mug-run/search?q=mug"] {
        assert!(served.get("example.org", path).starts_with("HTTP/1.1 403 "), "{path}");
    }
}

#[test]
fn pages_work_in_a_browser() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/view_browser.py");
    let Ok(output) = Command::new("python3").args([script, env!("CARGO_BIN_EXE_turnwise")]).output() else {
        println!("skipped: no python3");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    if text.starts_with("skipped: ") {
        println!("{}", text.trim());
    } else {
        assert!(text.contains("the pages are sound"), "{text}");
    }
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let (folder, run) = self::run(-0.5);
    let run = run.to_str().unwrap();
    let html = folder.path().join("x.html");
    let html = html.to_str().unwrap();
    let metrics = Path::new(run).join("metrics.jsonl");
    let metrics = metrics.to_str().unwrap();
    let html_folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (vec!["/nowhere"], "neither a run directory nor a file"),
        (vec![html_folder.path().to_str().unwrap()], "neither a run directory nor a folder of trajectories"),
        (vec![run, "--set", "aem.lambda=2"], "--preset"),
        (vec![run, "--preset", "ppo"], "--preset ppo"),
        (vec![run, "--step", "9"], "has no trajectories of it; it has step 1"),
        (vec![run, "--output", metrics, "--step", "1"], "metrics.jsonl: give it a name that ends in .html"),
        (vec![run, "--output", html, "--group", "1"], "step 1 has groups 0 to 0"),
        (vec![run, "--output", html, "--preset", "aem-grpo"], "--preset aem-grpo"),
        (vec![run, "--output", html, "--preset", "gipgo"], "gigpo"),
        (vec![run, "--address", "0.0.0.0:0"], "--allow-remote"),
        (vec![run, "--address", "nowhere"], "--address nowhere"),
    ] {
        let error = refused(&arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
