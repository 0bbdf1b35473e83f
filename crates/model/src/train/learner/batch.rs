use std::sync::Arc;

use turnwise_core::{
    LearnError, LossReport, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients,
    TokenScores, TokenSequence,
};

use super::NativeLearner;
use crate::backend::Network;
use crate::packing::input_length;
use crate::pictures::FIRST_PICTURE_TOKEN;
use crate::train::micro::{Found, Lane, Micro, evaluate_empty};
use crate::train::pass_over::PassOver;
use crate::vision::{Encoded, encode, encode_backward};
use crate::weights::Weights;
use crate::weights::lora::Dropout;

type Work<'a, T> = dyn Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync + 'a;

impl NativeLearner {
    pub(super) fn report(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.lanes.iter_mut().for_each(|lane| _ = lane.take_shared());
        let found = match self.differentiate(batch, objective) {
            Ok(found) => found,
            Err(error) => {
                self.clear_gradient();
                return Err(error);
            }
        };
        let mut report = LossReport::default();
        for Found { value, .. } in &found {
            report.loss += value.loss;
            report.metrics.add(&value.metrics);
        }
        report.total_tokens = all_tokens(batch).map(input_length).sum();
        report.shared_tokens = self.lanes.iter_mut().map(Lane::take_shared).sum();
        Ok(report)
    }

    pub(super) fn check(&self, batch: &TokenBatch<'_>) -> Result<(), LearnError> {
        let sequences = batch.sequences.iter().enumerate();
        let masked = batch.masked_contexts.iter().map(|context| (context.sequence, &context.tokens));
        for (sequence, tokens) in sequences.chain(masked) {
            if let Err(reason) = tokens.check() {
                return Err(LearnError::Sequence { sequence, reason });
            }
            self.check_tokens(sequence, &tokens.tokens)?;
            let picture = |position: &usize| tokens.tokens[*position] >= FIRST_PICTURE_TOKEN;
            if let Some(position) = tokens.response_positions().find(picture) {
                let reason = format!(
                    "token {position} of a response is a picture, which no model predicts; leave it out"
                );
                return Err(LearnError::Sequence { sequence, reason });
            }
        }
        Ok(())
    }

    pub(super) fn check_tokens(&self, sequence: usize, tokens: &[u32]) -> Result<(), LearnError> {
        let config = &self.parameters.config;
        let fail = |reason: String| Err(LearnError::Sequence { sequence, reason });
        if tokens.len() > config.max_position_embeddings {
            return fail(format!(
                "{} tokens, but max_position_embeddings is {}; shorten the prompt or the response",
                tokens.len(),
                config.max_position_embeddings
            ));
        }
        let vocabulary = config.vocab_size;
        if let Some(vision) = &config.vision {
            vision.pictures.hold(tokens).map(drop).or_else(fail)?;
        }
        let picture = |token: u32| config.vision.is_some() && token >= FIRST_PICTURE_TOKEN;
        match tokens.iter().find(|&&token| token as usize >= vocabulary && !picture(token)) {
            Some(token) => fail(format!("token {token} is outside the vocabulary of {vocabulary}")),
            None => Ok(()),
        }
    }

    fn differentiate(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<Vec<Found<TokenGradients>>, LearnError> {
        self.check(batch)?;
        check_masked_contexts(batch)?;
        let weights = self.pass_weights();
        let passes = objective.passes();
        if passes.masked_context.is_none() && !batch.masked_contexts.is_empty() {
            let reason = "masked contexts were given, and the loss uses none";
            return Err(ObjectiveError::Setting(reason.into()).into());
        }
        let needs = passes.reference_kls
            || passes.masked_context.is_some_and(|pass| pass.reference) && !batch.masked_contexts.is_empty();
        let reference = if needs { Some(self.reference()?) } else { None };
        let keep = weights.adapter.is_none();
        let pictures = self.encode(Network::from(&weights), keep, all_tokens(batch));
        // A reference on the same base has the same tower.
        let other = reference.as_ref().filter(|reference| !Arc::ptr_eq(&reference.base, &weights.base));
        let other_pictures =
            other.and_then(|reference| self.encode(Network::from(reference), false, all_tokens(batch)));
        let network =
            Network { dropout: self.dropout(), pictures: pictures.as_ref(), ..Network::from(&weights) };
        self.passes += 1;
        let share = self.shares(network);
        let pass = PassOver { network, batch, scored: true, share };
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        let mut found = self.run(&pass, |mut micro, found| {
            let pictures = other_pictures.as_ref().or(pictures.as_ref());
            let reference = reference.as_ref().map(|weights| Network { pictures, ..Network::from(weights) });
            micro.backward(objective, reference, found)
        })?;
        if let Some(pictures) = pictures {
            self.backward_pictures(&weights, pictures);
        }
        for (sequence, tokens) in batch.sequences.iter().enumerate() {
            if tokens.response_tokens() == 0 {
                found.push(Found { sequence, value: evaluate_empty(objective, sequence)? });
            }
        }
        found.sort_by_key(|found| found.sequence);
        Ok(found)
    }

    /// Encodes each distinct picture once, keeping activations for a backward pass if `keep`.
    pub(super) fn encode<'a>(
        &self,
        network: Network<'_, f32>,
        keep: bool,
        sequences: impl Iterator<Item = &'a TokenSequence>,
    ) -> Option<Encoded<f32>> {
        let vision = self.parameters.config.vision.as_ref()?;
        let tokens = sequences.flat_map(|sequence| sequence.tokens.iter().copied());
        encode(network.parameters, &vision.pictures, keep, tokens)
    }

