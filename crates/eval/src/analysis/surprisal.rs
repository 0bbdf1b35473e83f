//! Compares AEM's coefficient with the relative surprisal of responses (AEM, section 5.3, analysis
//! A, and figure 2).
//!
//! The surprisal of response `a` in state `s` is `S(a|s) = - sum_l log pi(a_l | s, a_<l)`, in nats;
//! its mean is the entropy `H(s)`. AEM's coefficient `alpha` is a proxy for the relative surprisal
//! `H(s) - S(a|s)`. This analysis estimates `H(s)` from `K` more responses,
//! `H_MC(s) = 1/K sum_j S(a_j|s)`.
//!
//! The surprisal's variance between states, `Var[H(s)]`, and within a state, `E[Var(S|s)]`, are
//! estimated from `E[(H_MC(s) - S(a|s))^2] = (1 + 1/K) E[Var(S|s)]` and
//! `Var[H_MC(s)] = Var[H(s)] + E[Var(S|s)] / K`.
//!
//! Differs from the paper: states are turns of groups that AEM scales, drawn without replacement;
//! the paper does not state how its 64 states were chosen. Turns with `alpha = 1`, and states in
//! which all sampled responses equal the analysed one, have no sign to compare; the study reports
//! their numbers.

use serde::Serialize;
use turnwise_core::{
    Batch, Completion, Part, PerTurn, Purpose, SampleError, SampleRequest, Sampler, SamplingParams, Seed,
};
use turnwise_credit::CreditInputs;
use turnwise_credit::aem::{Aem, AemConfig};
use turnwise_train::{TrainError, sampling_params};

use super::AnalysisSettings;
use crate::EvalError;
use crate::statistics::pearson;

/// Relative surprisals below this number of nats are rounding errors.
const NO_SURPRISAL: f64 = 1e-5;

/// Settings of the analysis.
#[derive(Clone, Debug)]
pub struct SurprisalSettings {
    /// Number of turns to analyse.
    pub states: usize,
    /// Number of responses to sample per turn, at least 2.
    pub draws: usize,
    /// AEM's settings.
    pub aem: AemConfig,
}

/// A response, and the mean surprisal of other responses to the same prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Surprisal {
    /// Group index.
    pub group: usize,
    /// Trajectory index.
    pub trajectory: usize,
    /// Turn index.
    pub turn: usize,
    /// AEM's coefficient.
    pub alpha: f64,
    /// `S(a|s)`, in nats.
    pub surprisal: f64,
    /// `H_MC(s)`, in nats.
    pub mean_surprisal: f64,
}

impl Surprisal {
    /// Returns `H_MC(s) - S(a|s)`, in nats.
    pub fn relative(&self) -> f64 {
        self.mean_surprisal - self.surprisal
    }
}

/// Coefficients and relative surprisals of the analysed turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SurprisalStudy {
    /// The analysed responses.
    pub points: Vec<Surprisal>,
    /// Number of turns that AEM scales; the analysed states are drawn from them.
    pub scaled_turns: usize,
    /// Number of turns with a response.
    pub turns: usize,
    /// Pearson's correlation of `alpha - 1` and `H_MC(s) - S(a|s)`; `None` if either is constant.
    pub pearson: Option<f64>,
    /// Correlation of `alpha - 1` and `H_MC(s)`, the part of the relative surprisal that depends
    /// only on the state.
    pub pearson_of_state: Option<f64>,
    /// Number of states whose relative surprisal is 0, because all sampled responses equal the
    /// analysed one.
    pub certain: usize,
    /// Number of responses in the remaining states whose `alpha - 1` and `H_MC(s) - S(a|s)` have
    /// the same sign.
    pub same_sign: usize,
    /// Estimate of `Var[H(s)]` in square nats; can be negative if small.
    pub variance_between: f64,
    /// Estimate of `E[Var(S|s)]` in square nats.
    pub variance_within: f64,
}

