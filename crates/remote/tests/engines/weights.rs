//! Tests of runs that replace all weights of the servers.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_train::config::{ConfigSource, load};
use turnwise_train::{RunEnd, TrainError};

use crate::double::{Double, Fault};
use crate::runs::{
    KINDS, config, distance_to, finish, finish_in_two, full, largest_distance, read, run_of, start,
};

const EVERY_CHECKPOINT: [&str; 3] = ["train.steps=3", "train.checkpoint_every=1", "train.keep_last=0"];

#[test]
fn every_token_is_that_of_the_weights_that_the_learner_had() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let (one, other) = (Double::start(), Double::start());
        let finished = finish(full(kind, &[&one, &other], folder.path(), &EVERY_CHECKPOINT), &root);
        for step in 0..3 {
            let distance = largest_distance(&finished, &root, step, 0.8);
            assert!(distance < 1e-4, "{kind}, step {step}: {distance}");
        }
        // The weights of the step before are others.
        assert!(distance_to(&finished, &root, [2, 1], 0.8) > 1e-3, "{kind}");
        assert!(finished.metrics.iter().all(|line| line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6));
        for trajectory in &finished.trajectories {
            assert!(trajectory.turns.iter().all(|turn| turn.weights_version == trajectory.step));
        }
        for server in [&one, &other] {
            let loads = server.loads();
            let versions: Vec<&str> =
                loads.iter().map(|name| &name[name.len() - 16..name.len() - 9]).collect();
            assert_eq!(versions, ["v000000", "v000001", "v000002", "v000003"], "{kind}: {loads:?}");
            // One version takes disk at a time.
            assert_eq!(server.folders(), 1, "{kind}");
            assert!(server.served().len() > 8, "{kind}: both servers sample");
        }
        assert_eq!(std::fs::read_dir(folder.path().join("adapters")).unwrap().count(), 0);
        assert_eq!(finished.sum("rollout/engine/reloads"), 0.0, "{kind}");
    }
}

#[test]
fn an_adapter_is_merged_for_servers_that_take_models() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let server = Double::start();
    let more = [&EVERY_CHECKPOINT[..], &["rollout.engine.weights=full"]].concat();
    let finished = finish(config("sglang", &[&server], folder.path(), &more), &root);
    for step in 0..3 {
        assert!(largest_distance(&finished, &root, step, 0.8) < 1e-4);
    }
    assert!(distance_to(&finished, &root, [2, 1], 0.8) > 1e-3);
    assert_eq!((server.loads().len(), server.adapters().len()), (4, 0));
}

