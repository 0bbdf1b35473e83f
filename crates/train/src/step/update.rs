//! From a batch with advantages to the updates of one step.

use turnwise_core::{
    Batch, Learner, LossMetrics, MaskedContext, MaskedContextLearner as _, Objective, PerToken, PerTurn,
    Purpose, Seed, TokenSequence,
};
use turnwise_credit::gae::TokenAdvantages;
use turnwise_model::NativeLearner;
use turnwise_objective::{
    Advantages, BiasNorm, BiasObjective, ClippingWatch, NormalizationConfig, ObjectiveBatch, ObjectiveConfig,
    ObjectiveSequence, PolicyObjective, SelectiveObjective, Subset, ValueSequence, kl_estimate, reward_kl,
};

use crate::TrainError;
use crate::config::TrainConfig;
use crate::learners::critic::{CriticReport, RunCritic};

/// A sequence with all that its loss needs.
#[derive(Clone, Debug)]
pub struct TrainingSequence {
    /// The tokens.
    pub tokens: TokenSequence,
    /// Per-token and per-turn numbers.
    pub objective: ObjectiveSequence,
    /// Outlier turns after their blind prompts, with the span of each.
    pub masked_contexts: Vec<(usize, TokenSequence)>,
    /// What a critic should say.
    pub values: Option<ValueSequence>,
}

/// One training unit: the sequences of one trajectory, which stay in one minibatch.
pub type TrainingTrajectory = Vec<TrainingSequence>;

/// What a training set is made from.
#[derive(Clone, Copy)]
pub struct SetInputs<'a> {
    /// One advantage a turn.
    pub advantages: &'a PerTurn<f64>,
    /// Token-level advantages and targets with the values they were made from, where there is a critic.
    pub tokens: Option<(&'a TokenAdvantages, &'a PerToken<f64>)>,
    /// The blind sequence of every outlier turn, `[trajectory][turn]` in batch order; empty without.
    pub blind: &'a [Vec<(usize, TokenSequence)>],
    /// Leave trajectories out whose advantages are all zero and that nothing else acts on.
    pub skip_zero: bool,
}

/// Pairs every sequence of the batch with its old log-probabilities and advantages. Trajectories
/// without response tokens have nothing to train on and are left out, as are those whose advantages
/// are all zero when `skip_zero` says so.
pub fn training_set(batch: &Batch, inputs: &SetInputs<'_>) -> Vec<TrainingTrajectory> {
    let mut set = Vec::new();
    let mut place = 0;
    for (index, (group, group_advantages)) in batch.groups.iter().zip(inputs.advantages.groups()).enumerate()
    {
        for (member, (trajectory, turn_advantages)) in
            group.trajectories.iter().zip(group_advantages).enumerate()
        {
            let blind = inputs.blind.get(place).map_or(&[][..], Vec::as_slice);
            place += 1;
            let zero = turn_advantages.iter().all(|&advantage| advantage == 0.0);
            if inputs.skip_zero && zero && blind.is_empty() {
                continue;
            }
            let mut start = 0;
            let mut sequences = TrainingTrajectory::new();
            for sequence in &trajectory.sequences {
                let tokens = start..start + sequence.response_tokens();
                start = tokens.end;
                if tokens.is_empty() {
                    continue;
                }
                let old_logprobs = sequence
                    .spans
                    .iter()
                    .flat_map(|span| &trajectory.turns[span.turn].old_logprobs)
                    .copied()
                    .collect();
                let per_turn = sequence.spans.iter().map(|span| turn_advantages[span.turn]).collect();
                let mut objective = ObjectiveSequence::new(sequence.spans.clone(), old_logprobs, per_turn);
                let values = inputs.tokens.map(|(found, values)| {
                    objective.advantages =
                        Advantages::PerToken(found.advantages[(index, member)][tokens.clone()].to_vec());
                    ValueSequence {
                        old_values: values[(index, member)][tokens.clone()].to_vec(),
                        returns: found.returns[(index, member)][tokens.clone()].to_vec(),
                        mask: None,
                    }
                });
                let span_of = |turn: usize| sequence.spans.iter().position(|span| span.turn == turn);
                let masked_contexts = blind
                    .iter()
                    .filter_map(|(turn, tokens)| Some((span_of(*turn)?, tokens.clone())))
                    .collect();
                sequences.push(TrainingSequence {
                    tokens: sequence.clone(),
                    objective,
                    masked_contexts,
                    values,
                });
            }
            if !sequences.is_empty() {
                set.push(sequences);
            }
        }
    }
    set
}

