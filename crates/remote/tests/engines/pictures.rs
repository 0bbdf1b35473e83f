//! Tests of rollouts from pictures, on a double and on a real vLLM.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{Part, TokenBatch, TokenSequence, Trajectory};
use turnwise_model::vision::{Image, VisionConfig};
use turnwise_model::{LearnerConfig, NativeLearner};
use turnwise_policy::Policy;
use turnwise_train::Registries;
use turnwise_train::config::Config;

use crate::double::{Double, Fault, Switches};
use crate::runs::{Finished, config_over, finish, read, start};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/vision/sokoban.toml");

/// A tiny run of STAPO on pictures of 6 x 6 tokens.
const TINY: &[&str] = &[
    "env.generator.train=20",
    "env.generator.valid=4",
    "env.generator.test=4",
    "env.max_turns=3",
    "policy.scratch={hidden_size=32, layers=1, heads=2, key_value_heads=1, intermediate_size=32, initializer_range=0.3}",
    "policy.scratch.vision={hidden_size=16, layers=1, heads=2, intermediate_size=32, patch_size=8, merge_size=2, \
     max_pixels=9216}",
    "sft.steps=0",
    "sft.demonstrations=12",
    "rollout.tasks_per_step=3",
    "rollout.group_size=2",
    "rollout.temperature=0.8",
    "rollout.max_model_len=128",
    "train.steps=2",
    "train.learning_rate=1e-2",
    "train.warmup=0",
    "train.num_minibatches=1",
    "train.checkpoint_every=1",
    "train.keep_last=0",
    "train.skip_zero_advantage=false",
    "objective.entropy_coef=0.01",
    "credit.outliers.locate=all",
    "eval.every=0",
    "eval.tasks=2",
];

const LORA: &str = "policy.lora={rank=2, alpha=8.0}";
const FULL: &str = "rollout.engine.weights=full";

fn config(server: &Double, folder: &Path, more: &[&str]) -> Config {
    let pictures = format!("env.pictures={}", folder.join("pictures").display());
    let more = [&[pictures.as_str()], more].concat();
    config_over((FILE, Some("stapo")), TINY, "vllm", &[&server.url()], folder, &more)
}

/// Returns the sequences of a trajectory from a file, with the pictures of this learner instead of its image tokens.
fn shown(trajectory: &Trajectory, vision: &VisionConfig, pictures: &Path) -> Vec<TokenSequence> {
    let sequences = trajectory.sequences.iter().cloned();
    let shown = sequences.map(|mut sequence| {
        let span = sequence.spans[0];
        let handle = trajectory.turns[span.turn].parts.iter().find_map(Part::image).unwrap();
        let image = Image::read(&pictures.join(format!("{}.png", handle.sha256))).unwrap();
        let mut ids = vision.pictures.add(&image, vision).unwrap().ids();
        for token in &mut sequence.tokens[..span.start] {
            if *token == vision.tokens.image {
                *token = ids.next().unwrap();
            }
        }
        assert!(ids.next().is_none(), "the file has as many image tokens as the picture");
        sequence
    });
    shown.collect()
}

/// Largest distance between the log-probs that a server gave in a step and those of a checkpoint, from the pictures of a
/// folder.
fn distance(finished: &Finished, root: &Path, [step, checkpoint]: [u64; 2], pictures: &Path) -> f32 {
    let policy = Policy::load(&root.join(format!("checkpoints/step-{checkpoint:06}"))).unwrap();
    let mut learner = NativeLearner::new(policy.weights, LearnerConfig::default()).unwrap();
    let vision = learner.model().vision.clone().unwrap();
    let mut worst = 0.0f32;
    for trajectory in finished.trajectories.iter().filter(|trajectory| trajectory.step == step) {
        let sequences = shown(trajectory, &vision, pictures);
        let scores = learner.score(&TokenBatch::of(&sequences).sequences, 0.8).unwrap();
        for (sequence, scores) in sequences.iter().zip(scores) {
            let sampled = sequence.spans.iter().flat_map(|span| &trajectory.turns[span.turn].old_logprobs);
            assert_eq!(sampled.clone().count(), scores.logprobs.len());
            let apart = sampled.zip(&scores.logprobs).map(|(one, other)| (one - other).abs());
            worst = apart.fold(worst, f32::max);
        }
    }
    worst
}

