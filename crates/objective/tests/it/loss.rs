//! The configured loss: its required passes, and the objective of each minibatch.
#![allow(clippy::unwrap_used)]

use serde::{Deserialize, Serialize};
use turnwise_core::{
    GradientPass, MaskedContextPass, Objective, ObjectiveError, Purpose, RequiredPasses, Seed,
    TokenGradients, TokenStatistics, TurnSpan,
};
use turnwise_objective::{
    BiasNorm, Loss, LossTerm, Minibatch, NormalizationConfig, ObjectiveBatch, ObjectiveConfig,
    ObjectiveSequence, PolicyObjective, Registry, SelectiveConfig, TermObjective,
};

fn span(turn: usize, start: usize, end: usize) -> TurnSpan {
    TurnSpan { turn, start, end }
}

/// Log-probs far outside the clip range.
fn batch() -> (ObjectiveBatch, Vec<Vec<f32>>) {
    let mut rng = Seed::derive(5, Purpose::Credit, &[1]).rng();
    let mut logprobs = Vec::new();
    let sequences = [vec![span(0, 1, 4), span(1, 6, 8)], vec![span(0, 2, 6)]]
        .into_iter()
        .map(|spans| {
            let tokens: usize = spans.iter().map(TurnSpan::len).sum();
            let old: Vec<f32> = (0..tokens).map(|_| -1.0 - rng.uniform() as f32).collect();
            logprobs.push(old.iter().map(|old| old + 0.6 * rng.normal() as f32).collect());
            let advantages = spans.iter().map(|_| rng.normal()).collect();
            ObjectiveSequence::new(spans, old, advantages)
        })
        .collect();
    (ObjectiveBatch::new(sequences), logprobs)
}

fn statistics(logprobs: &[f32]) -> TokenStatistics<'_> {
    TokenStatistics { logprobs, entropies: &[], reference_kls: &[] }
}

fn config(text: &str) -> ObjectiveConfig {
    serde_json::from_str(text).unwrap()
}

fn loss(text: &str) -> Loss {
    Loss::new(&config(text), &Registry::builtin()).unwrap()
}

