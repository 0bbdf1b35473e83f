//! Heads on the last layer: log-probs and entropies, a critic's values, and KL divergences, in
//! chunks of rows.

use std::ops::Range;

use crate::backend::{Divergence, Network, Second};
use crate::ops::bf16::Kernel;
use crate::ops::dispatch::add_assign;
use crate::ops::divergence::{row_divergence, row_divergence_backward};
use crate::ops::grow;
use crate::ops::linear::{Accumulate, View, ViewMut, matmul_in};
use crate::ops::loss_head::{RowStatistics, row_backward, row_sums};
use crate::ops::norm::{rms_norm, rms_norm_backward};
use crate::packing::Packing;
use crate::{ModelConfig, Parameters, Real};

/// Maximum number of logits in memory, unless [`FEWEST_ROWS`] requires more.
pub(crate) const LOGITS: usize = 1 << 23;

/// Minimum number of rows in a chunk; small chunks are slow, because each packs the whole output
/// matrix. [`LOGITS`] alone would allow only 55 rows with a vocabulary of 151,936.
pub(crate) const FEWEST_ROWS: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferenceRows<'a, T> {
    pub(crate) parameters: &'a Parameters<T>,
    pub(crate) head: &'a HeadState<T>,
}

/// Buffers with one row for each row of the packing that predicts a token ([`Packing::outputs`]).
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadState<T> {
    pub(crate) bf16: Option<Kernel>,
    rows: Vec<T>,
    normed: Vec<T>,
    d_normed: Vec<T>,
    inverse: Vec<T>,
    logits: Vec<T>,
    output_of: Vec<usize>,
    pub(crate) statistics: Vec<RowStatistics<T>>,
    temperature: f64,
    pairs: [PairSide<T>; 2],
}

#[derive(Clone, Debug, Default)]
struct PairSide<T> {
    normed: Vec<T>,
    logits: Vec<T>,
}

fn fit<T: Real>(buffer: &mut Vec<T>, len: usize) {
    if buffer.capacity() < len {
        grow(buffer, len);
    } else {
        buffer.resize(len, T::ZERO);
    }
}

pub(crate) fn rows(range: &Range<usize>, width: usize) -> Range<usize> {
    range.start * width..range.end * width
}

/// Returns the number of rows per chunk. This number affects the rounding of the output layer's
/// gradient.
fn chunk_rows(vocabulary: usize) -> usize {
    (LOGITS / vocabulary).max(FEWEST_ROWS)
}

impl<T: Real> HeadState<T> {
    /// Returns the bytes of all buffers except those for KL divergences, assuming that each target
    /// has its own row.
    pub(crate) fn bytes(config: &ModelConfig, targets: usize, forward_only: bool) -> usize {
        let rows = if forward_only { 2 } else { 3 };
        let numbers = targets * (rows * config.hidden_size + 1);
        let statistics = targets * (size_of::<RowStatistics<T>>() + size_of::<usize>());
        numbers * size_of::<T>() + statistics + Self::logit_bytes(config, targets)
    }

    pub(crate) fn logit_bytes(config: &ModelConfig, targets: usize) -> usize {
        targets.min(chunk_rows(config.vocab_size)) * config.vocab_size * size_of::<T>()
    }

    pub(crate) fn divergence_bytes(config: &ModelConfig, targets: usize) -> usize {
        let rows = targets.min((chunk_rows(config.vocab_size) / 2).max(1));
        2 * rows * (config.vocab_size + config.hidden_size) * size_of::<T>()
    }

    pub(crate) fn gather(&mut self, parameters: &Parameters<T>, packing: &Packing, last: &[T]) {
        let Parameters { config, layout, data } = parameters;
        let hidden = config.hidden_size;
        let count = packing.outputs.len();
        for buffer in [&mut self.rows, &mut self.normed] {
            grow(buffer, count * hidden);
        }
        grow(&mut self.inverse, count);
        self.output_of.clear();
        self.output_of.reserve_exact(packing.targets.len());
        self.output_of.extend(packing.targets.iter().map(|target| target.output));
        for (to, row) in self.rows.chunks_exact_mut(hidden).zip(&packing.outputs) {
            to.copy_from_slice(&last[row * hidden..][..hidden]);
        }
        let weight = &data[layout.final_norm.clone()];
        let (used, inverse) = (..count * hidden, &mut self.inverse[..count]);
        rms_norm(&self.rows[used], weight, config.rms_norm_eps, &mut self.normed[used], inverse);
    }

