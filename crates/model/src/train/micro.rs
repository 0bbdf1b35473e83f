use std::ops::Range;

use turnwise_core::{
    LearnError, MaskedContext, MaskedContextPass, MaskedContextStatistics, Objective, ObjectiveError,
    RequiredPasses, TokenGradients, TokenScores, TokenStatistics,
};

use crate::backend::{Divergence, Network, Passes, Second};
use crate::cpu::decoder::Workspace;
use crate::ops::bf16::Kernel;
use crate::packing::Packing;
use crate::train::pass_over::PassOver;
use crate::{ModelConfig, ops::Real as _};

pub(crate) struct Lane {
    passes: Box<dyn Passes>,
    packing: Packing,
    logprobs: Vec<f32>,
    entropies: Vec<f32>,
    derivatives: Vec<[f32; 2]>,
    reference: Option<(Box<dyn Passes>, Packing)>,
    /// Number of tokens that were not computed, because they belong to shared prefixes.
    shared: usize,
}

impl Lane {
    pub(crate) fn new(config: &ModelConfig, recompute: bool, bf16: Option<Kernel>) -> Self {
        Self::with(Box::new(Workspace::new(config, recompute).with_bf16(bf16)))
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(recompute: bool) -> Self {
        Self::with(Box::new(crate::cuda::CudaPasses::new(recompute)))
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn bind(&mut self, bound: Option<&crate::cuda::Bound>) {
        let passes: &mut dyn std::any::Any = &mut *self.passes;
        if let Some(passes) = passes.downcast_mut::<crate::cuda::CudaPasses>() {
            passes.bind(bound.cloned());
        }
    }

    fn with(passes: Box<dyn Passes>) -> Self {
        Self {
            passes,
            packing: Packing::default(),
            logprobs: Vec::new(),
            entropies: Vec::new(),
            derivatives: Vec::new(),
            reference: None,
            shared: 0,
        }
    }

    pub(crate) fn take_picture_gradient(&mut self) -> Vec<f32> {
        self.passes.take_picture_gradient()
    }

    pub(crate) fn take_shared(&mut self) -> usize {
        std::mem::take(&mut self.shared)
    }
}

pub(crate) struct Found<T> {
    pub(crate) sequence: usize,
    pub(crate) value: T,
}

/// A micro-batch after its forward pass. It contains the sequences, followed by their masked
/// contexts.
pub(crate) struct Micro<'a> {
    pass: &'a PassOver<'a>,
    members: &'a [usize],
    /// Index of each masked context in the batch, and index of its sequence in `members`.
    masked_contexts: Vec<(usize, usize)>,
    lane: &'a mut Lane,
    gradient: &'a mut Vec<f32>,
    temperature: f64,
}

impl<'a> Micro<'a> {
    pub(crate) fn forward(
        pass: &'a PassOver<'a>,
        companions: &[Vec<usize>],
        members: &'a [usize],
        lane: &'a mut Lane,
        gradient: &'a mut Vec<f32>,
        temperature: f64,
    ) -> Result<Self, LearnError> {
        let masked_contexts: Vec<(usize, usize)> = members
            .iter()
            .enumerate()
            .flat_map(|(position, &member)| {
                companions
                    .get(member)
                    .into_iter()
                    .flatten()
                    .map(move |&masked_context| (masked_context, position))
            })
            .collect();
        let own = members.iter().map(|&index| pass.batch.sequences[index]);
        let others = masked_contexts.iter().map(|&(index, _)| pass.batch.masked_contexts[index].tokens);
        pass.fill(&mut lane.packing, own.chain(others));
        lane.shared += lane.packing.shared();
        // Indices in the batch, so that the split does not affect dropout.
        let sequences = pass.batch.sequences.len();
        lane.packing.identities.clear();
        lane.packing.identities.extend(members.iter().map(|&member| member as u64));
        lane.packing
            .identities
            .extend(masked_contexts.iter().map(|&(masked_context, _)| (sequences + masked_context) as u64));
        lane.logprobs.clear();
        lane.entropies.clear();
        if pass.scored {
            let rows = lane.passes.forward(pass.network, &lane.packing, temperature)?;
            lane.logprobs.extend(rows.iter().map(|row| row.logprob));
            lane.entropies.extend(rows.iter().map(|row| row.entropy));
        } else {
            lane.passes.forward_layers(pass.network, &lane.packing)?;
        }
        Ok(Self { pass, members, masked_contexts, lane, gradient, temperature })
    }

