use pulp::Arch;
use turnwise_core::SamplingParams;

use super::vector::{CHUNK, Exponentials};
use crate::backend::Choice;

#[derive(Debug, Default)]
pub(crate) struct TokenSampler {
    weights: Vec<f32>,
    chunks: Vec<f64>,
    candidates: Vec<(f32, u32)>,
}

impl TokenSampler {
    /// Samples from `softmax(logits / temperature)` after top-k, then top-p; `None` if the logits
    /// are not finite. `uniform` is a random number in `[0, 1)`; greedy decoding ignores it.
    ///
    /// `logits` has `vocab` entries, padded to whole vectors with the lowest finite number. With
    /// `x = (logit - max) / temperature` and `Z = sum e^x`, the log-prob is `x - ln Z` and the
    /// entropy `ln Z - (sum x e^x) / Z`. Log-prob and entropy are those of the full distribution,
    /// before top-k and top-p.
    pub(crate) fn choose(
        &mut self,
        arch: Arch,
        logits: &[f32],
        vocab: usize,
        params: &SamplingParams,
        uniform: f64,
    ) -> Option<Choice> {
        let greedy = params.temperature == 0.0;
        let inverse_temperature = if greedy { 1.0 } else { 1.0 / params.temperature };
        self.weights.resize(logits.len(), 0.0);
        let (weights, chunks) = (&mut self.weights, &mut self.chunks);
        let softmax = arch.dispatch(Exponentials { logits, inverse_temperature, weights, chunks });
        if !softmax.max.is_finite() || !softmax.total.is_finite() {
            return None;
        }
        let token = if greedy {
            logits[..vocab].iter().position(|&logit| logit == softmax.max)?
        } else if params.top_k == 0 && params.top_p >= 1.0 {
            self.draw(vocab, uniform * softmax.total)
        } else {
            self.draw_truncated(vocab, softmax.total, params, uniform)
        };
        let log_total = softmax.total.ln();
        let x = f64::from((logits[token] - softmax.max) * inverse_temperature);
        Some(Choice {
            token: token as u32,
            logprob: (x - log_total) as f32,
            entropy: (log_total - softmax.weighted / softmax.total).max(0.0) as f32,
        })
    }

    /// Returns the first token at which the running sum of weights exceeds `target`.
    fn draw(&self, vocab: usize, mut target: f64) -> usize {
        let last = self.chunks.len() - 1;
        for (index, &sum) in self.chunks.iter().enumerate() {
            if target >= sum && index < last {
                target -= sum;
                continue;
            }
            let start = index * CHUNK;
            let end = (start + CHUNK).min(vocab);
            for token in start..end {
                target -= f64::from(self.weights[token]);
                if target < 0.0 {
                    return token;
                }
            }
            // Rounding made the chunk's sum too large. Take the heaviest token: the last may have
            // almost no weight.
            let by_weight = |a: &usize, b: &usize| self.weights[*a].total_cmp(&self.weights[*b]);
            return (start..end).max_by(by_weight).unwrap_or(end - 1);
        }
        vocab - 1
    }

    fn draw_truncated(&mut self, vocab: usize, total: f64, params: &SamplingParams, uniform: f64) -> usize {
        let weights = &self.weights[..vocab];
        let by_weight = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        // Tokens below this have less than 1 - top_p in total, so none is kept.
        let floor = if params.top_k == 0 {
            ((1.0 - f64::from(params.top_p)) * total / vocab as f64 * 0.999) as f32
        } else {
            0.0
        };
        self.candidates.clear();
        let candidates = weights.iter().zip(0u32..).filter(|&(&weight, _)| weight >= floor);
        self.candidates.extend(candidates.map(|(&weight, token)| (weight, token)));
        if params.top_k > 0 && params.top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(params.top_k - 1, by_weight);
            self.candidates.truncate(params.top_k);
        }
        self.candidates.sort_unstable_by(by_weight);
        let whole = if params.top_k == 0 {
            total
        } else {
            self.candidates.iter().map(|candidate| f64::from(candidate.0)).sum()
        };
        let mut kept_weight = 0.0;
        let mut kept = 0;
        for candidate in &self.candidates {
            kept += 1;
            kept_weight += f64::from(candidate.0);
            if kept_weight >= f64::from(params.top_p) * whole {
                break;
            }
        }
        let mut target = uniform * kept_weight;
        for candidate in &self.candidates[..kept] {
            target -= f64::from(candidate.0);
            if target < 0.0 {
                return candidate.1 as usize;
            }
        }
        self.candidates[kept - 1].1 as usize
    }
}

