//! Tests of `turnwise eval RUN`: it plays the tasks that the run pinned at its start.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;

use serde_json::Value;

use crate::turnwise;

const TINY: &[&str] = &[
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "preset=grpo",
    "name=tiny",
    "env.generator.size=tiny",
    "env.generator.valid_seen=2",
    "sft.steps=2",
    "train.steps=1",
    "eval.splits=[\"valid_unseen\"]",
    "eval.tasks=2",
    "train.keep_best=valid_unseen",
];

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_run_is_evaluated_on_its_own_panel() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let trained = turnwise(&[&["train", "--runs", runs], TINY].concat());
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let run = folder.path().join("tiny");
    let own = json(&run.join("panel.json"))["evaluation"]["valid_unseen"]["hash"].clone();
    let out = folder.path().join("result.json");
    let evaluate = |more: &[&str]| {
        let arguments = ["eval", run.to_str().unwrap(), "--output", out.to_str().unwrap()];
        let output = turnwise(&[&arguments[..], more].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then(|| json(&out)[0].clone()).ok_or(message)
    };
    let result = evaluate(&[]).unwrap();
    assert_eq!((&result["panel"], &result["success"]["trials"]), (&own, &Value::from(2)));
    // Other tasks are asked for.
    let all = evaluate(&["--tasks", "0"]).unwrap();
    assert_eq!(all["success"]["trials"], 4);
    assert_ne!(all["panel"], own);
    for spelt in ["eval.tasks=3", "eval.tasks = 3", "eval={tasks=3}"] {
        assert_eq!(evaluate(&[spelt]).unwrap()["success"]["trials"], 3, "{spelt}");
    }
    assert_eq!(evaluate(&["rollout.num_workers=2"]).unwrap()["panel"], own);
    // Rules of training, such as `keep_best`'s split, do not count: the training split and another world are played, too.
    assert_eq!(evaluate(&["--split", "train", "--tasks", "3"]).unwrap()["success"]["trials"], 3);
    assert_eq!(evaluate(&["--env", "ezpoints", "--tasks", "1"]).unwrap()["success"]["trials"], 1);
    // Where no prompt fits the context nothing is solved, and the reason is said.
    let arguments =
        ["eval", run.to_str().unwrap(), "rollout.max_model_len=40", "rollout.max_response_tokens=16"];
    let text = String::from_utf8(turnwise(&arguments).stdout).unwrap();
    assert!(
        text.contains("2 tasks ended because their next prompt did not fit rollout.max_model_len"),
        "{text}"
    );

    // Trajectories of several splits in one file: a group is one task.
    let played = folder.path().join("played.jsonl");
    let splits = ["--split", "valid_unseen", "--split", "valid_seen", "--tasks", "2"];
    evaluate(&[&splits[..], &["--trajectories", played.to_str().unwrap()]].concat()).unwrap();
    let played = std::fs::read_to_string(played).unwrap();
    let lines = played.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let groups: std::collections::BTreeSet<u64> = lines.map(|line| line["group"].as_u64().unwrap()).collect();
    assert_eq!(groups, (0..4).collect());

    // In a folder the file is named after the checkpoint, and a name of another one is refused before anything is played.
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let written = turnwise(&["eval", run.to_str().unwrap(), "--output", &place("greedy/")]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert_eq!(json(&folder.path().join("greedy/step-000001.json"))[0]["panel"], own);
    let refused = turnwise(&["eval", run.to_str().unwrap(), "--output", &place("greedy/step-000060.json")]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("names the checkpoint step-000060, and step-000001 of"), "{message}");
    // Training's own evaluation may be played again, and is not replaced by another one.
    let again = |more: &[&str]| {
        let to = run.join("eval/");
        turnwise(&[&["eval", run.to_str().unwrap(), "--output", to.to_str().unwrap()][..], more].concat())
    };
    let others = [
        ["--temperature", "1"],
        ["--tasks", "3"],
        ["--split", "valid_seen"],
        ["--agent", "react"],
        ["--seed", "5"],
        ["--set", "env.max_turns=2"],
    ];
    for other in others {
        let refused = again(&other);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && message.contains("training's own evaluation"),
            "{other:?}: {message}"
        );
    }
    let same = again(&[]);
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stderr));

    // A pipe has nothing to replace, and is not read.
    #[cfg(target_os = "linux")]
    assert!(turnwise(&["eval", run.to_str().unwrap(), "--output", "/dev/stdout"]).status.success());

    let label = |path: &str| turnwise_policy::run_folder::checkpoint_label(&run.join(path));
    assert_eq!(label("").as_deref(), Some("step-000001"));
    assert_eq!(label("checkpoints/step-000001/policy").as_deref(), Some("step-000001"));
    assert_eq!(label("base"), None);

    // Whatever the config says of tasks later on, the run's own are played.
    let config = run.join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        std::fs::write(&config, text.replacen(from, to, 1)).unwrap();
    };
    with("tasks = 2\n", "tasks = 3\n");
    assert_eq!(evaluate(&[]).unwrap()["panel"], own);

    // Another world under the same names is noticed.
    with("seed = 0\nsize = ", "seed = 77\nsize = ");
    let message = evaluate(&[]).unwrap_err();
    assert!(message.contains("panel.json"), "{message}");
}
