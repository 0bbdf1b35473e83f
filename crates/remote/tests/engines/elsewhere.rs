//! Tests of servers that always reject, and of concurrent runs: trajectories go to a server that
//! answers, and no run removes another's weights.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use turnwise_train::RunEnd;

use crate::double::{Double, Fault, Switches};
use crate::runs::{Finished, config, finish, read, start};

/// A run on two servers, of which the first goes wrong for good once it has answered in the first rollout.
fn on_two(spoil: impl FnOnce(&Double) + Send, folder: &tempfile::TempDir) -> Finished {
    let root = folder.path().join("run");
    let (one, other) = (Double::start(), Double::start());
    // Whoever stays with the first server gives up after this time.
    let more = ["rollout.engine.give_up_s=20"];
    let settings = config("vllm", &[&one, &other], folder.path(), &more);
    let (mut run, mut notes) = start(settings, &root).unwrap();
    let checked = one.served().len();
    one.switches().slow_ms.store(50, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let one = &one;
        scope.spawn(move || {
            while one.served().len() == checked {
                std::thread::sleep(Duration::from_millis(1));
            }
            spoil(one);
        });
        assert_eq!(run.train(&mut notes, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    });
    drop(run);
    read(&root, notes)
}

#[test]
fn sessions_leave_a_server_that_refuses_for_good() {
    let undisturbed = {
        let folder = tempfile::tempdir().unwrap();
        let server = Double::start();
        finish(config("vllm", &[&server], folder.path(), &[]), &folder.path().join("run"))
    };
    let refuses = |switch: fn(&Switches) -> &AtomicBool| {
        move |server: &Double| {
            switch(server.switches()).store(true, Ordering::Relaxed);
            server.go_wrong(&[Fault::Evicted]);
        }
    };
    // It takes no requests, or it has lost its adapters and loads none.
    let switches: [fn(&Switches) -> &AtomicBool; 2] =
        [|switches| &switches.unavailable, |switches| &switches.loads_nothing];
    for switch in switches {
        let folder = tempfile::tempdir().unwrap();
        let finished = on_two(refuses(switch), &folder);
        assert_eq!((finished.sum("rollout/error_rate"), finished.sum("rollout/engine/failures")), (0.0, 0.0));
        assert_eq!(finished.sampled(), undisturbed.sampled());
    }
}

#[test]
fn refusals_are_said_where_a_request_was_given_up_for_them() {
    let said = |faults: &[Fault]| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let more = [
            "train.steps=1",
            "rollout.engine.give_up_s=0.09",
            "rollout.max_num_seqs=1",
            "rollout.num_workers=1",
        ];
        let (mut run, mut notes) = start(config("vllm", &[&server], folder.path(), &more), &root).unwrap();
        server.go_wrong(faults);
        run.train(&mut notes, &AtomicBool::new(false)).unwrap();
        drop(run);
        let finished = read(&root, notes);
        let said = finished.notes.0.iter().any(|note| note.contains("inference server 0 is busy"));
        (finished.sum("rollout/engine/failures"), said)
    };
    // Refused at once and a tenth of a second later.
    assert_eq!(said(&[Fault::Unavailable, Fault::Unavailable]), (1.0, true));
    assert_eq!(said(&[Fault::Busy]), (0.0, false));
}

#[test]
fn a_server_that_breaks_off_again_and_again_without_a_token_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let server = Double::start();
    let more =
        ["train.steps=1", "rollout.engine.give_up_s=0.15", "rollout.max_num_seqs=1", "rollout.num_workers=1"];
    let (mut run, mut notes) = start(config("vllm", &[&server], folder.path(), &more), &root).unwrap();
    // Asked anew after a tenth of a second each.
    server.go_wrong(&[Fault::AbortsAtOnce; 3]);
    run.train(&mut notes, &AtomicBool::new(false)).unwrap();
    drop(run);
    let finished = read(&root, notes);
    assert!(finished.sum("rollout/engine/failures") >= 1.0);
    assert_eq!(finished.sum("rollout/engine/aborts"), 3.0);
    let said = |note: &String| note.contains("inference server 0 broke a request off before its next token");
    assert!(finished.notes.0.iter().any(said), "{:?}", finished.notes.0);
}

#[test]
fn runs_that_are_alike_take_nothing_from_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = Double::start();
    let settings = || config("vllm", &[&server], folder.path(), &["train.steps=1"]);
    let (one, _) = start(settings(), &folder.path().join("one")).unwrap();
    let (mut other, mut notes) = start(settings(), &folder.path().join("other")).unwrap();
    assert_eq!(server.adapters().len(), 2, "{:?}", server.adapters());
    drop(one);
    assert_eq!(server.adapters().len(), 1);
    other.train(&mut notes, &AtomicBool::new(false)).unwrap();
    drop(other);
    let finished = read(&folder.path().join("other"), notes);
    assert_eq!(finished.sum("rollout/error_rate"), 0.0);
    assert_eq!(finished.sum("rollout/engine/reloads"), 0.0);
}
