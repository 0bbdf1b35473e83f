//! Gradients and optimizer steps.

use std::collections::BTreeMap;

use turnwise_core::{
    DirectLoss, LearnError, LossReport, Objective, StepReport, TokenBatch, TokenSequence, TokenStatistics,
};
use turnwise_train::config::LossForm;

use super::client::{AdamParams, Client, RemoteModel};
use super::error::TinkerError;
use super::example::{Example, at_responses, spread};
use super::linear::{self, Pending};
use super::passes::NamedLoss;
use super::reduction::Reduction;

#[derive(Debug)]
pub(crate) struct Updates {
    pub(crate) reduction: Reduction,
    pub(crate) form: LossForm,
    /// Optimizer settings; each step replaces the learning rate.
    pub(crate) adam: AdamParams,
    pending: Vec<Pending>,
    stashed: Option<Vec<Pending>>,
    /// Number of sequences whose loss was sent by name since the last optimizer step.
    sent: usize,
    pub(crate) steps: u64,
}

impl Updates {
    pub(crate) fn new(reduction: Reduction, form: LossForm, adam: AdamParams) -> Self {
        Self { reduction, form, adam, pending: Vec::new(), stashed: None, sent: 0, steps: 0 }
    }

    pub(crate) fn restart(&mut self, steps: u64) {
        (self.pending, self.stashed, self.sent, self.steps) = (Vec::new(), None, 0, steps);
    }

    pub(crate) fn accumulate(
        &mut self,
        client: &Client,
        model: &RemoteModel,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        let passes = objective.passes();
        if passes.entropies || passes.reference_kls {
            return Err(LearnError::Unsupported("full-vocabulary entropies or divergences"));
        }
        if !batch.masked_contexts.is_empty() {
            return Err(LearnError::Unsupported("distributions after masked prompts"));
        }
        let batch = batch.sequences.as_slice();
        check(batch)?;
        if self.sent > 0 && self.reduction.batch_mean {
            let reason = "this service divides by the sequences of a step, and some were sent before it was known how \
                          many there are; set policy.learner.losses = \"linearised\"";
            return Err(LearnError::Backend(reason.into()));
        }
        if let Some((loss, examples)) = self.direct(batch, objective) {
            let logprobs = client.forward_backward(model, &loss, &examples)?;
            self.sent += examples.len();
            return Ok(evaluate(batch, objective, &logprobs)?.0);
        }
        let logprobs = score(client, model, batch)?;
        let (report, slopes) = evaluate(batch, objective, &logprobs)?;
        let found = batch.iter().zip(logprobs).zip(slopes);
        self.pending.extend(found.map(|((sequence, row), slopes)| Pending::new(sequence, row, slopes)));
        Ok(report)
    }

    /// Returns the service's name and settings for this loss, and the examples to send, if the
    /// service implements exactly this loss.
    fn direct(
        &self,
        batch: &[&TokenSequence],
        objective: &dyn Objective,
    ) -> Option<(NamedLoss, Vec<Example>)> {
        let fresh = self.pending.is_empty() && self.stashed.is_none() && self.sent == 0;
        if self.form != LossForm::Direct || !fresh || batch.is_empty() {
            return None;
        }
        let mut shared: Option<NamedLoss> = None;
        let mut examples = Vec::with_capacity(batch.len());
        for (index, sequence) in batch.iter().enumerate() {
            let (loss, example) = self.named(sequence, objective.direct(index)?, batch.len())?;
            if shared.get_or_insert_with(|| loss.clone()) != &loss {
                return None;
            }
            examples.push(example);
        }
        shared.map(|loss| (loss, examples))
    }

    fn named(
        &self,
        sequence: &TokenSequence,
        loss: DirectLoss,
        count: usize,
    ) -> Option<(NamedLoss, Example)> {
        let mut example = Example::of(sequence);
        match loss {
            DirectLoss::CrossEntropy { weights } => {
                // A service that divides by the weights' sum cannot weight sequences.
                if self.reduction.sequence_mean {
                    return None;
                }
                let factor = self.reduction.factor(0.0, count);
                example.weights = spread(sequence, weights.iter().map(|weight| (weight * factor) as f32));
                Some((NamedLoss::plain("cross_entropy"), example))
            }
            DirectLoss::Clipped { old_logprobs, advantages, low, high } => {
                let factor = self.reduction.factor(example.counted(), count);
                let scaled = advantages.iter().map(|advantage| (advantage * factor) as f32);
                example.advantages = Some(spread(sequence, scaled));
                example.logprobs = Some(spread(sequence, old_logprobs));
                let bounds = [("clip_low_threshold", 1.0 - low), ("clip_high_threshold", 1.0 + high)];
                let config: BTreeMap<String, f64> =
                    bounds.into_iter().map(|(name, bound)| (name.to_owned(), bound)).collect();
                Some((NamedLoss { name: "ppo", config }, example))
            }
        }
    }

