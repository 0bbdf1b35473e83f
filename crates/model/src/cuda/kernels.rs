//! The kernels with typed arguments: the only place that launches them, so that sizes are checked here.

use std::sync::Arc;

use super::CudaError;
use super::driver::{Address, Argument, Driver, Launch, Shape};
use super::memory::{Bf16, Part, Plain, Tile};
use crate::ModelConfig;
use crate::lora::Dropout;
use crate::optimizer::Rates;

/// Queries (or keys) of a tile of attention.
pub(crate) const TILE: usize = 64;
/// Most query heads that may share a key head.
pub(crate) const MOST_SHARED: usize = 16;
/// Tokens of a chunk of the choice.
pub(crate) const CHOICE_CHUNK: usize = 4096;
/// Blocks of a kernel that sums over rows into partial sums.
pub(crate) const PARTIAL_BLOCKS: usize = 256;

/// The kernels of one shape on one device.
#[derive(Clone)]
pub(crate) struct Kernels {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) shape: Shape,
    module: usize,
}

/// The heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) queries: usize,
    pub(crate) keys: usize,
}

/// Bias, norms and heads of queries, keys and values before attention.
#[derive(Clone, Copy)]
pub(crate) struct Preparation {
    pub(crate) bias: Option<Part<Bf16>>,
    pub(crate) q_norm: Option<Part<Bf16>>,
    pub(crate) k_norm: Option<Part<Bf16>>,
    pub(crate) epsilon: f32,
    pub(crate) heads: Heads,
}

fn at<T>(part: Option<Part<T>>) -> Argument {
    Argument::At(part.map_or(0, |part| part.at))
}

impl<T> From<Part<T>> for Argument {
    fn from(part: Part<T>) -> Self {
        Self::At(part.at)
    }
}

impl From<usize> for Argument {
    /// A C `int`: sizes of one dimension.
    fn from(value: usize) -> Self {
        Self::Int(i32::try_from(value).unwrap_or(i32::MAX))
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}

/// A C `long long`.
fn long(value: usize) -> Argument {
    Argument::Long(value as i64)
}

macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { &[$(Argument::from($argument)),*] };
}

/// Panics unless a part has room for some rows: a kernel would write past it.
fn hold<T: Plain>(part: Part<T>, rows: usize, width: usize) {
    assert!(part.len >= rows * width, "{} numbers, {rows} rows of {width} expected", part.len);
}

/// A one-dimensional block.
fn line(threads: u32) -> [u32; 3] {
    [threads, 1, 1]
}

impl Kernels {
    /// The kernels for a model; refuses a shape that they cannot run.
    pub(crate) fn new(driver: &Arc<dyn Driver>, config: &ModelConfig) -> Result<Self, CudaError> {
        let fail = |key: &'static str, reason: String| Err(CudaError::Unsupported { key, reason });
        for (key, value) in
            [("hidden_size", config.hidden_size), ("intermediate_size", config.intermediate_size)]
        {
            if !value.is_multiple_of(16) {
                return fail(key, format!("{value} is not a multiple of 16, which the kernels work in"));
            }
        }
        let head = config.head_dim;
        if !head.is_multiple_of(16) || head > 128 {
            return fail(
                "head_dim",
                format!("{head} is not 16, 32, 48, ..., 128, which the kernels work with"),
            );
        }
        let shared = config.num_attention_heads / config.num_key_value_heads;
        if shared > MOST_SHARED {
            let reason = format!("{shared} query heads share a key head, and at most {MOST_SHARED} may");
            return fail("num_key_value_heads", reason);
        }
        let shape = Shape { hidden: config.hidden_size, head };
        Ok(Self { driver: Arc::clone(driver), shape, module: driver.module(shape)? })
    }

    fn launch(
        &self,
        kernel: &'static str,
        grid: [usize; 3],
        block: [u32; 3],
        shared: usize,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let grid = grid.map(|blocks| blocks as u32);
        self.driver.launch(&Launch {
            module: self.module,
            kernel,
            grid,
            block,
            shared: shared as u32,
            arguments,
        })
    }

    /// A launch of a block a row.
    fn rows(
        &self,
        kernel: &'static str,
        rows: usize,
        threads: u32,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        self.launch(kernel, [rows, 1, 1], line(threads), 0, arguments)
    }

    /// A launch of a thread for each of `count` pieces of work, 256 a block.
    fn each(&self, kernel: &'static str, count: usize, arguments: &[Argument]) -> Result<(), CudaError> {
        self.launch(kernel, [count.div_ceil(256), 1, 1], line(256), 0, arguments)
    }

    /// Bytes of some rows of a head in shared memory.
    fn shared_rows(&self, rows: usize) -> usize {
        rows * (self.shape.head + 8) * 2
    }

    /// `y = norm(x)` for the rows of `x` that `index` names, or for all.
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

    /// Adds the derivative to `d_x` and leaves a rounded copy; the weight's derivative is added to
    /// `d_weight` by way of `partials`, where it is wanted.
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

    /// The same for gathered rows with wide derivatives: row `i` adds to row `index[i]`.
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

    /// `out[row] = weight[token]`.
    pub(crate) fn embed(
        &self,
        tokens: Part<i32>,
        weight: Part<Bf16>,
        out: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(out, tokens.len, self.shape.hidden);
        self.rows("embed", tokens.len, 128, arguments![tokens, weight, out])
    }

    /// Adds the rows of `d_out` to their tokens' gradients; `starts` has one entry more than there are tokens.
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

