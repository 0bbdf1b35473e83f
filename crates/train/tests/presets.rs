//! Every method preset trains, with both sequence layouts.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use turnwise_train::config::{ConfigSource, load, presets};
use turnwise_train::metrics::read_metrics;
use turnwise_train::{Outcome, Run, Silent};

const TINY: &[&str] = &[
    "env.world.size=tiny",
    "env.world.train=12",
    "env.world.valid_seen=0",
    "env.world.valid_unseen=4",
    "env.max_turns=4",
    "policy.scratch.hidden_size=16",
    "policy.scratch.layers=1",
    "policy.scratch.heads=2",
    "policy.scratch.key_value_heads=1",
    "policy.scratch.intermediate_size=32",
    "sft.demonstrations=12",
    "sft.steps=0",
    "rollout.groups=2",
    "rollout.group_size=4",
    "rollout.max_response_tokens=6",
    "rollout.max_context=512",
    "train.steps=2",
    "train.learning_rate=1e-3",
    "train.skip_zero_advantage=false",
    "eval.splits=[\"valid_unseen\"]",
    "eval.tasks=4",
];

#[test]
fn every_preset_trains_for_two_steps_in_both_layouts() {
    for preset in presets() {
        for layout in ["concatenated", "windowed"] {
            let mut overrides: Vec<String> = TINY.iter().map(|text| (*text).to_owned()).collect();
            overrides.push(format!("prompt.layout={layout}"));
            // Something to learn from although nothing is ever solved: turns that are not understood cost.
            overrides.push("prompt.valid=admissible".into());
            let source = ConfigSource { preset: Some(preset.into()), files: Vec::new(), overrides };
            let config = load(&source).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("run");
            let mut run = Run::start(config, &root, &mut Silent).unwrap();
            assert_eq!(run.train(&mut Silent, &AtomicBool::new(false)).unwrap(), Outcome::Finished);
            let lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
            assert_eq!(lines.len(), 2, "{preset}, {layout}");
            for line in lines {
                for (tag, value) in &line.metrics.0 {
                    assert!(value.is_finite(), "{preset}, {layout}: {tag} is {value}");
                }
                // One numerics: the sampler and the learner see the same log-probabilities.
                assert!(line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6);
            }
        }
    }
}