/// Copies a folder of pictures, with the content of each under the name of another.
fn swapped(pictures: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(pictures).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for (index, file) in files.iter().enumerate() {
        let other = &files[(index + 1) % files.len()];
        std::fs::copy(other, to.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_server_samples_from_the_pictures_that_the_learner_trains_on() {
    for given in [LORA, FULL] {
        let folder = tempfile::tempdir().unwrap();
        let (root, pictures) = (folder.path().join("run"), folder.path().join("pictures"));
        let server = Double::start();
        let settings = config(&server, folder.path(), &[given]);
        assert!(Registries::builtin().loss(&settings).unwrap().passes().masked_context.is_some());
        let (mut run, mut notes) = start(settings, &root).unwrap();
        // The rest of an answer is asked for with the same pictures.
        server.go_wrong(&[Fault::Aborts, Fault::Aborts]);
        run.train(&mut notes, &AtomicBool::new(false)).unwrap();
        drop(run);
        let finished = read(&root, notes);
        assert_eq!((finished.sum("rollout/engine/aborts"), finished.sum("rollout/error_rate")), (2.0, 0.0));
        let distance = |steps, pictures: &Path| distance(&finished, &root, steps, pictures);
        for step in 0..2 {
            let apart = distance([step, step], &pictures);
            assert!(apart < 1e-4, "{given}, step {step}: {apart}");
        }
        assert!(finished.metrics.iter().all(|line| line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6));
        // Can fail: other weights and other pictures give other numbers.
        let others = folder.path().join("others");
        swapped(&pictures, &others);
        assert!(distance([1, 0], &pictures) > 1e-3);
        assert!(distance([1, 1], &others) > 1e-3);

        // One token and one file a picture. The features of a frozen tower are those of all versions.
        let mut uuids: Vec<(String, String)> = Vec::new();
        for served in server.served() {
            let parts = served.request["content_parts"].as_array().unwrap();
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            uuids.push((text(&served.request["cache_salt"]), text(&parts[0]["uuid"])));
            assert_eq!(parts.len(), 1);
            let tokens = served.request["token_ids"].as_array().unwrap();
            assert!(tokens.iter().all(|token| token.as_u64().unwrap() < 1 << 31));
        }
        assert!(uuids.iter().all(|(version, uuid)| uuid.starts_with(version) == (given == FULL)));
    }
}

#[test]
fn a_server_that_does_not_read_the_pictures_is_refused_at_the_start() {
    let refused = |switch: fn(&Switches) -> &AtomicBool| {
        let folder = tempfile::tempdir().unwrap();
        let server = Double::start();
        switch(server.switches()).store(true, Ordering::Relaxed);
        let begun = start(config(&server, folder.path(), &[LORA]), &folder.path().join("run"));
        begun.err().unwrap().to_string()
    };
    let error = refused(|switches| &switches.knows_no_pictures);
    assert!(error.contains("take vLLM 0.32 or newer"), "{error}");
    let error = refused(|switches| &switches.other_sizes);
    assert!(error.contains("preprocessor_config.json") && error.contains("and the learner as 12"), "{error}");
    let error = refused(|switches| &switches.blind);
    assert!(error.contains("computes another model than the learner"), "{error}");
}

/// Runs if `TURNWISE_VLLM_URL` is the address of a vLLM that serves the model in `TURNWISE_VLLM_MODEL`, which reads pictures.
#[test]
fn a_real_vllm_samples_from_the_pictures_that_the_learner_trains_on() {
    let set = |name: &str| std::env::var(name).ok();
    let (Some(url), Some(model)) = (set("TURNWISE_VLLM_URL"), set("TURNWISE_VLLM_MODEL")) else {
        eprintln!(
            "skipped: set TURNWISE_VLLM_URL to a vLLM, and TURNWISE_VLLM_MODEL to its Qwen2.5-VL folder"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (root, pictures) = (folder.path().join("run"), folder.path().join("pictures"));
    let more = [
        format!("env.pictures={pictures:?}"),
        format!("policy.model={model:?}"),
        LORA.to_owned(),
        "rollout.max_model_len=512".to_owned(),
        "rollout.max_response_tokens=16".to_owned(),
        "rollout.engine.timeout_s=300".to_owned(),
    ];
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let tiny: Vec<&str> = TINY.iter().copied().filter(|text| !text.starts_with("policy.scratch")).collect();
    let finished =
        finish(config_over((FILE, Some("stapo")), &tiny, "vllm", &[&url], folder.path(), &more), &root);
    for note in &finished.notes.0 {
        eprintln!("{note}");
    }
    let others = folder.path().join("others");
    swapped(&pictures, &others);
    let found: Vec<f32> = [([0, 0], &pictures), ([1, 1], &pictures), ([1, 0], &pictures), ([1, 1], &others)]
        .into_iter()
        .map(|(steps, pictures)| distance(&finished, &root, steps, pictures))
        .collect();
    let tokens: usize = finished.turns().map(|turn| turn.response_ids.len()).sum();
    eprintln!(
        "{tokens} tokens: largest differences {:.1e} and {:.1e}; {:.1e} from the weights before, {:.1e} from other pictures",
        found[0], found[1], found[2], found[3]
    );
    assert!(found[0] < 1e-3 && found[1] < 1e-3, "{found:?}");
    assert!(found[2] > 1e-2 && found[3] > 1e-2, "{found:?}");
}
