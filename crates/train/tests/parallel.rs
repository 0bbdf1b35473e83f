//! A run on several processes ends with the bits of a run on one. The processes are threads here, each
//! with a run of its own that meets the others over TCP; `crates/cli/tests/parallel.rs` starts real ones.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use turnwise_core::Collective;
use turnwise_train::config::Config;
use turnwise_train::metrics::{MetricsLine, read_metrics};
use turnwise_train::parallel::TcpCollective;
use turnwise_train::{Outcome, Run, Silent, TrainError};

fn bits(run: &Run) -> Vec<u32> {
    run.weights().trained().iter().map(|weight| weight.to_bits()).collect()
}

/// Runs `work` on every rank of a world; what each returned, in order.
fn on_ranks<T: Send>(world_size: usize, work: impl Fn(Option<Arc<dyn Collective>>) -> T + Sync) -> Vec<T> {
    if world_size == 1 {
        return vec![work(None)];
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..world_size)
            .map(|rank| {
                let work = &work;
                scope.spawn(move || {
                    let place = (rank, world_size, rank);
                    let patience = Duration::from_mins(1);
                    work(Some(Arc::new(
                        TcpCollective::connect(place, ("127.0.0.1", port), patience).unwrap(),
                    )))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Trains on so many processes; the weights of each.
fn train(config: &Config, root: &Path, world_size: usize) -> Vec<Vec<u32>> {
    on_ranks(world_size, |ranks| {
        let mut run = Run::start_on(ranks, config.clone(), root, &mut Silent).unwrap();
        assert_eq!(run.train(&mut Silent, &AtomicBool::new(false)).unwrap(), Outcome::Finished);
        bits(&run)
    })
}

/// The numbers of a run, but for times and speeds.
fn metrics(root: &Path) -> Vec<MetricsLine> {
    let mut lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
    for line in &mut lines {
        line.time = 0.0;
        line.metrics.0.retain(|tag, _| !tag.starts_with("perf/"));
    }
    lines
}

/// Both phases, several minibatches, and what each method needs of the whole batch.
fn cases() -> Vec<(&'static str, Config)> {
    let judge = format!("decomposer.endpoint=http://{}/v1", common::judge());
    let both = ["sft.steps=3", "sft.batch_tokens=600", "train.minibatches=2", "train.epochs=2"];
    let case = |preset: &str, more: &[&str]| {
        let more: Vec<&str> = both.iter().chain(more).copied().collect();
        common::config(Some(preset), &more).unwrap()
    };
    vec![
        ("grpo with penalties", case("grpo", &["objective.kl.coef=0.01", "objective.entropy_coef=0.01"])),
        ("aem over the batch", case("aem-grpo", &["credit.refinements=[{kind=\"aem\", scope=\"batch\"}]"])),
        ("dynamic sampling", case("dapo", &["rollout.selection={kind=\"dynamic\", max_rounds=2}"])),
        ("selective term", case("stapo", &["prompt.layout=windowed", "credit.outliers.lambda=0.1"])),
        ("critic, turn ratio, normalisation", case("so-ppo", &["objective.normalization.delta=1e-6"])),
        (
            "parameter norm",
            case("so-grpo", &["objective.normalization.delta=1e-6", "train.learning_rate=1e-2"]),
        ),
        ("network", case("has-turnrd", &["decomposer.network.hidden=8", "decomposer.network.epochs=2"])),
        ("judge", case("has-judge", &[&judge, "decomposer.model=any"])),
        (
            "adapter with dropout",
            case("grpo", &["policy.lora={rank=4, dropout=0.2}", "objective.kl.coef=0.01"]),
        ),
    ]
}

#[test]
fn every_method_gives_the_bits_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    for (name, config) in cases() {
        let one = folder.path().join(format!("{name}-1"));
        let expected = train(&config, &one, 1).remove(0);
        let two = folder.path().join(format!("{name}-2"));
        for found in train(&config, &two, 2) {
            assert!(found == expected, "{name}: other weights on two processes");
        }
        assert_eq!(metrics(&two), metrics(&one), "{name}");
        assert!(metrics(&one).len() > 2, "{name}");
    }
}

#[test]
fn four_lanes_give_the_same_bits_on_one_two_and_four_processes() {
    let settings = ["train.lanes=4", "rollout.lanes=4", "train.micro_batch_tokens=200", "sft.steps=3"];
    let config = common::config(Some("grpo"), &settings).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let expected = train(&config, &folder.path().join("1"), 1).remove(0);
    for world_size in [2, 4] {
        let found = train(&config, &folder.path().join(world_size.to_string()), world_size);
        assert!(found.iter().all(|found| *found == expected), "{world_size} processes");
    }
    // The comparison can fail: other lanes add in another order.
    let other =
        Config { train: turnwise_train::config::TrainConfig { lanes: 2, ..config.train.clone() }, ..config };
    assert!(train(&other, &folder.path().join("other"), 1).remove(0) != expected);
}

#[test]
fn a_run_goes_on_on_another_number_of_processes() {
    let config = common::config(Some("grpo"), &["train.steps=3", "train.checkpoint_every=1"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let expected = train(&config, &folder.path().join("straight"), 1).remove(0);
    let root = folder.path().join("run");
    // One rank is asked to stop, and all of them do.
    let outcomes = on_ranks(2, |ranks| {
        let asked = AtomicBool::new(ranks.as_ref().unwrap().rank() == 1);
        let mut run = Run::start_on(ranks, config.clone(), &root, &mut Silent).unwrap();
        run.train(&mut Silent, &asked).unwrap()
    });
    assert_eq!(outcomes, [Outcome::Interrupted; 2]);
    for world_size in [2, 1] {
        on_ranks(world_size, |ranks| {
            let last = world_size == 1;
            let mut run = Run::resume_on(ranks, &root, &mut Silent).unwrap();
            let stop = AtomicBool::new(!last);
            let outcome = run.train(&mut Silent, &stop).unwrap();
            assert_eq!(outcome, if last { Outcome::Finished } else { Outcome::Interrupted });
            if last {
                assert!(bits(&run) == expected);
            }
        });
    }
}

#[test]
fn processes_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: &(dyn Fn(&mut Config, usize) + Sync), name: &str| -> Vec<String> {
        on_ranks(2, |ranks| {
            let mut config = common::config(Some("grpo"), &[]).unwrap();
            change(&mut config, ranks.as_ref().unwrap().rank());
            let run = Run::start_on(ranks, config, &folder.path().join(name), &mut Silent);
            run.err().map(|error: TrainError| error.to_string()).unwrap()
        })
    };
    let errors = refused(&|config, _| config.train.lanes = 3, "lanes");
    assert!(errors.iter().all(|error| error.contains("train.lanes: is 3")), "{errors:?}");
    let errors = refused(&|config, rank| config.train.learning_rate = rank as f64, "config");
    assert!(errors.iter().all(|error| error.contains("its config is not that of rank 0")), "{errors:?}");
    assert!(!folder.path().join("config").exists(), "nothing is written before they agree");
}