impl SurprisalStudy {
    fn of(points: Vec<Surprisal>, draws: usize, scaled_turns: usize, turns: usize) -> Self {
        let of = |number: fn(&Surprisal) -> f64| points.iter().map(number).collect::<Vec<_>>();
        let (alpha, relative) = (of(|point| point.alpha - 1.0), of(Surprisal::relative));
        let has_sign = |relative: &&f64| relative.abs() > NO_SURPRISAL;
        let certain = relative.len() - relative.iter().filter(has_sign).count();
        let agree = |(alpha, relative): &(&f64, &f64)| has_sign(relative) && **alpha * **relative > 0.0;
        let same_sign = alpha.iter().zip(&relative).filter(agree).count();
        let pearson_of_state = pearson(&alpha, &of(|point| point.mean_surprisal));
        let pearson = pearson(&alpha, &relative);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let squares: Vec<f64> = relative.iter().map(|relative| relative * relative).collect();
        let per_draw = 1.0 / draws as f64;
        let variance_within = mean(&squares) / (1.0 + per_draw);
        let means = of(|point| point.mean_surprisal);
        let middle = mean(&means);
        let spread: f64 = means.iter().map(|value| (value - middle).powi(2)).sum();
        let variance_between =
            spread / means.len().saturating_sub(1).max(1) as f64 - variance_within * per_draw;
        Self {
            points,
            scaled_turns,
            turns,
            pearson,
            pearson_of_state,
            certain,
            same_sign,
            variance_between,
            variance_within,
        }
    }

    /// Returns the share of variance within states; `None` if the variance is 0.
    pub fn share_within(&self) -> Option<f64> {
        let all = self.variance_between.max(0.0) + self.variance_within;
        (all > 0.0).then(|| self.variance_within / all)
    }
}

/// Draws turns, samples other responses to their prompts, and compares relative surprisal with
/// AEM's coefficient. `tick` receives the number of finished turns. Results are deterministic.
///
/// # Errors
/// Returns [`EvalError::Train`] on an invalid AEM setting, missing entropies or a failed sampler;
/// [`EvalError::Interrupted`] if stopped.
pub fn surprisal(
    settings: &AnalysisSettings<'_>,
    batch: &Batch,
    study: &SurprisalSettings,
    tick: &mut dyn FnMut(usize),
) -> Result<SurprisalStudy, EvalError> {
    let config = settings.config;
    let alpha = Aem::new(study.aem.clone())
        .and_then(|aem| aem.coefficients(&CreditInputs::new(batch)))
        .map_err(TrainError::from)?;
    let with_response = turns_with_response(batch, &alpha);
    let mut states: Vec<Surprisal> =
        with_response.iter().filter(|state| state.alpha != 1.0).cloned().collect();
    let (scaled_turns, turns) = (states.len(), with_response.len());
    Seed::derive(config.seed, Purpose::Resampling, &[]).rng().shuffle(&mut states);
    states.truncate(study.states);
    let params = sampling_params(config, settings.runner.prompter(), config.rollout.temperature);
    let mut samplers = settings.samplers()?;
    let Some(sampler) = samplers.first_mut() else { return Err(EvalError::Interrupted) };
    for (index, state) in states.iter_mut().enumerate() {
        if settings.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(EvalError::Interrupted);
        }
        let trajectory = &batch.groups[state.group].trajectories[state.trajectory];
        let prompt = trajectory.sequences.iter().find_map(|sequence| {
            let span = sequence.spans.iter().find(|span| span.turn == state.turn)?;
            Some(sequence.tokens[..span.start].to_vec())
        });
        let Some(mut prompt) = prompt else { continue };
        if let Some(pictures) = &settings.runner.pictures {
            let image = trajectory.turns[state.turn].parts.iter().find_map(Part::image);
            pictures.show(&mut prompt, image).map_err(TrainError::from)?;
        }
        let first = (index * study.draws) as u64;
        let seeds = (first..first + study.draws as u64)
            .map(|draw| Seed::derive(config.seed, Purpose::Evaluation, &[draw]));
        let completions = responses(sampler, &prompt, &params, seeds, first).map_err(TrainError::from)?;
        state.mean_surprisal = completions.iter().map(|found| surprisal_of(&found.logprobs)).sum::<f64>()
            / completions.len() as f64;
        tick(index + 1);
    }
    Ok(SurprisalStudy::of(states, study.draws, scaled_turns, turns))
}

