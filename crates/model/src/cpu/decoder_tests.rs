use std::ops::Range;

use turnwise_core::{Purpose, Seed, TokenSequence, TurnSpan};

use super::*;
use crate::cpu::head::{FEWEST_ROWS, LOGITS};
use crate::testing::{check_gradient, random};
use crate::{Family, RopeScaling};

pub(crate) fn config(heads: usize, key_values: usize, tied: bool) -> ModelConfig {
    ModelConfig {
        vocab_size: 23,
        hidden_size: heads * 4,
        intermediate_size: 11,
        num_hidden_layers: 2,
        num_attention_heads: heads,
        num_key_value_heads: key_values,
        head_dim: 4,
        max_position_embeddings: 512,
        tie_word_embeddings: tied,
        ..ModelConfig::default()
    }
}

pub(crate) fn qwen3(head_dim: usize, attention_bias: bool) -> ModelConfig {
    ModelConfig { model_type: Family::Qwen3, head_dim, attention_bias, ..config(3, 1, false) }
}

pub(crate) fn llama() -> ModelConfig {
    let rope_scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16,
    };
    let base = config(4, 2, true);
    ModelConfig { model_type: Family::Llama, attention_bias: true, mlp_bias: true, rope_scaling, ..base }
}

/// Random weights large enough that every part of the model matters.
pub(crate) fn parameters(config: &ModelConfig, seed: u64) -> Parameters<f64> {
    let mut parameters = Parameters::zeros(config.clone());
    let values = random(seed, parameters.data.len());
    for tensor in &parameters.layout.tensors {
        let norm = tensor.name.ends_with("norm.weight");
        for index in tensor.range.clone() {
            parameters.data[index] = if norm { 1.0 + 0.2 * values[index] } else { 0.3 * values[index] };
        }
    }
    parameters
}

pub(crate) fn sequence(tokens: &[u32], spans: &[(usize, usize)]) -> TokenSequence {
    let spans = spans.iter().enumerate().map(|(turn, &(start, end))| TurnSpan { turn, start, end });
    TokenSequence { tokens: tokens.to_vec(), spans: spans.collect() }
}

/// Sequences of various lengths and numbers of turns; the third has no response.
pub(crate) fn batch(vocabulary: usize, seed: u64) -> Vec<TokenSequence> {
    let mut rng = Seed::derive(seed, Purpose::Init, &[1]).rng();
    let mut tokens = |count: usize| (0..count).map(|_| rng.below(vocabulary) as u32).collect::<Vec<_>>();
    vec![
        sequence(&tokens(9), &[(2, 4), (6, 9)]),
        sequence(&tokens(5), &[(1, 3)]),
        sequence(&tokens(4), &[]),
        sequence(&tokens(70), &[(3, 10), (50, 69)]),
        sequence(&tokens(2), &[(1, 2)]),
    ]
}

fn packed(batch: &[TokenSequence]) -> Packing {
    let mut packing = Packing::default();
    packing.fill(batch.iter());
    packing
}

pub(crate) fn whole_backward<'a, T: Real>(
    workspace: &mut Workspace<T>,
    network: impl std::convert::Into<Network<'a, T>>,
    packing: &Packing,
    sequences: &Range<usize>,
    derivatives: &[[T; 2]],
    gradient: &mut [T],
) {
    let network = network.into();
    let wanted: Vec<bool> = (0..packing.sequences()).map(|sequence| sequences.contains(&sequence)).collect();
    let mut all = vec![[T::ZERO; 2]; packing.targets.len()];
    all[packing.targets_of(sequences)].copy_from_slice(derivatives);
    workspace.begin_backward(network, packing);
    workspace.backward_outputs(network, packing, &wanted, &all, gradient);
    workspace.backward_layers(network, packing, &wanted, gradient);
}

fn loss(statistics: &[RowStatistics<f64>], derivatives: &[[f64; 2]]) -> f64 {
    statistics.iter().zip(derivatives).map(|(row, [d, e])| d * row.logprob + e * row.entropy).sum()
}

fn random_derivatives(count: usize) -> Vec<[f64; 2]> {
    random(77, 2 * count).chunks(2).map(|pair| [pair[0], pair[1]]).collect()
}

