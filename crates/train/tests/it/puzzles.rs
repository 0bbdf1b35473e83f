//! All configs of `configs/sokoban` and `configs/ezpoints` train with a tiny model.

use crate::common::train_folder;

#[test]
fn every_config_of_sokoban_trains_for_two_steps() {
    let few = ["env.generator.train=20", "env.generator.valid=20", "env.generator.test=20"];
    assert_eq!(train_folder("sokoban", "sokoban", &few), ["gigpo", "grpo", "small", "stapo"]);
}

#[test]
fn every_config_of_ezpoints_trains_for_two_steps() {
    // A tiny tokenizer needs several times as many tokens as a real model.
    let few = ["env.generator.train=20", "rollout.max_model_len=4096"];
    assert_eq!(train_folder("ezpoints", "ezpoints", &few), ["gigpo", "grpo", "small", "stapo"]);
}
