//! Valid combinations of base, refinements, ratio, selective term and normalization run; others are
//! rejected with the reason.
#![allow(clippy::unwrap_used)]

use crate::common;

const ESTIMATORS: [&str; 5] = ["grpo", "rloo", "gigpo", "hgpo", "ppo"];
const REFINEMENTS: [&str; 6] = [
    "[]",
    "[{kind=\"salt\"}, {kind=\"aem\"}]",
    "[{kind=\"has\"}, {kind=\"empg\"}]",
    "[{kind=\"aem\", mode=\"reverse\"}]",
    "[{kind=\"salt\", matching=\"embedding\"}]",
    "[{kind=\"has\", alpha=0.0}, {kind=\"aem\", mode=\"shuffle\"}]",
];
const RATIOS: [&str; 4] = ["token", "turn", "sequence", "sequence-token"];
const SELECTIVE: [&[&str]; 5] = [
    &[],
    &["credit.outliers.locate=all", "objective.selective.alpha=0.1"],
    &["credit.outliers.locate=all", "objective.selective.estimator=k3", "objective.selective.mask=goal"],
    &[
        "credit.outliers.locate=all",
        "objective.selective.detach_masked=true",
        "objective.selective.penalty=single",
        "objective.selective.mask=history",
    ],
    &[
        "credit.outliers.locate=shannon",
        "objective.selective.penalty=increased",
        "objective.kl.coef=0.01",
        "objective.kl.estimator=full",
    ],
];
const NORMALIZATION: [&[&str]; 4] = [
    &[],
    &["objective.normalization.norm=parameter", "train.ppo_epochs=2", "objective.clip={low=1e-4, high=1e-4}"],
    &["objective.normalization.norm=token", "train.num_minibatches=2", "train.ppo_epochs=2"],
    &["objective.normalization.norm=scalar", "objective.clip={low=1e-4, high=1e-4}", "train.ppo_epochs=2"],
];
const LAYOUTS: [&str; 2] = ["prompt.layout=concatenated", "prompt.layout=windowed"];

fn overrides(index: [usize; 6]) -> Vec<String> {
    let [estimator, refinements, ratio, selective, normalization, layout] = index;
    let mut overrides = vec![
        format!("credit.estimator={{kind=\"{}\"}}", ESTIMATORS[estimator]),
        format!("credit.refinements={}", REFINEMENTS[refinements]),
        format!("objective.ratio={}", RATIOS[ratio]),
        LAYOUTS[layout].to_owned(),
    ];
    let more = SELECTIVE[selective].iter().chain(NORMALIZATION[normalization]);
    overrides.extend(more.map(|text| (*text).to_owned()));
    overrides
}

/// PPO's token advantages work only with AEM and without the sequence ratio.
fn meaningful(index: [usize; 6]) -> bool {
    ESTIMATORS[index[0]] != "ppo" || matches!(index[1], 0 | 3) && RATIOS[index[2]] != "sequence"
}

fn load(index: [usize; 6]) -> Result<turnwise_train::Config, String> {
    let overrides = overrides(index);
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    common::config(None, &overrides).map_err(|error| error.to_string())
}

#[test]
fn the_whole_grid_is_accepted_or_refused_with_the_reason() {
    let (mut accepted, mut refused) = (0, 0);
    for index in 0..5 * 6 * 4 * 5 * 4 * 2 {
        let point =
            [index % 5, index / 5 % 6, index / 30 % 4, index / 120 % 5, index / 600 % 4, index / 2400];
        match load(point) {
            Ok(_) => accepted += 1,
            Err(error) => {
                refused += 1;
                assert!(!meaningful(point), "{point:?}: {error}");
                assert!(error.contains("ppo") && error.contains("use "), "no reason or remedy: {error}");
            }
        }
        assert_eq!(load(point).is_ok(), meaningful(point), "{point:?}");
    }
    // Four of five estimators are always valid; the fifth with 2 of 6 chains and 3 of 4 ratios.
    assert_eq!((accepted, refused), (4 * 960 + 2 * 3 * 40, 960 - 2 * 3 * 40));
}

#[test]
fn a_covering_sample_of_the_grid_trains() {
    // Axes advance at different rates, so that all pairs of choices occur.
    let sample =
        (0..24).map(|n: usize| [n % 5, (n + n / 6) % 6, (n + n / 4) % 4, (n + n / 5) % 5, n / 2 % 4, n % 2]);
    let mut trained = 0;
    let mut clipped = 0;
    for index in sample.filter(|index| meaningful(*index)) {
        let mut config = load(index).unwrap();
        config.train.explain = true;
        let lines = common::train(config, &format!("{index:?}"));
        clipped += usize::from(lines.iter().any(|line| line.metrics.get("loss/clip_frac") > Some(0.0)));
        trained += 1;
    }
    assert!(trained >= 20, "{trained}");
    assert!(clipped > 0, "no run clipped anything, so that no normalization was tried");
}

