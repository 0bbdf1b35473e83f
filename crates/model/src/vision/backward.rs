use std::ops::Range;

use super::split::{linear_backward, weight_backward};
use super::tower::{Activations, Order, Tower, Trace, gelu_derivative};
use super::{Prepared, TowerKind};
use crate::Real;
use crate::ops::mlp::{quick_gelu_backward, swiglu_backward};
use crate::ops::rope::{Direction, rotate_rows};
use crate::weights::BlockLayout;

impl<T: Real> Tower<'_, T> {
    /// Adds one image's weight gradients. `trace` must come from a forward pass with `keep`.
    pub(crate) fn backward(&self, picture: &Prepared, trace: Trace<T>, d_features: &[T], gradient: &mut [T]) {
        let Self { config, layout, width, .. } = self;
        let width = *width;
        let (hidden, merged) = (config.hidden_size, config.merged());
        let Trace { patches, angles, x, blocks, normed, inner, activated, .. } = trace;
        let order = Order::new(picture.grid, config);
        let (tokens, rows, wide) = (picture.tokens(), picture.tokens() * merged, merged * hidden);
        let d_sorted: Vec<T> =
            order.groups.iter().flat_map(|&group| &d_features[group * width..][..width]).copied().collect();
        let mut d_inner = vec![T::ZERO; tokens * wide];
        let (weight, bias) = (&layout.out_weight, &layout.out_bias);
        self.linear_backward(&activated, &d_sorted, weight, bias, &mut d_inner, gradient);
        for (d, &x) in d_inner.iter_mut().zip(&inner) {
            *d *= gelu_derivative(x);
        }
        let mut d_normed = vec![T::ZERO; rows * hidden];
        let (weight, bias) = (&layout.merge_weight, &layout.merge_bias);
        self.linear_backward(&normed.rows, &d_inner, weight, bias, &mut d_normed, gradient);
        let mut d_x = vec![T::ZERO; rows * hidden];
        self.norm_backward(&d_normed, &x[config.depth], &layout.merge_norm, &normed, &mut d_x, gradient);
        for (index, (block, mut kept)) in layout.blocks.iter().zip(blocks).enumerate().rev() {
            let mut to = Derivatives { d_x: &mut d_x, d_normed: &mut d_normed, gradient };
            self.block_backward(index, block, &order, &angles, &x[index], &mut kept, &mut to);
        }
        let shape = [rows, config.patch_len(), hidden];
        weight_backward(&patches, &d_x, &mut gradient[layout.patch.clone()], shape);
    }

    fn block_backward(
        &self,
        index: usize,
        layout: &BlockLayout,
        order: &Order,
        angles: &[T],
        x: &[T],
        kept: &mut Activations<T>,
        to: &mut Derivatives<'_, T>,
    ) {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let rows = x.len() / hidden;
        let Derivatives { d_x, d_normed, gradient } = to;
        let mut d_inner = vec![T::ZERO; rows * inner];
        let (weight, bias) = (&layout.down_weight, &layout.down_bias);
        self.linear_backward(&kept.activated, d_x, weight, bias, &mut d_inner, gradient);
        match self.config.kind {
            TowerKind::Qwen2Vl => quick_gelu_backward(&d_inner, &mut kept.up),
            TowerKind::Qwen25Vl => swiglu_backward(&d_inner, inner, &mut kept.up),
        }
        let (weight, bias) = (&layout.up_weight, &layout.up_bias);
        self.linear_backward(&kept.norm2.rows, &kept.up, weight, bias, d_normed, gradient);
        self.norm_backward(d_normed, &kept.middle, &layout.norm2, &kept.norm2, d_x, gradient);

        let mut d_attended = vec![T::ZERO; rows * hidden];
        let (weight, bias) = (&layout.proj_weight, &layout.proj_bias);
        self.linear_backward(&kept.attended, d_x, weight, bias, &mut d_attended, gradient);
        let mut d_qkv = vec![T::ZERO; rows * 3 * hidden];
        self.windows(index, order).backward(&kept.qkv, &d_attended, &mut d_qkv);
        let (half, heads) = (self.config.head_dim() / 2, 2 * self.config.num_heads);
        rotate_rows(angles, half, &mut d_qkv, 3 * hidden, heads, Direction::Backward);
        let (weight, bias) = (&layout.qkv_weight, &layout.qkv_bias);
        self.linear_backward(&kept.norm1.rows, &d_qkv, weight, bias, d_normed, gradient);
        self.norm_backward(d_normed, x, &layout.norm1, &kept.norm1, d_x, gradient);
    }

    fn linear_backward(
        &self,
        x: &[T],
        d_y: &[T],
        weight: &Range<usize>,
        bias: &Range<usize>,
        d_input: &mut [T],
        gradient: &mut [T],
    ) {
        let outputs = bias.len();
        let inputs = weight.len() / outputs;
        let (before, after) = gradient.split_at_mut(bias.start);
        let to = [&mut before[weight.clone()], &mut after[..outputs]];
        linear_backward(x, d_y, self.weights(weight), d_input, to, [x.len() / inputs, inputs, outputs]);
    }
}

struct Derivatives<'a, T> {
    /// Gradient of a block's output, overwritten with the gradient of the block's input.
    d_x: &'a mut [T],
    d_normed: &'a mut [T],
    gradient: &'a mut [T],
}