#[test]
fn the_gradient_of_every_tensor_is_its_derivative() {
    for (config, recompute) in [
        (config(4, 2, true), false),
        (config(4, 4, false), true),
        (config(3, 1, false), false),
        (config(2, 1, true), true),
        (qwen3(6, false), false),
        (qwen3(2, true), true),
        (llama(), false),
    ] {
        let parameters = parameters(&config, 5);
        let packing = packed(&batch(config.vocab_size, 1));
        let derivatives = random_derivatives(packing.targets.len());
        let mut workspace = Workspace::new(&config, recompute);
        let mut gradient = vec![0.0; parameters.data.len()];
        workspace.forward(&parameters, &packing, 0.8);
        whole_backward(
            &mut workspace,
            &parameters,
            &packing,
            &(0..packing.sequences()),
            &derivatives,
            &mut gradient,
        );
        for tensor in &parameters.layout.tensors {
            let mut moved = parameters.clone();
            // Softmax ignores a key bias unless rotation makes it depend on position.
            check_gradient(
                &tensor.name,
                &parameters.data[tensor.range.clone()],
                &gradient[tensor.range.clone()],
                |values| {
                    moved.data[tensor.range.clone()].copy_from_slice(values);
                    loss(workspace.forward(&moved, &packing, 0.8), &derivatives)
                },
            );
        }
    }
}

#[test]
fn backward_in_runs_adds_up_to_backward_of_all() {
    for (config, recompute) in
        [(config(4, 2, true), false), (config(4, 2, true), true), (qwen3(6, false), false)]
    {
        let parameters = parameters(&config, 6);
        let packing = packed(&batch(config.vocab_size, 2));
        let derivatives = random_derivatives(packing.targets.len());
        let mut workspace = Workspace::new(&config, recompute);
        let mut gradient = |runs: &[Range<usize>]| {
            let mut gradient = vec![0.0; parameters.data.len()];
            workspace.forward(&parameters, &packing, 1.0);
            for run in runs {
                let derivatives = &derivatives[packing.targets_of(run)];
                whole_backward(&mut workspace, &parameters, &packing, run, derivatives, &mut gradient);
            }
            gradient
        };
        let (whole, parts) = (gradient(std::slice::from_ref(&(0..5))), gradient(&[3..5, 0..1, 1..3]));
        let distance = whole.iter().zip(&parts).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(distance < 1e-12, "{distance}");
        let missing = gradient(&[3..5, 0..1]);
        assert!(whole.iter().zip(&missing).any(|(a, b)| (a - b).abs() > 1e-3));
    }
}

#[test]
fn packing_does_not_change_a_sequence() {
    let config = config(4, 2, true);
    let parameters = parameters(&config, 7);
    let batch = batch(config.vocab_size, 3);
    let mut workspace = Workspace::new(&config, false);
    let together = workspace.forward(&parameters, &packed(&batch), 1.0).to_vec();
    let mut apart = Vec::new();
    for sequence in &batch {
        apart.extend_from_slice(workspace.forward(&parameters, &packed(std::slice::from_ref(sequence)), 1.0));
    }
    assert_eq!(together.len(), apart.len());
    for (a, b) in together.iter().zip(&apart) {
        assert!((a.logprob - b.logprob).abs() < 1e-12 && (a.entropy - b.entropy).abs() < 1e-12);
    }
}

#[test]
fn a_large_vocabulary_goes_in_chunks() {
    // More rows than a chunk has, so backward recomputes the logits.
    let vocabulary = 2 * LOGITS / FEWEST_ROWS;
    let config = ModelConfig { vocab_size: vocabulary, num_hidden_layers: 1, ..config(1, 1, true) };
    let mut parameters = Parameters::<f64>::zeros(config.clone());
    for (index, value) in parameters.data.iter_mut().enumerate() {
        *value = ((index % 7919) as f64 * 0.37).sin();
    }
    let rows = FEWEST_ROWS + 44;
    let tokens: Vec<u32> = (0..=rows as u32).collect();
    let packing = packed(&[sequence(&tokens, &[(1, rows + 1)])]);
    let mut derivatives = vec![[0.0; 2]; rows];
    let ends =
        [(0, [1.0, 0.5]), (FEWEST_ROWS - 1, [0.3, -0.2]), (FEWEST_ROWS, [-0.7, 0.0]), (rows - 1, [0.4, 0.1])];
    for (row, derivative) in ends {
        derivatives[row] = derivative;
    }
    let mut workspace = Workspace::new(&config, false);
    let statistics = workspace.forward(&parameters, &packing, 1.0).to_vec();
    let mut gradient = vec![0.0; parameters.data.len()];
    whole_backward(&mut workspace, &parameters, &packing, &(0..1), &derivatives, &mut gradient);
    let range = parameters.layout.final_norm.clone();
    let mut moved = parameters.clone();
    for index in range {
        let step = 1e-4;
        let mut at = |shift: f64| {
            moved.data[index] = parameters.data[index] + shift;
            let value = loss(workspace.forward(&moved, &packing, 1.0), &derivatives);
            moved.data[index] = parameters.data[index];
            value
        };
        let difference = (at(step) - at(-step)) / (2.0 * step);
        assert!((difference - gradient[index]).abs() < 1e-6, "{difference} {}", gradient[index]);
    }
    assert!(statistics.iter().all(|row| row.entropy > 1.0));
}

