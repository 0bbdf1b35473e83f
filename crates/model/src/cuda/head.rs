//! Output layer, value head, and KL divergences between rows. Logits are computed in chunks of
//! rows.

use std::ops::Range;
use std::sync::Arc;

use super::CudaError;
use super::device::{Accumulate, matrix, multiply, wide};
use super::driver::Driver;
use super::memory::{Bf16, Buffer, Part};
use super::network::{Gradient, Network};
use crate::backend::{Divergence, Second};
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;

/// Maximum number of logits in memory: 512 MiB in f32, plus half as much for their gradients.
const LOGITS: usize = 1 << 27;

pub(crate) struct Head {
    index: Buffer<i32>,
    tokens: Buffer<i32>,
    pub(crate) normed: Buffer<Bf16>,
    inverse: Buffer<f32>,
    d_normed: Buffer<f32>,
    logits: Buffer<f32>,
    d_logits: Buffer<Bf16>,
    device_statistics: Buffer<f32>,
    numbers: Buffer<f32>,
    pub(crate) statistics: Vec<RowStatistics<f32>>,
    temperature: f64,
    pairs: [Pair; 2],
    small: Buffer<f32>,
    wide_rows: Buffer<f32>,
}

struct Pair {
    index: Buffer<i32>,
    normed: Buffer<Bf16>,
    logits: Buffer<f32>,
    d_logits: Buffer<Bf16>,
}

impl Pair {
    fn new(driver: &Arc<dyn Driver>) -> Self {
        Self {
            index: Buffer::empty(driver),
            normed: Buffer::empty(driver),
            logits: Buffer::empty(driver),
            d_logits: Buffer::empty(driver),
        }
    }
}

fn stride(network: &Network) -> usize {
    network.config.vocab_size.next_multiple_of(16)
}

fn chunk_rows(network: &Network) -> usize {
    (LOGITS / stride(network)).max(1)
}

/// Computes `logits = normed W^T / temperature`.
fn fill(
    network: &Network,
    normed: Part<Bf16>,
    count: usize,
    temperature: f64,
    logits: Part<f32>,
) -> Result<(), CudaError> {
    let (hidden, vocabulary) = (network.config.hidden_size, network.config.vocab_size);
    let output = matrix(network.at(&network.layout.output), hidden);
    let operands = [matrix(normed, hidden), output.t()];
    let (to, shape) = (wide(logits, stride(network)), [count, hidden, vocabulary]);
    multiply(network.driver(), operands, to, shape, Accumulate::Set, (1.0 / temperature) as f32)
}