    pub(crate) fn scores(&self, found: &mut Vec<Found<TokenScores>>) {
        for (index, &sequence) in self.members.iter().enumerate() {
            let targets = self.lane.packing.targets_of(&(index..index + 1));
            let logprobs = self.lane.logprobs[targets.clone()].to_vec();
            let entropies = self.lane.entropies[targets].to_vec();
            found.push(Found { sequence, value: TokenScores { logprobs, entropies } });
        }
    }

    pub(crate) fn mean_hidden(&mut self, found: &mut Vec<Found<Vec<Vec<f32>>>>) -> Result<(), LearnError> {
        let hidden = self.pass.network.parameters.config.hidden_size;
        for (index, &sequence) in self.members.iter().enumerate() {
            let mut start = self.lane.packing.target_offsets[index];
            let spans = self.pass.batch.sequences[sequence].spans.iter().map(|span| {
                let targets = start..start + span.len();
                start = targets.end;
                targets
            });
            let value = self.lane.passes.means(&spans.collect::<Vec<_>>(), hidden)?;
            found.push(Found { sequence, value });
        }
        Ok(())
    }

    pub(crate) fn backward(
        &mut self,
        objective: &dyn Objective,
        reference: Option<Network<'_, f32>>,
        found: &mut Vec<Found<TokenGradients>>,
    ) -> Result<(), LearnError> {
        let targets = self.lane.packing.targets.len();
        self.lane.derivatives.clear();
        self.lane.derivatives.resize(targets, [0.0; 2]);
        // The reference may run only the masked contexts, which offsets its targets.
        let passes = objective.passes();
        let everything = passes.reference_kls;
        let skipped = if everything { 0 } else { self.lane.packing.targets_of(&(0..self.members.len())).end };
        if let Some(reference) = reference {
            self.run_reference(reference, everything)?;
        }
        let terms = self.terms(passes, skipped);
        let values = self.divergences(reference, &terms)?;
        let mut slopes = vec![0.0; terms.len()];
        let mut next = 0;
        let mut answers = Vec::with_capacity(self.members.len());
        for (index, &sequence) in self.members.iter().enumerate() {
            let targets = self.lane.packing.targets_of(&(index..index + 1));
            let kls = next..next + if everything { targets.len() } else { 0 };
            next = kls.end;
            let answer = self.ask(objective, passes.entropies, sequence, targets, &values[kls.clone()])?;
            fill(&mut slopes[kls], &answer.d_reference_kls);
            answers.push(answer);
        }
        if let Some(pass) = passes.masked_context {
            for index in 0..self.masked_contexts.len() {
                next = self.ask_masked_context(
                    objective,
                    pass,
                    index,
                    skipped,
                    &values,
                    &mut slopes,
                    next,
                    &mut answers,
                )?;
            }
        }
        for (&sequence, mut value) in self.members.iter().zip(answers) {
            // Free what is no longer needed.
            value.d_logprobs = Vec::new();
            value.d_entropies = Vec::new();
            value.d_reference_kls = Vec::new();
            found.push(Found { sequence, value });
        }
        self.run_backward(reference, &terms, &values, &slopes)
    }

    fn run_reference(&mut self, reference: Network<'_, f32>, everything: bool) -> Result<(), LearnError> {
        let Lane { passes: own, reference: kept, .. } = &mut *self.lane;
        let config = &reference.parameters.config;
        let (passes, packing) = kept.get_or_insert_with(|| (own.beside(config), Packing::default()));
        own.bind_reference(&mut **passes);
        let batch = self.pass.batch;
        let members = self.members.iter().filter(|_| everything).map(|&index| batch.sequences[index]);
        let others = self.masked_contexts.iter().map(|&(index, _)| batch.masked_contexts[index].tokens);
        self.pass.fill(packing, members.chain(others));
        passes.forward(reference, packing, self.temperature)?;
        Ok(())
    }

