//! Decoding on a device.
//!
//! All memory is allocated up front. A step with one new token per sequence can therefore be
//! recorded once for each number of rows (rounded up), and then replayed. A step reads each
//! sequence's keys and values once for all query heads that share them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use turnwise_core::SamplingParams;

use super::CudaError;
use super::angles::Angles;
use super::device::{Accumulate, matrix, multiply, wide};
use super::driver::Recorder;
use super::kernels::{CHOICE_CHUNK, TILE};
use super::memory::{Bf16, Buffer, Tile};
use super::network::{Low, Network};
use crate::backend::{Choice, Row};
use crate::weights::lora::Joint;

/// Maximum number of prompt tokens per step (`Decoding::prompt_rows`).
pub(crate) const PROMPT_ROWS: usize = 2048;
/// Recorded steps have a multiple of this many rows.
const ROUNDED: usize = 8;
/// Maximum number of thread blocks among which a row's keys are split.
const MOST_SPLITS: usize = 16;

pub(crate) struct Engine {
    network: Arc<Network>,
    slots: usize,
    max_model_len: usize,
    angles: Angles,
    caches: Vec<Buffer<Bf16>>,
    tokens: Buffer<i32>,
    positions: Buffer<i32>,
    cache_rows: Buffer<i32>,
    key_rows: Buffer<i32>,
    wanted: Buffer<i32>,
    tiles: Buffer<Tile>,
    residual: Buffer<f32>,
    normed: Buffer<Bf16>,
    inverse: Buffer<f32>,
    qkv: Buffer<Bf16>,
    attended: Buffer<Bf16>,
    partials: Buffer<f32>,
    gate_up: Buffer<Bf16>,
    activated: Buffer<Bf16>,
    low: Low,
    logits: Buffer<f32>,
    inverse_temperatures: Buffer<f32>,
    uniforms: Buffer<f64>,
    chunks: Buffer<f32>,
    choices: Buffer<f32>,
    recordings: HashMap<usize, Recording>,
    /// True if the device failed to record a step, so that steps run without a recording.
    direct: bool,
    top_ks: Buffer<i32>,
    top_ps: Buffer<f32>,
}

#[derive(Clone, Copy)]
enum Recording {
    Warm,
    Recorded(usize),
}

impl Engine {
    pub(crate) fn new(network: Arc<Network>, slots: usize, max_model_len: usize) -> Result<Self, CudaError> {
        let driver = &network.kernels.driver;
        let config = &network.config;
        let (rows, hidden) = ((slots + PROMPT_ROWS).next_multiple_of(ROUNDED), config.hidden_size);
        let wanted = slots.next_multiple_of(ROUNDED);
        let cache = (slots + 1) * max_model_len * 2 * config.key_value_width();
        let head = network.kernels.shape.head;
        let mut angles = Angles::new(driver, config);
        angles.up_to(max_model_len)?;
        let mut low = Low::new(driver);
        low.grow(&network, rows, false)?;
        let caches = network.layout.layers.iter().map(|_| Buffer::zeros(driver, cache));
        Ok(Self {
            slots,
            max_model_len,
            angles,
            caches: caches.collect::<Result<_, _>>()?,
            tokens: Buffer::new(driver, rows)?,
            positions: Buffer::new(driver, rows)?,
            cache_rows: Buffer::new(driver, rows)?,
            key_rows: Buffer::new(driver, rows)?,
            wanted: Buffer::new(driver, wanted)?,
            tiles: Buffer::new(driver, rows)?,
            residual: Buffer::new(driver, rows * hidden)?,
            normed: Buffer::new(driver, rows * hidden)?,
            inverse: Buffer::new(driver, rows)?,
            qkv: Buffer::new(driver, rows * network.qkv_width())?,
            attended: Buffer::new(driver, rows * config.query_width())?,
            partials: Buffer::new(driver, wanted * network.heads().queries * MOST_SPLITS * (head + 2))?,
            gate_up: Buffer::new(driver, rows * 2 * config.intermediate_size)?,
            activated: Buffer::new(driver, rows * config.intermediate_size)?,
            low,
            logits: Buffer::new(driver, wanted * logits_stride(&network))?,
            inverse_temperatures: Buffer::new(driver, wanted)?,
            uniforms: Buffer::new(driver, wanted)?,
            chunks: Buffer::new(driver, wanted * config.vocab_size.div_ceil(CHOICE_CHUNK) * 4)?,
            choices: Buffer::new(driver, wanted * 4)?,
            recordings: HashMap::new(),
            direct: false,
            top_ks: Buffer::new(driver, wanted)?,
            top_ps: Buffer::new(driver, wanted)?,
            network,
        })
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.network.config.vocab_size
    }

    pub(crate) fn copy(&mut self, from: usize, to: usize, positions: Range<usize>) -> Result<(), CudaError> {
        let width = 2 * self.network.config.key_value_width();
        let at = |slot: usize| {
            let first = slot * self.max_model_len;
            (first + positions.start) * width..(first + positions.end) * width
        };
        for cache in &self.caches {
            cache.part(at(from)).copy_to(self.network.driver(), cache.part(at(to)))?;
        }
        Ok(())
    }

