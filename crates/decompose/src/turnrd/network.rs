//! Forward and backward pass over packed trajectories.

use turnwise_core::{Purpose, Seed};

use super::TurnRdConfig;
use super::layout::{Head, Linear, TAG, Tensors};
use super::ops::{Attention, apply_mask, dropout_mask, gelu, gelu_backward};
use turnwise_model::Real;
use turnwise_model::layers::{
    Accumulate, add_assign, layer_norm, layer_norm_backward, linear, linear_backward_bias,
    linear_backward_input, linear_backward_weight,
};

/// Epsilon of layer norm, as in PyTorch.
const EPSILON: f64 = 1e-5;

#[derive(Clone, Debug, Default)]
pub(super) struct Pack<T> {
    /// Turn vectors, `[rows, D]`.
    pub(super) inputs: Vec<T>,
    /// Goal vectors, `[trajectories, D]`.
    pub(super) goals: Vec<T>,
    pub(super) lengths: Vec<usize>,
    /// `None` disables dropout.
    pub(super) dropout: Option<Dropout>,
}

#[derive(Clone, Debug)]
pub(super) struct Dropout {
    pub(super) run: u64,
    pub(super) round: u64,
    pub(super) epoch: u64,
    /// Index of each trajectory's sample, from which its dropout masks are seeded.
    pub(super) samples: Vec<u64>,
}

impl Dropout {
    fn seed(&self, trajectory: usize, index: usize) -> Seed {
        let coordinates = [TAG, self.round, self.epoch, self.samples[trajectory], index as u64];
        Seed::derive(self.run, Purpose::Dropout, &coordinates)
    }
}

impl<T> Pack<T> {
    fn rows(&self) -> usize {
        self.lengths.iter().sum()
    }

