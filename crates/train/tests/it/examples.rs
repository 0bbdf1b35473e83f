//! The examples of custom methods train, and their numbers match their papers.
#![allow(clippy::unwrap_used)]

#[path = "../../../../examples/custom_objective.rs"]
mod custom_objective;
#[path = "../../../../examples/custom_refinement.rs"]
mod custom_refinement;

use std::sync::Arc;

use turnwise_core::{
    Batch, Group, PerTurn, Preset, StopReason, Task, TokenStatistics, Trajectory, Turn, TurnSpan,
};
use turnwise_credit::{CreditInputs, Explanation, ModelInputs, Refinement as _};
use turnwise_objective::{
    LossTerm as _, Minibatch, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, PolicyObjective,
};

use turnwise_train::Methods;
use turnwise_train::config::{ConfigSource, Registries, load};

use custom_objective::PositiveLm;
use custom_refinement::{AnswerGain, AnswerGainConfig};

fn trajectory(rewards: &[f64]) -> Trajectory {
    let text = r#"{"schema_version":1,"task":{"id":"t","kind":"k","goal":"g"},"group":0,"sample":0,"turns":[],
        "stop":{"kind":"max_turns"},"success":false}"#;
    let mut trajectory: Trajectory = serde_json::from_str(text).unwrap();
    assert_eq!(trajectory.stop, StopReason::MaxTurns);
    trajectory.turns = rewards.iter().map(|&reward| Turn { reward, ..Turn::default() }).collect();
    trajectory
}

#[test]
fn the_answer_gain_by_hand() {
    let batch =
        Batch { groups: vec![Group { trajectories: vec![trajectory(&[0.0, 1.0]), trajectory(&[0.0])] }] };
    let method = |config| AnswerGain::new(config, |task: &Task| task.goal.clone()).unwrap();
    assert_eq!(method(AnswerGainConfig::default()).score_requests(&batch).len(), 3);
    // The mean over the answer's tokens rises from -2 to -0.5.
    let scores = vec![vec![-2.0], vec![-0.25, -0.75], vec![-1.0]];
    let model_inputs = ModelInputs { scores: vec![scores], ..ModelInputs::default() };
    let mut advantages = PerTurn::filled(&batch, 9.0);
    let inputs = CreditInputs::new(&batch).with_model_inputs(&model_inputs);
    let config = AnswerGainConfig { beta: 2.0, ..AnswerGainConfig::default() };
    method(config).refine(&inputs, &mut advantages, &mut Explanation::new(true)).unwrap();
    assert_eq!(advantages.values().copied().collect::<Vec<_>>(), [12.0, 9.0, 9.0]);
}

#[test]
fn the_refinement_of_another_crate_trains_with_a_pass_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let lines = custom_refinement::train(&folder.path().join("run")).unwrap();
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(line.metrics.get("answer_gain/abs_mean").unwrap() > 0.0, "the answer was not scored");
        assert!(line.metrics.get("credit/advantage/std").unwrap() > 0.0);
    }
    let text = std::fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    assert!(text.contains("kind = \"answer-gain\"") && text.contains("lead = \"\""), "{text}");
}

#[test]
fn the_positive_examples_by_hand() {
    let sequence = |success: bool, tokens: usize| ObjectiveSequence {
        success,
        ..ObjectiveSequence::new(
            vec![TurnSpan { turn: 0, start: 1, end: 1 + tokens }],
            vec![-1.0; tokens],
            vec![0.0],
        )
    };
    let batch = ObjectiveBatch::new(vec![sequence(true, 3), sequence(false, 2), sequence(true, 1)]);
    let policy = Arc::new(PolicyObjective::new(&ObjectiveConfig::default(), batch).unwrap());
    let term = PositiveLm::default();
    assert!(term.acts_without_advantage());
    let objective = term.for_minibatch(&Minibatch { policy: &policy, masked: &[] }).unwrap();
    let of = |sequence: usize, logprobs: &[f32]| {
        objective
            .evaluate(sequence, TokenStatistics { logprobs, entropies: &[], reference_kls: &[] })
            .unwrap()
    };
    // Four tokens of solved trajectories: 0.1 / 4 each.
    let first = of(0, &[-1.0, -2.0, -3.0]);
    assert!((first.loss - 0.1 * 6.0 / 4.0).abs() < 1e-12);
    assert_eq!(first.d_logprobs, [-0.025; 3]);
    assert_eq!((of(1, &[-1.0; 2]).loss, of(1, &[-1.0; 2]).d_logprobs), (0.0, vec![0.0; 2]));
    assert!((of(2, &[-4.0]).loss - 0.1).abs() < 1e-12);
}

