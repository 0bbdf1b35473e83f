//! Tests that an update on the service equals the native learner's.

use turnwise_core::{
    GradientPass, LearnError, MaskedContext, Objective, RequiredPasses, TokenBatch, TokenSequence,
};
use turnwise_model::testing::relative_distance;
use turnwise_objective::{Loss, SupervisedObjective};
use turnwise_remote::tinker::Dialect;
use turnwise_train::Registries;
use turnwise_train::config::Config;
use turnwise_train::learners::policy::PolicyLearner;

use crate::double::Traits;
use crate::setting::{Setting, objective_batch};

/// Losses by name, with the settings that make them.
const LOSSES: [(&str, &[&str]); 5] = [
    ("ppo clip", &["objective.loss_agg_mode=token-mean", "objective.clip={low=0.1, high=0.2}"]),
    ("grpo with a KL", &["objective.loss_agg_mode=seq-mean-token-mean", "objective.kl.coef=0.05"]),
    (
        "gspo",
        &[
            "objective.ratio=sequence",
            "objective.loss_agg_mode=seq-mean-token-mean",
            "objective.clip={low=0.5, high=0.8}",
        ],
    ),
    (
        "so-grpo",
        &[
            "objective.loss_agg_mode=seq-mean-token-mean",
            "objective.kl.coef=0.001",
            "objective.clip={low=0.1, high=0.1}",
            "objective.normalization={norm=\"parameter\", delta=0.01}",
        ],
    ),
    (
        "dual clip, turn ratios",
        &["objective.ratio=turn", "objective.dual_clip=3.0", "objective.clip={low=0.5, high=0.8}"],
    ),
];

/// Numbers of one update.
#[derive(Debug)]
struct Updated {
    loss: f64,
    norm: f64,
}

/// One update as the loop makes it.
fn update(
    policy: &mut dyn PolicyLearner,
    loss: &Loss,
    tokens: &[TokenSequence],
    start: &[Vec<f32>],
) -> Updated {
    let minibatch = loss.for_minibatch(objective_batch(tokens, start), &[]).unwrap();
    let report = policy.forward_backward(&TokenBatch::of(tokens), &minibatch).unwrap();
    if minibatch.passes().gradient != GradientPass::Plain {
        policy.stash_gradient().unwrap();
        let pass = minibatch.second_pass().unwrap().unwrap();
        let some = TokenBatch::of(pass.sequences.iter().map(|&index| &tokens[index]));
        policy.forward_backward(&some, &*pass.objective).unwrap();
        let norm = policy.grad_norm().unwrap();
        let scale = minibatch.gradient_scale(norm).unwrap();
        assert!((scale.factor - 1.0).abs() > 0.1, "it acts: {}", scale.factor);
        policy.restore_gradient(scale.factor).unwrap();
    }
    Updated { loss: report.loss, norm: policy.step(4e-3).unwrap().grad_norm }
}

/// Distance at which two updates on the service end from two native ones, relative to the way they went; every number on the way is
/// compared too.
fn distance(setting: &Setting, config: &Config, supervised: bool) -> f64 {
    let tokens = setting.sequences();
    let mut policy = setting.policy(config).unwrap();
    let begin = setting.adapter(policy.as_ref(), "begin");
    assert!(begin.is_identity());
    let mut native = setting.native(config, begin.clone());
    let start = policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap();
    let loss = Registries::builtin().loss(config).unwrap();
    for _ in 0..2 {
        let (found, expected) = if supervised {
            let objective = supervised_loss(&tokens);
            let both = [policy.as_mut(), &mut native as &mut dyn PolicyLearner];
            both.map(|learner| {
                let report = learner.forward_backward(&TokenBatch::of(&tokens), &objective).unwrap();
                Updated { loss: report.loss, norm: learner.step(4e-3).unwrap().grad_norm }
            })
            .into()
        } else {
            (update(policy.as_mut(), &loss, &tokens, &start), update(&mut native, &loss, &tokens, &start))
        };
        if !setting.double.lies() {
            assert!((found.loss - expected.loss).abs() < 1e-5, "{found:?} {expected:?}");
            assert!(
                expected.norm > 0.0 && (found.norm / expected.norm - 1.0).abs() < 1e-3,
                "{found:?} {expected:?}"
            );
        }
    }
    let end = setting.adapter(policy.as_ref(), "end");
    let expected = native.weights().unwrap().adapter.unwrap();
    let way =
        |end: &[f32]| -> Vec<f32> { end.iter().zip(&begin.data).map(|(end, begin)| end - begin).collect() };
    assert_eq!(policy.weights_version(), 2);
    relative_distance(&way(&end.data), &way(&expected.data))
}