impl Head {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self {
            index: Buffer::empty(driver),
            tokens: Buffer::empty(driver),
            normed: Buffer::empty(driver),
            inverse: Buffer::empty(driver),
            d_normed: Buffer::empty(driver),
            logits: Buffer::empty(driver),
            d_logits: Buffer::empty(driver),
            device_statistics: Buffer::empty(driver),
            numbers: Buffer::empty(driver),
            statistics: Vec::new(),
            temperature: 1.0,
            pairs: [Pair::new(driver), Pair::new(driver)],
            small: Buffer::empty(driver),
            wide_rows: Buffer::empty(driver),
        }
    }

    pub(crate) fn gather(
        &mut self,
        network: &Network,
        packing: &Packing,
        last: Part<f32>,
    ) -> Result<(), CudaError> {
        let (hidden, count) = (network.config.hidden_size, packing.targets.len());
        let room = count.next_multiple_of(256);
        let index: Vec<i32> = packing.targets.iter().map(|target| target.row as i32).collect();
        let tokens: Vec<i32> = packing.targets.iter().map(|target| target.token as i32).collect();
        let index = self.index.put(&index)?;
        self.tokens.put(&tokens)?;
        self.normed.grow(room * hidden)?;
        self.inverse.grow(room)?;
        let weight = network.at(&network.layout.final_norm);
        let (normed, inverse) = (self.normed.part(0..count * hidden), self.inverse.part(0..count));
        network.kernels.rms_norm(last, Some(index), weight, network.epsilon(), count, normed, inverse)
    }

    pub(crate) fn means(
        &mut self,
        network: &Network,
        ranges: &[Range<usize>],
    ) -> Result<Vec<Vec<f32>>, CudaError> {
        let hidden = network.config.hidden_size;
        let ends: Vec<i32> = ranges.iter().flat_map(|range| [range.start as i32, range.end as i32]).collect();
        let ends = self.pairs[0].index.put(&ends)?;
        self.wide_rows.grow(ranges.len() * hidden)?;
        let to = self.wide_rows.part(0..ranges.len() * hidden);
        network.kernels.mean_rows(self.normed.all(), ends, to)?;
        Ok(to.download(network.driver())?.chunks_exact(hidden).map(<[f32]>::to_vec).collect())
    }

    pub(crate) fn score(
        &mut self,
        network: &Network,
        packing: &Packing,
        temperature: f64,
    ) -> Result<(), CudaError> {
        let (hidden, vocabulary, stride) =
            (network.config.hidden_size, network.config.vocab_size, stride(network));
        let count = packing.targets.len();
        self.temperature = temperature;
        self.statistics.clear();
        if let Some(value) = &network.value {
            self.small.grow(count)?;
            let values = self.small.part(0..count);
            network.kernels.value_head(self.normed.part(0..count * hidden), value.all(), values)?;
            let values = values.download(network.driver())?;
            let of = |logprob| RowStatistics { logprob, ..RowStatistics::default() };
            self.statistics.extend(values.into_iter().map(of));
            return Ok(());
        }
        self.logits.grow(count.min(chunk_rows(network)) * stride)?;
        self.device_statistics.grow(3 * count.next_multiple_of(256))?;
        for first in (0..count).step_by(chunk_rows(network)) {
            let chunk = first..count.min(first + chunk_rows(network));
            let normed = self.normed.part(chunk.start * hidden..chunk.end * hidden);
            let logits = self.logits.part(0..chunk.len() * stride);
            fill(network, normed, chunk.len(), temperature, logits)?;
            let to = self.device_statistics.part(3 * chunk.start..3 * chunk.end);
            network.kernels.row_statistics((logits, stride), vocabulary, self.tokens.part(chunk), to)?;
        }
        let numbers = self.device_statistics.part(0..3 * count).download(network.driver())?;
        let of = |row: &[f32; 3]| RowStatistics { log_sum: row[0], logprob: row[1], entropy: row[2] };
        self.statistics.extend(numbers.as_chunks::<3>().0.iter().map(of));
        Ok(())
    }

    pub(crate) fn begin_backward(&mut self, network: &Network, targets: usize) -> Result<(), CudaError> {
        let len = targets * network.config.hidden_size;
        self.d_normed.grow(targets.next_multiple_of(256) * network.config.hidden_size)?;
        self.d_normed.part(0..len).clear(network.driver())
    }

    /// Backpropagates through the output layer or value head, with `derivatives` as in
    /// `Passes::backward_outputs`. Call this at most once per sequence.
    pub(crate) fn backward(
        &mut self,
        network: &Network,
        packing: &Packing,
        targets: &Range<usize>,
        derivatives: &[[f32; 2]],
        gradient: Gradient,
    ) -> Result<(), CudaError> {
        let (hidden, vocabulary, stride) =
            (network.config.hidden_size, network.config.vocab_size, stride(network));
        let of = |range: &Range<usize>| range.start * hidden..range.end * hidden;
        if let (Some(value), Some(range)) = (&network.value, network.value_range()) {
            let range = gradient.at.part(range);
            let slopes: Vec<f32> = derivatives.iter().map(|d| d[0]).collect();
            let slopes = self.numbers.put(&slopes)?;
            let (normed, d_normed) = (self.normed.part(of(targets)), self.d_normed.part(of(targets)));
            return network.kernels.value_head_backward(normed, value.all(), slopes, d_normed, range);
        }
        let slopes = self.numbers.put(derivatives.as_flattened())?;
        let all = packing.targets.len();
        self.d_logits.grow(all.min(chunk_rows(network)) * stride)?;
        let scale = (1.0 / self.temperature) as f32;
        for first in (0..all).step_by(chunk_rows(network)) {
            let chunk = first..all.min(first + chunk_rows(network));
            let wanted = chunk.start.max(targets.start)..chunk.end.min(targets.end);
            if wanted.is_empty() {
                continue;
            }
            let (count, normed) = (wanted.len(), self.normed.part(of(&wanted)));
            let logits = if all > chunk_rows(network) {
                let logits = self.logits.part(0..count * stride);
                fill(network, normed, count, self.temperature, logits)?;
                logits
            } else {
                self.logits.part(wanted.start * stride..wanted.end * stride)
            };
            let statistics = self.device_statistics.part(3 * wanted.start..3 * wanted.end);
            let local = 2 * (wanted.start - targets.start)..2 * (wanted.end - targets.start);
            let numbers = [statistics, slopes.part(local)];
            let d_logits = self.d_logits.part(0..count * stride);
            let tokens = self.tokens.part(wanted.clone());
            network.kernels.row_backward((logits, stride), vocabulary, tokens, numbers, d_logits)?;
            let to = self.d_normed.part(of(&wanted));
            output_backward(network, (d_logits, count), normed, (to, Accumulate::Set), scale, gradient)?;
        }
        Ok(())
    }

    pub(crate) fn divergences(
        &mut self,
        network: &Network,
        terms: &[Divergence],
        reference: Option<(&Network, &Self)>,
    ) -> Result<Vec<f32>, CudaError> {
        let mut found = Vec::with_capacity(terms.len());
        for chunk in chunks(terms, network) {
            let logits = self.fill_pairs(network, chunk, reference)?;
            let sums = self.log_sums(chunk, reference);
            let sums = self.numbers.put(&sums)?;
            self.small.grow(chunk.len())?;
            let to = self.small.part(0..chunk.len());
            network.kernels.row_divergence(logits, stride(network), network.config.vocab_size, sums, to)?;
            found.extend(to.download(network.driver())?);
        }
        Ok(found)
    }

    /// Adds the gradients of KL divergences. Call this after [`Head::backward`], which overwrites
    /// the hidden states' gradients.
    pub(crate) fn backward_divergences(
        &mut self,
        network: &Network,
        terms: &[Divergence],
        (values, slopes): (&[f32], &[f32]),
        reference: Option<(&Network, &Self)>,
        gradient: Gradient,
    ) -> Result<(), CudaError> {
        let (hidden, stride) = (network.config.hidden_size, stride(network));
        let scale = (1.0 / self.temperature) as f32;
        let mut start = 0;
        for chunk in chunks(terms, network) {
            let count = chunk.len();
            let logits = self.fill_pairs(network, chunk, reference)?;
            let sums = self.log_sums(chunk, reference);
            let sums = self.numbers.put(&sums)?;
            let rows = start..start + count;
            start = rows.end;
            let pairs: Vec<f32> =
                values[rows.clone()].iter().zip(&slopes[rows]).flat_map(|(v, d)| [*v, *d]).collect();
            let numbers = [sums, self.small.put(&pairs)?];
            for pair in &mut self.pairs {
                pair.d_logits.grow(count * stride)?;
            }
            let d_logits = [&self.pairs[0], &self.pairs[1]].map(|pair| pair.d_logits.part(0..count * stride));
            let vocabulary = network.config.vocab_size;
            network.kernels.row_divergence_backward(logits, stride, vocabulary, numbers, d_logits)?;
            let own = chunk.iter().all(|term| matches!(term.second, Second::Own(_)));
            self.wide_rows.grow(count * hidden)?;
            for (side, d_logits) in d_logits.into_iter().enumerate() {
                if side == 1 && !own {
                    continue;
                }
                let pair = &self.pairs[side];
                let (normed, to) =
                    (pair.normed.part(0..count * hidden), self.wide_rows.part(0..count * hidden));
                output_backward(network, (d_logits, count), normed, (to, Accumulate::Set), scale, gradient)?;
                network.kernels.scatter_rows(to, pair.index.part(0..count), self.d_normed.all())?;
            }
        }
        Ok(())
    }

    /// Backpropagates through the final norm. `x` and its gradient cover only the rows of
    /// `sequences`.
    pub(crate) fn finish_backward(
        &mut self,
        network: &Network,
        packing: &Packing,
        sequences: &Range<usize>,
        x: Part<f32>,
        to: (Part<f32>, Part<Bf16>),
        gradient: Gradient,
        partials: Part<f32>,
    ) -> Result<(), CudaError> {
        let hidden = network.config.hidden_size;
        let (targets, tokens) = (packing.targets_of(sequences), packing.tokens_of(sequences));
        let index: Vec<i32> = packing.targets[targets.clone()]
            .iter()
            .map(|target| (target.row - tokens.start) as i32)
            .collect();
        let index = self.pairs[0].index.put(&index)?;
        let d_y = self.d_normed.part(targets.start * hidden..targets.end * hidden);
        let input = [x, self.inverse.part(targets.clone())];
        let weight = network.at(&network.layout.final_norm);
        let sums = gradient.of(&network.layout.final_norm).map(|to| (to, partials));
        network.kernels.rms_norm_backward_gathered(d_y, input, index, weight, targets.len(), to, sums)
    }

    fn log_sums(&self, chunk: &[Divergence], reference: Option<(&Network, &Self)>) -> Vec<f32> {
        let second = |second: Second| match (second, reference) {
            (Second::Reference(target), Some((_, head))) => head.statistics[target].log_sum,
            (second, _) => self.statistics[second.target()].log_sum,
        };
        chunk.iter().flat_map(|term| [self.statistics[term.first].log_sum, second(term.second)]).collect()
    }

    fn fill_pairs(
        &mut self,
        network: &Network,
        chunk: &[Divergence],
        reference: Option<(&Network, &Self)>,
    ) -> Result<[Part<f32>; 2], CudaError> {
        let (hidden, stride, count) = (network.config.hidden_size, stride(network), chunk.len());
        for (side, pair) in self.pairs.iter_mut().enumerate() {
            let foreign = reference
                .filter(|_| side == 1 && chunk.first().is_some_and(|term| term.second.is_reference()));
            let (network, from) = match foreign {
                Some((network, head)) => (network, head.normed.all()),
                None => (network, self.normed.all()),
            };
            let target = |term: &Divergence| if side == 0 { term.first } else { term.second.target() };
            let index: Vec<i32> = chunk.iter().map(|term| target(term) as i32).collect();
            let index = pair.index.put(&index)?;
            pair.normed.grow(count * hidden)?;
            pair.logits.grow(count * stride)?;
            let normed = pair.normed.part(0..count * hidden);
            network.kernels.gather_rows(from, index, normed)?;
            fill(network, normed, count, self.temperature, pair.logits.part(0..count * stride))?;
        }
        Ok([&self.pairs[0], &self.pairs[1]].map(|pair| pair.logits.part(0..count * stride)))
    }
}

