use super::{Heads, Kernels, MOST_SHARED, TILE, at, hold, line, long};
use crate::cuda::CudaError;
use crate::cuda::memory::{Bf16, Part, Tile};

impl Kernels {
    /// Computes the attention of query tiles over keys and values. The distances between rows are
    /// `q_stride` and `kv_stride`.
    pub(crate) fn attention(
        &self,
        tiles: Part<Tile>,
        (q, q_stride): (Part<Bf16>, usize),
        (k, v, kv_stride): (Part<Bf16>, Part<Bf16>, usize),
        heads: Heads,
        out: Part<Bf16>,
        log_sum: Option<Part<f32>>,
    ) -> Result<(), CudaError> {
        let Heads { queries, keys } = heads;
        let arguments = arguments![
            tiles,
            q,
            long(q_stride),
            k,
            v,
            long(kv_stride),
            queries,
            queries / keys,
            out,
            at(log_sum)
        ];
        let shared = self.shared_rows(TILE + 4 * TILE);
        self.launch("attention_forward", [tiles.len, queries, 1], line(128), shared, arguments)
    }

    pub(crate) fn attention_backward(
        &self,
        tiles: [Part<Tile>; 2],
        qkv: Part<Bf16>,
        [out, d_out]: [Part<Bf16>; 2],
        [log_sum, pull]: [Part<f32>; 2],
        heads: Heads,
        d_qkv: Part<Bf16>,
    ) -> Result<(), CudaError> {
        let Heads { queries, keys } = heads;
        let count = out.len / self.shape.head;
        hold(pull, 1, count);
        hold(log_sum, 1, count);
        hold(d_qkv, 1, qkv.len);
        let pulls = arguments![out, d_out, long(count), pull];
        self.launch("attention_pull", [count.div_ceil(4), 1, 1], line(128), 0, pulls)?;
        let arguments = arguments![tiles[0], qkv, d_out, log_sum, pull, queries, keys, d_qkv];
        let block = if self.shape.head <= 64 { 64 } else { 32 };
        let shared = self.shared_rows(2 * TILE + 4 * block);
        let kernel = "attention_backward_queries";
        self.launch(kernel, [tiles[0].len, queries, 1], line(128), shared, arguments)?;
        let arguments = arguments![tiles[1], qkv, d_out, log_sum, pull, queries, keys, d_qkv];
        let kernel = "attention_backward_keys";
        self.launch(kernel, [tiles[1].len, keys, 1], line(128), shared + 4 * block * 4, arguments)
    }

    /// Computes the attention of one new token per row over the cached keys and values.
    pub(crate) fn attention_decode(
        &self,
        [positions, key_rows]: [Part<i32>; 2],
        qkv: Part<Bf16>,
        cache: Part<Bf16>,
        heads: Heads,
        splits: usize,
        out: Part<Bf16>,
        partials: Part<f32>,
    ) -> Result<(), CudaError> {
        let Heads { queries, keys } = heads;
        let (rows, head) = (positions.len, self.shape.head);
        if splits > 1 {
            hold(partials, rows * queries * splits, head + 2);
        }
        let arguments = arguments![positions, key_rows, qkv, cache, queries, keys, out, partials];
        let shared = self.shared_rows(MOST_SHARED + 4 * TILE).max(4 * MOST_SHARED * (head + 2) * 4);
        self.launch("attention_decode", [rows, keys, splits], line(128), shared, arguments)?;
        if splits == 1 {
            return Ok(());
        }
        let block = line(head.next_multiple_of(32) as u32);
        let grid = [rows, queries, 1];
        self.launch("attention_decode_join", grid, block, 0, arguments![partials, splits, out])
    }
}
