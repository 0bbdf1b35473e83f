use super::{Heads, Kernels, PARTIAL_BLOCKS, Preparation, at, hold};
use crate::cuda::CudaError;
use crate::cuda::memory::{Bf16, Part};

impl Kernels {
    /// Adds biases, applies norms and rotation to queries and keys, and writes the cache if one is
    /// given.
    pub(crate) fn prepare_qkv(
        &self,
        raw: Part<Bf16>,
        preparation: &Preparation,
        positions: Part<i32>,
        angles: Part<f32>,
        out: Part<Bf16>,
        inverse: Option<Part<f32>>,
        cache: Option<(Part<i32>, Part<Bf16>)>,
    ) -> Result<(), CudaError> {
        let Preparation { bias, q_norm, k_norm, epsilon, heads: Heads { queries, keys } } = *preparation;
        let rows = positions.len;
        hold(raw, rows, (queries + 2 * keys) * self.shape.head);
        hold(out, rows, (queries + 2 * keys) * self.shape.head);
        let (cache_rows, cache) = (at(cache.map(|cache| cache.0)), at(cache.map(|cache| cache.1)));
        let arguments = arguments![
            raw,
            at(bias),
            at(q_norm),
            at(k_norm),
            epsilon,
            positions,
            angles,
            queries,
            keys,
            out,
            at(inverse),
            cache_rows,
            cache
        ];
        self.rows("prepare_qkv", rows, 128, arguments)
    }

    /// Backpropagates through [`Kernels::prepare_qkv`] in place, and adds the norms' gradients to
    /// `sums.0` and `sums.1`.
    pub(crate) fn prepare_qkv_backward(
        &self,
        raw: Part<Bf16>,
        preparation: &Preparation,
        inverse: Option<Part<f32>>,
        positions: Part<i32>,
        angles: Part<f32>,
        d_qkv: Part<Bf16>,
        sums: Option<([Part<f32>; 2], Part<f32>)>,
    ) -> Result<(), CudaError> {
        let Preparation { bias, q_norm, k_norm, heads: Heads { queries, keys }, .. } = *preparation;
        let (rows, head) = (positions.len, self.shape.head);
        hold(d_qkv, rows, (queries + 2 * keys) * head);
        let blocks = rows.min(4 * PARTIAL_BLOCKS);
        let partials = sums.map(|(_, partials)| partials);
        if let Some(partials) = partials {
            hold(partials, blocks, 2 * head);
        }
        let arguments = arguments![
            raw,
            at(bias),
            at(q_norm),
            at(k_norm),
            at(inverse),
            positions,
            angles,
            rows,
            queries,
            keys,
            d_qkv,
            at(partials)
        ];
        self.rows("prepare_qkv_backward", blocks, 128, arguments)?;
        let Some(([q, k], partials)) = sums else { return Ok(()) };
        // The two norms may not be adjacent in the layout.
        self.half_sums(partials, blocks, 0, q)?;
        self.half_sums(partials, blocks, head, k)
    }

    fn half_sums(
        &self,
        partials: Part<f32>,
        blocks: usize,
        first: usize,
        to: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(to, 1, self.shape.head);
        let from = partials.part(first..partials.len);
        let grid = [self.shape.head.div_ceil(32), 1, 1];
        let arguments = arguments![from, blocks, self.shape.head, 2 * self.shape.head, to];
        self.launch("column_sums_strided", grid, [32, 8, 1], 0, arguments)
    }
}