fn turns_with_response(batch: &Batch, alpha: &PerTurn<f64>) -> Vec<Surprisal> {
    let mut found = Vec::new();
    for ((group, trajectory, turn), &alpha) in alpha.iter() {
        let data = &batch.groups[group].trajectories[trajectory];
        let has_prompt =
            data.sequences.iter().any(|sequence| sequence.spans.iter().any(|span| span.turn == turn));
        let logprobs = &data.turns[turn].old_logprobs;
        if has_prompt && !logprobs.is_empty() {
            let surprisal = surprisal_of(logprobs);
            found.push(Surprisal { group, trajectory, turn, alpha, surprisal, mean_surprisal: surprisal });
        }
    }
    found
}

fn surprisal_of(logprobs: &[f32]) -> f64 {
    -logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>()
}

/// Returns one response per seed, in order.
fn responses(
    sampler: &mut dyn Sampler,
    prompt: &[u32],
    params: &SamplingParams,
    seeds: impl Iterator<Item = Seed>,
    first_session: u64,
) -> Result<Vec<Completion>, SampleError> {
    let mut requests = Vec::new();
    for (session, seed) in (first_session..).zip(seeds) {
        let request = SampleRequest { session, prompt: prompt.to_vec(), params: params.clone(), seed };
        requests.push((sampler.submit(request)?, session));
    }
    let mut found: Vec<Option<Completion>> = requests.iter().map(|_| None).collect();
    while found.iter().any(Option::is_none) {
        for completion in sampler.poll()? {
            if let Some(at) = requests.iter().position(|(id, _)| *id == completion.request) {
                sampler.end_session(requests[at].1);
                found[at] = Some(completion);
            }
        }
    }
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_is_that_of_a_response_less_surprising_than_others() {
        let point = |alpha: f64, surprisal: f64| Surprisal {
            group: 0,
            trajectory: 0,
            turn: 0,
            alpha,
            surprisal,
            mean_surprisal: 2.0,
        };
        let agreeing = vec![point(1.2, 1.0), point(0.8, 3.0), point(1.1, 1.5)];
        let study = SurprisalStudy::of(agreeing.clone(), 64, 3, 4);
        assert_eq!(study.pearson_of_state, None);
        let mut other = agreeing;
        other[1].mean_surprisal = 5.0;
        assert!(SurprisalStudy::of(other, 64, 3, 4).pearson_of_state.is_some_and(|r| r < -0.9));
        assert_eq!((study.same_sign, study.pearson.map(|r| r > 0.9)), (3, Some(true)));
        let certain = SurprisalStudy::of(vec![point(1.2, 2.0), point(0.8, 3.0)], 64, 2, 2);
        assert_eq!((certain.certain, certain.same_sign), (1, 1));
        let against = SurprisalStudy::of(vec![point(0.8, 1.0), point(1.2, 3.0)], 64, 2, 2);
        assert_eq!((against.same_sign, against.pearson.map(|r| r < -0.9)), (0, Some(true)));
        assert_eq!(surprisal_of(&[-0.5, -1.5]), 2.0);
    }

    #[test]
    fn the_variance_is_split_into_its_two_parts() {
        let mut rng = Seed::derive(1, Purpose::Resampling, &[]).rng();
        let mut normal = || rng.normal();
        let draws = 4;
        let points = (0..20_000)
            .map(|_| {
                let state = 10.0 + 2.0 * normal();
                let drawn = (0..draws).map(|_| state + normal()).sum::<f64>() / f64::from(draws);
                Surprisal {
                    group: 0,
                    trajectory: 0,
                    turn: 0,
                    alpha: 1.1,
                    surprisal: state + normal(),
                    mean_surprisal: drawn,
                }
            })
            .collect();
        let study = SurprisalStudy::of(points, draws as usize, 1, 1);
        assert!((study.variance_within - 1.0).abs() < 0.03, "{}", study.variance_within);
        assert!((study.variance_between - 4.0).abs() < 0.15, "{}", study.variance_between);
        assert!(study.share_within().is_some_and(|share| (share - 0.2).abs() < 0.01));
        let same = |mean_surprisal| Surprisal {
            surprisal: mean_surprisal,
            mean_surprisal,
            ..study.points[0].clone()
        };
        assert_eq!(SurprisalStudy::of(vec![same(1.0), same(3.0)], 4, 2, 2).share_within(), Some(0.0));
        assert_eq!(SurprisalStudy::of(vec![same(1.0), same(1.0)], 4, 2, 2).share_within(), None);
    }
}