    pub(super) fn trajectories(&self) -> impl Iterator<Item = (usize, usize)> {
        self.lengths.iter().scan(0, |start, &length| {
            let first = *start;
            *start += length;
            Some((first, length))
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Trace<T> {
    blocks: Vec<BlockTrace<T>>,
    encoded: Vec<T>,
    /// gamma and beta, `[trajectories, 2 H]`; empty without FiLM.
    pub(super) film: Vec<T>,
    modulated: Vec<T>,
    attention: HeadTrace<T>,
    value: HeadTrace<T>,
}

impl<T> Trace<T> {
    /// Returns the attention logits, one per turn.
    pub(super) fn scores(&self) -> &[T] {
        &self.attention.output
    }

    pub(super) fn values(&self) -> &[T] {
        &self.value.output
    }
}

#[derive(Clone, Debug, Default)]
struct NormTrace<T> {
    output: Vec<T>,
    standard: Vec<T>,
    inverse: Vec<T>,
}

#[derive(Clone, Debug, Default)]
struct BlockTrace<T> {
    norm1: NormTrace<T>,
    qkv: Vec<T>,
    probabilities: Vec<T>,
    mixed: Vec<T>,
    norm2: NormTrace<T>,
    up: Vec<T>,
    active: Vec<T>,
    masks: [Vec<T>; 3],
}

#[derive(Clone, Debug, Default)]
struct HeadTrace<T> {
    inner: Vec<T>,
    active: Vec<T>,
    output: Vec<T>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Network<'a, T> {
    pub(super) config: &'a TurnRdConfig,
    pub(super) tensors: &'a Tensors,
    pub(super) weights: &'a [T],
}

impl<T: Real> Network<'_, T> {
    fn apply(&self, layer: &Linear, x: &[T], rows: usize) -> Vec<T> {
        let (weight, bias) = (&self.weights[layer.weight.clone()], &self.weights[layer.bias.clone()]);
        let outputs = bias.len();
        let mut y = vec![T::ZERO; rows * outputs];
        linear(x, weight, Some(bias), &mut y, Accumulate::Set, [rows, weight.len() / outputs, outputs]);
        y
    }

    /// Adds the gradient of the layer's parameters to `gradient` and returns the gradient of the
    /// layer's input, `d_x`.
    fn pull(&self, layer: &Linear, d_y: &[T], x: &[T], gradient: &mut [T], rows: usize) -> Vec<T> {
        pull_weights(layer, d_y, x, gradient, rows);
        let weight = &self.weights[layer.weight.clone()];
        let shape = [rows, weight.len() / layer.bias.len(), layer.bias.len()];
        let mut d_x = vec![T::ZERO; rows * shape[1]];
        linear_backward_input(d_y, weight, &mut d_x, Accumulate::Set, shape);
        d_x
    }

    fn norm(&self, layer: &Linear, x: &[T]) -> NormTrace<T> {
        let (weight, bias) = (&self.weights[layer.weight.clone()], &self.weights[layer.bias.clone()]);
        let mut trace = NormTrace {
            output: vec![T::ZERO; x.len()],
            standard: vec![T::ZERO; x.len()],
            inverse: vec![T::ZERO; x.len() / weight.len()],
        };
        let NormTrace { output, standard, inverse } = &mut trace;
        layer_norm(x, [weight, bias], EPSILON, [output, standard, inverse]);
        trace
    }

    fn norm_pull(&self, layer: &Linear, trace: &NormTrace<T>, d_y: &[T], d_x: &mut [T], gradient: &mut [T]) {
        // A norm's bias follows its weight in the buffer.
        let (d_weight, d_bias) =
            gradient[layer.weight.start..layer.bias.end].split_at_mut(layer.weight.len());
        let weight = &self.weights[layer.weight.clone()];
        layer_norm_backward(d_y, [weight, &trace.standard, &trace.inverse], [d_x, d_weight, d_bias]);
    }

    /// Returns a layer's dropout masks, drawn per trajectory; empty without dropout.
    fn masks(&self, pack: &Pack<T>, block: usize) -> [Vec<T>; 3] {
        let Some(dropout) = pack.dropout.as_ref().filter(|_| self.config.dropout > 0.0) else {
            return Default::default();
        };
        let hidden = self.config.hidden;
        let widths = [hidden, hidden * self.config.feed_forward, hidden];
        std::array::from_fn(|index| {
            let mut mask = vec![T::ZERO; pack.rows() * widths[index]];
            for (trajectory, (first, turns)) in pack.trajectories().enumerate() {
                let mask = &mut mask[first * widths[index]..][..turns * widths[index]];
                dropout_mask(self.config.dropout, dropout.seed(trajectory, 3 * block + index), mask);
            }
            mask
        })
    }

    fn head(&self, layers: &Head, x: &[T], rows: usize) -> HeadTrace<T> {
        let inner = self.apply(&layers.inner, x, rows);
        let mut active = vec![T::ZERO; inner.len()];
        gelu(&inner, &mut active);
        let output = self.apply(&layers.outer, &active, rows);
        HeadTrace { inner, active, output }
    }

    fn head_pull(
        &self,
        layers: &Head,
        trace: &HeadTrace<T>,
        d_output: &[T],
        x: &[T],
        gradient: &mut [T],
    ) -> Vec<T> {
        let rows = d_output.len();
        let mut d_inner = self.pull(&layers.outer, d_output, &trace.active, gradient, rows);
        gelu_backward(&trace.inner, &mut d_inner);
        self.pull(&layers.inner, &d_inner, x, gradient, rows)
    }

    pub(super) fn forward(&self, pack: &Pack<T>) -> Trace<T> {
        let TurnRdConfig { hidden, heads, .. } = *self.config;
        let rows = pack.rows();
        let mut trace = Trace::default();
        let mut x = self.apply(&self.tensors.input, &pack.inputs, rows);
        for (first, turns) in pack.trajectories() {
            let positions = &self.weights[self.tensors.positions.clone()];
            add_assign(&mut x[first * hidden..][..turns * hidden], &positions[..turns * hidden]);
        }
        for (index, block) in self.tensors.blocks.iter().enumerate() {
            let masks = self.masks(pack, index);
            let norm1 = self.norm(&block.norm1, &x);
            let qkv = self.apply(&block.qkv, &norm1.output, rows);
            let mut mixed = vec![T::ZERO; rows * hidden];
            let mut probabilities =
                vec![T::ZERO; pack.lengths.iter().map(|turns| heads * turns * turns).sum()];
            let mut rest = &mut probabilities[..];
            for (first, turns) in pack.trajectories() {
                let (own, others) = rest.split_at_mut(heads * turns * turns);
                rest = others;
                let shape = Attention { heads, width: hidden, turns };
                shape.forward(&qkv[3 * first * hidden..], &mut mixed[first * hidden..], own);
            }
            let mut out = self.apply(&block.out, &mixed, rows);
            apply_mask(&masks[0], &mut out);
            add_assign(&mut x, &out);
            let norm2 = self.norm(&block.norm2, &x);
            let up = self.apply(&block.up, &norm2.output, rows);
            let mut active = vec![T::ZERO; up.len()];
            gelu(&up, &mut active);
            apply_mask(&masks[1], &mut active);
            let mut down = self.apply(&block.down, &active, rows);
            apply_mask(&masks[2], &mut down);
            add_assign(&mut x, &down);
            trace.blocks.push(BlockTrace { norm1, qkv, probabilities, mixed, norm2, up, active, masks });
        }
        trace.modulated.clone_from(&x);
        trace.encoded = x;
        if let Some(film) = &self.tensors.film {
            trace.film = self.apply(film, &pack.goals, pack.lengths.len());
            for ((first, turns), film) in pack.trajectories().zip(trace.film.chunks_exact(2 * hidden)) {
                let (gamma, beta) = film.split_at(hidden);
                for row in trace.modulated[first * hidden..][..turns * hidden].chunks_exact_mut(hidden) {
                    for ((x, &gamma), &beta) in row.iter_mut().zip(gamma).zip(beta) {
                        *x = *x * (T::ONE + gamma) + beta;
                    }
                }
            }
        }
        trace.attention = self.head(&self.tensors.attention, &trace.modulated, rows);
        trace.value = self.head(&self.tensors.value, &trace.modulated, rows);
        trace
    }

    /// Adds the parameter gradients, given the gradients of [`Trace::scores`] and
    /// [`Trace::values`].
    pub(super) fn backward(
        &self,
        pack: &Pack<T>,
        trace: &Trace<T>,
        [d_scores, d_values]: [&[T]; 2],
        gradient: &mut [T],
    ) {
        let TurnRdConfig { hidden, heads, .. } = *self.config;
        let rows = pack.rows();
        let (attention, value) = (&self.tensors.attention, &self.tensors.value);
        let mut d_x = self.head_pull(attention, &trace.attention, d_scores, &trace.modulated, gradient);
        let of_values = self.head_pull(value, &trace.value, d_values, &trace.modulated, gradient);
        add_assign(&mut d_x, &of_values);
        if let Some(film) = &self.tensors.film {
            let mut d_film = vec![T::ZERO; trace.film.len()];
            let films = trace.film.chunks_exact(2 * hidden).zip(d_film.chunks_exact_mut(2 * hidden));
            for ((first, turns), (film, d_film)) in pack.trajectories().zip(films) {
                let (d_gamma, d_beta) = d_film.split_at_mut(hidden);
                let range = first * hidden..(first + turns) * hidden;
                let encoded = trace.encoded[range.clone()].chunks_exact(hidden);
                for (d_x, x) in d_x[range].chunks_exact_mut(hidden).zip(encoded) {
                    for i in 0..hidden {
                        d_gamma[i] += d_x[i] * x[i];
                        d_beta[i] += d_x[i];
                        d_x[i] *= T::ONE + film[i];
                    }
                }
            }
            pull_weights(film, &d_film, &pack.goals, gradient, pack.lengths.len());
        }
        for (block, trace) in self.tensors.blocks.iter().zip(&trace.blocks).rev() {
            let mut d_down = d_x.clone();
            apply_mask(&trace.masks[2], &mut d_down);
            let mut d_up = self.pull(&block.down, &d_down, &trace.active, gradient, rows);
            apply_mask(&trace.masks[1], &mut d_up);
            gelu_backward(&trace.up, &mut d_up);
            let d_norm2 = self.pull(&block.up, &d_up, &trace.norm2.output, gradient, rows);
            self.norm_pull(&block.norm2, &trace.norm2, &d_norm2, &mut d_x, gradient);
            let mut d_out = d_x.clone();
            apply_mask(&trace.masks[0], &mut d_out);
            let d_mixed = self.pull(&block.out, &d_out, &trace.mixed, gradient, rows);
            let mut d_qkv = vec![T::ZERO; trace.qkv.len()];
            let mut rest = &trace.probabilities[..];
            for (first, turns) in pack.trajectories() {
                let (own, others) = rest.split_at(heads * turns * turns);
                rest = others;
                let shape = Attention { heads, width: hidden, turns };
                let (qkv, d_qkv) = (&trace.qkv[3 * first * hidden..], &mut d_qkv[3 * first * hidden..]);
                shape.backward(qkv, own, &d_mixed[first * hidden..], d_qkv);
            }
            let d_norm1 = self.pull(&block.qkv, &d_qkv, &trace.norm1.output, gradient, rows);
            self.norm_pull(&block.norm1, &trace.norm1, &d_norm1, &mut d_x, gradient);
        }
        for (first, turns) in pack.trajectories() {
            let positions = &mut gradient[self.tensors.positions.clone()];
            add_assign(&mut positions[..turns * hidden], &d_x[first * hidden..][..turns * hidden]);
        }
        pull_weights(&self.tensors.input, &d_x, &pack.inputs, gradient, rows);
    }
}

fn pull_weights<T: Real>(layer: &Linear, d_y: &[T], x: &[T], gradient: &mut [T], rows: usize) {
    let shape = [rows, layer.weight.len() / layer.bias.len(), layer.bias.len()];
    linear_backward_weight(d_y, x, &mut gradient[layer.weight.clone()], shape);
    linear_backward_bias(d_y, &mut gradient[layer.bias.clone()]);
}
