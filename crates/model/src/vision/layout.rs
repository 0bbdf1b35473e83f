//! The tower's tensors.

use std::ops::Range;

use super::VisionConfig;
use crate::layers::TensorList;

/// Ranges of one block's tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    /// Norm before attention, `[hidden]`.
    pub(crate) norm1: Range<usize>,
    /// Norm before the MLP, `[hidden]`.
    pub(crate) norm2: Range<usize>,
    /// Queries, keys and values, `[3 hidden, hidden]`.
    pub(crate) qkv_weight: Range<usize>,
    /// Their bias.
    pub(crate) qkv_bias: Range<usize>,
    /// Output of attention, `[hidden, hidden]`.
    pub(crate) proj_weight: Range<usize>,
    /// Its bias.
    pub(crate) proj_bias: Range<usize>,
    /// Gate and up, `[2 intermediate, hidden]`.
    pub(crate) gate_up_weight: Range<usize>,
    /// Their bias.
    pub(crate) gate_up_bias: Range<usize>,
    /// Down, `[hidden, intermediate]`.
    pub(crate) down_weight: Range<usize>,
    /// Its bias.
    pub(crate) down_bias: Range<usize>,
}

/// Ranges of all tensors of a tower. They are adjacent in a model's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisionLayout {
    /// Embedding of patches, `[hidden, 3 x temporal x patch x patch]`.
    pub(crate) patch: Range<usize>,
    /// The blocks in order.
    pub(crate) blocks: Vec<BlockLayout>,
    /// Norm before patches are merged, `[hidden]`.
    pub(crate) merge_norm: Range<usize>,
    /// First layer of the merger, square.
    pub(crate) merge_weight: Range<usize>,
    /// Its bias.
    pub(crate) merge_bias: Range<usize>,
    /// Second layer of the merger, to the decoder's width.
    pub(crate) out_weight: Range<usize>,
    /// Its bias.
    pub(crate) out_bias: Range<usize>,
}

impl VisionLayout {
    /// Returns the layout of a tower in a buffer without other tensors; `width` is the decoder's.
    pub(crate) fn new(config: &VisionConfig, width: usize) -> Self {
        Self::add(&mut TensorList::default(), config, width)
    }

    /// Appends the tower's tensors.
    pub(crate) fn add(list: &mut TensorList, config: &VisionConfig, width: usize) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (side, merged) = (config.patch_size, config.merged() * config.hidden_size);
        let shape = [hidden, 3, config.temporal_patch_size, side, side];
        let patch = list.add("visual.patch_embed.proj.weight", &shape);
        let blocks = (0..config.depth)
            .map(|index| {
                let mut add =
                    |name: &str, shape: &[usize]| list.add(&format!("visual.blocks.{index}.{name}"), shape);
                // Gate and up are adjacent, so that one product computes both.
                BlockLayout {
                    norm1: add("norm1.weight", &[hidden]),
                    norm2: add("norm2.weight", &[hidden]),
                    qkv_weight: add("attn.qkv.weight", &[3 * hidden, hidden]),
                    qkv_bias: add("attn.qkv.bias", &[3 * hidden]),
                    proj_weight: add("attn.proj.weight", &[hidden, hidden]),
                    proj_bias: add("attn.proj.bias", &[hidden]),
                    gate_up_weight: {
                        let gate = add("mlp.gate_proj.weight", &[inner, hidden]);
                        gate.start..add("mlp.up_proj.weight", &[inner, hidden]).end
                    },
                    gate_up_bias: {
                        let gate = add("mlp.gate_proj.bias", &[inner]);
                        gate.start..add("mlp.up_proj.bias", &[inner]).end
                    },
                    down_weight: add("mlp.down_proj.weight", &[hidden, inner]),
                    down_bias: add("mlp.down_proj.bias", &[hidden]),
                }
            })
            .collect();
        Self {
            patch,
            blocks,
            merge_norm: list.add("visual.merger.ln_q.weight", &[hidden]),
            merge_weight: list.add("visual.merger.mlp.0.weight", &[merged, merged]),
            merge_bias: list.add("visual.merger.mlp.0.bias", &[merged]),
            out_weight: list.add("visual.merger.mlp.2.weight", &[width, merged]),
            out_bias: list.add("visual.merger.mlp.2.bias", &[width]),
        }
    }

    /// Returns the range of all tensors.
    pub(crate) fn all(&self) -> Range<usize> {
        self.patch.start..self.out_bias.end
    }
}
