//! Every config of `configs/tools` trains, with a model small enough for a test.

use crate::common::train_folder;

#[test]
fn every_config_of_tools_trains_for_two_steps() {
    let few = [
        "env.generator.train=20",
        "env.generator.test=20",
        // So small a tokenizer needs several times the tokens of the models that the limits are for.
        "rollout.max_context=8192",
    ];
    assert_eq!(train_folder("tools", "bfcl", &few), ["chat", "small"]);
}