fn supervised_loss(tokens: &[TokenSequence]) -> SupervisedObjective {
    let weights = |(index, sequence): (usize, &TokenSequence)| {
        (0..sequence.response_tokens()).map(|token| [1.0, 0.1, 0.5][(index + token) % 3]).collect()
    };
    SupervisedObjective::new(tokens.iter().enumerate().map(weights).collect()).unwrap()
}

#[test]
fn updates_are_those_of_the_native_learner_in_every_form() {
    for traits in [Traits::SUM, Traits::JAX, Traits::JSON] {
        for form in ["direct", "linearised"] {
            let form = format!("policy.learner.losses={form}");
            for (name, settings) in LOSSES {
                let setting = Setting::new(traits);
                let config = setting.config(None, &[settings, &[&form]].concat()).unwrap();
                let distance = distance(&setting, &config, false);
                assert!(distance < 1e-4, "{name}, {form}, {traits:?}: {distance}");
            }
            let setting = Setting::new(traits);
            let config = setting.config(None, &[&form]).unwrap();
            let distance = distance(&setting, &config, true);
            assert!(distance < 1e-4, "cross-entropy, {form}, {traits:?}: {distance}");
        }
    }
}

#[test]
fn losses_that_the_service_has_go_by_name() {
    let sent = |traits: Traits, settings: &[&str], supervised: bool| {
        let setting = Setting::new(traits);
        let config = setting.config(None, settings).unwrap();
        distance(&setting, &config, supervised);
        let service = setting.double.lock();
        let losses: Vec<String> = service.losses[4..].to_vec();
        (losses, service.log.iter().filter(|path| *path == "forward").count())
    };
    // The four passes before are the measurement.
    assert_eq!(sent(Traits::SUM, LOSSES[0].1, false).0, ["ppo", "ppo"]);
    assert_eq!(sent(Traits::JAX, LOSSES[0].1, false).0, ["ppo", "ppo"]);
    assert_eq!(sent(Traits::SUM, &[], true).0, ["cross_entropy", "cross_entropy"]);
    // A service that divides by the weights leaves no way to weigh sequences.
    assert_eq!(sent(Traits::JAX, &[], true).0, ["importance_sampling", "importance_sampling"]);
    assert_eq!(sent(Traits::SUM, LOSSES[1].1, false).0, ["importance_sampling", "importance_sampling"]);
    // JSON has a call of its own for a pass without a gradient.
    assert!(sent(Traits::JSON, LOSSES[1].1, false).1 > 2);
}

/// The assumption of the tests above: a reduction that is not the service's gives another update.
#[test]
fn a_wrong_reduction_gives_another_update() {
    // It says norms as if it summed, and takes means.
    let setting = Setting::new(Traits { lies: true, ..Traits::JAX });
    let config = setting.config(None, LOSSES[1].1).unwrap();
    let distance = distance(&setting, &config, false);
    assert!(distance > 1e-2, "{distance}");
}

#[test]
fn a_named_reduction_that_the_measurement_contradicts_is_refused() {
    let setting = Setting::new(Traits::JAX);
    let config = setting.config(None, &["policy.learner.reduction=sum"]).unwrap();
    let error = setting.policy(&config).err().unwrap().to_string();
    assert!(error.contains("policy.learner.reduction") && error.contains("seq-mean-batch-mean"), "{error}");
    let config = setting.config(None, &["policy.learner.reduction=seq-mean-batch-mean"]).unwrap();
    assert!(setting.policy(&config).is_ok());
    // The models that were measured on are gone from the service again.
    assert_eq!(setting.double.lock().models.len(), 0, "policies give their room back");
}

#[test]
fn an_objective_that_needs_whole_distributions_is_refused() {
    struct Entropies;
    impl Objective for Entropies {
        fn passes(&self) -> RequiredPasses {
            RequiredPasses { entropies: true, ..RequiredPasses::default() }
        }

        fn evaluate(
            &self,
            _: usize,
            _: turnwise_core::TokenStatistics<'_>,
        ) -> Result<turnwise_core::TokenGradients, turnwise_core::ObjectiveError> {
            Ok(turnwise_core::TokenGradients::default())
        }
    }
    let setting = Setting::new(Traits { dialect: Dialect::Protobuf, ..Traits::SUM });
    let mut policy = setting.policy(&setting.config(None, &[]).unwrap()).unwrap();
    let tokens = setting.sequences();
    let error = policy.forward_backward(&TokenBatch::of(&tokens), &Entropies).unwrap_err();
    assert!(matches!(error, LearnError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("full-vocabulary entropies"), "{error}");
    let masked = MaskedContext { sequence: 0, span: 0, tokens: &tokens[0] };
    let batch = TokenBatch { masked_contexts: vec![masked], ..TokenBatch::of(&tokens) };
    let error = policy.forward_backward(&batch, &supervised_loss(&tokens)).unwrap_err();
    assert!(matches!(error, LearnError::Unsupported(_)), "{error}");
}
