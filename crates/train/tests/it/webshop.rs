//! Every config of `configs/webshop` trains, on a shop and with a model small enough for a test.
#![allow(clippy::unwrap_used)]

use crate::common;
use std::path::{Path, PathBuf};

use turnwise_train::config::{ConfigSource, load};

/// A shop of four dozen products and two steps of a model of a few thousand weights.
const TINY: &[&str] = &[
    "env.generator.products=48",
    "env.max_turns=3",
    "sft.steps=0",
    "rollout.group_size=2",
    "train.steps=2",
    "train.num_minibatches=1",
    "train.learning_rate=1e-3",
    "train.skip_zero_advantage=false",
];

#[test]
fn every_config_of_the_shop_trains_for_two_steps() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/webshop");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // What makes a run small, but for the household's own keys.
    let folder = tempfile::tempdir().unwrap();
    let tiny = folder.path().join("tiny.toml");
    let mut table: toml::Table = std::fs::read_to_string(common::FILE).unwrap().parse().unwrap();
    table["env"].as_table_mut().unwrap().remove("generator");
    std::fs::write(&tiny, table.to_string()).unwrap();
    let mut names = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let command = text.lines().next().unwrap();
        assert!(
            command.starts_with(&format!("# turnwise train configs/webshop/{name}.toml")),
            "{name}: the first line is the command that runs it, not `{command}`"
        );
        let mut overrides: Vec<String> = TINY.iter().map(|text| (*text).to_owned()).collect();
        if name == "stapo" {
            // So few turns have no quartiles to be outside of.
            overrides.push("credit.outliers.locate=all".into());
        }
        let config =
            load(&ConfigSource { preset: None, files: vec![file, tiny.clone()], overrides }).unwrap();
        assert_eq!(config.env.kind, "webshop", "{name}");
        assert_eq!(config.name, format!("webshop-{name}"));
        for line in common::train(config, &name) {
            assert_eq!(line.metrics.get("rollout/overflow_rate"), Some(0.0), "{name}: prompts do not fit");
        }
        names.push(name);
    }
    assert_eq!(names, ["gigpo", "grpo", "has-turnrd", "small", "stapo"]);
}
