//! Tests of whole runs on doubles of vLLM and SGLang.

use std::io::BufRead as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_agent::with_agents;
use turnwise_core::{TokenBatch, Trajectory};
use turnwise_env::registry::Registry;
use turnwise_model::{LearnerConfig, NativeLearner};
use turnwise_policy::Policy;
use turnwise_remote::engines::EngineSource;
use turnwise_train::config::{Config, ConfigSource, load};
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{EvaluationPoint, Event, Observer, Run, RunBuilder, RunEnd, TrainError};

use crate::double::{Double, Fault};

pub(crate) const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/ezpoints/small.toml");

/// The dialects: the program, and for vLLM the other route.
pub(crate) const KINDS: [&str; 3] = ["vllm", "completions", "sglang"];

pub(crate) const TINY: &[&str] = &[
    "policy.scratch={hidden_size=16, layers=1, heads=2, key_value_heads=1, intermediate_size=32, max_pieces=100, \
     initializer_range=0.3}",
    "policy.lora={rank=2, alpha=8.0}",
    "sft.steps=0",
    "sft.demonstrations=50",
    "env.max_turns=3",
    "rollout.tasks_per_step=3",
    "rollout.group_size=2",
    "rollout.temperature=0.8",
    "train.steps=2",
    "train.learning_rate=1e-2",
    "train.warmup=0",
    "train.num_minibatches=1",
    "train.skip_zero_advantage=false",
    "objective.entropy_coef=0.01",
    "eval.every=0",
];

/// A tiny run that trains an adapter on these servers, with more on top.
pub(crate) fn config(kind: &str, servers: &[&Double], folder: &Path, more: &[&str]) -> Config {
    config_over((FILE, None), TINY, kind, &urls(servers), folder, more)
}

/// The same with all weights trained and handed over.
pub(crate) fn full(kind: &str, servers: &[&Double], folder: &Path, more: &[&str]) -> Config {
    let mut tiny: Vec<&str> = TINY.iter().copied().filter(|text| !text.starts_with("policy.lora")).collect();
    tiny.push("rollout.engine.weights=full");
    config_over((FILE, None), &tiny, kind, &urls(servers), folder, more)
}

fn urls(servers: &[&Double]) -> Vec<String> {
    servers.iter().map(|server| server.url()).collect()
}

/// A run of a file under a preset that samples on servers of these addresses, with more on top.
pub(crate) fn config_over(
    (file, preset): (&str, Option<&str>),
    tiny: &[&str],
    kind: &str,
    urls: &[impl AsRef<str>],
    folder: &Path,
    more: &[&str],
) -> Config {
    let (kind, route) = if kind == "completions" { ("vllm", "completions") } else { (kind, "generate") };
    let urls: Vec<String> = urls.iter().map(|url| format!("{:?}", url.as_ref())).collect();
    let engine = [
        format!("rollout.engine.kind={kind}"),
        format!("rollout.engine.route={route}"),
        format!("rollout.engine.urls=[{}]", urls.join(", ")),
        format!("rollout.engine.adapter_dir=\"{}\"", folder.join("adapters").display()),
        "rollout.engine.timeout_s=2".into(),
        "rollout.engine.give_up_s=60".into(),
    ];
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let overrides = [own(tiny), engine.into(), own(more)].concat();
    load(&ConfigSource {
        preset: preset.map(str::to_owned),
        files: vec![file.into()],
        overrides,
        ..ConfigSource::default()
    })
    .unwrap()
}

pub(crate) fn run_of(config: Config) -> RunBuilder {
    let environments = with_agents(Registry::builtin());
    Run::builder(config).environments(environments).policies(Arc::new(EngineSource::default()))
}

/// Keeps the notes of a run and evaluates nothing.
#[derive(Default)]
pub(crate) struct Notes(pub(crate) Vec<String>);

impl Observer for Notes {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Note(text) = event {
            self.0.push(text);
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

/// All that a finished run left.
pub(crate) struct Finished {
    pub(crate) trajectories: Vec<Trajectory>,
    pub(crate) metrics: Vec<MetricsLine>,
    pub(crate) notes: Notes,
}

impl Finished {
    /// Sum of a number over steps.
    pub(crate) fn sum(&self, tag: &str) -> f64 {
        self.metrics.iter().map(|line| line.metrics.get(tag).unwrap()).sum()
    }

    pub(crate) fn turns(&self) -> impl Iterator<Item = &turnwise_core::Turn> {
        self.trajectories.iter().flat_map(|trajectory| &trajectory.turns)
    }