    pub(crate) fn step(
        &mut self,
        client: &Client,
        model: &RemoteModel,
        learning_rate: f64,
    ) -> Result<StepReport, LearnError> {
        let pending = std::mem::take(&mut self.pending);
        self.sent = 0;
        send(client, model, &pending, self.reduction)?;
        let norm = client.optim_step(model, &AdamParams { learning_rate, ..self.adam })?;
        self.steps += 1;
        match norm {
            Some(norm) if !norm.is_finite() => Err(LearnError::Backend(format!(
                "the gradient norm is {norm}, and the training service has applied the update; go on from a checkpoint"
            ))),
            norm => Ok(StepReport { grad_norm: norm.unwrap_or_default(), step: self.steps }),
        }
    }

    pub(crate) fn stash(&mut self) -> Result<(), LearnError> {
        if self.sent > 0 {
            let reason = "the gradient is at the service already; set policy.learner.losses = \"linearised\"";
            return Err(LearnError::Backend(reason.into()));
        }
        self.stashed = Some(std::mem::take(&mut self.pending));
        Ok(())
    }

    /// Restores the stashed gradient, multiplied by `factor`.
    pub(crate) fn restore(&mut self, factor: f64) -> Result<(), LearnError> {
        let stashed = self.stashed.take();
        self.pending = stashed.ok_or_else(|| LearnError::Backend("no gradient was stashed".into()))?;
        self.pending.iter_mut().for_each(|pending| pending.scale(factor));
        Ok(())
    }

    /// Measures the accumulated gradient's norm on a copy of the model.
    pub(crate) fn norm_on(&self, client: &Client, copy: &RemoteModel) -> Result<f64, TinkerError> {
        if !send(client, copy, &self.pending, self.reduction)? {
            return Ok(0.0);
        }
        let norm = client.optim_step(copy, &AdamParams::still())?;
        norm.ok_or_else(|| TinkerError::Protocol {
            what: "optim_step",
            reason: "it has no gradient norm".into(),
        })
    }
}

/// Sends the pending sequences. Returns false if all gradients are zero.
fn send(
    client: &Client,
    model: &RemoteModel,
    pending: &[Pending],
    reduction: Reduction,
) -> Result<bool, TinkerError> {
    let examples = linear::examples(pending, reduction);
    if examples.is_empty() {
        return Ok(false);
    }
    client.forward_backward(model, &NamedLoss::plain("importance_sampling"), &examples)?;
    Ok(true)
}

pub(crate) fn score(
    client: &Client,
    model: &RemoteModel,
    batch: &[&TokenSequence],
) -> Result<Vec<Vec<f32>>, LearnError> {
    check(batch)?;
    let examples: Vec<Example> = batch.iter().map(|sequence| Example::of(sequence)).collect();
    Ok(client.forward(model, &examples)?)
}

fn evaluate(
    batch: &[&TokenSequence],
    objective: &dyn Objective,
    logprobs: &[Vec<f32>],
) -> Result<(LossReport, Vec<Vec<f32>>), LearnError> {
    let mut report = LossReport::default();
    let mut slopes = Vec::with_capacity(batch.len());
    for (index, (sequence, row)) in batch.iter().zip(logprobs).enumerate() {
        let own = at_responses(sequence, row);
        let found = objective
            .evaluate(index, TokenStatistics { logprobs: &own, entropies: &[], reference_kls: &[] })?;
        if found.d_logprobs.iter().any(|slope| !slope.is_finite()) {
            let reason = "a derivative of its loss is not finite".into();
            return Err(LearnError::Sequence { sequence: index, reason });
        }
        report.loss += found.loss;
        report.metrics.add(&found.metrics);
        report.total_tokens += sequence.tokens.len();
        slopes.push(found.d_logprobs);
    }
    Ok((report, slopes))
}

fn check(batch: &[&TokenSequence]) -> Result<(), LearnError> {
    for (index, sequence) in batch.iter().enumerate() {
        sequence.check().map_err(|reason| LearnError::Sequence { sequence: index, reason })?;
        if sequence.tokens.len() < 2 {
            let reason = "has fewer than 2 tokens".into();
            return Err(LearnError::Sequence { sequence: index, reason });
        }
    }
    Ok(())
}