    /// `out = silu(gate) up`.
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

    /// Overwrites `gate_up` with its derivative.
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

    /// `y += bias` for every row.
    pub(crate) fn add_bias(&self, bias: Part<Bf16>, rows: usize, y: Part<Bf16>) -> Result<(), CudaError> {
        hold(y, rows, bias.len);
        self.each("add_bias", rows * bias.len / 8, arguments![bias, rows, bias.len, y])
    }

    /// The same on wide numbers.
    pub(crate) fn add_bias_wide(&self, bias: Part<Bf16>, rows: usize, y: Part<f32>) -> Result<(), CudaError> {
        hold(y, rows, bias.len);
        self.each("add_bias_wide", rows * bias.len / 8, arguments![bias, rows, bias.len, y])
    }

    /// `to += sum over rows`.
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

    /// The same from narrow numbers.
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

    /// `to[i] = from[index[i]]`.
    pub(crate) fn gather_rows(
        &self,
        from: Part<Bf16>,
        index: Part<i32>,
        to: Part<Bf16>,
    ) -> Result<(), CudaError> {
        hold(to, index.len, self.shape.hidden);
        self.rows("gather_rows", index.len, 128, arguments![from, index, to])
    }

    /// `to[index[i]] += from[i]`, in order.
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

    /// The means of ranges of rows; `ranges` has two entries for each.
    pub(crate) fn mean_rows(
        &self,
        from: Part<Bf16>,
        ranges: Part<i32>,
        to: Part<f32>,
    ) -> Result<(), CudaError> {
        hold(to, ranges.len / 2, self.shape.hidden);
        self.rows("mean_rows", ranges.len / 2, 128, arguments![from, ranges, to])
    }

    /// `to = mask x / (1 - probability)`, or adds that: dropout of what a module's adapter reads.
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

    /// Multiplies all numbers.
    pub(crate) fn scale(&self, values: Part<f32>, factor: f32) -> Result<(), CudaError> {
        self.each("scale", values.len, arguments![values, long(values.len), factor])
    }

    /// The sum of squares; waits.
    pub(crate) fn square_sum(&self, values: Part<f32>, partials: Part<f64>) -> Result<f64, CudaError> {
        self.rows("square_sums", partials.len, 256, arguments![values, long(values.len), partials])?;
        Ok(partials.download(&*self.driver)?.iter().sum())
    }

    /// One AdamW update of a run of weights.
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

    /// Biases, norms and the rotary turn; keys and values also go to rows of a cache where there is one.
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

    /// Turns a derivative back in place; the norms' derivatives are added to `sums.0` and `sums.1`.
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
        // The two norms stand beside one another in the layout or not: each gets its half.
        self.half_sums(partials, blocks, 0, q)?;
        self.half_sums(partials, blocks, head, k)
    }

    /// Column sums of one half of the rows of `prepare_qkv_backward`'s partial sums.
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

    /// Attention of tiles of queries over keys and values that stand in rows `stride` apart.
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

    /// Writes the derivative with respect to `qkv`. `tiles` are those of the queries and of the keys.
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

    /// Attention of one new token a row over its cached keys and values.
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

    /// The choice of every row of logits, four words each; see `decode.cu`.
    pub(crate) fn choose(
        &self,
        (logits, stride): (Part<f32>, usize),
        vocabulary: usize,
        inverse_temperatures: Part<f32>,
        uniforms: Part<f64>,
        chunks: Part<f32>,
        choices: Part<f32>,
    ) -> Result<(), CudaError> {
        let (rows, count) = (inverse_temperatures.len, vocabulary.div_ceil(CHOICE_CHUNK));
        hold(chunks, rows * count, 4);
        hold(choices, rows, 4);
        hold(uniforms, rows, 1);
        let arguments = arguments![logits, long(stride), vocabulary, inverse_temperatures, chunks];
        self.launch("choice_chunks", [count, rows, 1], line(256), 0, arguments)?;
        let arguments = arguments![
            logits,
            long(stride),
            vocabulary,
            inverse_temperatures,
            uniforms,
            chunks,
            count,
            choices
        ];
        self.rows("choose", rows, 256, arguments)
    }

    /// Draws anew in the rows that keep only the `top_ks` largest logits (0 for all) and of those the share `top_ps`;
    /// after [`Kernels::choose`].
    pub(crate) fn choose_truncated(
        &self,
        (logits, stride): (Part<f32>, usize),
        vocabulary: usize,
        inverse_temperatures: Part<f32>,
        uniforms: Part<f64>,
        (top_ks, top_ps): (Part<i32>, Part<f32>),
        choices: Part<f32>,
    ) -> Result<(), CudaError> {
        let rows = inverse_temperatures.len;
        hold(choices, rows, 4);
        hold(uniforms, rows, 1);
        hold(top_ks, rows, 1);
        hold(top_ps, rows, 1);
        let arguments = arguments![
            logits,
            long(stride),
            vocabulary,
            inverse_temperatures,
            uniforms,
            top_ks,
            top_ps,
            choices
        ];
        self.rows("choose_truncated", rows, 256, arguments)
    }

    /// Log-sum, log-probability of the target and entropy of every row of logits, three numbers each.
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

    /// The derivative with respect to the logits.
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

    /// The divergences of pairs of rows of logits.
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

    /// Their derivatives with respect to both rows of logits.
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

    /// A critic's value of every row.
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

    /// Its derivative: sets `d_normed` and adds to `d_weight`.
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