    pub(crate) fn mean(&self, targets: &Range<usize>, hidden: usize) -> Vec<T> {
        let mut sum = vec![T::ZERO; hidden];
        for output in &self.output_of[targets.clone()] {
            add_assign(&mut sum, &self.normed[output * hidden..][..hidden]);
        }
        let scale = T::from_f64(1.0 / targets.len().max(1) as f64);
        for value in &mut sum {
            *value *= scale;
        }
        sum
    }

    pub(crate) fn score(&mut self, network: Network<'_, T>, packing: &Packing, temperature: f64) {
        let Parameters { config, layout, data } = network.parameters;
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        let count = packing.outputs.len();
        self.temperature = temperature;
        self.statistics.clear();
        self.statistics.reserve_exact(packing.targets.len());
        self.statistics.resize(packing.targets.len(), RowStatistics::default());
        if let Some(value) = network.value() {
            let (weight, bias) = value.weights.split_at(hidden);
            for (output, row) in self.normed[..count * hidden].chunks_exact(hidden).enumerate() {
                let mut sum = bias[0];
                row.iter().zip(weight).for_each(|(&x, &w)| sum += x * w);
                for &target in packing.targets_of_output(output) {
                    self.statistics[target].logprob = sum;
                }
            }
            return;
        }
        for first in (0..count).step_by(chunk_rows(vocabulary)) {
            let chunk = first..count.min(first + chunk_rows(vocabulary));
            self.fill_logits(&data[layout.output.clone()], &chunk, hidden, vocabulary);
            for (logits, output) in self.logits.chunks_exact(vocabulary).zip(chunk) {
                let sums = row_sums(logits);
                for &target in packing.targets_of_output(output) {
                    let token = packing.targets[target].token as usize;
                    self.statistics[target] = sums.of(logits, token);
                }
            }
        }
    }

    pub(crate) fn begin_backward(&mut self, outputs: usize, hidden: usize) {
        grow(&mut self.d_normed, outputs * hidden);
        self.d_normed[..outputs * hidden].fill(T::ZERO);
    }

    /// Backpropagates through the head for the outputs in `wanted`, with `derivatives` as in
    /// `Passes::backward_outputs`.
    pub(crate) fn backward(
        &mut self,
        network: Network<'_, T>,
        packing: &Packing,
        wanted: &[Range<usize>],
        derivatives: &[[T; 2]],
        gradient: &mut [T],
    ) {
        let Parameters { config, layout, data } = network.parameters;
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        if let Some(value) = network.value() {
            let (weight, d_value) = (&value.weights[..hidden], &mut gradient[value.range]);
            for output in wanted.iter().cloned().flatten() {
                let range = rows(&(output..output + 1), hidden);
                for &target in packing.targets_of_output(output) {
                    let [d, _] = derivatives[target];
                    for (to, &w) in self.d_normed[range.clone()].iter_mut().zip(weight) {
                        *to += d * w;
                    }
                    for (to, &x) in d_value.iter_mut().zip(&self.normed[range.clone()]) {
                        *to += d * x;
                    }
                    d_value[hidden] += d;
                }
            }
            return;
        }
        let all = packing.outputs.len();
        let output_weight = &data[layout.output.clone()];
        let inverse_temperature = T::from_f64(1.0 / self.temperature);
        for first in (0..all).step_by(chunk_rows(vocabulary)) {
            let chunk = first..all.min(first + chunk_rows(vocabulary));
            let here = wanted.iter().map(|run| run.start.max(chunk.start)..run.end.min(chunk.end));
            let mut here = here.filter(|run| !run.is_empty()).peekable();
            // If all rows fit into one chunk, its logits are still in memory.
            if here.peek().is_some() && all > chunk_rows(vocabulary) {
                self.fill_logits(output_weight, &chunk, hidden, vocabulary);
            }
            for run in here {
                let within = rows(&(run.start - first..run.end - first), vocabulary);
                let logits = &mut self.logits[within];
                for (row, output) in logits.chunks_exact_mut(vocabulary).zip(run.clone()) {
                    let targets = packing.targets_of_output(output);
                    let of = |&target: &usize| (packing.targets[target].token as usize, derivatives[target]);
                    row_backward(row, self.statistics[targets[0]], targets.iter().map(of));
                }
                let range = rows(&run, hidden);
                let count = run.len();
                let d_logits = View::new(logits, count, vocabulary);
                let (d_normed, normed) = (&mut self.d_normed[range.clone()], &self.normed[range]);
                let weight = View::new(output_weight, vocabulary, hidden);
                let to = ViewMut::new(d_normed, count, hidden);
                matmul_in(self.bf16, to, d_logits, weight, Accumulate::Set, inverse_temperature);
                if let Some(d_output) = network.gradient_of(&layout.output, gradient) {
                    let to = ViewMut::new(d_output, vocabulary, hidden);
                    let normed = View::new(normed, count, hidden);
                    matmul_in(self.bf16, to, d_logits.t(), normed, Accumulate::Add, inverse_temperature);
                }
            }
        }
    }