pub(super) fn best(
    logits: &[f32],
    params: &SamplingParams,
    chosen: &Choice,
    count: usize,
) -> Vec<(u32, f32)> {
    let inverse = if params.temperature == 0.0 { 1.0 } else { 1.0 / params.temperature };
    let reference = logits[chosen.token as usize];
    let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count, order);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(order);
    let logprob = |token: u32| chosen.logprob + (logits[token as usize] - reference) * inverse;
    tokens.into_iter().map(|token| (token, logprob(token))).collect()
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Purpose, Seed};

    use super::*;

    const VOCAB: usize = 301;

    fn logits() -> Vec<f32> {
        let mut logits: Vec<f32> =
            (0..VOCAB).map(|token| ((token * 37 % 101) as f32 / 20.0).sin() * 4.0).collect();
        logits.resize(320, f32::MIN);
        logits
    }

    fn probabilities(temperature: f64) -> Vec<f64> {
        let weights: Vec<f64> =
            logits()[..VOCAB].iter().map(|&logit| (f64::from(logit) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    fn kept(probabilities: &[f64], top_k: usize, top_p: f64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..VOCAB).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b)));
        order.truncate(if top_k == 0 { VOCAB } else { top_k });
        let whole: f64 = order.iter().map(|&token| probabilities[token]).sum();
        let mut sum = 0.0;
        let count = order.iter().take_while(|&&token| {
            let before = sum;
            sum += probabilities[token] / whole;
            before < top_p
        });
        let count = count.count();
        order.truncate(count);
        order
    }

    fn chi_square(counts: &[usize], expected: &[f64]) -> f64 {
        let (mut statistic, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
        for (&count, &expected) in counts.iter().zip(expected) {
            if expected >= 10.0 {
                statistic += (count as f64 - expected).powi(2) / expected;
                cells += 1;
            } else {
                rest = (rest.0 + count as f64, rest.1 + expected);
            }
        }
        if rest.1 > 0.0 {
            statistic += (rest.0 - rest.1).powi(2) / rest.1;
            cells += 1;
        }
        statistic / f64::from(cells - 1)
    }

    #[test]
    fn draws_follow_the_distribution() {
        let draws = 40_000;
        for (temperature, top_k, top_p) in
            [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.0, 20, 1.0), (1.3, 0, 0.8), (0.9, 50, 0.6), (1.0, 1, 1.0)]
        {
            let full = probabilities(temperature);
            let tokens = kept(&full, top_k, top_p);
            let whole: f64 = tokens.iter().map(|&token| full[token]).sum();
            let params = SamplingParams {
                temperature: temperature as f32,
                top_k,
                top_p: top_p as f32,
                ..SamplingParams::default()
            };
            let mut rng = Seed::derive(5, Purpose::Rollout, &[top_k as u64]).rng();
            let mut token_sampler = TokenSampler::default();
            let mut counts = vec![0usize; VOCAB];
            for _ in 0..draws {
                let choice =
                    token_sampler.choose(Arch::new(), &logits(), VOCAB, &params, rng.uniform()).unwrap();
                counts[choice.token as usize] += 1;
                let logprob = full[choice.token as usize].ln();
                assert!((f64::from(choice.logprob) - logprob).abs() < 1e-5);
                let entropy: f64 = full.iter().map(|p| -p * p.ln()).sum();
                assert!((f64::from(choice.entropy) - entropy).abs() < 1e-5);
            }
            let expected: Vec<f64> = (0..VOCAB)
                .map(
                    |token| {
                        if tokens.contains(&token) { full[token] / whole * f64::from(draws) } else { 0.0 }
                    },
                )
                .collect();
            for token in 0..VOCAB {
                assert!(expected[token] > 0.0 || counts[token] == 0, "token {token} was not to be kept");
            }
            if tokens.len() > 1 {
                let found = chi_square(&counts, &expected);
                assert!(found < 1.6, "{found} at {temperature} {top_k} {top_p}");
                // The test must notice odd tokens that are sampled too rarely.
                let mut wrong: Vec<f64> = expected
                    .iter()
                    .enumerate()
                    .map(|(token, e)| e * (1.0 + 0.4 * (token % 2) as f64))
                    .collect();
                let sum: f64 = wrong.iter().sum();
                for e in &mut wrong {
                    *e *= f64::from(draws) / sum;
                }
                assert!(chi_square(&counts, &wrong) > 2.0, "{temperature} {top_k} {top_p}");
            }
        }
    }

    #[test]
    fn a_draw_past_a_chunk_s_elements_goes_to_the_heaviest() {
        let mut weights = vec![1e-30; 2 * CHUNK];
        weights[7] = 1.0;
        // The first chunk's sum is slightly too high.
        let sampler = TokenSampler { weights, chunks: vec![1.0 + 6e-8, 1e-28], candidates: Vec::new() };
        assert_eq!(sampler.draw(2 * CHUNK, 1.0 + 3e-8), 7);
        assert_eq!(sampler.draw(2 * CHUNK, 0.5), 7);
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_reports_temperature_one() {
        let mut logits = logits();
        logits[77] = 9.0;
        logits[200] = 9.0;
        let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let choice = TokenSampler::default().choose(Arch::new(), &logits, VOCAB, &params, 0.5).unwrap();
        assert_eq!(choice.token, 77);
        let total: f64 = logits[..VOCAB].iter().map(|&logit| f64::from(logit).exp()).sum();
        assert!((f64::from(choice.logprob) - (9.0 - total.ln())).abs() < 1e-5);
        for bad in [f32::NAN, f32::INFINITY] {
            logits[3] = bad;
            assert_eq!(TokenSampler::default().choose(Arch::new(), &logits, VOCAB, &params, 0.5), None);
        }
    }
}
