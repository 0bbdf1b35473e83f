use std::ops::Range;

use super::TensorList;
use crate::pictures::{TowerKind, VisionConfig};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NormLayout {
    pub(crate) weight: Range<usize>,
    /// Bias of a layer norm, directly after the weight.
    pub(crate) bias: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    pub(crate) norm1: NormLayout,
    pub(crate) norm2: NormLayout,
    /// `[3 hidden, hidden]`.
    pub(crate) qkv_weight: Range<usize>,
    pub(crate) qkv_bias: Range<usize>,
    /// `[hidden, hidden]`.
    pub(crate) proj_weight: Range<usize>,
    pub(crate) proj_bias: Range<usize>,
    /// Gate and up projections, `[2 intermediate, hidden]`; without a gate, only the up
    /// projection, `[intermediate, hidden]`.
    pub(crate) up_weight: Range<usize>,
    pub(crate) up_bias: Range<usize>,
    /// `[hidden, intermediate]`.
    pub(crate) down_weight: Range<usize>,
    pub(crate) down_bias: Range<usize>,
}

/// Ranges of a tower's tensors, which are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisionLayout {
    /// `[hidden, 3 x temporal x patch x patch]`.
    pub(crate) patch: Range<usize>,
    pub(crate) blocks: Vec<BlockLayout>,
    pub(crate) merge_norm: NormLayout,
    /// First layer of the merger, a square matrix.
    pub(crate) merge_weight: Range<usize>,
    pub(crate) merge_bias: Range<usize>,
    /// Second layer of the merger; its outputs are as wide as the decoder.
    pub(crate) out_weight: Range<usize>,
    pub(crate) out_bias: Range<usize>,
}

impl VisionLayout {
    pub(crate) fn new(config: &VisionConfig, width: usize) -> Self {
        Self::add(&mut TensorList::default(), config, width)
    }

    pub(crate) fn add(list: &mut TensorList, config: &VisionConfig, width: usize) -> Self {
        let (side, merged) = (config.patch_size, config.merged() * config.hidden_size);
        let mut to = Builder { list, config };
        // Tensors are placed in this order.
        Self {
            patch: to.add(
                "patch_embed.proj.weight",
                &[config.hidden_size, 3, config.temporal_patch_size, side, side],
            ),
            blocks: (0..config.depth).map(|index| to.block(&format!("blocks.{index}"))).collect(),
            merge_norm: to.norm("merger.ln_q"),
            merge_weight: to.add("merger.mlp.0.weight", &[merged, merged]),
            merge_bias: to.add("merger.mlp.0.bias", &[merged]),
            out_weight: to.add("merger.mlp.2.weight", &[width, merged]),
            out_bias: to.add("merger.mlp.2.bias", &[width]),
        }
    }

    pub(crate) fn all(&self) -> Range<usize> {
        self.patch.start..self.out_bias.end
    }
}

struct Builder<'a> {
    list: &'a mut TensorList,
    config: &'a VisionConfig,
}

impl Builder<'_> {
    fn add(&mut self, name: &str, shape: &[usize]) -> Range<usize> {
        self.list.add(&format!("visual.{name}"), shape)
    }

    fn adjacent(&mut self, block: &str, layers: &[&str], kind: &str, shape: &[usize]) -> Range<usize> {
        let start = self.list.len;
        for layer in layers {
            self.add(&format!("{block}.mlp.{layer}.{kind}"), shape);
        }
        start..self.list.len
    }

    fn norm(&mut self, name: &str) -> NormLayout {
        let shape = [self.config.hidden_size];
        let weight = self.add(&format!("{name}.weight"), &shape);
        let bias = self.config.kind == TowerKind::Qwen2Vl;
        NormLayout { weight, bias: bias.then(|| self.add(&format!("{name}.bias"), &shape)) }
    }

    fn block(&mut self, block: &str) -> BlockLayout {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        // Adjacent, so that one product computes both.
        let (first, second): (&[&str], _) = match self.config.kind {
            TowerKind::Qwen2Vl => (&["fc1"], "fc2"),
            TowerKind::Qwen25Vl => (&["gate_proj", "up_proj"], "down_proj"),
        };
        BlockLayout {
            norm1: self.norm(&format!("{block}.norm1")),
            norm2: self.norm(&format!("{block}.norm2")),
            qkv_weight: self.add(&format!("{block}.attn.qkv.weight"), &[3 * hidden, hidden]),
            qkv_bias: self.add(&format!("{block}.attn.qkv.bias"), &[3 * hidden]),
            proj_weight: self.add(&format!("{block}.attn.proj.weight"), &[hidden, hidden]),
            proj_bias: self.add(&format!("{block}.attn.proj.bias"), &[hidden]),
            up_weight: self.adjacent(block, first, "weight", &[inner, hidden]),
            up_bias: self.adjacent(block, first, "bias", &[inner]),
            down_weight: self.add(&format!("{block}.mlp.{second}.weight"), &[hidden, inner]),
            down_bias: self.add(&format!("{block}.mlp.{second}.bias"), &[hidden]),
        }
    }
}
