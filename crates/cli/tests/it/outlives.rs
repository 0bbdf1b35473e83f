//! Tests that child processes end with the program, and that its exit status reports failures that
//! it survives.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml");

fn turnwise(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn wait_until(what: &str, seconds: u64, mut there: impl FnMut() -> bool) {
    let started = Instant::now();
    while !there() {
        assert!(started.elapsed() < Duration::from_secs(seconds), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True once a process is gone or a zombie.
fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// The first answers of a world of these tasks, as a shell's script.
fn world(tasks: &[&str]) -> String {
    let tasks: Vec<String> = tasks.iter().map(|id| format!(r#"{{"id":"{id}","goal":"win"}}"#)).collect();
    format!(
        r#"read l; echo '{{"id":0,"ok":{{"protocol":1,"name":"w","splits":["train"]}}}}';
        read l; echo '{{"id":1,"ok":{{"tasks":[{}]}}}}';"#,
        tasks.join(",")
    )
}

fn command(script: &str) -> String {
    format!("command={}", serde_json::json!(["sh", "-c", script]))
}

/// A program that hangs, what it started, and what has left its session besides.
#[test]
fn a_world_that_hangs_ends_with_a_program_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "{} sleep 300 & echo $! >> pids; setsid sleep 300 & echo $! >> pids; echo $$ >> pids; while :; do sleep 1; done",
        world(&["a"])
    );
    let mut child = turnwise(folder.path()).args(["play", "process", &command(&script)]).spawn().unwrap();
    let path = folder.path().join("pids");
    let pids = || -> Vec<String> {
        fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    wait_until("the world did not start", 30, || pids().len() == 3);
    assert!(pids().iter().all(|pid| !is_gone(pid)));
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in pids() {
        wait_until("the world outlived the program", 20, || is_gone(&pid));
    }
}

#[test]
fn a_run_stops_at_a_checkpoint_when_its_sweep_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = format!(
        "name = \"s\"\nbase = [{TINY:?}]\npreset = \"grpo\"\n\
         set = [\"env.generator.size=tiny\", 'eval.splits=[\"valid_unseen\"]', \"train.steps=100000\", \"train.checkpoint_every=100000\"]\n"
    );
    fs::write(folder.path().join("s.toml"), sweep).unwrap();
    let mut child = turnwise(folder.path()).args(["sweep", "s.toml"]).spawn().unwrap();
    let run = folder.path().join("runs/s/s-seed-0");
    wait_until("the run did not start", 60, || {
        fs::read_to_string(run.join("metrics.jsonl")).is_ok_and(|lines| lines.contains("\"rl\""))
    });
    let pid = fs::read_to_string(run.join("run.lock")).unwrap().trim().to_owned();
    assert!(!is_gone(&pid));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the run outlived its sweep", 60, || is_gone(&pid));
    let status: Value = serde_json::from_slice(&fs::read(run.join("status.json")).unwrap()).unwrap();
    assert_eq!(status["state"], "interrupted");
}

#[test]
fn trajectories_that_fail_are_counted_and_in_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let trained = turnwise(folder.path())
        .args(["train", "--preset", "quickstart", TINY, "name=run", "sft.steps=2", "train.steps=0"])
        .status()
        .unwrap();
    assert!(trained.success());
    // Only the task `a` can be played.
    let script = format!(
        r#"{} while read l; do
            id=$(printf '%s' "$l" | sed 's/^{{"id":\([0-9]*\),.*/\1/')
            case "$l" in
                *'"op":"reset"'*'"id":"a"'*) echo "{{\"id\":$id,\"ok\":{{\"observation\":\"start\"}}}}";;
                *'"op":"reset"'*) echo "{{\"id\":$id,\"error\":{{\"message\":\"no such room\"}}}}";;
                *'"op":"step"'*) echo "{{\"id\":$id,\"ok\":{{\"observation\":\"end\",\"terminated\":true,\"success\":true}}}}";;
            esac
        done"#,
        world(&["a", "b", "c", "d"])
    );
    let rollout = |script: &str| {
        let command = format!("env.{}", command(script));
        let output = turnwise(folder.path())
            .args(["rollout", "runs/run", "--output", "played.jsonl", "--tasks", "0"])
            .args(["env.kind=process", &command, "prompt.template=plain"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, said, errors) = rollout(&script);
    assert_eq!(code, Some(1), "{said}{errors}");
    assert!(
        said.contains("4 trajectories of 4 tasks, 1 solved, 3 failed, written to played.jsonl"),
        "{said}"
    );
    assert!(errors.contains("no such room"), "{errors}");
    // All can be played.
    let (code, said, errors) = rollout(&script.replace(r#"'*'"id":"a"'*)"#, "'*)"));
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("4 trajectories of 4 tasks, 4 solved, written to"), "{said}");
}
