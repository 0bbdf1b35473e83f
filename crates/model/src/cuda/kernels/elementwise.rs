use super::{Kernels, hold, long};
use crate::cpu::optimizer::Rates;
use crate::cuda::CudaError;
use crate::cuda::driver::Argument;
use crate::cuda::memory::{Bf16, Part};
use crate::weights::lora::Dropout;

impl Kernels {
    /// Computes `out[row] = weight[token]`.
    pub(crate) fn embed(
        &self,
        tokens: Part<i32>,
        weight: Part<Bf16>,
        out: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(out, tokens.len, self.shape.hidden);
        self.rows("embed", tokens.len, 128, arguments![tokens, weight, out])
    }

    /// Adds each row of `d_out` to its token's gradient; `starts` has each distinct token's first
    /// index in `order`, then the length of `order`.
    pub(crate) fn embed_backward(
        &self,
        tokens: Part<i32>,
        order: Part<i32>,
        starts: Part<i32>,
        d_out: Part<f32>,
        gradient: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(d_out, tokens.len, self.shape.hidden);
        let distinct = starts.len.saturating_sub(1);
        self.rows("embed_backward", distinct, 128, arguments![tokens, order, starts, d_out, gradient])
    }

    /// Computes `out = silu(gate) up`.
    pub(crate) fn swiglu(
        &self,
        gate_up: Part<Bf16>,
        rows: usize,
        width: usize,
        out: Part<Bf16>,
    ) -> Result<(), CudaError> {
        hold(gate_up, rows, 2 * width);
        hold(out, rows, width);
        self.each("swiglu", rows * width / 8, arguments![gate_up, rows, width, out])
    }

    pub(crate) fn swiglu_backward(
        &self,
        d_out: Part<Bf16>,
        rows: usize,
        width: usize,
        gate_up: Part<Bf16>,
    ) -> Result<(), CudaError> {
        hold(gate_up, rows, 2 * width);
        hold(d_out, rows, width);
        self.each("swiglu_backward", rows * width / 8, arguments![d_out, rows, width, gate_up])
    }

    pub(crate) fn add_bias(&self, bias: Part<Bf16>, rows: usize, y: Part<Bf16>) -> Result<(), CudaError> {
        hold(y, rows, bias.len);
        self.each("add_bias", rows * bias.len / 8, arguments![bias, rows, bias.len, y])
    }

    pub(crate) fn add_bias_wide(&self, bias: Part<Bf16>, rows: usize, y: Part<f32>) -> Result<(), CudaError> {
        hold(y, rows, bias.len);
        self.each("add_bias_wide", rows * bias.len / 8, arguments![bias, rows, bias.len, y])
    }

    /// Adds each column's sum over all rows to `to`.
    pub(crate) fn column_sums(
        &self,
        from: Part<f32>,
        rows: usize,
        width: usize,
        to: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(from, rows, width);
        hold(to, 1, width);
        let grid = [width.div_ceil(32), 1, 1];
        self.launch("column_sums", grid, [32, 8, 1], 0, arguments![from, rows, width, to])
    }

    pub(crate) fn column_sums_narrow(
        &self,
        from: Part<Bf16>,
        rows: usize,
        width: usize,
        to: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(from, rows, width);
        hold(to, 1, width);
        let grid = [width.div_ceil(32), 1, 1];
        self.launch("column_sums_narrow", grid, [32, 8, 1], 0, arguments![from, rows, width, to])
    }

    /// Computes `to[i] = from[index[i]]`.
    pub(crate) fn gather_rows(
        &self,
        from: Part<Bf16>,
        index: Part<i32>,
        to: Part<Bf16>,
    ) -> Result<(), CudaError> {
        hold(to, index.len, self.shape.hidden);
        self.rows("gather_rows", index.len, 128, arguments![from, index, to])
    }

    /// Computes `to[index[i]] += from[i]`, in order.
    pub(crate) fn scatter_rows(
        &self,
        from: Part<f32>,
        index: Part<i32>,
        to: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(from, index.len, self.shape.hidden);
        if index.len == 0 {
            return Ok(());
        }
        let blocks = self.shape.hidden.div_ceil(128);
        self.rows("scatter_rows", blocks, 128, arguments![from, index, index.len, to])
    }

    /// Averages the rows of each range; `ranges` has two entries per range, start and end.
    pub(crate) fn mean_rows(
        &self,
        from: Part<Bf16>,
        ranges: Part<i32>,
        to: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(to, ranges.len / 2, self.shape.hidden);
        self.rows("mean_rows", ranges.len / 2, 128, arguments![from, ranges, to])
    }

    /// Applies an adapter's input dropout: computes `mask x / (1 - probability)`, and writes the
    /// result to `to` or adds it to `to`.
    pub(crate) fn drop_entries(
        &self,
        x: Part<Bf16>,
        width: usize,
        dropout: Dropout,
        [layer, module]: [usize; 2],
        (identities, positions): (Part<u64>, Part<i32>),
        add: bool,
        to: Part<Bf16>,
    ) -> Result<(), CudaError> {
        let rows = identities.len;
        hold(x, rows, width);
        hold(to, rows, width);
        let [key, threshold] = [dropout.key(), dropout.threshold()].map(|word| Argument::Long(word as i64));
        let scale = dropout.scale() as f32;
        let arguments = arguments![
            x,
            width,
            key,
            threshold,
            scale,
            layer,
            module,
            identities,
            positions,
            usize::from(add),
            to
        ];
        self.rows("drop_entries", rows, 128, arguments)
    }

    pub(crate) fn scale(&self, values: Part<f32>, factor: f32) -> Result<(), CudaError> {
        self.each("scale", values.len, arguments![values, long(values.len), factor])
    }

    /// Returns the sum of squares of `values`; waits for the device.
    pub(crate) fn square_sum(&self, values: Part<f32>, partials: Part<f64>) -> Result<f64, CudaError> {
        self.rows("square_sums", partials.len, 256, arguments![values, long(values.len), partials])?;
        Ok(partials.download(&*self.driver)?.iter().sum())
    }

    pub(crate) fn adamw(
        &self,
        rates: &Rates,
        keep: f32,
        gradient: Part<f32>,
        [weights, first, second]: [Part<f32>; 3],
        copy: Part<Bf16>,
    ) -> Result<(), CudaError> {
        let count = gradient.len;
        for part in [weights, first, second] {
            hold(part, 1, count);
        }
        hold(copy, 1, count);
        let Rates { clip, beta1, rest1, beta2, rest2, rate, correction, epsilon } = *rates;
        let arguments = arguments![
            gradient,
            long(count),
            clip,
            beta1,
            beta2,
            rest1,
            rest2,
            rate,
            correction,
            epsilon,
            keep,
            weights,
            first,
            second,
            copy
        ];
        self.each("adamw", count, arguments)
    }
}
