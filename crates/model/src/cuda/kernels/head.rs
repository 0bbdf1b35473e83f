use super::{Kernels, hold, line, long};
use crate::cuda::CudaError;
use crate::cuda::memory::{Bf16, Part};

impl Kernels {
    /// Computes log-sum-exp, target log-prob and entropy for every row of logits.
    pub(crate) fn row_statistics(
        &self,
        (logits, stride): (Part<f32>, usize),
        vocabulary: usize,
        targets: Part<i32>,
        statistics: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(logits, targets.len, stride);
        hold(statistics, targets.len, 3);
        let arguments = arguments![logits, long(stride), vocabulary, targets, statistics];
        self.rows("row_statistics", targets.len, 512, arguments)
    }

    pub(crate) fn row_backward(
        &self,
        (logits, stride): (Part<f32>, usize),
        vocabulary: usize,
        targets: Part<i32>,
        [statistics, derivatives]: [Part<f32>; 2],
        d_logits: Part<Bf16>,
    ) -> Result<(), CudaError> {
        hold(statistics, targets.len, 3);
        hold(derivatives, targets.len, 2);
        hold(d_logits, targets.len, stride);
        let arguments =
            arguments![logits, long(stride), vocabulary, targets, statistics, derivatives, d_logits];
        self.rows("row_backward", targets.len, 512, arguments)
    }

    pub(crate) fn row_divergence(
        &self,
        [first, second]: [Part<f32>; 2],
        stride: usize,
        vocabulary: usize,
        log_sums: Part<f32>,
        divergences: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(log_sums, divergences.len, 2);
        let arguments = arguments![first, second, long(stride), vocabulary, log_sums, divergences];
        self.rows("row_divergence", divergences.len, 512, arguments)
    }

    pub(crate) fn row_divergence_backward(
        &self,
        [first, second]: [Part<f32>; 2],
        stride: usize,
        vocabulary: usize,
        [log_sums, derivatives]: [Part<f32>; 2],
        [d_first, d_second]: [Part<Bf16>; 2],
    ) -> Result<(), CudaError> {
        let rows = derivatives.len / 2;
        hold(log_sums, rows, 2);
        let arguments =
            arguments![first, second, long(stride), vocabulary, log_sums, derivatives, d_first, d_second];
        self.rows("row_divergence_backward", rows, 512, arguments)
    }

    pub(crate) fn value_head(
        &self,
        normed: Part<Bf16>,
        weight: Part<f32>,
        values: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(normed, values.len, self.shape.hidden);
        hold(weight, 1, self.shape.hidden + 1);
        let grid = [values.len.div_ceil(4), 1, 1];
        self.launch("value_head", grid, line(128), 0, arguments![normed, weight, values.len, values])
    }

    pub(crate) fn value_head_backward(
        &self,
        normed: Part<Bf16>,
        weight: Part<f32>,
        derivatives: Part<f32>,
        d_normed: Part<f32>,
        d_weight: Part<f32>,
    ) -> Result<(), CudaError> {
        let rows = derivatives.len;
        hold(d_normed, rows, self.shape.hidden);
        hold(d_weight, 1, self.shape.hidden + 1);
        if rows == 0 {
            return Ok(());
        }
        let arguments = arguments![normed, weight, derivatives, rows, d_normed, d_weight];
        self.rows("value_head_backward", self.shape.hidden.div_ceil(128), 128, arguments)
    }
}
