use pulp::Arch;

use super::matmul::Packed;
use super::panel::PANEL;
use crate::weights::lora::{Adapter, Joint};
use crate::{Compute, ModelConfig};

/// `y = x W^T + bias`, or `y = x W^T + s (x A^T) B^T + bias` with a separate adapter.
///
/// In f32, the adapter is merged into `W` at no cost per token. In bf16, the adapter stays
/// separate. Merging would lose updates below half a rounding step (1/512 of the weight), so
/// sampling would lag behind training.
#[derive(Debug)]
pub(super) struct Projection {
    weight: Packed,
    beside: Option<Beside>,
}

#[derive(Debug)]
pub(super) struct Beside {
    /// `[modules rank, inputs]`.
    a: Packed,
    /// `s B`, `[outputs, modules rank]`; entries whose output and column belong to different
    /// modules are zero.
    b: Packed,
}

#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) tiles: Vec<f32>,
    low: Vec<f32>,
}

impl Beside {
    pub(super) fn is_used(compute: Compute) -> bool {
        compute.kernel().is_some()
    }

    pub(super) fn of(adapter: &Adapter<f32>, layer: usize, joint: Joint) -> Option<Self> {
        let branch = &adapter.layout.layers[layer][joint as usize];
        if branch.parts.is_empty() {
            return None;
        }
        let (rank, scale) = (adapter.config.rank, adapter.config.scale() as f32);
        let width = branch.parts.len() * rank;
        let mut b = vec![0.0; branch.outputs * width];
        for (index, part) in branch.parts.iter().enumerate() {
            let rows = b[part.columns.start * width..part.columns.end * width].chunks_exact_mut(width);
            for (row, values) in rows.zip(adapter.data[part.b.clone()].chunks_exact(rank)) {
                let own = &mut row[index * rank..][..rank];
                own.iter_mut().zip(values).for_each(|(to, value)| *to = scale * value);
            }
        }
        let a = Packed::new(branch.inputs, &[&adapter.data[branch.a.clone()]], &[], Compute::F32);
        Some(Self { a, b: Packed::new(width, &[b], &[], Compute::F32) })
    }

    /// Returns an upper bound on the bytes of all layers' projections, with adapters on every
    /// module.
    pub(super) fn bytes(config: &ModelConfig, rank: usize) -> usize {
        let of = |joint: Joint| {
            let modules = joint.modules();
            let (inputs, width) = (modules[0].inputs(config), modules.len() * rank);
            let outputs: usize = modules.iter().map(|module| module.outputs(config)).sum();
            width.next_multiple_of(PANEL) * inputs + outputs.next_multiple_of(PANEL) * width
        };
        config.num_hidden_layers * Joint::ALL.into_iter().map(of).sum::<usize>() * size_of::<f32>()
    }
}

impl Projection {
    pub(super) fn new(weight: Packed, beside: Option<Beside>) -> Self {
        Self { weight, beside }
    }

    pub(super) fn width(&self) -> usize {
        self.weight.width
    }

    pub(super) fn multiply(
        &self,
        arch: Arch,
        x: &[f32],
        x_stride: usize,
        out: &mut [f32],
        out_stride: usize,
        add: bool,
        scratch: &mut Scratch,
    ) {
        let Scratch { tiles, low } = scratch;
        self.weight.multiply(arch, x, x_stride, out, out_stride, add, tiles);
        if let Some(Beside { a, b }) = &self.beside {
            low.resize(x.len() / x_stride * a.width, 0.0);
            a.multiply(arch, x, x_stride, low, a.width, false, tiles);
            b.multiply(arch, low, a.width, out, out_stride, true, tiles);
        }
    }
}
