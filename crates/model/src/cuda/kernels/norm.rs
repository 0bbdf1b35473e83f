use super::{Kernels, PARTIAL_BLOCKS, at, hold};
use crate::cuda::CudaError;
use crate::cuda::driver::{Address, Argument};
use crate::cuda::memory::{Bf16, Part};

impl Kernels {
    /// Computes `y = norm(x)` for all rows, or only for those in `index`.
    pub(crate) fn rms_norm(
        &self,
        x: Part<f32>,
        index: Option<Part<i32>>,
        weight: Part<Bf16>,
        epsilon: f32,
        rows: usize,
        y: Part<Bf16>,
        inverse: Part<f32>,
    ) -> Result<(), CudaError> {
        let hidden = self.shape.hidden;
        hold(weight, 1, hidden);
        hold(y, rows, hidden);
        hold(inverse, rows, 1);
        match index {
            Some(index) => hold(index, rows, 1),
            None => hold(x, rows, hidden),
        }
        self.rows("rms_norm", rows, 128, arguments![x, at(index), weight, epsilon, y, inverse])
    }

    /// Adds the input gradient to `d_x` and writes a rounded copy of `d_x`. Adds to `d_weight` if
    /// the weight is trained.
    pub(crate) fn rms_norm_backward(
        &self,
        d_y: Part<Bf16>,
        [x, inverse]: [Part<f32>; 2],
        weight: Part<Bf16>,
        rows: usize,
        (d_x, d_x_narrow): (Part<f32>, Part<Bf16>),
        sums: Option<(Part<f32>, Part<f32>)>,
    ) -> Result<(), CudaError> {
        for part in [x, d_x] {
            hold(part, rows, self.shape.hidden);
        }
        hold(d_y, rows, self.shape.hidden);
        self.norm_backward(
            "rms_norm_backward",
            d_y.at,
            x,
            None,
            weight,
            inverse,
            rows,
            (d_x, d_x_narrow),
            sums,
        )
    }

    /// Like [`Kernels::rms_norm_backward`] for gathered f32 gradients; row `i` is added to row
    /// `index[i]`.
    pub(crate) fn rms_norm_backward_gathered(
        &self,
        d_y: Part<f32>,
        [x, inverse]: [Part<f32>; 2],
        index: Part<i32>,
        weight: Part<Bf16>,
        rows: usize,
        (d_x, d_x_narrow): (Part<f32>, Part<Bf16>),
        sums: Option<(Part<f32>, Part<f32>)>,
    ) -> Result<(), CudaError> {
        hold(d_y, rows, self.shape.hidden);
        hold(index, rows, 1);
        let (kernel, to) = ("rms_norm_backward_wide", (d_x, d_x_narrow));
        self.norm_backward(kernel, d_y.at, x, Some(index), weight, inverse, rows, to, sums)
    }

    fn norm_backward(
        &self,
        kernel: &'static str,
        d_y: Address,
        x: Part<f32>,
        index: Option<Part<i32>>,
        weight: Part<Bf16>,
        inverse: Part<f32>,
        rows: usize,
        (d_x, d_x_narrow): (Part<f32>, Part<Bf16>),
        sums: Option<(Part<f32>, Part<f32>)>,
    ) -> Result<(), CudaError> {
        let blocks = rows.min(PARTIAL_BLOCKS);
        let partials = sums.map(|(_, partials)| partials);
        if let Some(partials) = partials {
            hold(partials, blocks, self.shape.hidden);
        }
        let d_y = Argument::At(d_y);
        let arguments = arguments![d_y, x, at(index), weight, inverse, rows, d_x, d_x_narrow, at(partials)];
        self.rows(kernel, blocks, 128, arguments)?;
        match sums {
            Some((d_weight, partials)) => self.column_sums(partials, blocks, self.shape.hidden, d_weight),
            None => Ok(()),
        }
    }
}
