//! Tensors in the flat parameter buffer, and their initialization.

use std::ops::Range;

use turnwise_core::{Purpose, Seed};

use super::TurnRdConfig;
use turnwise_model::layers::TensorList;

/// First seed coordinate of TurnRD's random draws, which keeps them independent of the policy's
/// draws.
pub(super) const TAG: u64 = 0x7475_726e_7264;

/// Weight `[out, in]` and bias `[out]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    pub(super) weight: Range<usize>,
    pub(super) bias: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) norm1: Linear,
    pub(super) qkv: Linear,
    pub(super) out: Linear,
    pub(super) norm2: Linear,
    pub(super) up: Linear,
    pub(super) down: Linear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) inner: Linear,
    pub(super) outer: Linear,
}

/// All tensors, named like PyTorch modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensors {
    pub(super) input: Linear,
    pub(super) positions: Range<usize>,
    pub(super) blocks: Vec<Block>,
    pub(super) attention: Head,
    pub(super) value: Head,
    /// `[2 H, D]`: gamma's rows, then beta's. FiLM comes last, so that the initialization of the
    /// other tensors does not depend on it.
    pub(super) film: Option<Linear>,
    pub(super) layout: TensorList,
}

/// Adds the weight and bias of a PyTorch module. The tensors of the fused attention projection
/// (`in_proj`) follow another naming scheme.
fn module(list: &mut TensorList, name: &str, shape: &[usize]) -> Linear {
    let separator = if name.ends_with("in_proj") { '_' } else { '.' };
    Linear {
        weight: list.add(&format!("{name}{separator}weight"), shape),
        bias: list.add(&format!("{name}{separator}bias"), &shape[..1]),
    }
}

impl Tensors {
    pub(super) fn new(config: &TurnRdConfig, input_dim: usize) -> Self {
        let mut list = TensorList::default();
        let hidden = config.hidden;
        let wide = hidden * config.feed_forward;
        let input = module(&mut list, "input", &[hidden, input_dim]);
        let mut head = |name: &str| Head {
            inner: module(&mut list, &format!("{name}.0"), &[hidden, hidden]),
            outer: module(&mut list, &format!("{name}.2"), &[1, hidden]),
        };
        let (attention, value) = (head("attention"), head("value"));
        let blocks = (0..config.layers)
            .map(|index| {
                let mut part =
                    |name: &str, shape: &[usize]| module(&mut list, &format!("layers.{index}.{name}"), shape);
                Block {
                    norm1: part("norm1", &[hidden]),
                    qkv: part("self_attn.in_proj", &[3 * hidden, hidden]),
                    out: part("self_attn.out_proj", &[hidden, hidden]),
                    norm2: part("norm2", &[hidden]),
                    up: part("linear1", &[wide, hidden]),
                    down: part("linear2", &[hidden, wide]),
                }
            })
            .collect();
        let positions = list.add("positions", &[config.max_turns, hidden]);
        let film = config.film.then(|| module(&mut list, "film", &[2 * hidden, input_dim]));
        Self { input, positions, blocks, attention, value, film, layout: list }
    }

    /// Returns initial parameters: matrices are uniform in `+-1/sqrt(in)`, positions are normal
    /// with standard deviation 0.02, norm weights are 1, and biases and FiLM are 0.
    pub(super) fn init(&self, seed: u64) -> Vec<f32> {
        let mut weights = vec![0.0; self.layout.len];
        let mut rng = Seed::derive(seed, Purpose::Init, &[TAG]).rng();
        for tensor in &self.layout.tensors {
            let values = &mut weights[tensor.range.clone()];
            if tensor.name == "positions" {
                values.fill_with(|| (0.02 * rng.normal()) as f32);
            } else if tensor.name.starts_with("film.") {
                values.fill(0.0);
            } else if let [_, inputs] = tensor.shape[..] {
                let bound = 1.0 / (inputs as f64).sqrt();
                values.fill_with(|| (bound * (2.0 * rng.uniform() - 1.0)) as f32);
            } else if tensor.name.contains("norm") && tensor.name.ends_with("weight") {
                values.fill(1.0);
            }
        }
        weights
    }
}
