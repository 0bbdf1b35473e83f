#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

use std::path::Path;

use super::load::{Layer, Linear, Norm, Weights, load};
use super::{Activation, BertConfig};
use crate::layers::{Accumulate, LANES, Loop, View, ViewMut, fold, matmul, softmax_rows, vectorised};
use crate::ops::linear::linear;
use crate::{Compute, ModelError, Real};

/// A read-only BERT, usable from several threads.
#[derive(Clone, Debug)]
pub struct Bert {
    config: BertConfig,
    weights: Weights,
    compute: Compute,
}

impl Bert {
    /// Reads `config.json` and `model.safetensors`.
    ///
    /// # Errors
    ///
    /// Fails if a file is missing or invalid.
    pub fn load(folder: &Path, compute: Compute) -> Result<Self, ModelError> {
        let config = BertConfig::load(folder)?;
        let weights = load(folder, &config)?;
        Ok(Self { config, weights, compute })
    }

    /// Returns the model's config.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// Returns the last hidden states, `[tokens, hidden_size]`, of sequences that do not attend to
    /// each other.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError::Setting`] if a sequence is empty or too long, or a token is not in the
    /// vocabulary.
    pub fn forward(&self, sequences: &[Vec<u32>]) -> Result<Vec<f32>, ModelError> {
        let (config, weights) = (&self.config, &self.weights);
        let hidden = config.hidden_size;
        let total: usize = sequences.iter().map(Vec::len).sum();
        let mut x = Vec::with_capacity(total * hidden);
        for sequence in sequences {
            self.check(sequence)?;
            for (position, &token) in sequence.iter().enumerate() {
                let word = &weights.words[token as usize * hidden..][..hidden];
                let place = &weights.positions[position * hidden..][..hidden];
                x.extend(
                    word.iter()
                        .zip(place)
                        .zip(&weights.kind)
                        .map(|((word, place), kind)| word + kind + place),
                );
            }
        }
        self.norm(&mut x, &weights.norm);
        let mut scratch = Scratch::new(config, sequences);
        for layer in &weights.layers {
            self.layer(layer, sequences, &mut x, &mut scratch);
        }
        Ok(x)
    }

    fn check(&self, sequence: &[u32]) -> Result<(), ModelError> {
        let wrong = |key: &str, reason: String| Err(ModelError::Setting { key: key.to_owned(), reason });
        let most = self.config.max_positions;
        if sequence.is_empty() || sequence.len() > most {
            return wrong(
                "tokens",
                format!("a sequence of {} tokens; from 1 to {most} are read", sequence.len()),
            );
        }
        match sequence.iter().find(|&&token| token as usize >= self.config.vocab_size) {
            Some(token) => wrong(
                "tokens",
                format!(
                    "token {token}, and the vocabulary has {}; do tokenizer and model belong together?",
                    self.config.vocab_size
                ),
            ),
            None => Ok(()),
        }
    }

    fn linear(&self, x: &[f32], layer: &Linear, y: &mut [f32], into: Accumulate) {
        let outputs = layer.bias.len();
        let shape = [y.len() / outputs, layer.weight.len() / outputs, outputs];
        linear(self.compute.kernel(), x, &layer.weight, Some(&layer.bias), y, into, shape);
    }

    fn layer(&self, layer: &Layer, sequences: &[Vec<u32>], x: &mut [f32], scratch: &mut Scratch) {
        self.linear(x, &layer.query, &mut scratch.query, Accumulate::Set);
        self.linear(x, &layer.key, &mut scratch.key, Accumulate::Set);
        self.linear(x, &layer.value, &mut scratch.value, Accumulate::Set);
        let mut start = 0;
        for sequence in sequences {
            self.attend(start, sequence.len(), scratch);
            start += sequence.len();
        }
        self.linear(&scratch.context, &layer.attention, x, Accumulate::Add);
        self.norm(x, &layer.attention_norm);
        self.linear(x, &layer.up, &mut scratch.inner, Accumulate::Set);
        match self.config.activation {
            Activation::Gelu => vectorised(Gelu, &mut scratch.inner),
            Activation::GeluTanh => vectorised(GeluTanh, &mut scratch.inner),
            Activation::Relu => scratch.inner.iter_mut().for_each(|value| *value = value.max(0.0)),
        }
        self.linear(&scratch.inner, &layer.down, x, Accumulate::Add);
        self.norm(x, &layer.norm);
    }