    /// Computes all rows, caches their keys and values, and stores the requested logits in row
    /// order. In `rows`, decoding sequences come first, with one row each.
    pub(crate) fn step(&mut self, rows: &[Row]) -> Result<(), CudaError> {
        let single = |pair: &[Row]| pair[0].slot != pair[1].slot;
        let next_token = |row: &Row| row.logits;
        let first_run = rows.windows(2).position(|pair| !single(pair)).unwrap_or(rows.len());
        let mut decoded = rows.iter().take(first_run).take_while(|row| next_token(row)).count();
        if first_run < rows.len() {
            decoded = decoded.min(first_run);
        }
        if decoded == rows.len() && !self.direct {
            return self.decode(rows);
        }
        self.upload(rows, rows.len())?;
        let tiles = self.upload_tiles(rows, decoded)?;
        let wanted: Vec<i32> =
            rows.iter().enumerate().filter(|(_, row)| row.logits).map(|(at, _)| at as i32).collect();
        self.put(&self.wanted, &wanted)?;
        self.run(rows.len(), decoded, tiles, wanted.len())
    }

    /// Runs a step with one new token per sequence. The second step with a given number of rows is
    /// recorded, and later ones replay it.
    fn decode(&mut self, rows: &[Row]) -> Result<(), CudaError> {
        let count = rows.len().next_multiple_of(ROUNDED);
        self.upload(rows, count)?;
        let wanted: Vec<i32> = (0..count as i32).collect();
        self.put(&self.wanted, &wanted)?;
        match self.recordings.get(&count).copied() {
            Some(Recording::Recorded(recording)) => return self.network.driver().replay(recording),
            None => {
                self.recordings.insert(count, Recording::Warm);
            }
            Some(Recording::Warm) => {
                if let Some(recording) = self.record(count) {
                    self.recordings.insert(count, Recording::Recorded(recording));
                    return self.network.driver().replay(recording);
                }
                self.direct = true;
            }
        }
        self.run(count, count, 0, count)
    }

    fn record(&mut self, count: usize) -> Option<usize> {
        let network = Arc::clone(&self.network);
        let recorder = Recorder::begin(network.driver()).ok()?;
        self.run(count, count, 0, count).ok()?;
        recorder.finish().ok()
    }

    fn put<T: super::memory::Plain>(&self, buffer: &Buffer<T>, values: &[T]) -> Result<(), CudaError> {
        buffer.part(0..values.len()).upload(self.network.driver(), values)
    }

    fn upload(&self, rows: &[Row], count: usize) -> Result<(), CudaError> {
        let padding = Row { slot: self.slots, position: 0, token: 0, place: [0; 3], logits: false };
        let all = || rows.iter().chain(std::iter::repeat_n(&padding, count - rows.len()));
        let ints = |of: &dyn Fn(&Row) -> usize| all().map(|row| of(row) as i32).collect::<Vec<i32>>();
        self.put(&self.tokens, &ints(&|row| row.token as usize))?;
        self.put(&self.positions, &ints(&|row| row.position))?;
        self.put(&self.cache_rows, &ints(&|row| row.slot * self.max_model_len + row.position))?;
        self.put(&self.key_rows, &ints(&|row| row.slot * self.max_model_len))
    }

    fn upload_tiles(&self, rows: &[Row], first: usize) -> Result<usize, CudaError> {
        let mut tiles: Vec<Tile> = Vec::new();
        for (at, row) in rows.iter().enumerate().skip(first) {
            match tiles.last_mut() {
                Some(tile)
                    if tile.key_row as usize == row.slot * self.max_model_len
                        && (tile.position + tile.queries) as usize == row.position
                        && (tile.queries as usize) < TILE =>
                {
                    tile.queries += 1;
                }
                _ => tiles.push(Tile {
                    query_row: at as i32,
                    queries: 1,
                    key_row: (row.slot * self.max_model_len) as i32,
                    position: row.position as i32,
                }),
            }
        }
        self.put(&self.tiles, &tiles)?;
        Ok(tiles.len())
    }