/// Returns the largest relative error of any tensor's gradient, and the cosine between the whole
/// gradient and the exact one.
fn compare(layout: &crate::ParameterLayout, found: &[f32], exact: &[f64]) -> (f64, f64) {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let mut worst = 0.0f64;
    for tensor in &layout.tensors {
        let pairs = found[tensor.range.clone()].iter().zip(&exact[tensor.range.clone()]);
        let off = norm(&mut pairs.map(|(&a, &b)| f64::from(a) - b));
        worst = worst.max(off / norm(&mut exact[tensor.range.clone()].iter().copied()));
    }
    let product: f64 = found.iter().zip(exact).map(|(&a, &b)| f64::from(a) * b).sum();
    let sizes = norm(&mut found.iter().map(|&x| f64::from(x))) * norm(&mut exact.iter().copied());
    (worst, product / sizes)
}

#[test]
fn log_probabilities_and_gradient_in_bf16_are_close_to_the_exact_ones() {
    let (heads, key_values) = (4, 2);
    let config = ModelConfig {
        vocab_size: 130,
        hidden_size: 64,
        intermediate_size: 96,
        ..config(heads, key_values, true)
    };
    let mut parameters = parameters(&config, 5);
    for tensor in parameters.layout.tensors.iter().filter(|tensor| tensor.decays) {
        parameters.data[tensor.range.clone()].iter_mut().for_each(|weight| *weight *= 0.4);
    }
    let packing = packed(&batch(config.vocab_size, 1));
    let derivatives = random_derivatives(packing.targets.len());
    let mut workspace = Workspace::new(&config, false);
    let exact_rows = workspace.forward(&parameters, &packing, 0.8).to_vec();
    let mut exact = vec![0.0; parameters.data.len()];
    whole_backward(&mut workspace, &parameters, &packing, &(0..5), &derivatives, &mut exact);
    let narrow = parameters.cast::<f32>();
    let derivatives: Vec<[f32; 2]> = derivatives.iter().map(|pair| pair.map(|d| d as f32)).collect();
    for (kernel, recompute) in
        crate::ops::bf16::kernels().into_iter().flat_map(|kernel| [(kernel, false), (kernel, true)])
    {
        let mut workspace = Workspace::new(&config, recompute).with_bf16(Some(kernel));
        let rows = workspace.forward(&narrow, &packing, 0.8).to_vec();
        for (row, exact) in rows.iter().zip(&exact_rows) {
            assert!((f64::from(row.logprob) - exact.logprob).abs() < 0.05, "{row:?} {exact:?}");
            assert!((f64::from(row.entropy) - exact.entropy).abs() < 0.05, "{row:?} {exact:?}");
        }
        let mut gradient = vec![0.0f32; narrow.data.len()];
        whole_backward(&mut workspace, &narrow, &packing, &(0..5), &derivatives, &mut gradient);
        let (worst, cosine) = compare(&narrow.layout, &gradient, &exact);
        assert!(worst < 0.03 && cosine > 0.9995, "{kernel:?}: {worst} off, cosine {cosine}");
        // It really is bf16; a wrongly transposed matrix would be far off.
        assert!(worst > 1e-4, "{worst}");
        let range = narrow.layout.layers[1].o_weight.clone();
        let mut wrong = gradient.clone();
        for row in 0..64 {
            for column in 0..64 {
                wrong[range.start + row * 64 + column] = gradient[range.start + column * 64 + row];
            }
        }
        let (worst, cosine) = compare(&narrow.layout, &wrong, &exact);
        assert!(worst > 0.5 && cosine < 0.9995, "{worst} {cosine}");
    }
}