#[test]
fn a_loss_says_which_passes_it_needs() {
    assert_eq!(loss("{}").passes(), RequiredPasses::default());
    let kl = |more: &str| loss(&format!(r#"{{"kl": {{"coef": 0.1{more}}}}}"#)).passes();
    assert_eq!(kl(""), RequiredPasses { reference_logprobs: true, ..RequiredPasses::default() });
    assert_eq!(
        kl(r#", "estimator": "full""#),
        RequiredPasses { reference_kls: true, ..RequiredPasses::default() }
    );
    let in_reward = RequiredPasses { reward_reference_logprobs: true, ..RequiredPasses::default() };
    assert_eq!(kl(r#", "apply_to": "reward""#), in_reward);
    assert!(in_reward.needs_reference() && loss(r#"{"entropy_coef": 0.1}"#).passes().entropies);
    let masked = |text: &str| loss(text).passes().masked_context.unwrap();
    let full = masked(r#"{"selective": {"mask": "goal"}}"#);
    assert_eq!(
        full,
        MaskedContextPass {
            mask: turnwise_core::ContextMask::Goal,
            divergences: true,
            reference: true,
            detached: false
        }
    );
    let single = masked(r#"{"selective": {"estimator": "k3", "penalty": "single"}}"#);
    assert!(!single.divergences && !single.reference);
    assert!(masked(r#"{"selective": {"detach_masked": true}}"#).detached);
    let gradient = |text: &str| loss(text).passes().gradient;
    assert_eq!(gradient(r#"{"normalization": {}}"#), GradientPass::ScaledByNorm);
    assert_eq!(gradient(r#"{"normalization": {"norm": "token"}}"#), GradientPass::Scaled);
}

#[test]
fn the_kl_coefficient_follows_the_controller_and_the_terms() {
    let plain = loss(r#"{"kl": {"coef": 0.01, "adaptive": {"target": 0.04}}}"#);
    assert_eq!((plain.next_kl_coef(1.0), plain.next_kl_coef(0.04)), (0.015, 0.01));
    assert_eq!(plain.with_kl_coef(0.015).unwrap().config().kl.coef, 0.015);
    let raised = loss(r#"{"kl": {"coef": 0.01}, "selective": {"penalty": "increased", "gamma": 0.25}}"#);
    assert_eq!((raised.config().kl.coef, raised.next_kl_coef(1.0)), (0.26, 0.01));
    assert!(raised.acts_without_advantage() && !loss("{}").acts_without_advantage());
    let mut adaptive = loss(
        r#"{"kl": {"coef": 0.04, "adaptive": {}}, "selective": {"penalty": "increased", "gamma": 0.01}}"#,
    );
    for _ in 0..20 {
        adaptive = adaptive.with_kl_coef(adaptive.next_kl_coef(1.0)).unwrap();
    }
    assert_eq!(adaptive.config().kl.coef, 1.01);
    let reference = ObjectiveSequence {
        ref_logprobs: Some(vec![-1.0, -2.0]),
        ..ObjectiveSequence::new(vec![span(0, 3, 5)], vec![-1.0, -2.0], vec![0.5])
    };
    adaptive.for_minibatch(ObjectiveBatch::new(vec![reference]), &[]).unwrap();
    // Base coefficient 0: only the term needs the reference.
    let from_nought = loss(r#"{"selective": {"penalty": "increased"}}"#);
    assert!(from_nought.passes().reference_logprobs && from_nought.with_kl_coef(-0.1).is_err());
}

#[test]
fn a_minibatch_has_the_policy_objective_bit_for_bit() {
    let (batch, logprobs) = batch();
    for text in ["{}", r#"{"normalization": {}}"#, r#"{"ratio": "turn", "selective": {}}"#] {
        let policy = PolicyObjective::new(&config(text), batch.clone()).unwrap();
        let minibatch = loss(text).for_minibatch(batch.clone(), &[]).unwrap();
        for (index, logprobs) in logprobs.iter().enumerate() {
            let expected = policy.evaluate(index, statistics(logprobs)).unwrap();
            assert_eq!(minibatch.evaluate(index, statistics(logprobs)).unwrap(), expected, "{text}");
        }
    }
}

#[test]
fn the_masked_term_counts_every_turn_of_the_batch() {
    let (batch, _) = batch();
    let loss = Loss::new(
        &ObjectiveConfig {
            selective: Some(SelectiveConfig { alpha: 0.5, gamma: 0.25, ..SelectiveConfig::default() }),
            ..ObjectiveConfig::default()
        },
        &Registry::builtin(),
    )
    .unwrap();
    let minibatch = loss.for_minibatch(batch, &[span(1, 3, 5)]).unwrap();
    let found = minibatch
        .evaluate_masked_context(
            0,
            turnwise_core::MaskedContextStatistics {
                full: &[0.0; 2],
                masked: &[0.0; 2],
                reference: &[0.0; 2],
                kl: &[1.0, 3.0],
                reference_kl: &[0.4, 0.8],
            },
        )
        .unwrap();
    assert!((found.loss + (0.5 * 2.0 - 0.25 * 0.6) / 3.0).abs() < 1e-15, "three turns: {}", found.loss);
}

#[test]
fn the_gradient_is_scaled_by_what_the_pass_clipped() {
    let (batch, logprobs) = batch();
    let policy = PolicyObjective::new(&ObjectiveConfig::default(), batch.clone()).unwrap();
    let entries: Vec<Vec<f64>> = logprobs
        .iter()
        .enumerate()
        .map(|(index, logprobs)| {
            let wide: Vec<f64> = logprobs.iter().copied().map(f64::from).collect();
            policy.clipping_bias(index, &wide).unwrap().entries
        })
        .collect();
    let sum: f64 = entries.iter().map(|entries| entries.iter().sum::<f64>()).sum();
    let squares: f64 = entries.iter().flatten().map(|entry| entry * entry).sum();
    assert!(squares > 0.0, "nothing is clipped, so that nothing is tried");
    for (norm, expected) in [(BiasNorm::Scalar, sum.abs()), (BiasNorm::Token, squares.sqrt())] {
        let scale = |measure_only| {
            let normalization = Some(NormalizationConfig { norm, delta: 1e-6, measure_only });
            let config = ObjectiveConfig { normalization, ..ObjectiveConfig::default() };
            let minibatch =
                Loss::new(&config, &Registry::builtin()).unwrap().for_minibatch(batch.clone(), &[]).unwrap();
            for index in [1, 0] {
                minibatch.evaluate(index, statistics(&logprobs[index])).unwrap();
            }
            assert!(minibatch.second_pass().unwrap().is_none());
            minibatch.gradient_scale(0.0).unwrap()
        };
        let (divided, measured) = (scale(false), scale(true));
        assert!((divided.factor - 1.0 / expected).abs() < 1e-9 / expected, "{norm:?}");
        assert_eq!(divided.metrics[0].0, "normalization/bias_norm");
        assert_eq!((measured.factor, &measured.metrics[0]), (1.0, &divided.metrics[0]));
    }
    let minibatch = loss(r#"{"normalization": {}}"#).for_minibatch(batch, &[]).unwrap();
    assert!(minibatch.second_pass().unwrap().is_none(), "nothing was evaluated yet");
    for (index, logprobs) in logprobs.iter().enumerate() {
        minibatch.evaluate(index, statistics(logprobs)).unwrap();
    }
    let clipped: Vec<usize> =
        (0..2).filter(|&index| entries[index].iter().any(|entry| *entry != 0.0)).collect();
    let pass = minibatch.second_pass().unwrap().unwrap();
    assert_eq!(pass.sequences, clipped);
    let first = pass.objective.evaluate(0, statistics(&logprobs[clipped[0]])).unwrap();
    assert_eq!(first.loss, entries[clipped[0]].iter().sum::<f64>());
    assert_eq!(minibatch.gradient_scale(4.0).unwrap().factor, 0.25);
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Slope {
    slope: f64,
}

impl Default for Slope {
    fn default() -> Self {
        Self { slope: 2.0 }
    }
}

struct SlopeOver(Vec<Vec<f64>>);

impl LossTerm for Slope {
    fn kind(&self) -> &'static str {
        "slope"
    }

    fn acts_without_advantage(&self) -> bool {
        true
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError> {
        let weights = minibatch.policy.weights().iter();
        let slopes = weights.map(|row| row.iter().map(|weight| self.slope * weight).collect()).collect();
        Ok(Box::new(SlopeOver(slopes)))
    }
}

impl Objective for SlopeOver {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let slopes = &self.0[sequence];
        Ok(TokenGradients {
            loss: slopes.iter().zip(tokens.logprobs).map(|(slope, lp)| slope * f64::from(*lp)).sum(),
            d_logprobs: slopes.iter().map(|&slope| slope as f32).collect(),
            ..TokenGradients::default()
        })
    }
}

#[derive(Clone, Debug)]
struct Short(f64);

impl LossTerm for Short {
    fn kind(&self) -> &'static str {
        "slope"
    }

    fn acts_without_advantage(&self) -> bool {
        true
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError> {
        let slopes = minibatch.policy.weights().iter().map(|row| vec![self.0; row.len() - 1]).collect();
        Ok(Box::new(SlopeOver(slopes)))
    }
}

#[test]
fn a_term_of_another_crate_is_added_and_its_settings_are_spelled_out() {
    let registry = Registry::builtin().with_term("slope", |slope: Slope| Ok(slope));
    let (batch, logprobs) = batch();
    let mut with = config(r#"{"terms": [{"kind": "slope"}]}"#);
    registry.spell_out(&mut with).unwrap();
    assert_eq!(with.terms[0].settings["slope"], 2.0);
    let loss = Loss::new(&with, &registry).unwrap();
    assert!(loss.acts_without_advantage());
    let minibatch = loss.for_minibatch(batch.clone(), &[]).unwrap();
    let plain = PolicyObjective::new(&ObjectiveConfig::default(), batch).unwrap();
    for (index, logprobs) in logprobs.iter().enumerate() {
        let found = minibatch.evaluate(index, statistics(logprobs)).unwrap();
        let expected = plain.evaluate(index, statistics(logprobs)).unwrap();
        for (found, expected) in found.d_logprobs.iter().zip(&expected.d_logprobs) {
            assert!((found - expected - 2.0 / 9.0).abs() < 1e-6);
        }
        let own = 2.0 / 9.0 * logprobs.iter().copied().map(f64::from).sum::<f64>();
        assert!((found.loss - expected.loss - own).abs() < 1e-12);
        assert_eq!(found.metrics.tokens, expected.metrics.tokens, "the tokens are counted once");
    }
    let short = Registry::builtin().with_term("slope", |Slope { slope }| Ok(Short(slope)));
    let short = Loss::new(&with, &short).unwrap();
    let minibatch = short.for_minibatch(self::batch().0, &[]).unwrap();
    let error = minibatch.evaluate(0, statistics(&logprobs[0])).unwrap_err();
    assert!(matches!(error, ObjectiveError::Length { what: "d_logprobs of a term", .. }), "{error}");
    let wrong = config(r#"{"terms": [{"kind": "slope", "slop": 1}]}"#);
    let error = Loss::new(&wrong, &registry).unwrap_err().to_string();
    assert!(error.contains("terms, `slope`: unknown field `slop`, expected `slope`"), "{error}");
}