    pub(crate) fn divergences(
        &mut self,
        parameters: &Parameters<T>,
        terms: &[Divergence],
        reference: Option<ReferenceRows<'_, T>>,
    ) -> Vec<T> {
        let vocabulary = parameters.config.vocab_size;
        let mut found = Vec::with_capacity(terms.len());
        for chunk in chunks(terms, vocabulary) {
            self.fill_pairs(parameters, chunk, reference);
            let [first, second] = &self.pairs;
            let sides = first.logits.chunks_exact(vocabulary).zip(second.logits.chunks_exact(vocabulary));
            for (term, (first, second)) in chunk.iter().zip(sides) {
                found.push(row_divergence(first, second, self.log_sums(term, reference)));
            }
        }
        found
    }

    /// Adds the gradients of KL divergences. Call this after [`HeadState::backward`].
    pub(crate) fn backward_divergences(
        &mut self,
        network: Network<'_, T>,
        terms: &[Divergence],
        values: &[T],
        derivatives: &[T],
        reference: Option<ReferenceRows<'_, T>>,
        gradient: &mut [T],
    ) {
        let parameters = network.parameters;
        let Parameters { config, layout, data } = parameters;
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        let output = View::new(&data[layout.output.clone()], vocabulary, hidden);
        let scale = T::from_f64(1.0 / self.temperature);
        let mut start = 0;
        for chunk in chunks(terms, vocabulary) {
            self.fill_pairs(parameters, chunk, reference);
            let numbers: Vec<[T; 2]> = chunk.iter().map(|term| self.log_sums(term, reference)).collect();
            let [first, second] = &mut self.pairs;
            let sides =
                first.logits.chunks_exact_mut(vocabulary).zip(second.logits.chunks_exact_mut(vocabulary));
            for (index, (first, second)) in sides.enumerate() {
                let (value, d) = (values[start + index], derivatives[start + index]);
                row_divergence_backward(first, second, numbers[index], value, d);
            }
            start += chunk.len();
            let own = chunk.iter().all(|term| matches!(term.second, Second::Own(_)));
            for (side, pair) in self.pairs.iter_mut().enumerate() {
                if side == 1 && !own {
                    continue;
                }
                let d_logits = View::new(&pair.logits, chunk.len(), vocabulary);
                let normed = View::new(&pair.normed, chunk.len(), hidden);
                if let Some(d_output) = network.gradient_of(&layout.output, gradient) {
                    let to = ViewMut::new(d_output, vocabulary, hidden);
                    matmul_in(self.bf16, to, d_logits.t(), normed, Accumulate::Add, scale);
                }
                let to = ViewMut::new(&mut pair.normed, chunk.len(), hidden);
                matmul_in(self.bf16, to, d_logits, output, Accumulate::Set, scale);
                for (row, term) in pair.normed.chunks_exact(hidden).zip(chunk) {
                    let target = if side == 0 { term.first } else { term.second.target() };
                    let output = self.output_of[target];
                    add_assign(&mut self.d_normed[output * hidden..][..hidden], row);
                }
            }
        }
    }

