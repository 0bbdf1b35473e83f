//! Every config of `configs/sokoban` and `configs/ezpoints` trains, with a model small enough for a test.

use crate::common::train_folder;

#[test]
fn every_config_of_sokoban_trains_for_two_steps() {
    let few = ["env.generator.train=20", "env.generator.valid=20", "env.generator.test=20"];
    assert_eq!(train_folder("sokoban", "sokoban", &few), ["gigpo", "grpo", "small", "stapo"]);
}

#[test]
fn every_config_of_ezpoints_trains_for_two_steps() {
    // So small a tokenizer needs several times the tokens of the models that the limits are for.
    let few = ["env.generator.train=20", "rollout.max_context=4096"];
    assert_eq!(train_folder("ezpoints", "ezpoints", &few), ["gigpo", "grpo", "small", "stapo"]);
}
