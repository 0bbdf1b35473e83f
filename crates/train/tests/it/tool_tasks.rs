//! All configs of `configs/tools` train with a tiny model.

use crate::common::train_folder;

#[test]
fn every_config_of_tools_trains_for_two_steps() {
    let few = [
        "env.generator.train=20",
        "env.generator.test=20",
        // A tiny tokenizer needs several times as many tokens as a real model.
        "rollout.max_model_len=8192",
    ];
    assert_eq!(train_folder("tools", "bfcl", &few), ["chat", "small"]);
}
