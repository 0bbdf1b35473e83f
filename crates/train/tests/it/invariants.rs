//! Updates move log-probs by the sign of advantages, batching does not change results, both layouts
//! agree on one-turn episodes, and eight reference runs keep their curves.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::{Learner as _, TokenSequence, Trajectory};
use turnwise_model::{LearnerConfig, NativeLearner, Weights, load_model};
use turnwise_train::RunDirectory;
use turnwise_train::config::presets;
use turnwise_train::record::checkpoint::latest;
use turnwise_train::record::metrics::MetricsLine;

use crate::common;
use crate::presets::{config, trained};

fn strings(settings: &str) -> Vec<String> {
    settings.split_whitespace().map(str::to_owned).collect()
}

/// Gives a preset a signal from a few random episodes (see `presets.rs`).
fn teachable(preset: &str, judge: &str) -> Vec<String> {
    let more = match preset {
        "stapo" | "stapo-dynamic" => "credit.outliers.locate=all".to_owned(),
        "deepswe" | "aem-deepswe" => "rollout.filter_groups={kind=\"rejection\",oversample=8}".to_owned(),
        "privileged-gap" => "credit.refinements=[{kind=\"privileged-gap\",hint=\"answer\"}]".to_owned(),
        "has-judge" => format!("decomposer.model=scorer decomposer.endpoint=http://{judge}/v1"),
        _ => String::new(),
    };
    strings(&more)
}

fn final_weights(root: &Path) -> Weights {
    let checkpoint = latest(&RunDirectory::open(root).unwrap()).unwrap();
    Weights::from(load_model(&checkpoint.policy()).unwrap())
}

fn moves(trajectories: &[Trajectory], weights: Weights) -> [f64; 2] {
    let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
    let sequences: Vec<&TokenSequence> =
        trajectories.iter().flat_map(|trajectory| &trajectory.sequences).collect();
    let after = learner.logprobs(&sequences).unwrap();
    let turns = trajectories.iter().flat_map(|trajectory| {
        let advantages = trajectory.advantages.as_ref().unwrap();
        trajectory.sequences.iter().map(move |sequence| (trajectory, advantages, sequence))
    });
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for ((trajectory, advantages, sequence), after) in turns.zip(&after) {
        let mut row = after.iter();
        for span in &sequence.spans {
            let side = usize::from(advantages[span.turn] < 0.0);
            for (before, after) in trajectory.turns[span.turn].old_logprobs.iter().zip(row.by_ref()) {
                if advantages[span.turn] != 0.0 {
                    sums[side] += f64::from(after - before);
                    counts[side] += 1.0;
                }
            }
        }
    }
    [0, 1].map(|side| sums[side] / f64::max(counts[side], 1.0))
}