#[test]
fn a_kl_in_the_reward_is_measured_and_costs_its_tokens() {
    let run = |more: &[&str]| {
        let settings = ["credit.estimator.kind=ppo", "train.steps=3", "train.learning_rate=1e-2"];
        common::train(common::config(None, &[&settings, more].concat()).unwrap(), &format!("{more:?}"))
    };
    let metric = |lines: &[turnwise_train::record::metrics::MetricsLine], tag| {
        lines.iter().map(|line| line.metrics.get(tag)).collect::<Vec<_>>()
    };
    let without = run(&[]);
    let with = run(&["objective.kl.coef=1.0", "objective.kl.apply_to=reward", "objective.kl.estimator=k1"]);
    assert!(
        metric(&with, "loss/reference_kl")[0].unwrap().abs() < 1e-6,
        "{:?}",
        metric(&with, "loss/reference_kl")
    );
    assert!(
        metric(&with, "loss/reference_kl")[2].unwrap().abs() > 1e-3,
        "{:?}",
        metric(&with, "loss/reference_kl")
    );
    assert_eq!(metric(&without, "loss/reference_kl"), [Some(0.0); 3]);
    // The first step is equal up to rounding, the last is not.
    let apart = |step: usize| {
        let gradient = |lines| metric(lines, "loss/grad_norm")[step].unwrap();
        (gradient(&with) / gradient(&without) - 1.0).abs()
    };
    assert!(apart(0) < 1e-3 && apart(2) > 1e-2, "{} {}", apart(0), apart(2));
}

#[test]
fn outlier_turns_whose_masked_prompt_does_not_fit_are_counted() {
    // The masked prompt repeats earlier turns as text, which takes more tokens.
    let counted = |context: &str| {
        let settings =
            ["credit.outliers.locate=all", "objective.selective.mask=goal", "prompt.history=50", context];
        let lines = common::train(common::config(Some("stapo"), &settings).unwrap(), context);
        lines[0].metrics.get("outliers/masked_too_long").unwrap()
    };
    assert_eq!(counted("rollout.max_model_len=512"), 0.0);
    assert!(counted("rollout.max_model_len=80") > 0.0);
}

#[test]
fn the_explanation_is_stored_when_asked_for_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    for explain in [true, false] {
        let mut config = common::config(Some("aem-gigpo"), &[]).unwrap();
        config.train.explain = explain;
        config.train.steps = 1;
        let root = folder.path().join(format!("{explain}"));
        let mut run = turnwise_train::Run::builder(config)
            .directory(&root)
            .start(&mut turnwise_train::NoopObserver)
            .unwrap();
        run.train(&mut turnwise_train::NoopObserver, &std::sync::atomic::AtomicBool::new(false)).unwrap();
        let path = root.join("trajectories/step-000001.jsonl.zst");
        for trajectory in turnwise_train::record::directory::read_trajectories(&path).unwrap() {
            assert_eq!(trajectory.explanation.is_some(), explain);
            let Some(explanation) = trajectory.explanation else { continue };
            let advantages = trajectory.advantages.unwrap();
            assert_eq!(explanation.len(), advantages.len());
            for (stages, advantage) in explanation.iter().zip(advantages) {
                let names: Vec<&str> = stages.iter().map(|stage| stage.stage.as_ref()).collect();
                assert_eq!(names, ["gigpo", "aem"]);
                assert_eq!(stages.last().unwrap().advantage, advantage);
            }
        }
    }
}

#[test]
fn groups_that_teach_nothing_are_sampled_anew_and_counted() {
    let selection = "rollout.filter_groups={kind=\"dynamic\", max_rounds=3}";
    let config = common::config(None, &[selection]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut run = turnwise_train::Run::builder(config)
        .directory(&root)
        .start(&mut turnwise_train::NoopObserver)
        .unwrap();
    let before = run.weights().unwrap();
    run.train(&mut turnwise_train::NoopObserver, &std::sync::atomic::AtomicBool::new(false)).unwrap();
    assert_eq!(before, run.weights().unwrap(), "there was nothing to learn from");
    let lines = turnwise_train::record::metrics::read_metrics(&root.join("metrics.jsonl")).unwrap();
    for line in &lines {
        let of = |tag: &str| line.metrics.get(tag).unwrap();
        assert_eq!(
            (of("rollout/rounds"), of("rollout/groups_dropped"), of("rollout/groups")),
            (3.0, 6.0, 0.0)
        );
        assert_eq!(of("rollout/trajectories"), 24.0);
    }
    let state = turnwise_train::record::checkpoint::latest(run.directory()).unwrap().state().unwrap();
    assert_eq!(state.tasks_drawn, Some(12));
}
