//! `turnwise view`: pages of a run and of files, with what they say of every advantage.
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
        page.contains("Advantages: <b>gigpo, with outliers</b>. Computed by `stapo`, not recorded."),
        "{page}"
    );
    assert!(page.contains("<span class=\"number\">+1.4142</span><span class=\"action\">take mug</span><span class=\"badge\">outlier</span>"));
    assert!(page.contains("<span class=\"number\">-0.7212</span><span class=\"action\">fly</span><span class=\"badge\">invalid</span>"));
    assert!(page.contains(">anchor_mean <b>4.5125</b></span>"));
    // Both first turns are in one state: each leads to the other.
    assert!(
        page.contains("the same state (trajectory.turn): <a href=\"#g0t1u0\" title=\"go to bed\">1.0</a>")
    );
    assert!(
        page.contains("id=\"g0t1u0\"")
            && page.contains("<dt>step_return</dt><dd>discounted return from this turn on</dd>")
    );
    assert!(!page.contains("<script"));
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
    assert!(page.contains("differs from the recorded one by as much as 2.5e-1"), "{page}");
    assert!(page.contains(">-0.2500</span>"), "what was recorded is shown");
    // Another method on the same trajectories.
    let page = self::page(folder.path(), &[other.to_str().unwrap(), "--preset", "rloo"]);
    assert!(page.contains("Computed by `rloo`") && page.contains(">-1.0000</span>"), "{page}");
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
    assert!(get("/step/1/group/0").contains("trajectory 1"));
    for missing in ["/step/2", "/step/1/group/1", "/step/x", "/favicon.ico", "/../etc/passwd"] {
        assert!(get(missing).starts_with("HTTP/1.1 404 "), "{missing}");
    }
    // A page of the web that is led here by its name must not read trajectories.
    assert!(served.get("example.org", "/").starts_with("HTTP/1.1 403 "));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let (folder, run) = self::run(-0.5);
    let run = run.to_str().unwrap();
    let html = folder.path().join("x.html");
    let html = html.to_str().unwrap();
    for (arguments, expected) in [
        (vec!["/nowhere"], "neither a run directory nor a file"),
        (vec![folder.path().to_str().unwrap()], "not a run directory"),
        (vec![run, "--step", "9"], "has no trajectories of it; there is step 1"),
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