#[test]
fn the_term_of_another_crate_trains_and_acts() {
    let folder = tempfile::tempdir().unwrap();
    let run = |mu: f64| custom_objective::train(mu, &folder.path().join(mu.to_string())).unwrap();
    let (without, with) = (run(0.0), run(0.1));
    assert_eq!((without.len(), with.len()), (3, 3));
    let loss =
        |lines: &[turnwise_train::record::metrics::MetricsLine]| lines[0].metrics.get("loss/total").unwrap();
    // Log-probs are negative, so imitation increases the loss.
    assert!(loss(&with) > loss(&without), "{} {}", loss(&with), loss(&without));
}

#[test]
fn settings_of_another_crates_methods_are_read_from_a_file_and_held_against_their_own_types() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = |text: &str, methods: &Methods| {
        let file = folder.path().join("run.toml");
        std::fs::write(&file, text).unwrap();
        let registries = Registries { methods: methods.clone(), ..Registries::builtin() };
        load(&ConfigSource { files: vec![file], registries, ..ConfigSource::default() })
    };
    let refused = |text: &str, methods: &Methods| loaded(text, methods).unwrap_err().to_string();
    let gain = "name = \"x\"\n[[credit.refinements]]\nkind = \"answer-gain\"\n";
    let own = custom_refinement::methods();
    let config = loaded(gain, &own).unwrap();
    assert!(config.to_toml().unwrap().contains("beta = 1.0"), "every default is spelled out");
    config.check(&Registries { methods: own, ..Registries::builtin() }).unwrap();
    let own = custom_refinement::methods();
    let error = refused(gain, &Methods::builtin());
    assert!(
        error.contains("run.toml line 2: credit.refinements[0].kind = \"answer-gain\"")
            && error.contains("`aem`"),
        "{error}"
    );
    let error = refused(&gain.replace("gain", "gian"), &own);
    assert!(error.contains("Did you mean \"answer-gain\""), "{error}");
    let error = refused(&format!("{gain}bta = 1.0\n"), &own);
    assert!(error.contains("run.toml line 2: credit") && error.contains("unknown field `bta`"), "{error}");
    let error = refused(&format!("{gain}beta = -1.5\n"), &own);
    assert!(error.contains("beta is -1.5"), "{error}");
    let term = "[[objective.terms]]\nkind = \"positive-lm\"\n";
    let own = custom_objective::methods();
    assert!(loaded(term, &own).unwrap().to_toml().unwrap().contains("examples = \"solved\""));
    let error = refused(term, &Methods::builtin());
    assert!(error.contains("objective") && error.contains("unknown term `positive-lm`"), "{error}");
    let error = refused(&format!("{term}nu = 1.0\n"), &own);
    assert!(error.contains("unknown field `nu`"), "{error}");
}

#[test]
fn the_presets_of_another_crates_method_are_named_as_any_others() {
    let mut methods = custom_refinement::methods();
    methods.credit = methods.credit.with_preset(Preset::on(
        "grpo",
        "answer-gain",
        "credit.refinements = [{ kind = \"answer-gain\", beta = 0.5 }]",
    ));
    let named = |name: &str| {
        let registries = Registries { methods: methods.clone(), ..Registries::builtin() };
        load(&ConfigSource { preset: Some(name.to_owned()), registries, ..ConfigSource::default() })
    };
    let config = named("answer-gain").unwrap();
    assert_eq!(
        (config.credit.refinements[0].kind(), config.preset.as_deref()),
        ("answer-gain", Some("answer-gain"))
    );
    assert!(config.to_toml().unwrap().contains("beta = 0.5"));
    assert!(named("answer-gian").unwrap_err().to_string().contains("Did you mean \"answer-gain\""));
    for (base, expected) in [("grop", "starts from `grop`"), ("mine", "starts from itself")] {
        let mut methods = methods.clone();
        methods.credit = methods.credit.with_preset(Preset::on(base, "mine", ""));
        let error = methods.preset("mine").unwrap().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
