//! The updates of one step: epochs over the training set, in minibatches of whole trajectories.

use turnwise_core::{LearnError, LossMetrics, MaskedContext, Objective, Purpose, Seed, TokenSequence};
use turnwise_model::Schedule;
use turnwise_objective::{
    BiasNorm, BiasObjective, ClippingWatch, NormalizationConfig, ObjectiveBatch, ObjectiveConfig,
    PolicyObjective, SelectiveObjective, Subset,
};

use crate::TrainError;
use crate::config::Config;
use crate::learners::Learners;
use crate::learners::critic::CriticReport;
use crate::learners::policy::PolicyLearner;
use crate::step::training_set::{TrainingSequence, TrainingTrajectory};

/// The numbers of one step's updates, summed over minibatches.
#[derive(Clone, Debug, Default)]
pub struct UpdateReport {
    /// Mean loss over updates.
    pub loss: f64,
    /// Sums over tokens.
    pub metrics: LossMetrics,
    /// Mean gradient norm over updates, before clipping.
    pub gradient_norm: f64,
    /// Number of updates.
    pub updates: u64,
    /// Tokens run through the model.
    pub tokens: usize,
    /// Mean norm of the clipping bias over updates, where it normalises.
    pub bias_norm: f64,
    /// Mean factor on the gradient that came of it.
    pub bias_factor: f64,
    /// The critic's updates, where there is one.
    pub(crate) critic: Option<CriticReport>,
}

/// Runs `train.update_epochs` passes of `train.num_minibatches` updates each over the training set of step `at`.
///
/// # Errors
/// Losses, gradients or weights that are not finite; the update that gave them is not applied where that can be
/// helped.
pub(crate) fn update(
    set: &[TrainingTrajectory],
    objective: &ObjectiveConfig,
    learners: &mut Learners,
    config: &Config,
    at: u64,
) -> Result<UpdateReport, TrainError> {
    let mut report = UpdateReport::default();
    let (epochs, minibatches) = (config.train.update_epochs, config.train.num_minibatches);
    let schedule = schedule(config);
    // A critic is trained alone at first, so that the first advantages mean something.
    let policy_too = learners.critic.is_none() || at >= config.critic.warmup_steps;
    for epoch in 0..epochs {
        let mut order: Vec<usize> = (0..set.len()).collect();
        Seed::derive(config.seed, Purpose::Shuffle, &[at, epoch as u64]).rng().shuffle(&mut order);
        for minibatch in 0..minibatches {
            // As even as the count allows.
            let cut = |index: usize| index * order.len() / minibatches;
            let chosen = &order[cut(minibatch)..cut(minibatch + 1)];
            if chosen.is_empty() {
                continue;
            }
            let sequences: Vec<&TrainingSequence> = chosen.iter().flat_map(|&index| &set[index]).collect();
            let tokens: Vec<TokenSequence> =
                sequences.iter().map(|sequence| sequence.tokens.clone()).collect();
            if let Some(critic) = &mut learners.critic {
                let targets = sequences.iter().filter_map(|sequence| sequence.values.clone()).collect();
                critic.update(&tokens, targets, report.critic.get_or_insert_default())?;
            }
            if policy_too {
                let index = ((at as usize * epochs + epoch) * minibatches + minibatch) as u64;
                let rate = schedule.learning_rate(index);
                policy_update(learners.policy.as_mut(), objective, &sequences, &tokens, rate, &mut report)?;
            }
        }
    }
    if report.updates > 0 {
        let updates = report.updates as f64;
        for sum in
            [&mut report.loss, &mut report.gradient_norm, &mut report.bias_norm, &mut report.bias_factor]
        {
            *sum /= updates;
        }
    }
    learners.check_finite()?;
    Ok(report)
}

/// The learning rate of every update of a run.
pub(crate) fn schedule(config: &Config) -> Schedule {
    let train = &config.train;
    Schedule {
        peak: train.learning_rate,
        warmup_steps: train.warmup,
        shape: train.schedule,
        total_steps: train.steps * (train.update_epochs * train.num_minibatches) as u64,
    }
}

/// One update of the policy on one minibatch.
fn policy_update(
    policy: &mut dyn PolicyLearner,
    config: &ObjectiveConfig,
    sequences: &[&TrainingSequence],
    tokens: &[TokenSequence],
    rate: f64,
    report: &mut UpdateReport,
) -> Result<(), TrainError> {
    let batch =
        ObjectiveBatch { sequences: sequences.iter().map(|sequence| sequence.objective.clone()).collect() };
    let surrogate = PolicyObjective::new(config, batch)?;
    let watch = config.normalization.is_some().then(|| ClippingWatch::new(&surrogate));
    let objective: &dyn Objective = watch.as_ref().map_or(&surrogate, |watch| watch);
    let masked_contexts: Vec<MaskedContext> = sequences
        .iter()
        .enumerate()
        .flat_map(|(sequence, data)| {
            data.masked_contexts.iter().map(move |(span, tokens)| MaskedContext {
                sequence,
                span: *span,
                tokens: tokens.clone(),
            })
        })
        .collect();
    let loss = match &config.selective {
        Some(selective) if !masked_contexts.is_empty() => {
            let turns = tokens.iter().flat_map(|tokens| &tokens.spans).filter(|span| !span.is_empty());
            let spans: Vec<_> =
                masked_contexts.iter().map(|masked_context| masked_context.tokens.spans[0]).collect();
            let term = SelectiveObjective::for_masked_contexts(selective, &spans, turns.count())?;
            policy.forward_backward_masked(tokens, &masked_contexts, (objective, &term))?
        }
        _ => policy.forward_backward(tokens, objective)?,
    };
    if !loss.loss.is_finite() {
        return Err(LearnError::Backend(format!("the loss is {}", loss.loss)).into());
    }
    if let (Some(config), Some(watch)) = (&config.normalization, watch) {
        let (norm, factor) = normalise(policy, config, &surrogate, watch, tokens)?;
        report.bias_norm += norm;
        report.bias_factor += factor;
    }
    let stepped = policy.step(rate)?;
    report.loss += loss.loss;
    report.metrics.add(&loss.metrics);
    report.gradient_norm += stepped.gradient_norm;
    report.tokens += loss.total_tokens;
    report.updates += 1;
    Ok(())
}

/// Clipping-triggered normalization: divides the accumulated gradient by `max(||C||, delta)`. For the parameter norm
/// the clipping bias is run backward over the sequences with clipped tokens, and over none without.
fn normalise(
    policy: &mut dyn PolicyLearner,
    config: &NormalizationConfig,
    surrogate: &PolicyObjective,
    watch: ClippingWatch<'_>,
    tokens: &[TokenSequence],
) -> Result<(f64, f64), TrainError> {
    let (sum, clipped) = watch.finish();
    policy.stash_gradient()?;
    let norm = match config.norm {
        BiasNorm::Token => sum.token_norm(),
        BiasNorm::Scalar => sum.scalar_norm(),
        BiasNorm::Parameter if clipped.is_empty() => 0.0,
        BiasNorm::Parameter => {
            let some: Vec<TokenSequence> = clipped.iter().map(|&index| tokens[index].clone()).collect();
            let bias = BiasObjective(surrogate);
            policy.forward_backward(&some, &Subset { inner: &bias, places: &clipped })?;
            policy.gradient_norm()?
        }
    };
    let factor = config.factor(norm)?;
    policy.restore_gradient(factor)?;
    Ok((norm, factor))
}