    /// Backpropagates through the final norm. Calls `put` with the output index and the gradient of
    /// each wanted row.
    pub(crate) fn finish_backward(
        &mut self,
        network: Network<'_, T>,
        wanted: &[Range<usize>],
        gradient: &mut [T],
        mut put: impl FnMut(usize, &[T]),
    ) {
        let Parameters { config, layout, data } = network.parameters;
        let hidden = config.hidden_size;
        for run in wanted {
            // The normed rows are no longer needed.
            let range = rows(run, hidden);
            let d_rows = &mut self.normed[range.clone()];
            d_rows.fill(T::ZERO);
            rms_norm_backward(
                &self.d_normed[range.clone()],
                &self.rows[range],
                &data[layout.final_norm.clone()],
                &self.inverse[run.clone()],
                d_rows,
                network.gradient_of(&layout.final_norm, gradient),
            );
            for (row, output) in d_rows.chunks_exact(hidden).zip(run.clone()) {
                put(output, row);
            }
        }
    }

    fn log_sums(&self, term: &Divergence, reference: Option<ReferenceRows<'_, T>>) -> [T; 2] {
        let statistics = match (term.second, reference) {
            (Second::Reference(_), Some(reference)) => &reference.head.statistics,
            _ => &self.statistics,
        };
        [self.statistics[term.first].log_sum, statistics[term.second.target()].log_sum]
    }

    fn fill_pairs(
        &mut self,
        parameters: &Parameters<T>,
        chunk: &[Divergence],
        reference: Option<ReferenceRows<'_, T>>,
    ) {
        let (hidden, vocabulary) = (parameters.config.hidden_size, parameters.config.vocab_size);
        let scale = T::from_f64(1.0 / self.temperature);
        for (side, pair) in self.pairs.iter_mut().enumerate() {
            let foreign = reference
                .filter(|_| side == 1 && chunk.first().is_some_and(|term| term.second.is_reference()));
            let (normed, output_of, parameters) = match foreign {
                Some(reference) => (&reference.head.normed, &reference.head.output_of, reference.parameters),
                None => (&self.normed, &self.output_of, parameters),
            };
            pair.normed.clear();
            for term in chunk {
                let target = if side == 0 { term.first } else { term.second.target() };
                pair.normed.extend_from_slice(&normed[output_of[target] * hidden..][..hidden]);
            }
            fit(&mut pair.logits, chunk.len() * vocabulary);
            let weight = View::new(&parameters.data[parameters.layout.output.clone()], vocabulary, hidden);
            let to = ViewMut::new(&mut pair.logits, chunk.len(), vocabulary);
            matmul_in(
                self.bf16,
                to,
                View::new(&pair.normed, chunk.len(), hidden),
                weight.t(),
                Accumulate::Set,
                scale,
            );
        }
    }

    fn fill_logits(&mut self, output: &[T], chunk: &Range<usize>, hidden: usize, vocabulary: usize) {
        fit(&mut self.logits, chunk.len() * vocabulary);
        let normed = View::new(&self.normed[rows(chunk, hidden)], chunk.len(), hidden);
        let to = ViewMut::new(&mut self.logits, chunk.len(), vocabulary);
        let scale = T::from_f64(1.0 / self.temperature);
        matmul_in(self.bf16, to, normed, View::new(output, vocabulary, hidden).t(), Accumulate::Set, scale);
    }
}

/// Splits KL divergences into runs with the same kind of second distribution ([`Second`]). Each run
/// is short enough that the logits of both distributions fit in memory.
fn chunks(terms: &[Divergence], vocabulary: usize) -> impl Iterator<Item = &[Divergence]> {
    let most = (chunk_rows(vocabulary) / 2).max(1);
    terms
        .chunk_by(|a, b| std::mem::discriminant(&a.second) == std::mem::discriminant(&b.second))
        .flat_map(move |run| run.chunks(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_rows_enough_for_what_its_products_pack() {
        for (vocabulary, rows) in [(1024, 8192), (32_768, 256), (49_152, 256), (151_936, 256)] {
            assert_eq!(chunk_rows(vocabulary), rows, "{vocabulary}");
            let config = ModelConfig { vocab_size: vocabulary, ..ModelConfig::default() };
            let bytes = HeadState::<f32>::logit_bytes(&config, usize::MAX);
            assert_eq!(bytes, rows * vocabulary * size_of::<f32>());
        }
    }
}