    /// Returns the KL divergences of the members' targets from the reference, then those of each
    /// masked context. A masked context has divergences between its original and masked targets,
    /// then between its masked targets and the reference.
    fn terms(&self, passes: RequiredPasses, skipped: usize) -> Vec<Divergence> {
        let packing = &self.lane.packing;
        let mut terms = Vec::new();
        if passes.reference_kls {
            let all = packing.targets_of(&(0..self.members.len()));
            terms.extend(all.map(|target| Divergence { first: target, second: Second::Reference(target) }));
        }
        if let Some(pass) = passes.masked_context.filter(|pass| pass.divergences) {
            for index in 0..self.masked_contexts.len() {
                let (full, masked) = self.target_ranges(index);
                for (first, second) in full.zip(masked.clone()) {
                    let second = if pass.detached { Second::Detached(second) } else { Second::Own(second) };
                    terms.push(Divergence { first, second });
                }
                if pass.reference {
                    terms.extend(masked.map(|target| Divergence {
                        first: target,
                        second: Second::Reference(target - skipped),
                    }));
                }
            }
        }
        terms
    }

    /// Returns two ranges of targets for the response tokens of a masked context: those in its
    /// sequence, and those after the masked prompt.
    fn target_ranges(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (masked_context, member) = self.masked_contexts[index];
        let MaskedContext { sequence, span, .. } = self.pass.batch.masked_contexts[masked_context];
        let spans = &self.pass.batch.sequences[sequence].spans;
        let before: usize = spans[..span].iter().map(turnwise_core::TurnSpan::len).sum();
        let start = self.lane.packing.target_offsets[member] + before;
        let masked = self.members.len() + index;
        (start..start + spans[span].len(), self.lane.packing.targets_of(&(masked..masked + 1)))
    }

    fn divergences(
        &mut self,
        reference: Option<Network<'_, f32>>,
        terms: &[Divergence],
    ) -> Result<Vec<f64>, LearnError> {
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        let Lane { passes, reference: kept, .. } = &mut *self.lane;
        let rows = reference_passes(reference, kept.as_ref());
        let found = passes.divergences(self.pass.network, terms, rows)?;
        Ok(found.into_iter().map(f64::from).collect())
    }

    fn ask(
        &mut self,
        objective: &dyn Objective,
        with_entropies: bool,
        sequence: usize,
        targets: Range<usize>,
        reference_kls: &[f64],
    ) -> Result<TokenGradients, LearnError> {
        let lane = &mut *self.lane;
        let entropies = if with_entropies { &lane.entropies[targets.clone()] } else { [].as_slice() };
        let logprobs = &lane.logprobs[targets.clone()];
        let value = objective.evaluate(sequence, TokenStatistics { logprobs, entropies, reference_kls })?;
        check_lengths(sequence, &value, targets.len())?;
        for (to, &d) in lane.derivatives[targets.clone()].iter_mut().zip(&value.d_logprobs) {
            to[0] = d;
        }
        for (to, &d) in lane.derivatives[targets].iter_mut().zip(&value.d_entropies) {
            to[1] = d;
        }
        Ok(value)
    }