    fn run(&self, count: usize, decoded: usize, tiles: usize, wanted: usize) -> Result<(), CudaError> {
        let network = &*self.network;
        let (config, kernels, epsilon) = (&network.config, &network.kernels, network.epsilon());
        let (hidden, inner, width) = (config.hidden_size, config.intermediate_size, network.qkv_width());
        let (heads, key_width) = (network.heads(), config.key_value_width());
        let blocks = decoded.max(1) * heads.keys;
        let splits = (2 * network.driver().multiprocessors()).div_ceil(blocks).clamp(1, MOST_SPLITS);
        let splits = splits.min(self.max_model_len.div_ceil(4 * TILE));
        let residual = self.residual.part(0..count * hidden);
        let (normed, inverse) = (self.normed.part(0..count * hidden), self.inverse.part(0..count));
        let qkv = self.qkv.part(0..count * width);
        let (gate_up, activated) =
            (self.gate_up.part(0..count * 2 * inner), self.activated.part(0..count * inner));
        let (positions, angles) = (self.positions.part(0..count), self.angles.all());
        kernels.embed(self.tokens.part(0..count), network.at(&network.layout.embedding), residual)?;
        for (index, layer) in network.layout.layers.iter().enumerate() {
            let cache = self.caches[index].all();
            kernels.rms_norm(
                residual,
                None,
                network.at(&layer.input_norm),
                epsilon,
                count,
                normed,
                inverse,
            )?;
            network.linear(index, Joint::Qkv).forward(normed, count, qkv, &self.low)?;
            let store = Some((self.cache_rows.part(0..count), cache));
            kernels.prepare_qkv(qkv, &network.preparation(layer), positions, angles, qkv, None, store)?;
            if decoded > 0 {
                let indices = [self.positions.part(0..decoded), self.key_rows.part(0..decoded)];
                let (attended, partials) = (self.attended.all(), self.partials.all());
                kernels.attention_decode(indices, qkv, cache, heads, splits, attended, partials)?;
            }
            if tiles > 0 {
                let stride = 2 * key_width;
                let kv = (cache, cache.part(key_width..cache.len), stride);
                let attended = self.attended.all();
                kernels.attention(self.tiles.part(0..tiles), (qkv, width), kv, heads, attended, None)?;
            }
            let attended = self.attended.part(0..count * config.query_width());
            network.linear(index, Joint::Output).add(attended, count, residual, &self.low)?;
            kernels.rms_norm(
                residual,
                None,
                network.at(&layer.post_norm),
                epsilon,
                count,
                normed,
                inverse,
            )?;
            network.linear(index, Joint::GateUp).forward(normed, count, gate_up, &self.low)?;
            kernels.swiglu(gate_up, count, inner, activated)?;
            network.linear(index, Joint::Down).add(activated, count, residual, &self.low)?;
        }
        let (index, weight) = (Some(self.wanted.part(0..wanted)), network.at(&network.layout.final_norm));
        let normed = self.normed.part(0..wanted * hidden);
        kernels.rms_norm(residual, index, weight, epsilon, wanted, normed, inverse)?;
        let output = matrix(network.at(&network.layout.output), hidden);
        let operands = [matrix(normed, hidden), output.t()];
        let to = wide(self.logits.all(), logits_stride(network));
        multiply(network.driver(), operands, to, [wanted, hidden, config.vocab_size], Accumulate::Set, 1.0)
    }

    /// Samples a token per row of logits, or returns `None` for a row whose logits are not finite.
    /// Top-k and top-p run on the device, so no logits are downloaded.
    pub(crate) fn choose(
        &mut self,
        draws: &[(&SamplingParams, f64)],
    ) -> Result<Vec<Option<Choice>>, CudaError> {
        let (vocabulary, stride) = (self.vocabulary(), logits_stride(&self.network));
        let greedy = |params: &SamplingParams| params.temperature == 0.0;
        let inverses: Vec<f32> = draws
            .iter()
            .map(|(params, _)| if greedy(params) { 1.0 } else { 1.0 / params.temperature })
            .collect();
        let uniforms: Vec<f64> =
            draws.iter().map(|&(params, uniform)| if greedy(params) { -1.0 } else { uniform }).collect();
        let count = draws.len();
        self.put(&self.inverse_temperatures, &inverses)?;
        self.put(&self.uniforms, &uniforms)?;
        let logits = (self.logits.all(), stride);
        let numbers = self.inverse_temperatures.part(0..count);
        let choices = self.choices.part(0..4 * count);
        let (uniforms, chunks) = (self.uniforms.part(0..count), self.chunks.all());
        let kernels = &self.network.kernels;
        kernels.choose(logits, vocabulary, numbers, uniforms, chunks, choices)?;
        if draws.iter().any(|(params, _)| !greedy(params) && (params.top_k > 0 || params.top_p < 1.0)) {
            let top_ks: Vec<i32> =
                draws.iter().map(|(params, _)| i32::try_from(params.top_k).unwrap_or(i32::MAX)).collect();
            let top_ps: Vec<f32> = draws.iter().map(|(params, _)| params.top_p).collect();
            self.put(&self.top_ks, &top_ks)?;
            self.put(&self.top_ps, &top_ps)?;
            let kept = (self.top_ks.part(0..count), self.top_ps.part(0..count));
            kernels.choose_truncated(logits, vocabulary, numbers, uniforms, kept, choices)?;
        }
        let words = choices.download(self.network.driver())?;
        Ok(words
            .chunks_exact(4)
            .map(|words| {
                let token = words[0].to_bits();
                (token != u32::MAX).then_some(Choice { token, logprob: words[1], entropy: words[2] })
            })
            .collect())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for recording in self.recordings.values() {
            if let Recording::Recorded(recording) = recording {
                self.network.driver().forget(*recording);
            }
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").field("slots", &self.slots).finish_non_exhaustive()
    }
}

fn logits_stride(network: &Network) -> usize {
    network.config.vocab_size.next_multiple_of(16)
}