    /// The tokens and their log-probabilities of every turn, in order.
    pub(crate) fn sampled(&self) -> Vec<(&[u32], &[f32])> {
        self.turns().map(|turn| (&*turn.response_ids, &*turn.old_logprobs)).collect()
    }
}

pub(crate) fn start(config: Config, root: &Path) -> Result<(Run, Notes), TrainError> {
    let mut notes = Notes::default();
    let run = run_of(config).directory(root).start(&mut notes)?;
    Ok((run, notes))
}

pub(crate) fn read(root: &Path, notes: Notes) -> Finished {
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("trajectories")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let lines = files.iter().flat_map(|file| {
        let lines = turnwise_files::open(file).unwrap().lines();
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect::<Vec<Trajectory>>()
    });
    Finished {
        trajectories: lines.collect(),
        metrics: read_metrics(&root.join("metrics.jsonl")).unwrap(),
        notes,
    }
}

pub(crate) fn finish(config: Config, root: &Path) -> Finished {
    let (steps, size) = (config.train.steps, config.rollout.tasks_per_step * config.rollout.group_size);
    let (mut run, mut notes) = start(config, root).unwrap();
    assert_eq!(run.train(&mut notes, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    drop(run);
    let finished = read(root, notes);
    // Nothing is lost, and nothing counted twice.
    assert_eq!(finished.trajectories.len(), steps as usize * size);
    assert_eq!(finished.sum("rollout/error_rate"), 0.0);
    finished
}

/// Largest distance between the log-probabilities of the last step's trajectories and the scoring of the policy that
/// sampled them: that of the checkpoint before.
pub(crate) fn largest_distance(finished: &Finished, root: &Path, step: u64, temperature: f64) -> f32 {
    distance_to(finished, root, [step, step], temperature)
}

/// The same of a step and of any checkpoint.
pub(crate) fn distance_to(
    finished: &Finished,
    root: &Path,
    [step, checkpoint]: [u64; 2],
    temperature: f64,
) -> f32 {
    let checkpoint = root.join(format!("checkpoints/step-{checkpoint:06}"));
    let policy = Policy::load(&checkpoint).unwrap();
    let mut learner = NativeLearner::new(policy.weights, LearnerConfig::default()).unwrap();
    let of_step = finished.trajectories.iter().filter(|trajectory| trajectory.step == step);
    let mut worst = 0.0f32;
    for trajectory in of_step {
        let TokenBatch { sequences, .. } = TokenBatch::of(&trajectory.sequences);
        let scores = learner.score(&sequences, temperature).unwrap();
        for (sequence, scores) in sequences.iter().zip(scores) {
            let sampled = sequence.spans.iter().flat_map(|span| &trajectory.turns[span.turn].old_logprobs);
            assert_eq!(sampled.clone().count(), scores.logprobs.len());
            worst = sampled
                .zip(&scores.logprobs)
                .fold(worst, |worst, (one, other)| worst.max((one - other).abs()));
        }
    }
    worst
}

#[test]
fn every_token_is_that_of_the_version_that_the_learner_had() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let more = ["train.steps=3", "train.checkpoint_every=1", "train.keep_last=0"];
        let finished = finish(config(kind, &[&server], folder.path(), &more), &root);
        for step in 0..3 {
            let distance = largest_distance(&finished, &root, step, 0.8);
            assert!(distance < 1e-4, "{kind}, step {step}: {distance}");
        }
        // Can fail: under the version of the step before, they are others, and so are they at another temperature.
        let stale = Finished {
            trajectories: finished
                .trajectories
                .iter()
                .cloned()
                .map(|trajectory| Trajectory { step: 0, ..trajectory })
                .collect(),
            metrics: Vec::new(),
            notes: Notes::default(),
        };
        assert!(largest_distance(&stale, &root, 0, 0.8) > 1e-3);
        assert!(largest_distance(&finished, &root, 2, 1.0) > 1e-3);
        assert!(finished.metrics.iter().all(|line| line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6));
        for trajectory in &finished.trajectories {
            assert!(trajectory.turns.iter().all(|turn| turn.weights_version == trajectory.step));
        }
        // Every version has a name of its own, is loaded once, and is gone in the end, here and there.
        let loads = server.loads();
        let versions: Vec<&str> = loads.iter().map(|name| &name[name.len() - 16..name.len() - 9]).collect();
        // The last one is that of the evaluation at the end.
        assert_eq!(versions, ["v000000", "v000001", "v000002", "v000003"], "{loads:?}");
        assert_eq!(server.adapters(), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(folder.path().join("adapters")).unwrap().count(), 0);
        // Every answer that was sent was used, besides those of the start check.
        let served = server.served();
        assert_eq!(served.len() - 2, finished.turns().count());
        assert!(finished.turns().all(|turn| served.iter().any(|answer| answer.tokens == turn.response_ids)));
        assert!(finished.notes.0.iter().any(|note| note.contains("differ from the learner's by")));
    }
}

#[test]
fn faults_of_servers_change_nothing_that_is_sampled() {
    for kind in KINDS {
        let undisturbed = {
            let folder = tempfile::tempdir().unwrap();
            let server = Double::start();
            finish(config(kind, &[&server], folder.path(), &[]), &folder.path().join("run"))
        };
        assert_eq!(undisturbed.sum("rollout/engine/retries"), 0.0);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let (mut run, mut notes) = start(config(kind, &[&server], folder.path(), &[]), &root).unwrap();
        server.go_wrong(&[
            Fault::Dies,
            Fault::Busy,
            Fault::Truncated,
            Fault::Unavailable,
            Fault::Evicted,
            Fault::Stalls,
            Fault::Fails,
            Fault::NotANumber,
        ]);
        run.train(&mut notes, &AtomicBool::new(false)).unwrap();
        drop(run);
        let finished = read(&root, notes);
        assert_eq!(finished.sampled(), undisturbed.sampled(), "{kind}");
        assert_eq!(finished.sum("rollout/engine/busy"), 2.0);
        assert!(finished.sum("rollout/engine/reloads") >= 1.0);
        assert_eq!(finished.sum("rollout/engine/retries"), 7.0, "{kind}: {:?}", finished.notes.0);
        assert_eq!(finished.sum("rollout/engine/failures"), 0.0);
        assert_eq!(server.served().len() - 2, finished.turns().count());
        for words in ["broke off", "did not answer within 2 s", "status 500", "log-probability of -9999"] {
            assert!(
                finished.notes.0.iter().any(|note| note.contains(words)),
                "{words}: {:?}",
                finished.notes.0
            );
        }
        // Not even the log has an address.
        let log = std::fs::read_to_string(root.join("log.jsonl")).unwrap();
        assert!(!log.contains(&server.server.address.to_string()));
    }
}

#[test]
fn sessions_stay_with_a_server_and_leave_one_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let (one, other) = (Double::start(), Double::start());
    let (mut run, mut notes) =
        start(config("vllm", &[&one, &other], folder.path(), &["train.steps=3"]), &root).unwrap();
    // The first is gone once the run has begun to use it.
    std::thread::scope(|scope| {
        let other = &other;
        scope.spawn(move || {
            while one.served().len() < 6 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let sessions = |server: &Double| -> std::collections::BTreeSet<String> {
                server.served().into_iter().skip(2).map(|served| served.session).collect()
            };
            assert!(sessions(&one).is_disjoint(&sessions(other)));
            drop(one);
        });
        assert_eq!(run.train(&mut notes, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    });
    drop(run);
    let finished = read(&root, notes);
    assert_eq!(finished.trajectories.len(), 18);
    assert_eq!(finished.sum("rollout/error_rate"), 0.0);
    assert!(finished.notes.0.iter().any(|note| note.contains("server 0")), "{:?}", finished.notes.0);
    assert!(finished.metrics.iter().all(|line| line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6));
}

#[test]
fn what_a_server_hands_over_when_it_gives_up_is_kept() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let more = ["train.steps=1", "rollout.max_response_tokens=8"];
        let (mut run, mut notes) = start(config(kind, &[&server], folder.path(), &more), &root).unwrap();
        server.go_wrong(&[Fault::Aborts; 5]);
        run.train(&mut notes, &AtomicBool::new(false)).unwrap();
        drop(run);
        let finished = read(&root, notes);
        assert_eq!((finished.trajectories.len(), finished.sum("rollout/engine/aborts")), (6, 5.0));
        assert!(largest_distance(&finished, &root, 0, 0.8) < 1e-4);
        // The parts add up to what was used.
        let parts: usize = server.served()[2..].iter().map(|served| served.tokens.len()).sum();
        assert_eq!(parts, finished.turns().map(|turn| turn.response_ids.len()).sum::<usize>());
        let asked = |served: &crate::double::Served| {
            let path = match kind {
                "vllm" => "/sampling_params/max_tokens",
                "completions" => "/max_tokens",
                _ => "/sampling_params/max_new_tokens",
            };
            served.request.pointer(path).unwrap().as_u64().unwrap()
        };
        assert!(server.served().iter().any(|served| asked(served) == 7), "the rest alone is asked for");
    }
}

#[test]
fn a_request_that_nobody_answers_ends_its_own_trajectory() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let server = Double::start();
    let more = [
        "train.steps=1",
        "rollout.engine.timeout_s=0.3",
        "rollout.engine.give_up_s=0.2",
        "rollout.max_num_seqs=1",
        "rollout.num_workers=1",
    ];
    let (mut run, mut notes) = start(config("vllm", &[&server], folder.path(), &more), &root).unwrap();
    server.go_wrong(&[Fault::Stalls]);
    run.train(&mut notes, &AtomicBool::new(false)).unwrap();
    drop(run);
    let finished = read(&root, notes);
    // One of six, and the other of its group with it, which has nobody left to be compared with.
    assert_eq!((finished.sum("rollout/masked"), finished.sum("rollout/engine/failures")), (2.0, 1.0));
    assert_eq!(finished.trajectories.len(), 6);
    let note = finished.notes.0.iter().find(|note| note.contains("through no fault")).unwrap();
    assert!(note.contains("no server has answered it for 0.2 s"), "{note}");
}

