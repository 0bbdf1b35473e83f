//! Tests of `turnwise turnrd` on a synthetic replay.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;

use turnwise_decompose::turnrd::{Replay, ReplayRecord};

use crate::turnwise;

fn succeed(arguments: &[&str]) -> String {
    let output = turnwise(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every second trajectory takes the cup at its second turn, which its vector shows, and succeeds.
fn fill(path: &Path) {
    let mut replay = Replay::append_to(path).unwrap();
    for id in 0..120u64 {
        let success = id % 2 == 0;
        let mut turns: Vec<f32> = (0..4 * 6).map(|index| 0.1 * (index as f32 + id as f32).sin()).collect();
        turns[6] = if success { 1.0 } else { -1.0 };
        let second = if success { "take cup 1" } else { "go to shelf 2" };
        let record = ReplayRecord {
            round: id as u32 / 40,
            id,
            ret: f64::from(u8::from(success)),
            turns,
            goal: vec![0.5; 6],
            progress: [false, success, success, success].map(|done| Some(f32::from(u8::from(done)))).into(),
            goal_text: "find the cup".into(),
            actions: ["look", second, "go to desk 1", "look"].map(String::from).into(),
        };
        assert!(replay.append(&record).unwrap());
    }
}

#[test]
fn a_replay_is_trained_on_and_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    let (replay, output) = (folder.path().join("replay"), folder.path().join("model"));
    fill(&replay);
    let config = folder.path().join("turnrd.toml");
    std::fs::write(&config, "hidden = 16\nlearning_rate = 3e-3\nvalue_target = \"change\"\n").unwrap();
    let [replay, output, config] = [&replay, &output, &config].map(|path| path.to_str().unwrap());
    let text = succeed(&[
        "turnrd", "train", replay, "-o", output, "--config", config, "--epochs", "30", "--seed", "1",
    ]);
    assert!(text.contains("120 records") && text.contains("held out"), "{text}");

    let text = succeed(&["turnrd", "inspect", output]);
    for part in
        ["hidden = 16", "parameters", "    2       40", "FiLM norms", "goals shuffled", "find the cup"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let after = text.split("held out: ").nth(1).unwrap().split("R^2 ").nth(1).unwrap();
    let r2: f64 = after.split(',').next().unwrap().parse().unwrap();
    assert!(r2 > 0.9, "{text}");
    let stars: Vec<&str> = text.lines().filter(|line| line.contains('★')).collect();
    assert!(stars.len() == 1 && stars[0].contains("take cup 1"), "{text}");

    let bytes = std::fs::read(replay).unwrap();
    std::fs::write(replay, &bytes[..bytes.len() - 5]).unwrap();
    let text = succeed(&["turnrd", "inspect", replay]);
    assert!(text.contains("119 records") && text.contains("1 unfinished record"), "{text}");
}

#[test]
fn records_are_held_out_as_the_run_dealt_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (run, round, replay) = (path("run"), path("run/turnrd/round-0003"), path("run/turnrd/replay.bin"));
    std::fs::create_dir_all(path("run/turnrd")).unwrap();
    fill(Path::new(&replay));
    std::fs::write(path("turnrd.toml"), "hidden = 16\n").unwrap();
    succeed(&["turnrd", "train", &run, "-o", &round, "--config", &path("turnrd.toml"), "--epochs", "1"]);
    // A run writes no report beside its networks.
    std::fs::remove_file(path("run/turnrd/round-0003/training.json")).unwrap();
    let dealt = |hold_out: u64| {
        let config = format!("[decomposer]\nkind = \"turnrd\"\nhold_out = {hold_out}\n");
        std::fs::write(path("run/config.toml"), config).unwrap();
    };
    let shows = |arguments: &[&str], expected: &str| {
        let text = succeed(&[&["turnrd", "inspect"], arguments].concat());
        assert!(text.contains(expected), "{arguments:?}: no `{expected}` in {text}");
    };
    let all = "all records: 120 trajectories";
    shows(&[&run], all);
    dealt(3);
    let held_out = Replay::open(Path::new(&replay)).unwrap().split(3).1.len();
    let third = format!("held out: {held_out} trajectories");
    shows(&[&run], &third);
    shows(&[&round, "--replay", &run], &third);
    // The network never saw another replay, whatever its own was dealt by.
    std::fs::copy(&replay, path("other")).unwrap();
    shows(&[&run, "--replay", &path("other")], all);
    dealt(0);
    shows(&[&run], all);
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("replay");
    drop(Replay::append_to(&empty).unwrap());
    let refused = turnwise(&["turnrd", "train", empty.to_str().unwrap(), "-o", "nowhere"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("no record to train on"));
    let missing = turnwise(&["turnrd", "inspect", "no/such/folder"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("turnrd.safetensors"));
}
