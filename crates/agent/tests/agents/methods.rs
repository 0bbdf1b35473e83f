//! Tests of credit methods that compare turns by state, trained on an agent.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_agent::with_agents;
use turnwise_core::{Trajectory, Turn};
use turnwise_env::registry::Registry;
use turnwise_train::config::{Config, ConfigSource, Registries, load};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{NoopObserver, Run, RunEnd, TrainError};

use super::model::write_model;
use super::{LIBRARY, has_python};

/// A lamp, toggled by a reply whose bytes have an even sum. An episode has four calls and pays for
/// every toggle, so that a random policy has varying returns and repeatedly visits two states.
/// `STATE` may name the states.
const LAMP: &str = r#"
for line in sys.stdin:
    KEY = json.loads(line)["api_key"]
    on, toggles = False, 0
    messages = [{"role": "system", "content": "Toggle it."}]
    for turn in range(4):
        messages.append(user("The lamp is " + ("on." if on else "off.")))
        answer = reply(messages, **STATE(turn))
        messages.append(answer)
        if sum(answer["content"].encode()) % 2 == 0:
            on, toggles = not on, toggles + 1
    print(json.dumps({"reward": toggles, "success": toggles == 4}), flush=True)
"#;

/// Returns the config of two steps of a preset on the lamp. `state` is the Python expression of a
/// call's state, and `more` are further overrides.
fn config(folder: &Path, preset: &str, state: &str, more: &[&str]) -> Result<Config, TrainError> {
    let model = folder.join("model");
    // Such large weights make replies repeat, so that SALT has edges to merge.
    write_model(&model, 0.5);
    let program = folder.join("lamp.py");
    std::fs::write(&program, format!("{LIBRARY}STATE = lambda turn: {state}\n{LAMP}")).unwrap();
    let write_tasks = |split: &str, ids: [&str; 2]| {
        let path = folder.join(split);
        let lines = ids.map(|id| format!("{{\"id\": \"{id}\", \"goal\": \"toggle {id}\"}}\n"));
        std::fs::write(&path, lines.concat()).unwrap();
        path.display().to_string()
    };
    let (train, test) = (write_tasks("train.jsonl", ["a", "b"]), write_tasks("test.jsonl", ["c", "d"]));
    let mut overrides = vec![
        format!("env.command=[\"python3\", {:?}]", program.display().to_string()),
        format!("env.tasks={{train={train:?}, test={test:?}}}"),
        format!("policy.model={:?}", model.display().to_string()),
    ];
    let settings = "env.kind=agent env.reuse=true env.max_turns=5 sft.steps=0 prompt.template=agent \
                    prompt.layout=concatenated rollout.tasks_per_step=2 rollout.group_size=4 \
                    rollout.max_response_tokens=1 rollout.max_model_len=1024 train.steps=2 \
                    train.learning_rate=1e-3 train.warmup=0 train.num_minibatches=1 \
                    train.skip_zero_advantage=false train.explain=true eval.splits=[\"test\"]";
    overrides.extend(settings.split_whitespace().chain(more.iter().copied()).map(str::to_owned));
    if preset == "stapo" {
        // So few turns have no quartiles.
        overrides.push("credit.outliers.locate=all".into());
    }
    let registries = Registries { environments: agents(), ..Registries::builtin() };
    load(&ConfigSource { preset: Some(preset.into()), overrides, registries, ..ConfigSource::default() })
}

fn agents() -> Registry {
    with_agents(Registry::builtin())
}

fn train(preset: &str, state: &str) -> (Vec<MetricsLine>, Vec<Trajectory>) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let run = Run::builder(config(folder.path(), preset, state, &[]).unwrap()).environments(agents());
    let mut run = run.directory(&root).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished, "{preset}");
    let lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
    let files = (1..=2).map(|step| root.join(format!("trajectories/step-{step:06}.jsonl.zst")));
    (lines, files.flat_map(|file| read_trajectories(&file).unwrap()).collect())
}

fn of(lines: &[MetricsLine], tag: &str) -> Vec<f64> {
    lines.iter().map(|line| line.metrics.get(tag).unwrap_or_else(|| panic!("no {tag}"))).collect()
}

#[test]
fn methods_that_compare_states_train_on_an_agent() {
    if !has_python() {
        return;
    }
    for preset in ["gigpo", "aem-gigpo", "stapo", "salt-grpo", "hgpo", "rtmc", "has-attention"] {
        let (lines, played) = train(preset, "{}");
        assert_eq!((lines.len(), played.len()), (2, 16), "{preset}");
        let stops: Vec<_> = played.iter().map(|trajectory| &trajectory.stop).collect();
        assert_eq!(of(&lines, "rollout/error_rate"), [0.0, 0.0], "{preset}: {stops:?}");
        assert!(of(&lines, "rollout/mismatch_kl").iter().all(|&kl| kl < 1e-6), "{preset}");
        assert!(of(&lines, "loss/grad_norm").iter().any(|&norm| norm > 0.0), "{preset}");
        // The states are the first call, lamp on and lamp off, in each group.
        let keys: std::collections::BTreeSet<&str> =
            played.iter().flat_map(|trajectory| &trajectory.turns).map(Turn::state_key).collect();
        assert_eq!(keys.len(), 3, "{preset}: {keys:?}");
        match preset {
            "gigpo" | "aem-gigpo" => {
                let shares = of(&lines, "gigpo/anchor_states_per_turn");
                assert!(shares.iter().all(|&share| share <= 6.0 / 32.0), "{preset}: {shares:?}");
            }
            "stapo" => {
                assert_eq!(of(&lines, "outliers/masked_too_long"), [0.0, 0.0]);
                assert!(of(&lines, "masked_context/kl").iter().all(|&kl| kl > 0.0));
            }
            "salt-grpo" => {
                let merged = of(&lines, "salt/merge_rate");
                assert!(merged.iter().all(|&rate| rate > 0.0), "{merged:?}");
            }
            "rtmc" => assert!(of(&lines, "rtmc/shared_turns").iter().all(|&share| share > 0.5)),
            _ => {}
        }
    }
}

#[test]
fn an_agent_may_name_its_states() {
    if !has_python() {
        return;
    }
    let shares = |state: &str| of(&train("gigpo", state).0, "gigpo/anchor_states_per_turn");
    // With unique states, no turns are compared.
    assert_eq!(shares("{'x_turnwise_state': KEY + str(turn)}"), [1.0, 1.0]);
    // Two groups of sixteen turns have one state each. Texts that headers cannot hold are in the
    // body.
    assert_eq!(shares("{'metadata': {'state': '\u{00fc}ber \u{2603}'}}"), [2.0 / 32.0; 2]);
}

#[test]
fn credit_from_progress_is_rejected_because_an_agent_reports_none() {
    let folder = tempfile::tempdir().unwrap();
    let error = config(folder.path(), "has-progressive", "{}", &[]).unwrap_err().to_string();
    assert!(error.contains("does not say how much of a task is done"), "{error}");
}

#[test]
fn compaction_is_rejected_because_an_agent_writes_its_own_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let error = config(folder.path(), "grpo", "{}", &["prompt.compact_after=400"]).unwrap_err().to_string();
    assert!(error.contains("prompt.compact_after") && error.contains("plays agents"), "{error}");
}
