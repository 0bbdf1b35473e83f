//! Tests of rollouts on servers that continue during updates.

use crate::double::Double;
use crate::runs::{KINDS, config, distance_to, finish};

#[test]
fn servers_sample_the_version_before_while_the_next_one_is_made() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (Double::start(), Double::start());
        let more =
            ["rollout.max_staleness=1", "train.steps=4", "train.checkpoint_every=0", "train.keep_last=0"];
        let settings = config(kind, &[&first, &second], folder.path(), &more);
        let root = folder.path().join("run");
        let finished = finish(settings, &root);
        for trajectory in &finished.trajectories {
            // One update a step; the second rollout begins with the first.
            let version = trajectory.step.saturating_sub(1);
            assert!(trajectory.turns.iter().all(|turn| turn.weights_version == version), "{kind}");
        }
        let staleness = finished.metrics.iter().map(|line| line.metrics.get("rollout/staleness").unwrap());
        assert_eq!(staleness.collect::<Vec<_>>(), [0.0, 1.0, 1.0, 1.0], "{kind}");
        // The servers hold the version of a rollout under way beside the newest one, and nothing once the run is over.
        for server in [&first, &second] {
            assert_eq!(server.loads().len(), 4, "{kind}: {:?}", server.loads());
            assert_eq!(server.adapters(), Vec::<String>::new(), "{kind}");
        }
    }
}

/// Of a step, its tokens' log-probabilities are those of the weights of the step before, and of no others.
#[test]
fn log_probabilities_are_those_of_the_weights_that_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let server = Double::start();
    // A checkpoint would begin a new queue: those of the first step alone are kept.
    let more = ["rollout.max_staleness=1", "train.steps=2", "train.checkpoint_every=0", "train.keep_last=0"];
    let root = folder.path().join("run");
    let finished = finish(config("vllm", &[&server], folder.path(), &more), &root);
    assert!(distance_to(&finished, &root, [1, 0], 0.8) < 1e-4);
    // The newest weights did not sample them.
    assert!(distance_to(&finished, &root, [1, 2], 0.8) > 1e-3);
}