    fn attend(&self, start: usize, count: usize, scratch: &mut Scratch) {
        let hidden = self.config.hidden_size;
        let width = hidden / self.config.heads;
        let scale = 1.0 / (width as f32).sqrt();
        let scores = &mut scratch.scores[..count * count];
        for head in 0..self.config.heads {
            let at = start * hidden + head * width;
            let query = View::strided(&scratch.query[at..], count, width, hidden);
            let key = View::strided(&scratch.key[at..], count, width, hidden);
            let value = View::strided(&scratch.value[at..], count, width, hidden);
            matmul(ViewMut::new(scores, count, count), query, key.t(), Accumulate::Set, scale);
            softmax_rows(scores, count);
            let context = ViewMut::strided(&mut scratch.context[at..], count, width, hidden);
            matmul(context, View::new(scores, count, count), value, Accumulate::Set, 1.0);
        }
    }

    fn norm(&self, x: &mut [f32], norm: &Norm) {
        vectorised(LayerNorm, (x, &norm.weight[..], &norm.bias[..], self.config.epsilon as f32));
    }
}

struct Scratch {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    context: Vec<f32>,
    inner: Vec<f32>,
    scores: Vec<f32>,
}

impl Scratch {
    fn new(config: &BertConfig, sequences: &[Vec<u32>]) -> Self {
        let total: usize = sequences.iter().map(Vec::len).sum();
        let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
        let wide = || vec![0.0; total * config.hidden_size];
        Self {
            query: wide(),
            key: wide(),
            value: wide(),
            context: wide(),
            inner: vec![0.0; total * config.intermediate_size],
            scores: vec![0.0; longest * longest],
        }
    }
}

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, per row.
struct LayerNorm;

impl Loop<(&mut [f32], &[f32], &[f32], f32)> for LayerNorm {
    type Output = ();
    #[inline(always)]
    fn run((x, weight, bias, epsilon): (&mut [f32], &[f32], &[f32], f32)) {
        let width = weight.len();
        for row in x.chunks_exact_mut(width) {
            let mean = sum(row, |value| value) / width as f32;
            let variance = sum(row, |value| (value - mean) * (value - mean)) / width as f32;
            let inverse = 1.0 / (variance + epsilon).sqrt();
            for ((value, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
                *value = (*value - mean) * inverse * weight + bias;
            }
        }
    }
}

#[inline(always)]
fn sum(row: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += of(chunk[lane]);
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        lanes[lane] += of(value);
    }
    fold(lanes)
}

struct Gelu;

impl Loop<&mut Vec<f32>> for Gelu {
    type Output = ();
    #[inline(always)]
    fn run(x: &mut Vec<f32>) {
        for value in x {
            *value *= 0.5 * (1.0 + erf(*value * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

struct GeluTanh;

impl Loop<&mut Vec<f32>> for GeluTanh {
    type Output = ();
    #[inline(always)]
    fn run(x: &mut Vec<f32>) {
        for value in x {
            let inner = 0.797_884_6 * (*value + 0.044_715 * *value * *value * *value);
            // tanh(a) = 1 - 2 / (exp(2a) + 1), which overflows to the right limit.
            *value *= 0.5 * (2.0 - 2.0 / (Real::exp(2.0 * inner.min(40.0)) + 1.0));
        }
    }
}

/// Returns erf(x) to within 1.5e-7 (Abramowitz and Stegun, formula 7.1.26).
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * size);
    let series =
        t * (0.254_829_6 + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    // Vectorized, unlike the system's `exp`.
    let value = 1.0 - series * Real::exp(-size * size);
    if x < 0.0 { -value } else { value }
}