    /// Backpropagates through the vision tower, unless an adapter is trained; adapters leave the
    /// tower frozen.
    fn backward_pictures(&mut self, weights: &Weights, pictures: Encoded<f32>) {
        let mut d_features = vec![0.0; pictures.features.len()];
        for part in self.lanes.iter_mut().map(Lane::take_picture_gradient).filter(|part| !part.is_empty()) {
            crate::layers::add_assign(&mut d_features, &part);
        }
        if weights.adapter.is_none() && d_features.iter().any(|&d| d != 0.0) {
            let gradient = &mut self.gradients[0];
            gradient.resize(weights.base.layout.len, 0.0);
            encode_backward(&weights.base, pictures, &d_features, self.config.lanes, gradient);
        }
    }

    /// Returns true if a pass computes shared prefixes only once. Prefixes are not shared with
    /// dropout, whose masks differ between sequences, or on a device, which lacks the kernels.
    pub(super) fn shares(&self, network: Network<'_, f32>) -> bool {
        #[cfg(feature = "cuda")]
        if self.cuda.is_some() {
            return false;
        }
        self.config.share_prefixes && network.dropout.is_none()
    }

    fn dropout(&self) -> Option<Dropout> {
        let probability = self.adapter.as_ref()?.config.dropout;
        let coordinates = [self.optimizer.step, self.passes];
        let key = Seed::derive(self.config.seed, Purpose::Dropout, &coordinates).rng().bits();
        Dropout::new(key, probability)
    }

    pub(super) fn reference(&self) -> Result<Weights, LearnError> {
        self.reference.clone().ok_or_else(|| {
            LearnError::Backend(
                "the objective compares with a reference policy and none was given; call set_reference"
                    .into(),
            )
        })
    }

    pub(super) fn score_under(
        &mut self,
        network: Network<'_, f32>,
        batch: &[&TokenSequence],
        temperature: f64,
    ) -> Result<Vec<TokenScores>, LearnError> {
        let batch = &TokenBatch::of(batch.iter().copied());
        self.check(batch)?;
        let pictures = self.encode(network, false, all_tokens(batch));
        let network = Network { pictures: pictures.as_ref(), ..network };
        let share = self.shares(network);
        let pass = PassOver { network, batch, scored: true, share };
        let found = self.run_at(&pass, temperature, |micro, found| {
            micro.scores(found);
            Ok(())
        })?;
        let mut scores = vec![TokenScores::default(); batch.sequences.len()];
        for Found { sequence, value } in found {
            scores[sequence] = value;
        }
        Ok(scores)
    }

    /// Distributes micro-batches over the lanes, runs `work` for each, and sorts results by
    /// sequence.
    pub(super) fn run<T: Send>(
        &mut self,
        pass: &PassOver<'_>,
        work: impl Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync,
    ) -> Result<Vec<Found<T>>, LearnError> {
        self.run_at(pass, self.config.temperature, work)
    }

    fn run_at<T: Send>(
        &mut self,
        pass: &PassOver<'_>,
        temperature: f64,
        work: impl Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync,
    ) -> Result<Vec<Found<T>>, LearnError> {
        let companions = pass.companions();
        let dealt = pass.deal(&companions, self.config.micro_batch_tokens, self.config.lanes);
        let (run, work) = (
            |lane: &mut Lane, gradient: &mut Vec<f32>, micro_batches: Vec<Vec<usize>>, work: &Work<'_, T>| {
                let mut found = Vec::new();
                for members in micro_batches {
                    let micro = Micro::forward(pass, &companions, &members, lane, gradient, temperature)?;
                    work(micro, &mut found)?;
                }
                Ok(found)
            },
            &work,
        );
        let mut jobs: Vec<_> = self.lanes.iter_mut().zip(&mut self.gradients).zip(dealt).collect();
        jobs.retain(|(_, micro_batches)| !micro_batches.is_empty());
        let results: Vec<Result<Vec<Found<T>>, LearnError>> = std::thread::scope(|scope| {
            let mut jobs = jobs.into_iter();
            let here = jobs.next();
            let there: Vec<_> = jobs
                .map(|((lane, gradient), micro_batches)| {
                    scope.spawn(move || run(lane, gradient, micro_batches, work))
                })
                .collect();
            let here = here.map(|((lane, gradient), micro_batches)| run(lane, gradient, micro_batches, work));
            here.into_iter()
                .chain(there.into_iter().map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(LearnError::Backend("a lane panicked".into())))
                }))
                .collect()
        });
        let mut found = Vec::new();
        for result in results {
            found.extend(result?);
        }
        found.sort_by_key(|found| found.sequence);
        Ok(found)
    }
}

fn all_tokens<'a>(batch: &'a TokenBatch<'a>) -> impl Iterator<Item = &'a TokenSequence> {
    batch.sequences.iter().copied().chain(batch.masked_contexts.iter().map(|context| context.tokens))
}

fn check_masked_contexts(batch: &TokenBatch<'_>) -> Result<(), LearnError> {
    for context in &batch.masked_contexts {
        let sequence = context.sequence;
        let tokens = batch.sequences.get(sequence);
        let span = tokens.and_then(|tokens| tokens.spans.get(context.span));
        let own = tokens.zip(span).map(|(tokens, span)| &tokens.tokens[span.start..span.end]);
        let [other] = context.tokens.spans.as_slice() else {
            let reason = "a masked_context must have one span, the response".into();
            return Err(LearnError::Sequence { sequence, reason });
        };
        if own.is_none_or(<[u32]>::is_empty) || own != context.tokens.tokens.get(other.start..other.end) {
            let reason = format!("the masked_context of span {} does not end in its response", context.span);
            return Err(LearnError::Sequence { sequence, reason });
        }
    }
    Ok(())
}
