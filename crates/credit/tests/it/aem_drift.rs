//! AEM's theorem 3.2.2 (equation 8) on a tabular policy. Along the natural gradient of a sampled
//! response's surrogate, the response entropy changes by `A (S - H)`: the advantage times the
//! response's relative surprisal.

use crate::common;
use turnwise_core::{Batch, Group, Purpose, Seed, Turn};
use turnwise_credit::CreditInputs;
use turnwise_credit::aem::{Aem, AemConfig};

/// Logits of a policy over responses of one or two tokens out of three; token 2 ends the response.
/// The second token's logits depend on the first token.
#[derive(Clone)]
struct Policy {
    first: [f64; 3],
    second: [[f64; 3]; 2],
}

fn log_softmax(logits: &[f64; 3]) -> [f64; 3] {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    logits.map(|logit| logit - largest - sum.ln())
}

fn entropy(logprobs: &[f64; 3]) -> f64 {
    -logprobs.iter().map(|logprob| logprob.exp() * logprob).sum::<f64>()
}

impl Policy {
    fn random(seed: u64) -> Self {
        let mut rng = Seed::derive(seed, Purpose::Credit, &[]).rng();
        let mut logits = || [rng.normal(), rng.normal(), rng.normal()];
        Self { first: logits(), second: [logits(), logits()] }
    }

    fn responses(&self) -> Vec<(f64, Vec<f64>)> {
        let first = log_softmax(&self.first);
        let mut found = vec![(first[2], vec![entropy(&first)])];
        for (token, logits) in self.second.iter().enumerate() {
            let second = log_softmax(logits);
            let entropies = vec![entropy(&first), entropy(&second)];
            found.extend(second.map(|logprob| (first[token] + logprob, entropies.clone())));
        }
        found
    }

    /// Equation 6: the expected sum over a response's token entropies.
    fn response_entropy(&self) -> f64 {
        self.responses()
            .iter()
            .map(|(logprob, entropies)| logprob.exp() * entropies.iter().sum::<f64>())
            .sum()
    }
}

/// Creates the policy with these probabilities, in the order of [`Policy::responses`].
fn with_probabilities(probabilities: &[f64]) -> Policy {
    let second =
        |index: usize| -> [f64; 3] { std::array::from_fn(|token| probabilities[1 + 3 * index + token].ln()) };
    let sum = |index: usize| -> f64 { probabilities[1 + 3 * index..4 + 3 * index].iter().sum() };
    Policy { first: [sum(0).ln(), sum(1).ln(), probabilities[0].ln()], second: [second(0), second(1)] }
}

/// Returns the derivative of the response entropy along the natural gradient of `A log pi(a)` on
/// the simplex, `A (e_a - pi)`, by fourth-order central differences.
fn measured_drift(policy: &Policy, response: usize, advantage: f64) -> f64 {
    let probabilities: Vec<f64> = policy.responses().iter().map(|(logprob, _)| logprob.exp()).collect();
    let along = |step: f64| {
        let moved = probabilities.iter().enumerate().map(|(index, probability)| {
            let hit = if index == response { 1.0 } else { 0.0 };
            probability + step * advantage * (hit - probability)
        });
        with_probabilities(&moved.collect::<Vec<_>>()).response_entropy()
    };
    // A thousandth of the response's probability.
    let step = 1e-3 * probabilities[response];
    (8.0 * (along(step) - along(-step)) - (along(2.0 * step) - along(-2.0 * step))) / (12.0 * step)
}

#[test]
fn the_drift_of_entropy_is_advantage_times_relative_surprisal() {
    let (mut rising, mut falling, mut apart) = (0, 0, 0);
    for seed in 0..8 {
        let policy = Policy::random(seed);
        let entropy = policy.response_entropy();
        let of_responses: f64 = policy.responses().iter().map(|(logprob, _)| -logprob.exp() * logprob).sum();
        assert!((entropy - of_responses).abs() < 1e-12, "{entropy} {of_responses}");
        for (response, (logprob, entropies)) in policy.responses().iter().enumerate() {
            for advantage in [1.5, -0.75] {
                let expected = advantage * (-logprob - entropy);
                let measured = measured_drift(&policy, response, advantage);
                assert!((measured - expected).abs() < 1e-7 * (1.0 + expected.abs()), "{measured} {expected}");
                rising += usize::from(measured > 0.0);
                falling += usize::from(measured < 0.0);
                // The sum of a response's token entropies differs from its surprisal.
                let proxy = advantage * (entropies.iter().sum::<f64>() - entropy);
                apart += usize::from((measured - proxy).abs() > 0.1);
            }
        }
    }
    assert!(rising > 30 && falling > 30 && apart > 50, "{rising} {falling} {apart}");
}

#[test]
fn the_coefficient_moves_the_drift_as_the_method_says() {
    // Two turns, one certain and one uncertain, with advantages of either sign.
    let turn =
        |entropy: f32| Turn { response_ids: vec![0], entropies: vec![entropy], ..common::turn("s", 0.0) };
    let trajectory = common::trajectory(0, 0, vec![turn(0.2), turn(1.4)]);
    let batch = Batch { groups: vec![Group { trajectories: vec![trajectory] }] };
    let alpha = Aem::new(AemConfig::default()).unwrap().coefficients(&CreditInputs::new(&batch)).unwrap();
    let (certain, uncertain) = (alpha[(0, 0, 0)], alpha[(0, 0, 1)]);
    assert!(certain > 1.0 && uncertain < 1.0, "{certain} {uncertain}");
    // A response with little surprisal (S < H) lowers entropy if it is good, and raises it if it is
    // bad. A larger coefficient strengthens both, as equation 8 is linear in the advantage.
    let policy = Policy::random(3);
    let entropy = policy.response_entropy();
    let usual = policy.responses().iter().position(|(logprob, _)| -logprob < entropy - 0.2).unwrap();
    for (advantage, sign) in [(1.0, -1.0), (-1.0, 1.0)] {
        let drift = |coefficient: f64| measured_drift(&policy, usual, coefficient * advantage);
        assert!(drift(1.0) * sign > 0.0 && (drift(certain) - drift(1.0)) * sign > 0.0);
        assert!((drift(uncertain) - drift(1.0)) * sign < 0.0);
        assert!((drift(certain) / drift(1.0) - certain).abs() < 1e-6);
    }
}