fn output_backward(
    network: &Network,
    (d_logits, count): (Part<Bf16>, usize),
    normed: Part<Bf16>,
    (d_normed, into): (Part<f32>, Accumulate),
    scale: f32,
    gradient: Gradient,
) -> Result<(), CudaError> {
    let (hidden, vocabulary) = (network.config.hidden_size, network.config.vocab_size);
    let (driver, d) = (network.driver(), matrix(d_logits, stride(network)));
    let output = matrix(network.at(&network.layout.output), hidden);
    multiply(driver, [d, output], wide(d_normed, hidden), [count, vocabulary, hidden], into, scale)?;
    if let Some(to) = gradient.of(&network.layout.output) {
        let operands = [d.t(), matrix(normed, hidden)];
        multiply(driver, operands, wide(to, hidden), [vocabulary, count, hidden], Accumulate::Add, scale)?;
    }
    Ok(())
}

/// Splits KL divergences into runs that fit in memory, each with one kind of second distribution.
fn chunks<'a>(terms: &'a [Divergence], network: &Network) -> impl Iterator<Item = &'a [Divergence]> {
    let most = (chunk_rows(network) / 2).max(1);
    terms
        .chunk_by(|a, b| std::mem::discriminant(&a.second) == std::mem::discriminant(&b.second))
        .flat_map(move |run| run.chunks(most))
}
