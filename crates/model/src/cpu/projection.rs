//! A linear layer. Projections with the same input are contiguous and computed in one matrix
//! product.

use std::ops::Range;

use crate::ops::bf16::Kernel;
use crate::ops::linear::{
    Accumulate, linear, linear_backward_bias, linear_backward_input, linear_backward_weight,
};
use crate::weights::lora::Joint;
use crate::{LayerLayout, ModelConfig, Real};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Projection {
    pub(crate) joint: Joint,
    /// `[outputs, inputs]`.
    weight: Range<usize>,
    /// `[outputs]`.
    bias: Option<Range<usize>>,
    inputs: usize,
    pub(crate) outputs: usize,
}

impl Projection {
    pub(crate) fn qkv(config: &ModelConfig, layer: &LayerLayout) -> Self {
        let outputs = config.query_width() + 2 * config.key_value_width();
        Self {
            joint: Joint::Qkv,
            weight: layer.qkv_weight(),
            bias: layer.qkv_bias(),
            inputs: config.hidden_size,
            outputs,
        }
    }

    pub(crate) fn o(config: &ModelConfig, layer: &LayerLayout) -> Self {
        let inputs = config.query_width();
        let bias = layer.o_bias.clone();
        Self {
            joint: Joint::Output,
            weight: layer.o_weight.clone(),
            bias,
            inputs,
            outputs: config.hidden_size,
        }
    }

    pub(crate) fn gate_up(config: &ModelConfig, layer: &LayerLayout) -> Self {
        let outputs = 2 * config.intermediate_size;
        let bias = layer.gate_up_bias();
        Self {
            joint: Joint::GateUp,
            weight: layer.gate_up_weight(),
            bias,
            inputs: config.hidden_size,
            outputs,
        }
    }

    pub(crate) fn down(config: &ModelConfig, layer: &LayerLayout) -> Self {
        let inputs = config.intermediate_size;
        let bias = layer.down_bias.clone();
        Self {
            joint: Joint::Down,
            weight: layer.down_weight.clone(),
            bias,
            inputs,
            outputs: config.hidden_size,
        }
    }

    /// Computes `y = x W^T + b`, or `y += x W^T + b`. `data` holds all of the model's weights, and
    /// `x` is `[rows, inputs]`. If a kernel is given, operands are rounded to bf16.
    pub(crate) fn forward<T: Real>(
        &self,
        bf16: Option<Kernel>,
        data: &[T],
        x: &[T],
        y: &mut [T],
        into: Accumulate,
    ) {
        let rows = x.len() / self.inputs;
        let bias = self.bias.clone().map(|bias| &data[bias]);
        let shape = [rows, self.inputs, self.outputs];
        linear(bf16, x, &data[self.weight.clone()], bias, y, into, shape);
    }

    /// Sets `d_x` to `d_y W`, and adds the gradients of weight and bias to `gradient`. If
    /// `gradient` is `None`, weight and bias are frozen.
    pub(crate) fn backward<T: Real>(
        &self,
        bf16: Option<Kernel>,
        data: &[T],
        x: &[T],
        d_y: &[T],
        d_x: &mut [T],
        gradient: Option<&mut [T]>,
    ) {
        let shape = [x.len() / self.inputs, self.inputs, self.outputs];
        linear_backward_input(bf16, d_y, &data[self.weight.clone()], d_x, Accumulate::Set, shape);
        let Some(gradient) = gradient else { return };
        linear_backward_weight(bf16, d_y, x, &mut gradient[self.weight.clone()], shape);
        if let Some(bias) = &self.bias {
            linear_backward_bias(d_y, &mut gradient[bias.clone()]);
        }
    }
}