#[test]
fn an_update_raises_what_has_a_positive_advantage_and_lowers_what_has_a_negative_one() {
    let judge = common::judge().to_string();
    let mut wrong = Vec::new();
    for preset in presets() {
        for layout in ["concatenated", "windowed"] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("run");
            let mut more = teachable(preset, &judge);
            more.extend(strings("train.steps=1 train.ppo_epochs=1 rollout.group_size=8"));
            more.push(format!("prompt.layout={layout}"));
            let (_, trajectories) = trained(&config(preset, &more), &root, preset);
            let [raised, lowered] = moves(&trajectories, final_weights(&root));
            println!("{preset}, {layout}: {raised:+.2e} {lowered:+.2e}");
            if !(raised > 0.0 && lowered < 0.0) {
                wrong.push(format!("{preset}, {layout}: {raised:+.2e} {lowered:+.2e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const CURVES: [&str; 8] = ["grpo", "ppo", "dapo", "gigpo", "stapo", "aem-gspo", "so-grpo", "has-turnrd"];

const TAGS: [&str; 4] = ["loss/total", "loss/grad_norm", "credit/advantage/std", "rollout/entropy"];

#[derive(Serialize, Deserialize)]
struct Curves {
    avx512: bool,
    runs: BTreeMap<String, Vec<CurveStep>>,
}

#[derive(Serialize, Deserialize)]
struct CurveStep {
    /// SHA-256 of the step's response tokens, 16 hexadecimal digits.
    tokens: String,
    values: [f64; TAGS.len()],
}

fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn curve(preset: &str, more: &str) -> Vec<CurveStep> {
    let folder = tempfile::tempdir().unwrap();
    let mut overrides = teachable(preset, "");
    overrides.extend(strings("train.steps=6 rollout.group_size=8"));
    overrides.extend(strings(more));
    let root = folder.path().join("run");
    let (lines, trajectories) = trained(&config(preset, &overrides), &root, preset);
    let step = |line: &MetricsLine| {
        let mut hash = Sha256::new();
        for turn in trajectories.iter().filter(|one| one.step == line.step).flat_map(|one| &one.turns) {
            turn.response_ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
            hash.update([0xff; 4]);
        }
        let hash = hash.finalize();
        let head = hash[..8].iter().fold(0u64, |head, byte| head << 8 | u64::from(*byte));
        CurveStep { tokens: format!("{head:016x}"), values: TAGS.map(|tag| line.metrics.get(tag).unwrap()) }
    };
    lines.iter().map(step).collect()
}

/// With another order of sums, only the first step is compared, to 1%, because Adam amplifies
/// rounding.
fn difference(expected: &[CurveStep], found: &[CurveStep], same_order: bool) -> Option<String> {
    assert_eq!(expected.len(), found.len());
    let (steps, tolerance) = if same_order { (expected.len(), 1e-4) } else { (1, 1e-2) };
    for (index, (expected, found)) in expected.iter().zip(found).take(steps).enumerate() {
        if expected.tokens != found.tokens {
            return Some(format!("step {}: other tokens", index + 1));
        }
        for ((tag, expected), found) in TAGS.iter().zip(expected.values).zip(found.values) {
            if (expected - found).abs() > tolerance * (expected.abs() + 1e-2) {
                return Some(format!("step {}, {tag}: {found} instead of {expected}", index + 1));
            }
        }
    }
    None
}

/// Run with `TURNWISE_WRITE_GOLDEN=1` after a change that is meant to move numbers.
#[test]
fn reference_runs_keep_their_curves() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/curves.json"));
    let runs: BTreeMap<String, Vec<CurveStep>> =
        CURVES.iter().map(|preset| ((*preset).to_owned(), curve(preset, ""))).collect();
    if std::env::var_os("TURNWISE_WRITE_GOLDEN").is_some() {
        let text = serde_json::to_string_pretty(&Curves { avx512: has_avx512(), runs }).unwrap();
        std::fs::write(path, text + "\n").unwrap();
        return;
    }
    let recorded: Curves = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(recorded.runs.keys().eq(runs.keys()));
    let same_order = recorded.avx512 == has_avx512();
    for (preset, expected) in &recorded.runs {
        let first = difference(expected, &runs[preset], same_order);
        assert!(first.is_none(), "{preset}: {}", first.unwrap());
    }
    let faster = curve("grpo", "train.learning_rate=1.01e-3");
    assert!(difference(&recorded.runs["grpo"], &faster, true).is_some());
}

#[test]
fn a_run_does_not_depend_on_how_its_batches_are_computed() {
    let weights = |name: &str, more: &str| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let mut overrides = strings("rollout.group_size=8 train.num_minibatches=2 train.learning_rate=1e-4");
        overrides.extend(strings(more));
        let (lines, trajectories) = trained(&config("gigpo", &overrides), &root, name);
        let responses: Vec<Vec<u32>> = trajectories
            .into_iter()
            .flat_map(|trajectory| trajectory.turns)
            .map(|turn| turn.response_ids)
            .collect();
        let norms: Vec<f64> = lines.iter().map(|line| line.metrics.get("loss/grad_norm").unwrap()).collect();
        (responses, norms, final_weights(&root).base.data.clone())
    };
    let expected = weights("all at once", "");
    for (name, more) in [
        ("small micro-batches", "train.micro_batch_tokens=300"),
        ("one sequence at a time", "train.micro_batch_tokens=1"),
        ("one lane", "train.num_workers=1"),
        ("three lanes", "train.num_workers=3"),
        ("few slots", "rollout.max_num_seqs=3"),
    ] {
        let found = weights(name, more);
        assert_eq!(found.0, expected.0, "{name}: other responses");
        for (found, expected) in found.1.iter().zip(&expected.1) {
            assert!((found - expected).abs() <= 1e-5 * expected, "{name}: {found} {expected}");
        }
        println!("{name}: equal weights: {}", found.2 == expected.2);
    }
    let other = weights("another seed", "seed=1");
    assert_ne!(other.0, expected.0);
}

#[test]
fn layouts_agree_on_episodes_of_one_turn() {
    let run = |preset: &str, layout: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut overrides = strings("env.max_turns=1 rollout.group_size=8");
        overrides.push(format!("prompt.layout={layout}"));
        let (lines, trajectories) = trained(&config(preset, &overrides), &folder.path().join("run"), preset);
        let values: Vec<[f64; TAGS.len()]> =
            lines.iter().map(|line| TAGS.map(|tag| line.metrics.get(tag).unwrap())).collect();
        let sequences: Vec<Vec<TokenSequence>> =
            trajectories.into_iter().map(|trajectory| trajectory.sequences).collect();
        (sequences, values)
    };
    for preset in ["grpo", "ppo", "gigpo", "hgpo", "aem-grpo", "salt-grpo"] {
        let (concatenated, windowed) = (run(preset, "concatenated"), run(preset, "windowed"));
        assert!(concatenated.0.iter().all(|sequences| sequences.len() == 1));
        assert_eq!(concatenated.0, windowed.0, "{preset}");
        assert_eq!(concatenated.1, windowed.1, "{preset}");
    }
}
