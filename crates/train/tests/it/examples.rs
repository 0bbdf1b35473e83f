//! The examples of methods of one's own train, and their numbers are what their papers say.
#![allow(clippy::unwrap_used)]

#[path = "../../../../examples/custom_objective.rs"]
mod custom_objective;
#[path = "../../../../examples/custom_refinement.rs"]
mod custom_refinement;

use std::sync::Arc;

use turnwise_core::{
    Batch, Group, PerTurn, Preset, StopReason, Task, TokenStatistics, Trajectory, Turn, TurnSpan,
};
use turnwise_credit::{Explanation, Inputs, Refinement as _, Supplies};
use turnwise_env::registry::Registry;
use turnwise_objective::{
    LossTerm as _, Minibatch, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, PolicyObjective,
};

use turnwise_train::Methods;
use turnwise_train::config::{ConfigSource, load_with};

use custom_objective::PositiveLm;
use custom_refinement::{Igpo, IgpoConfig, Standardise};

fn trajectory(rewards: &[f64]) -> Trajectory {
    let text = r#"{"schema_version":1,"task":{"id":"t","kind":"k","goal":"g"},"group":0,"sample":0,"turns":[],
        "stop":{"kind":"max_turns"},"success":false}"#;
    let mut trajectory: Trajectory = serde_json::from_str(text).unwrap();
    assert_eq!(trajectory.stop, StopReason::MaxTurns);
    trajectory.turns = rewards.iter().map(|&reward| Turn { reward, ..Turn::default() }).collect();
    trajectory
}

#[test]
fn information_gain_by_hand() {
    // Two trajectories of three turns and one; the answer's probability rises 0.25, 0.5, 0.25 | 0.25.
    let batch = Batch {
        groups: vec![Group { trajectories: vec![trajectory(&[0.0, 0.0, 1.0]), trajectory(&[0.0])] }],
    };
    let answer = |task: &Task| Some(task.goal.clone());
    let igpo = |config| Igpo::new(config, answer).unwrap();
    assert_eq!(igpo(IgpoConfig::default()).score_requests(&batch).len(), 4);
    let half = 0.5_f32.ln();
    // The mean over the answer's tokens, whatever their number.
    let scores = vec![vec![2.0 * half], vec![half, half], vec![2.0 * half, 2.0 * half], vec![2.0 * half]];
    let supplies = Supplies { scores: vec![scores], ..Supplies::default() };
    let refine = |config| {
        let mut advantages = PerTurn::filled(&batch, 9.0);
        let inputs = Inputs::new(&batch).with_supplies(&supplies);
        igpo(config).refine(&inputs, &mut advantages, &mut Explanation::new(true)).unwrap();
        advantages.values().copied().collect::<Vec<f64>>()
    };
    let close = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {expected:?}");
    };
    // Rewards 0.25, -0.25, 1 | 0: mean 0.25, sample deviation 0.540062.
    let [a, b, c, d] = [0.0, -0.925820, 1.388730, -0.462910];
    close(&refine(IgpoConfig::default()), &[a + b + c, b + c, c, d]);
    close(
        &refine(IgpoConfig { gamma: 0.5, ..IgpoConfig::default() }),
        &[a + 0.5 * (b + 0.5 * c), b + 0.5 * c, c, d],
    );
    // Gains 0.25, -0.25 and outcomes 1, 0 among themselves.
    let [gain, outcome] = [std::f64::consts::FRAC_1_SQRT_2; 2];
    let separate = IgpoConfig { standardise: Standardise::Separate, ..IgpoConfig::default() };
    close(&refine(separate), &[outcome, outcome - gain, outcome, -outcome]);
}

#[test]
fn the_refinement_of_another_crate_trains_with_a_pass_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let lines = custom_refinement::train(&folder.path().join("run")).unwrap();
    // Two steps, and one after the run was resumed.
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(line.metrics.get("igpo/gain_abs_mean").unwrap() > 0.0, "the answer was not scored");
        assert!(line.metrics.get("credit/advantage/std").unwrap() > 0.0);
    }
    // Its settings are written down with the run's, every default spelled out.
    let text = std::fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    assert!(text.contains("kind = \"igpo\"") && text.contains("standardise = \"joint\""), "{text}");
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
    let parts = term.for_minibatch(&Minibatch { policy: &policy, masked: &[] }).unwrap();
    let objective = parts.tokens.unwrap();
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
    // Two steps, and one after the run was resumed.
    assert_eq!((without.len(), with.len()), (3, 3));
    let loss =
        |lines: &[turnwise_train::record::metrics::MetricsLine]| lines[0].metrics.get("loss/total").unwrap();
    // Log-probabilities are negative, so that imitating them adds to the loss.
    assert!(loss(&with) > loss(&without), "{} {}", loss(&with), loss(&without));
}

#[test]
fn settings_of_another_crates_methods_are_read_from_a_file_and_held_against_their_own_types() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = |text: &str, methods: &Methods| {
        let file = folder.path().join("run.toml");
        std::fs::write(&file, text).unwrap();
        let source = ConfigSource { files: vec![file], ..ConfigSource::default() };
        load_with(&source, &Registry::builtin(), methods)
    };
    let refused = |text: &str, methods: &Methods| loaded(text, methods).unwrap_err().to_string();
    let igpo = "name = \"x\"\n[[credit.refinements]]\nkind = \"igpo\"\n";
    let own = custom_refinement::methods();
    let config = loaded(igpo, &own).unwrap();
    assert!(config.to_toml().unwrap().contains("gamma = 1.0"), "every default is spelled out");
    config.check().unwrap();
    // A program without it says which there are; one with it names them too, the key and the line of what is wrong.
    let error = refused(igpo, &Methods::builtin());
    assert!(
        error.contains("run.toml line 2: credit.refinements[0].kind = \"igpo\"") && error.contains("`aem`"),
        "{error}"
    );
    let error = refused(&igpo.replace("igpo", "igop"), &own);
    assert!(error.contains("Did you mean \"igpo\""), "{error}");
    let error = refused(&format!("{igpo}gama = 1.0\n"), &own);
    assert!(error.contains("run.toml line 2: credit") && error.contains("unknown field `gama`"), "{error}");
    let error = refused(&format!("{igpo}gamma = 1.5\n"), &own);
    assert!(error.contains("gamma is 1.5"), "{error}");
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
        "igpo",
        "credit.refinements = [{ kind = \"igpo\", gamma = 0.5 }]",
    ));
    let named = |name: &str| {
        let source = ConfigSource { preset: Some(name.to_owned()), ..ConfigSource::default() };
        load_with(&source, &Registry::builtin(), &methods)
    };
    let config = named("igpo").unwrap();
    assert_eq!((config.credit.refinements[0].kind(), config.preset.as_deref()), ("igpo", Some("igpo")));
    assert!(config.to_toml().unwrap().contains("gamma = 0.5"));
    assert!(named("igpoo").unwrap_err().to_string().contains("Did you mean \"igpo\""));
    // One that starts from nothing that is there is refused, and one that starts from itself.
    for (base, expected) in [("grop", "starts from `grop`"), ("mine", "starts from itself")] {
        let mut methods = methods.clone();
        methods.credit = methods.credit.with_preset(Preset::on(base, "mine", ""));
        let error = methods.preset("mine").unwrap().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