    /// Evaluates the objective for a masked context and adds the derivatives. Returns the index at
    /// which the divergences of the next masked context start.
    fn ask_masked_context(
        &mut self,
        objective: &dyn Objective,
        pass: MaskedContextPass,
        index: usize,
        skipped: usize,
        values: &[f64],
        slopes: &mut [f64],
        next: usize,
        answers: &mut [TokenGradients],
    ) -> Result<usize, LearnError> {
        let (full, masked) = self.target_ranges(index);
        let (masked_context, member) = self.masked_contexts[index];
        let tokens = masked.len();
        let kl = next..next + if pass.divergences { tokens } else { 0 };
        let reference_kl = kl.end..kl.end + if pass.reference { kl.len() } else { 0 };
        let lane = &mut *self.lane;
        let reference: Vec<f32> = match &lane.reference {
            Some((passes, _)) if pass.reference => passes.statistics()
                [masked.start - skipped..masked.end - skipped]
                .iter()
                .map(|row| row.logprob)
                .collect(),
            _ => Vec::new(),
        };
        let statistics = MaskedContextStatistics {
            full: &lane.logprobs[full.clone()],
            masked: &lane.logprobs[masked.clone()],
            reference: &reference,
            kl: &values[kl.clone()],
            reference_kl: &values[reference_kl.clone()],
        };
        let found = objective.evaluate_masked_context(masked_context, statistics)?;
        for (to, &d) in lane.derivatives[full].iter_mut().zip(&found.d_full) {
            to[0] += d;
        }
        for (to, &d) in lane.derivatives[masked].iter_mut().zip(&found.d_masked) {
            to[0] += d;
        }
        fill(&mut slopes[kl], &found.d_kl);
        fill(&mut slopes[reference_kl.clone()], &found.d_reference_kl);
        let answer = &mut answers[member];
        answer.loss += found.loss;
        answer.metrics.masked_contexts += 1.0;
        answer.metrics.masked_context_loss += found.loss;
        answer.metrics.masked_context_kl += found.kl;
        answer.metrics.masked_context_reference_kl += found.reference_kl;
        Ok(reference_kl.end)
    }

    fn run_backward(
        &mut self,
        reference: Option<Network<'_, f32>>,
        terms: &[Divergence],
        values: &[f64],
        slopes: &[f64],
    ) -> Result<(), LearnError> {
        let Lane { passes, packing, derivatives, reference: kept, .. } = &mut *self.lane;
        let network = self.pass.network;
        self.gradient.resize(passes.gradient_len(network), 0.0);
        let mut direct: Vec<bool> = (0..packing.sequences())
            .map(|index| derivatives[packing.targets_of(&(index..index + 1))].iter().any(|&d| d != [0.0; 2]))
            .collect();
        passes.begin_backward(network, packing)?;
        passes.backward_outputs(network, packing, &direct, derivatives, self.gradient)?;
        if slopes.iter().any(|&slope| slope != 0.0) {
            let values: Vec<f32> = values.iter().map(|&value| f32::from_f64(value)).collect();
            let narrow: Vec<f32> = slopes.iter().map(|&slope| f32::from_f64(slope)).collect();
            let rows = reference_passes(reference, kept.as_ref());
            passes.backward_divergences(network, terms, (&values, &narrow), rows, self.gradient)?;
            let mut sequence_of = vec![0; packing.targets.len()];
            for index in 0..packing.sequences() {
                sequence_of[packing.targets_of(&(index..index + 1))].fill(index);
            }
            for (term, _) in terms.iter().zip(slopes).filter(|(_, slope)| **slope != 0.0) {
                direct[sequence_of[term.first]] = true;
                if let Second::Own(second) = term.second {
                    direct[sequence_of[second]] = true;
                }
            }
        }
        passes.backward_layers(network, packing, &direct, self.gradient)
    }
}

fn reference_passes<'a>(
    reference: Option<Network<'a, f32>>,
    kept: Option<&'a (Box<dyn Passes>, Packing)>,
) -> Option<(Network<'a, f32>, &'a dyn Passes)> {
    Some((reference?, &*kept?.0))
}

fn fill(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, &value)| *to = value);
}

pub(crate) fn evaluate_empty(
    objective: &dyn Objective,
    sequence: usize,
) -> Result<TokenGradients, LearnError> {
    let empty = TokenStatistics { logprobs: &[], entropies: &[], reference_kls: &[] };
    let value = objective.evaluate(sequence, empty)?;
    check_lengths(sequence, &value, 0)?;
    Ok(value)
}

fn check_lengths(sequence: usize, value: &TokenGradients, expected: usize) -> Result<(), LearnError> {
    let lengths = [
        ("d_logprobs", value.d_logprobs.len(), false),
        ("d_entropies", value.d_entropies.len(), value.d_entropies.is_empty()),
        ("d_reference_kls", value.d_reference_kls.len(), value.d_reference_kls.is_empty()),
    ];
    for (what, found, may_be_empty) in lengths {
        if found != expected && !may_be_empty {
            return Err(ObjectiveError::Length { sequence, what, found, expected }.into());
        }
    }
    Ok(())
}
