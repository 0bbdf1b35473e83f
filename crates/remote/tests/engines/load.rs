//! Tests that servers with a queue get fewer requests, and that sampled tokens do not depend on it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::double::Double;
use crate::runs::{Finished, config, finish};

/// Sessions that a server had, besides those of the start check.
fn sessions(server: &Double) -> usize {
    server.served().into_iter().skip(2).map(|served| served.session).collect::<BTreeSet<_>>().len()
}

/// A run on two servers, of which the second says that so many requests wait, its load read every so many seconds.
fn on_two(kind: &str, waiting: usize, every: &str) -> (Finished, [usize; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Double::start(), Double::start());
    other.switches().waiting.store(waiting, Ordering::Relaxed);
    let more = [format!("rollout.engine.load_every_s={every}"), "rollout.tasks_per_step=6".into()];
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let finished = finish(config(kind, &[&one, &other], folder.path(), &more), &folder.path().join("run"));
    assert_eq!(one.readings() > 0, every != "0");
    (finished, [sessions(&one), sessions(&other)])
}

#[test]
fn new_trajectories_begin_where_less_is_waiting() {
    for kind in ["vllm", "sglang"] {
        let (unread, equal) = on_two(kind, 50, "0");
        assert_eq!(equal, [12, 12], "{kind}: nobody reads that a queue is long");
        let (read, [one, other]) = on_two(kind, 50, "0.05");
        assert_eq!([one, other], [24, 0], "{kind}");
        assert_eq!(read.sampled(), unread.sampled(), "{kind}");
        assert!(unread.metrics.iter().all(|line| line.metrics.get("rollout/engine/waiting").is_none()));
        assert!(read.metrics.iter().all(|line| line.metrics.get("rollout/engine/waiting") == Some(50.0)));
    }
    // Of a short queue it has its share, besides what would wait longer there.
    let (_, [one, other]) = on_two("vllm", 3, "0.05");
    assert!(other > 0 && one > other, "{one} and {other}");
}

#[test]
fn a_server_with_a_queue_is_given_less_at_once() {
    let run = |every: &str| {
        let folder = tempfile::tempdir().unwrap();
        let server = Double::start();
        server.switches().waiting.store(5, Ordering::Relaxed);
        server.switches().slow_ms.store(30, Ordering::Relaxed);
        let every = format!("rollout.engine.load_every_s={every}");
        let more = ["rollout.tasks_per_step=8", "train.steps=3", &every];
        let finished =
            finish(config("vllm", &[&server], folder.path(), &more[..]), &folder.path().join("run"));
        // Once there were readings, with answers between them that nothing took the place of.
        let served = server.served();
        let late = served[2 * served.len() / 3..].iter().map(|served| served.at_once).max().unwrap();
        (finished, late)
    };
    let (unread, at_once) = run("0");
    assert!(at_once > 4, "{at_once}");
    let (read, at_once) = run("0.01");
    assert!(at_once <= 2, "{at_once}");
    assert_eq!(read.sampled(), unread.sampled());
}

#[test]
fn a_server_without_a_report_goes_on_as_before_and_is_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Double::start();
    server.switches().no_metrics.store(true, Ordering::Relaxed);
    let more = ["rollout.engine.load_every_s=0.01"];
    let finished = finish(config("vllm", &[&server], folder.path(), &more), &folder.path().join("run"));
    let noted: Vec<&String> =
        finished.notes.0.iter().filter(|note| note.contains("reports no load (/metrics)")).collect();
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert!(finished.metrics.iter().all(|line| line.metrics.get("rollout/engine/waiting").is_none()));
}
