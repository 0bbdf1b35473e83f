//! Test utilities: finite differences, an objective, distances.

use std::ops::Range;
use std::path::Path;

use turnwise_core::{
    Objective, ObjectiveError, Purpose, RequiredPasses, Seed, TokenGradients, TokenStatistics,
};

use crate::ModelError;
use crate::files::{TensorSlice, save_tensors};

/// Returns standard normal numbers.
pub fn random(seed: u64, len: usize) -> Vec<f64> {
    let mut rng = Seed::derive(seed, Purpose::Init, &[]).rng();
    (0..len).map(|_| rng.normal()).collect()
}

/// Objective `sum_t a_t logprob_t + b_t entropy_t + c_t KL_t`, with coefficients of both signs.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Includes the entropy term.
    pub entropies: bool,
    /// Includes KLs to the reference.
    pub kls: bool,
    /// Index of a sequence that contributes neither loss nor gradient.
    pub silent: Option<usize>,
}

impl Probe {
    /// Log-probs and entropies only.
    pub const PLAIN: Self = Self { entropies: true, kls: false, silent: None };
}

impl Objective for Probe {
    fn passes(&self) -> RequiredPasses {
        RequiredPasses { entropies: self.entropies, reference_kls: self.kls, ..RequiredPasses::default() }
    }

    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let mut value = TokenGradients::default();
        let factor = if self.silent == Some(sequence) { 0.0 } else { 1.0 };
        for (index, &logprob) in tokens.logprobs.iter().enumerate() {
            let number = (sequence * 31 + index) as f32;
            let weight = factor * (number * 0.7).sin();
            value.loss += f64::from(weight * logprob);
            value.d_logprobs.push(weight);
            value.metrics.tokens += 1.0;
            if self.entropies {
                let entropy = tokens.entropies[index];
                let weight = factor * (number * 0.3).cos();
                value.loss += f64::from(weight * entropy);
                value.d_entropies.push(weight);
                value.metrics.entropy += f64::from(entropy);
            }
            if self.kls {
                let weight = f64::from(factor) * (f64::from(number) * 0.2).sin();
                value.loss += weight * tokens.reference_kls[index];
                value.d_reference_kls.push(weight);
            }
        }
        Ok(value)
    }
}

/// Returns `|a - b| / |b|`.
///
/// # Panics
/// Panics if the lengths differ.
pub fn relative_distance(a: &[f32], b: &[f32]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    assert_eq!(a.len(), b.len());
    norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)))
        / norm(&mut b.iter().map(|&b| f64::from(b))).max(1e-30)
}

/// Returns the largest difference of two lists of rows.
///
/// # Panics
/// Panics if the lengths differ.
pub fn largest_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b).flat_map(|(a, b)| {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b)
    });
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

/// Panics unless `gradient` is the derivative of `function` at `x`, to within 1e-7 of the
/// gradient's largest entry.
///
/// The five-point central differences in `f64` are accurate to about 1e-9.
pub fn check_gradient(name: &str, x: &[f64], gradient: &[f64], mut function: impl FnMut(&[f64]) -> f64) {
    assert_eq!(x.len(), gradient.len());
    let scale = gradient.iter().fold(0.0f64, |largest, g| largest.max(g.abs()));
    assert!(scale > 0.0, "{name}: the gradient is zero everywhere");
    let mut moved = x.to_vec();
    let step = 3e-4;
    // At most 50 entries.
    for index in (0..x.len()).step_by(x.len().div_ceil(50)) {
        let mut at = |shift: f64| {
            moved[index] = x[index] + shift;
            let value = function(&moved);
            moved[index] = x[index];
            value
        };
        let difference = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
        let error = (difference - gradient[index]).abs() / scale;
        assert!(
            error < 1e-7,
            "{name}[{index}]: derivative {} by hand, {difference} by differences",
            gradient[index]
        );
    }
}

/// Finite differences of a loss along random directions, tensor by tensor: a wrong gradient is
/// found even if its tensor is a small part of the whole.
#[derive(Debug)]
pub struct TensorDifferences {
    tensors: Vec<TensorDifference>,
}

#[derive(Debug)]
struct TensorDifference {
    name: String,
    range: Range<usize>,
    direction: Vec<f64>,
    difference: f64,
}