#[test]
fn servers_are_given_no_more_than_they_may_have() {
    let folder = tempfile::tempdir().unwrap();
    let server = Double::start();
    let more = ["rollout.engine.max_requests_per_server=2", "rollout.tasks_per_step=8", "train.steps=1"];
    finish(config("vllm", &[&server], folder.path(), &more), &folder.path().join("run"));
    assert!(server.most_at_once() <= 2, "{}", server.most_at_once());
}

#[test]
fn seeds_that_a_server_ignores_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let server = Double::start();
    server.switches().ignores_seeds.store(true, Ordering::Relaxed);
    let finished = finish(config("vllm", &[&server], folder.path(), &[]), &folder.path().join("run"));
    assert!(finished.notes.0.iter().any(|note| note.contains("cannot be repeated to the token")));
    assert!(finished.sum("rollout/mismatch_kl") < 1e-6);
}

#[test]
fn entropies_come_from_a_scoring_pass_where_credit_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let server = Double::start();
    let more = ["credit.refinements=[{kind=\"aem\"}]", "train.steps=1"];
    let finished = finish(config("vllm", &[&server], folder.path(), &more), &root);
    let policy = Policy::load(&root.join("checkpoints/step-000000")).unwrap();
    let mut learner = NativeLearner::new(policy.weights, LearnerConfig::default()).unwrap();
    for trajectory in &finished.trajectories {
        let scores = learner.score(&TokenBatch::of(&trajectory.sequences).sequences, 0.8).unwrap();
        let entropies: Vec<f32> = scores.into_iter().flat_map(|scores| scores.entropies).collect();
        let filled: Vec<f32> = trajectory.turns.iter().flat_map(|turn| turn.entropies.clone()).collect();
        assert_eq!(filled.len(), entropies.len());
        assert!(filled.iter().zip(&entropies).all(|(one, other)| (one - other).abs() < 1e-5));
        assert!(filled.iter().all(|entropy| *entropy > 0.0));
    }
    // Estimated by the tokens that were sampled: no pass, and other numbers.
    let estimated = tempfile::tempdir().unwrap();
    let more = [more[0], more[1], "rollout.engine.entropies=sampled"];
    let found = finish(config("vllm", &[&server], estimated.path(), &more), &estimated.path().join("run"));
    for (turn, exact) in found.turns().zip(finished.turns()) {
        let negative: Vec<f32> = turn.old_logprobs.iter().map(|logprob| -logprob).collect();
        assert_eq!((&turn.entropies, &turn.response_ids), (&negative, &exact.response_ids));
        assert_ne!(turn.entropies, exact.entropies);
    }
    // Where nobody reads them there is no pass.
    let plain = tempfile::tempdir().unwrap();
    let finished =
        finish(config("vllm", &[&server], plain.path(), &["train.steps=1"]), &plain.path().join("run"));
    assert!(finished.turns().all(|turn| turn.entropies.is_empty()));
    assert_eq!(finished.metrics[0].metrics.get("rollout/entropy"), None);
}

/// Trains a run of one step, opens it anew and trains a second one.
pub(crate) fn finish_in_two(config: Config, root: &Path) -> Finished {
    let (mut run, mut notes) = start(config, root).unwrap();
    run.train(&mut notes, &AtomicBool::new(false)).unwrap();
    drop(run);
    let mut longer = load(&ConfigSource::of_run(root)).unwrap();
    longer.train.steps = 2;
    let mut run = run_of(longer).directory(root).resume(&mut notes).unwrap();
    assert_eq!(run.train(&mut notes, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    drop(run);
    read(root, notes)
}

#[test]
fn a_run_that_was_interrupted_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let server = Double::start();
    let whole = {
        let folder = tempfile::tempdir().unwrap();
        finish(config("vllm", &[&server], folder.path(), &[]), &folder.path().join("run"))
    };
    let resumed = finish_in_two(config("vllm", &[&server], folder.path(), &["train.steps=1"]), &root);
    assert_eq!(resumed.sampled(), whole.sampled());
}
