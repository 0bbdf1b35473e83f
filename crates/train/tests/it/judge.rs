//! A judge that does not answer is detected before long work.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use turnwise_train::config::Config;
use turnwise_train::{NoopObserver, Run};

use crate::common;

const DEAD: &str = "http://127.0.0.1:9/v1";

fn judged(endpoint: &str, more: &[&str]) -> Config {
    let endpoint = format!("decomposer.endpoint={endpoint}");
    let judge = ["decomposer.model=scorer", "decomposer.retries=0", &endpoint];
    common::config(Some("has-judge"), &[&judge[..], more].concat()).unwrap()
}

#[test]
fn a_judge_that_does_not_answer_ends_a_run_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let error = Run::builder(judged(DEAD, &["sft.steps=1"]))
        .directory(&root)
        .start(&mut NoopObserver)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains(DEAD) && error.contains("decomposer.endpoint"), "{error}");
    assert!(!root.exists(), "a run directory was begun");
    // Without a budget, only the cache answers.
    Run::builder(judged(DEAD, &["decomposer.call_budget=0"]))
        .directory(&root)
        .start(&mut NoopObserver)
        .unwrap();
}

#[test]
fn a_run_that_is_resumed_asks_before_its_warm_start_and_not_after() {
    let folder = tempfile::tempdir().unwrap();
    let alive = format!("http://{}/v1", common::judge());
    let resume = |root: &_| {
        let dead = format!("decomposer.endpoint={DEAD}");
        common::resume_with(root, &[&dead], None, &mut NoopObserver)
    };
    let before = folder.path().join("before");
    drop(Run::builder(judged(&alive, &["sft.steps=1"])).directory(&before).start(&mut NoopObserver).unwrap());
    let error = resume(&before).err().unwrap().to_string();
    assert!(error.contains(DEAD), "{error}");
    let after = folder.path().join("after");
    drop(Run::builder(judged(&alive, &["sft.steps=0"])).directory(&after).start(&mut NoopObserver).unwrap());
    assert!(resume(&after).is_ok());
}
