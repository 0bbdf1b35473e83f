//! Tests that `turnwise train --dry-run` checks everything, prints the memory plan and writes
//! nothing.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

const SMALL_WORLD: &[&str] = &[
    "env.generator.size=tiny",
    "env.generator.train=12",
    "env.generator.valid_seen=2",
    "env.generator.valid_unseen=4",
    "eval.tasks=2",
    "train.steps=2",
];

fn dry_run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .current_dir(folder)
        .args(["train", "--dry-run"])
        .args(SMALL_WORLD)
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_run_is_checked_and_planned_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout(&dry_run(folder.path(), &["policy.scratch.layers=3"]));
    for expected in
        ["3 layers of width 128", "training: 12 tasks of train", "evaluation: 2 tasks of valid_unseen"]
    {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
    for item in [
        "weights",
        "moments",
        "gradients",
        "activations",
        "output layer",
        "key/value cache",
        "at most at a time",
    ] {
        assert!(text.contains(item), "{item} is missing:\n{text}");
    }
    assert!(is_empty(folder.path()));
    // What a run would refuse at its start is refused here.
    std::fs::write(folder.path().join("empty.toml"), "[eval]\nsplits = [\"valid_seen\"]\n").unwrap();
    for (wrong, expected) in [
        (
            "env.split=nothing",
            "argument `env.split=nothing`: env.split = \"nothing\": the split has no tasks in this world, or does not \
             exist; there are tasks in: train, valid_seen, valid_unseen.",
        ),
        (
            "env.split=valid_seen  env.generator.valid_seen=0  eval.splits=[\"valid_unseen\"]",
            "argument `env.split=valid_seen`: env.split = \"valid_seen\": the split has no tasks in this world, or does \
             not exist; there are tasks in: train, valid_unseen.",
        ),
        (
            "empty.toml  env.generator.valid_seen=0",
            "empty.toml line 2: eval.splits = \"valid_seen\": the split has no tasks in this world, or does not exist",
        ),
        ("prompt.chat=on", "prompt.chat"),
        ("train.num_minibatches=1000000", "train.num_minibatches"),
        ("prompt.template=nothing", "nothing"),
        ("policy.model=nothing", "nothing"),
        ("sft.steps=3  --warm-start=no-run", "no-run: is not a run directory"),
        // No prompt of the world is that short; the warm start would have been for nothing.
        (
            "env.max_turns=1  rollout.max_model_len=16  rollout.max_response_tokens=8",
            "rollout.max_model_len: is 16, and no first prompt fits: the shortest of the first step has ",
        ),
    ] {
        let arguments: Vec<&str> = wrong.split("  ").collect();
        let output = dry_run(folder.path(), &arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(error.contains(expected), "{error}");
    }
}

/// Settings whose plan no machine holds: as many tokens at a time as may be set, in as many lanes.
const TOO_LARGE: [&str; 2] = ["train.micro_batch_tokens=100000000", "train.num_workers=256"];

#[test]
fn what_does_not_fit_is_refused_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let output = dry_run(folder.path(), &TOO_LARGE);
    assert_eq!(output.status.code(), Some(2));
    let (plan, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(plan.contains("DOES NOT FIT"), "{plan}");
    assert!(error.contains("this run may need") && error.contains("pass --ignore-memory"), "{error}");
    assert!(
        stdout(&dry_run(folder.path(), &[&TOO_LARGE[..], &["--ignore-memory"]].concat()))
            .contains("DOES NOT FIT")
    );
    // Training refuses the same, before it has made anything.
    let train = |more: &[&str]| {
        let arguments = [&["train", "eval.tasks=1", "train.steps=0"], SMALL_WORLD, &TOO_LARGE, more].concat();
        Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .current_dir(folder.path())
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = train(&[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("pass --ignore-memory to start it anyway"), "{error}");
    assert!(!folder.path().join("runs/run").exists());
    let output = train(&["train.steps=0", "--ignore-memory"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && error.contains("warning: this run may need"), "{error}");
}

/// The config of a model of 7.6 billion weights, none of which are there.
const SEVEN_BILLION: &str = r#"{
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": false, "use_sliding_window": false
}"#;

#[test]
fn a_large_model_is_planned_from_its_config_alone() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    std::fs::write(model.join("config.json"), SEVEN_BILLION).unwrap();
    for path in ["model", "model/config.json"] {
        let text = stdout(&dry_run(folder.path(), &[&format!("policy.model={path}"), "--ignore-memory"]));
        assert!(text.contains("model: 7615616512 parameters"), "{text}");
        // 7.6 billion numbers of 4 bytes, and two moments of each.
        assert!(text.contains("28.37 GiB") && text.contains("56.74 GiB"), "{text}");
        assert!(text.contains("missing: ") && text.contains("weights"), "{text}");
    }
}

/// The configs of the hub's models that Turnwise runs; skipped, with a message, where they are not there.
#[test]
fn the_hub_s_configs_are_planned() {
    let Some(data) = std::env::var_os("TURNWISE_DATA") else {
        eprintln!("skipped: TURNWISE_DATA is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (name, parameters) in
        [("Qwen2.5-7B", 7_615_616_512u64), ("Qwen3-8B", 8_190_735_360), ("Llama-3.1-8B", 8_030_261_248)]
    {
        let path = Path::new(&data).join("hf_configs").join(format!("{name}.config.json"));
        let model = format!("policy.model={}", path.display());
        let text = stdout(&dry_run(folder.path(), &[&model, "--ignore-memory"]));
        assert!(text.contains(&format!("model: {parameters} parameters")), "{name}: {text}");
    }
    assert!(is_empty(folder.path()));
}