impl TensorDifferences {
    /// Computes central differences `(f(x + h u) - f(x - h u)) / 2 h` of `loss` at `x`, in two unit
    /// directions `u` per tensor. The step `h = 5e-3` suits `f32` weights of about 0.3.
    pub fn of<'a>(
        x: &[f32],
        tensors: impl IntoIterator<Item = (&'a str, Range<usize>)>,
        mut loss: impl FnMut(&[f32]) -> f64,
    ) -> Self {
        const STEP: f64 = 5e-3;
        let mut moved = x.to_vec();
        let mut found = Vec::new();
        for (tensor, (name, range)) in tensors.into_iter().enumerate() {
            for seed in 0..2 {
                let mut direction = random(1000 + 2 * tensor as u64 + seed, range.len());
                let norm = direction.iter().map(|u| u * u).sum::<f64>().sqrt();
                direction = direction.iter().map(|u| u / norm).collect();
                let mut at = |step: f64| {
                    for (index, u) in range.clone().zip(&direction) {
                        moved[index] = (f64::from(x[index]) + step * u) as f32;
                    }
                    let value = loss(&moved);
                    moved[range.clone()].copy_from_slice(&x[range.clone()]);
                    value
                };
                let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                found.push(TensorDifference {
                    name: name.to_owned(),
                    range: range.clone(),
                    direction,
                    difference,
                });
            }
        }
        assert!(!found.is_empty(), "no tensor to check");
        Self { tensors: found }
    }

    /// Returns the tensors whose `gradient` is off by more than 1 % plus `noise`, a difference's
    /// rounding error.
    pub fn wrong(&self, gradient: &[f32], noise: f64) -> Vec<String> {
        let mut wrong = Vec::new();
        for TensorDifference { name, range, direction, difference } in &self.tensors {
            let slope: f64 =
                gradient[range.clone()].iter().zip(direction).map(|(&g, u)| f64::from(g) * u).sum();
            if (slope - difference).abs() > 0.01 * difference.abs() + noise {
                wrong.push(format!("{name}: {slope} by hand, {difference} by differences"));
            }
        }
        wrong
    }

    /// Panics unless [`Self::wrong`] accepts `gradient`, and rejects it once any tensor of it is
    /// set to zero.
    pub fn check(&self, gradient: &[f32], noise: f64) {
        let wrong = self.wrong(gradient, noise);
        assert!(wrong.is_empty(), "{wrong:#?}");
        for TensorDifference { name, range, .. } in &self.tensors {
            let mut dropped = gradient.to_vec();
            dropped[range.clone()].fill(0.0);
            let wrong = self.wrong(&dropped, noise);
            assert!(
                !wrong.is_empty() && wrong.iter().all(|line| line.starts_with(name.as_str())),
                "{name} without a gradient is not seen: {wrong:#?}"
            );
        }
    }
}

/// Writes a BERT with one layer and sixteen dimensions, whose vectors are similar for texts with
/// the same `words`.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write_bert(folder: &Path, words: &[&str], seed: f32) -> Result<(), ModelError> {
    let (hidden, inner, positions) = (16, 24, 64);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(ModelError::io(&path))
    };
    let config = serde_json::json!({
        "model_type": "bert", "vocab_size": words.len(), "hidden_size": hidden, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": inner, "max_position_embeddings": positions, "hidden_act": "gelu",
    });
    write("config.json", config.to_string())?;
    write("vocab.txt", words.join("\n"))?;
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![words.len(), hidden]),
        ("embeddings.position_embeddings.weight".into(), vec![positions, hidden]),
        ("embeddings.token_type_embeddings.weight".into(), vec![2, hidden]),
    ];
    let layer = "encoder.layer.0";
    let pairs = [
        ("embeddings.LayerNorm".to_owned(), vec![hidden]),
        (format!("{layer}.attention.self.query"), vec![hidden, hidden]),
        (format!("{layer}.attention.self.key"), vec![hidden, hidden]),
        (format!("{layer}.attention.self.value"), vec![hidden, hidden]),
        (format!("{layer}.attention.output.dense"), vec![hidden, hidden]),
        (format!("{layer}.attention.output.LayerNorm"), vec![hidden]),
        (format!("{layer}.intermediate.dense"), vec![inner, hidden]),
        (format!("{layer}.output.dense"), vec![hidden, inner]),
        (format!("{layer}.output.LayerNorm"), vec![hidden]),
    ];
    for (name, shape) in pairs {
        let outputs = shape[0];
        tensors.push((format!("{name}.weight"), shape));
        tensors.push((format!("{name}.bias"), vec![outputs]));
    }
    let values: Vec<Vec<f32>> = tensors
        .iter()
        .enumerate()
        .map(|(number, (name, shape))| {
            let count = shape.iter().product::<usize>();
            let size = if number == 0 { 1.0 } else { 0.1 };
            let base = if name.ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
            (0..count)
                .map(|i| base + size * ((i * i) as f32 * 0.7 + i as f32 * 1.3 + number as f32 + seed).sin())
                .collect()
        })
        .collect();
    let slices: Vec<TensorSlice<'_>> = tensors
        .iter()
        .zip(&values)
        .map(|((name, shape), values)| TensorSlice { name: name.clone(), shape, values })
        .collect();
    save_tensors(&folder.join("model.safetensors"), &slices, [])
}