#[test]
fn a_server_that_comes_back_with_old_weights_is_given_the_new_ones_and_nothing_of_it_is_used() {
    for kind in KINDS {
        let undisturbed = {
            let folder = tempfile::tempdir().unwrap();
            let server = Double::start();
            finish(full(kind, &[&server], folder.path(), &EVERY_CHECKPOINT), &folder.path().join("run"))
        };
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let more = [&EVERY_CHECKPOINT[..2], &["train.keep_last=0", "train.steps=1"]].concat();
        let (mut run, mut notes) = start(full(kind, &[&server], folder.path(), &more), &root).unwrap();
        run.train(&mut notes, &AtomicBool::new(false)).unwrap();
        drop(run);
        let mut longer = load(&ConfigSource::of_run(&root)).unwrap();
        longer.train.steps = 3;
        let mut run = run_of(longer).directory(&root).resume(&mut notes).unwrap();
        // In the middle of a step whose weights are not those of the server's start.
        server.go_wrong(&[Fault::Restarted, Fault::Fails, Fault::Restarted, Fault::Aborts]);
        assert_eq!(run.train(&mut notes, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
        drop(run);
        let finished = read(&root, notes);
        for step in 0..3 {
            let distance = largest_distance(&finished, &root, step, 0.8);
            assert!(distance < 1e-4, "{kind}, step {step}: {distance}");
        }
        let of_step = |finished: &crate::runs::Finished, step: u64| {
            let of_step = finished.trajectories.iter().filter(|trajectory| trajectory.step == step);
            let turns = of_step.flat_map(|trajectory| &trajectory.turns);
            turns.map(|turn| turn.response_ids.clone()).collect::<Vec<_>>()
        };
        // Not to the bit in step 1: the rest of an answer that was handed over has draws of its own.
        assert_eq!(of_step(&finished, 0), of_step(&undisturbed, 0), "{kind}");
        assert!(finished.sum("rollout/engine/reloads") >= 2.0, "{kind}");
        let said = "had other weights than those of the version";
        assert!(finished.notes.0.iter().any(|note| note.contains(said)), "{:?}", finished.notes.0);
    }
}

#[test]
fn a_restart_changes_nothing_that_is_sampled() {
    for kind in KINDS {
        let sampled = |faults: &[Fault]| {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("run");
            let server = Double::start();
            let (mut run, mut notes) =
                start(full(kind, &[&server], folder.path(), &["train.steps=1"]), &root).unwrap();
            // Other weights than those of the server's start from the first rollout on.
            server.own_start();
            server.go_wrong(faults);
            run.train(&mut notes, &AtomicBool::new(false)).unwrap();
            drop(run);
            let finished = read(&root, notes);
            let sampled: Vec<(Vec<u32>, Vec<f32>)> = finished
                .sampled()
                .iter()
                .map(|(tokens, logprobs)| (tokens.to_vec(), logprobs.to_vec()))
                .collect();
            (sampled, finished.sum("rollout/engine/reloads"))
        };
        let (undisturbed, reloads) = sampled(&[]);
        assert_eq!(reloads, 0.0);
        let (found, reloads) = sampled(&[Fault::Restarted, Fault::Busy, Fault::Restarted]);
        assert!(reloads >= 2.0, "{kind}: {reloads}");
        assert_eq!(found, undisturbed, "{kind}");
    }
}

#[test]
fn a_server_that_only_says_that_it_has_loaded_weights_ends_the_run() {
    // Also after an update that moves log-probabilities by far less than a 16-bit server is off.
    for (kind, rate) in KINDS.into_iter().zip(["1e-2", "1e-3", "1e-4"]) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let rate = format!("train.learning_rate={rate}");
        let settings = full(kind, &[&server], folder.path(), &["train.steps=2", &rate]);
        let (mut run, mut notes) = start(settings, &root).unwrap();
        server.switches().keeps_weights.store(true, Ordering::Relaxed);
        let error = run.train(&mut notes, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(
            error.contains("urls[0]") && error.contains("says that it has loaded them and has not"),
            "{error}"
        );
        drop(run);
        assert_eq!(std::fs::read_dir(folder.path().join("adapters")).unwrap().count(), 0);
    }
}

#[test]
fn keys_and_values_of_weights_before_are_not_gone_on_from() {
    for kind in KINDS {
        let trained = |set: fn(&Double)| {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("run");
            let server = Double::start();
            set(&server);
            let (mut run, mut notes) = start(full(kind, &[&server], folder.path(), &[]), &root)?;
            run.train(&mut notes, &AtomicBool::new(false))?;
            drop(run);
            let sampled = |(tokens, logprobs): &(&[u32], &[f32])| (tokens.to_vec(), logprobs.to_vec());
            Ok::<_, TrainError>(read(&root, notes).sampled().iter().map(sampled).collect::<Vec<_>>())
        };
        let undisturbed = trained(|_| ()).unwrap();
        let kept = trained(|server| server.switches().keeps_prefixes.store(true, Ordering::Relaxed)).unwrap();
        assert_eq!(kept, undisturbed, "{kind}");
        // A cache that outlives its weights in spite of all that is asked for is noticed after the first replacement.
        let error =
            trained(|server| server.switches().never_forgets.store(true, Ordering::Relaxed)).unwrap_err();
        assert!(error.to_string().contains("urls[0]"), "{kind}: {error}");
    }
}

#[test]
fn a_server_that_loads_a_part_of_the_weights_ends_the_run() {
    // 1e-2 makes it another model altogether, 1e-3 no further off than a 16-bit server.
    for rate in ["1e-2", "1e-3"] {
        let folder = tempfile::tempdir().unwrap();
        let server = Double::start();
        let rate = format!("train.learning_rate={rate}");
        let settings = full("vllm", &[&server], folder.path(), &["train.steps=2", &rate]);
        let (mut run, mut notes) = start(settings, &folder.path().join("run")).unwrap();
        server.switches().keeps_embeddings.store(true, Ordering::Relaxed);
        let error = run.train(&mut notes, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains("has not loaded all of the weights"), "{error}");
    }
}

#[test]
fn servers_whose_weights_cannot_be_replaced_or_known_are_refused() {
    let refused = |kind: &str, spoil: &dyn Fn(&Double), more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let server = Double::start();
        spoil(&server);
        let error =
            start(full(kind, &[&server], folder.path(), more), &folder.path().join("run")).err().unwrap();
        error.to_string()
    };
    let closed = |server: &Double| server.switches().no_dev_mode.store(true, Ordering::Relaxed);
    for kind in ["vllm", "completions"] {
        assert!(refused(kind, &closed, &[]).contains("VLLM_SERVER_DEV_MODE=1"));
    }
    let silent = |server: &Double| server.switches().no_weight_versions.store(true, Ordering::Relaxed);
    assert!(refused("sglang", &silent, &[]).contains("a restart would go unnoticed"));
    let elsewhere = ["rollout.engine.server_adapter_dir=\"/nowhere\""];
    for kind in KINDS {
        assert!(refused(kind, &|_| (), &elsewhere).contains("server_adapter_dir"), "{kind}");
    }
    // vLLM has a second way to say it.
    let folder = tempfile::tempdir().unwrap();
    let server = Double::start();
    silent(&server);
    let finished = finish(full("vllm", &[&server], folder.path(), &[]), &folder.path().join("run"));
    assert!(finished.sum("rollout/mismatch_kl") < 1e-6);
}

#[test]
fn a_run_that_was_interrupted_goes_on_to_the_same_bits() {
    let whole = {
        let folder = tempfile::tempdir().unwrap();
        let server = Double::start();
        finish(full("vllm", &[&server], folder.path(), &[]), &folder.path().join("run"))
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let server = Double::start();
    let resumed = finish_in_two(full("vllm", &[&server], folder.path(), &["train.steps=1"]), &root);
    assert_eq!(resumed.sampled(), whole.sampled());
}