/// What the updates of one step found, summed over minibatches.
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
}

/// How the updates of one step are made.
pub struct Updates<'a> {
    /// The loss, with the KL coefficient of this step.
    pub objective: &'a ObjectiveConfig,
    /// Epochs and minibatches.
    pub train: &'a TrainConfig,
    /// The run's seed.
    pub seed: u64,
    /// The step.
    pub step: u64,
    /// Whether the policy is updated too, or the critic alone.
    pub policy: bool,
}

impl Updates<'_> {
    /// Runs `epochs` passes of `minibatches` updates each. `rate` gives the learning rate of an update,
    /// counted from 0 over the whole phase.
    pub(crate) fn run(
        &self,
        learner: &mut NativeLearner,
        mut critic: Option<(&mut RunCritic, &mut CriticReport)>,
        set: &[TrainingTrajectory],
        rate: impl Fn(u64) -> f64,
    ) -> Result<UpdateReport, TrainError> {
        let mut report = UpdateReport::default();
        let (epochs, minibatches) = (self.train.update_epochs, self.train.num_minibatches);
        for epoch in 0..epochs {
            let mut order: Vec<usize> = (0..set.len()).collect();
            let coordinates = [self.step, epoch as u64];
            Seed::derive(self.seed, Purpose::Shuffle, &coordinates).rng().shuffle(&mut order);
            for minibatch in 0..minibatches {
                // As even as the count allows.
                let cut = |index: usize| index * order.len() / minibatches;
                let chosen = &order[cut(minibatch)..cut(minibatch + 1)];
                if chosen.is_empty() {
                    continue;
                }
                let sequences: Vec<&TrainingSequence> =
                    chosen.iter().flat_map(|&index| &set[index]).collect();
                let tokens: Vec<TokenSequence> =
                    sequences.iter().map(|sequence| sequence.tokens.clone()).collect();
                if let Some((critic, report)) = &mut critic {
                    let targets = sequences.iter().filter_map(|sequence| sequence.values.clone()).collect();
                    critic.update(&tokens, targets, report)?;
                }
                if self.policy {
                    let update = ((self.step as usize * epochs + epoch) * minibatches + minibatch) as u64;
                    self.update(learner, &sequences, &tokens, rate(update), &mut report)?;
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
        Ok(report)
    }

    fn update(
        &self,
        learner: &mut NativeLearner,
        sequences: &[&TrainingSequence],
        tokens: &[TokenSequence],
        rate: f64,
        report: &mut UpdateReport,
    ) -> Result<(), TrainError> {
        let batch = ObjectiveBatch {
            sequences: sequences.iter().map(|sequence| sequence.objective.clone()).collect(),
        };
        let policy = PolicyObjective::new(self.objective, batch)?;
        let watch = self.objective.normalization.is_some().then(|| ClippingWatch::new(&policy));
        let objective: &dyn Objective = watch.as_ref().map_or(&policy, |watch| watch);
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
        let loss = match &self.objective.selective {
            Some(selective) if !masked_contexts.is_empty() => {
                let turns = tokens.iter().flat_map(|tokens| &tokens.spans).filter(|span| !span.is_empty());
                let spans: Vec<_> =
                    masked_contexts.iter().map(|masked_context| masked_context.tokens.spans[0]).collect();
                let term = SelectiveObjective::for_masked_contexts(selective, &spans, turns.count())?;
                learner.forward_backward_masked(tokens, &masked_contexts, (objective, &term))?
            }
            _ => learner.forward_backward(tokens, objective)?,
        };
        if let (Some(config), Some(watch)) = (&self.objective.normalization, watch) {
            let (norm, factor) = normalise(learner, config, &policy, watch, tokens)?;
            report.bias_norm += norm;
            report.bias_factor += factor;
        }
        let stepped = learner.step(rate)?;
        report.loss += loss.loss;
        report.metrics.add(&loss.metrics);
        report.gradient_norm += stepped.gradient_norm;
        report.tokens += loss.total_tokens;
        report.updates += 1;
        Ok(())
    }
}

/// SORL's normalization: divides the accumulated gradient by `max(||C||, delta)`. For the parameter norm
/// the clipping bias is run backward over the sequences with clipped tokens, and over none without.
fn normalise(
    learner: &mut NativeLearner,
    config: &NormalizationConfig,
    policy: &PolicyObjective,
    watch: ClippingWatch<'_>,
    tokens: &[TokenSequence],
) -> Result<(f64, f64), TrainError> {
    let (sum, clipped) = watch.finish();
    let gradient = learner.take_gradient();
    let norm = match config.norm {
        BiasNorm::Token => sum.token_norm(),
        BiasNorm::Scalar => sum.scalar_norm(),
        BiasNorm::Parameter if clipped.is_empty() => 0.0,
        BiasNorm::Parameter => {
            let some: Vec<TokenSequence> = clipped.iter().map(|&index| tokens[index].clone()).collect();
            let bias = BiasObjective(policy);
            learner.forward_backward(&some, &Subset { inner: &bias, places: &clipped })?;
            learner.gradient_norm()?
        }
    };
    let factor = config.factor(norm)?;
    learner.put_gradient(gradient, factor);
    Ok((norm, factor))
}

/// Replaces the sampler's log-probabilities by the learner's own.
pub fn recompute_old_logprobs<L: Learner>(
    learner: &mut L,
    set: &mut [TrainingTrajectory],
) -> Result<(), TrainError> {
    let logprobs = learner.logprobs(&all_tokens(set))?;
    for (sequence, logprobs) in set.iter_mut().flatten().zip(logprobs) {
        sequence.objective.old_logprobs = logprobs;
    }
    Ok(())
}

/// Fills in the log-probabilities of the reference policy.
pub fn reference_logprobs(
    learner: &mut NativeLearner,
    set: &mut [TrainingTrajectory],
) -> Result<(), TrainError> {
    let logprobs = learner.reference_logprobs(&all_tokens(set))?;
    for (sequence, logprobs) in set.iter_mut().flatten().zip(logprobs) {
        sequence.objective.ref_logprobs = Some(logprobs);
    }
    Ok(())
}

fn all_tokens(set: &[TrainingTrajectory]) -> Vec<TokenSequence> {
    set.iter().flatten().map(|sequence| sequence.tokens.clone()).collect()
}

/// Subtracts the KL to the reference policy from the reward of every turn (`kl.where = "reward"`) and
/// returns its mean over tokens.
pub fn subtract_reward_kl(
    learner: &mut NativeLearner,
    objective: &ObjectiveConfig,
    batch: &mut Batch,
) -> Result<f64, TrainError> {
    let (mut sum, mut tokens) = (0.0, 0.0);
    let kl = &objective.kl;
    let sequences: Vec<TokenSequence> =
        batch.trajectories().flat_map(|trajectory| trajectory.sequences.iter().cloned()).collect();
    let mut scored = learner.reference_logprobs(&sequences)?.into_iter();
    for trajectory in batch.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
        for (sequence, logprobs) in trajectory.sequences.iter().zip(scored.by_ref()) {
            let mut start = 0;
            for span in &sequence.spans {
                let turn = &mut trajectory.turns[span.turn];
                let of_turn = &logprobs[start..start + span.len()];
                turn.reward -= reward_kl(kl.estimator, kl.coef, &turn.old_logprobs, of_turn);
                for (&old, &reference) in turn.old_logprobs.iter().zip(of_turn) {
                    sum += kl_estimate(kl.estimator, f64::from(old), f64::from(reference)).0;
                    tokens += 1.0;
                }
                start += span.len();
            }
        }
    }
    Ok(if tokens > 0.0 { sum / tokens } else { 0.0 })
}
