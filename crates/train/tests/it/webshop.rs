//! All configs of `configs/webshop` train on a tiny shop with a tiny model.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use turnwise_train::Run;
use turnwise_train::config::{ConfigSource, load};

use crate::common::{Notes, train_folder};

#[test]
fn every_config_of_the_shop_trains_for_two_steps() {
    let names = train_folder("webshop", "webshop", &["env.generator.products=48"]);
    assert_eq!(names, ["gigpo", "grpo", "has-turnrd", "small", "stapo"]);
}

#[test]
fn what_is_to_be_known_of_a_shop_reaches_the_observer_and_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let asins = ["A", "B", "C", "D", "E", "F", "G", "H"];
    let goals = asins.map(|asin| {
        format!(r#""{asin}": {{"instruction": "Find me a {asin}", "instruction_attributes": ["safe"]}}"#)
    });
    write("items_ins_v2_1000.json", &format!("{{{}}}", goals.join(", ")));
    let products = asins.map(|asin| {
        let name = if asin == "D" { "null".to_owned() } else { format!("\"Mug {asin}\"") };
        format!(
            r#"{{"product": {{"asin": "{asin}", "name": {name}, "full_description": "d", "small_description": [], "pricing": [5.0], "customization_options": "", "product_category": "A", "category": "c", "query": "q"}}}}"#
        )
    });
    write("products_1000_documents.jsonl", &products.join("\n"));
    let config = load(&ConfigSource {
        overrides: [
            "env.kind=webshop",
            &format!("env.data={}", folder.path().display()),
            "env.max_turns=3",
            "prompt.template=webshop-compact",
            "policy.scratch.hidden_size=16",
            "policy.scratch.layers=1",
            "policy.scratch.heads=2",
            "policy.scratch.key_value_heads=1",
            "rollout.tasks_per_step=1",
            "rollout.group_size=2",
            "rollout.max_response_tokens=6",
            "rollout.max_model_len=1024",
            "train.steps=1",
            "eval.splits=[]",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..ConfigSource::default()
    })
    .unwrap();
    let (mut notes, root) = (Notes::default(), folder.path().join("run"));
    Run::builder(config)
        .directory(&root)
        .start(&mut notes)
        .unwrap()
        .train(&mut notes, &AtomicBool::new(false))
        .unwrap();
    let log = std::fs::read_to_string(root.join("log.jsonl")).unwrap();
    for said in ["1 of 8 products", "type_stand_in"] {
        assert!(notes.have(&[said]), "{said}: {:?}", notes.0);
        assert!(log.lines().any(|line| line.contains(said) && line.contains("\"note\"")), "{said}: {log}");
    }
}
