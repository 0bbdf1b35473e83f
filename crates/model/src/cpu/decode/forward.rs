use std::sync::Arc;

use pulp::Arch;

use super::attention::{Attention, Scratch};
use super::pages::Cache;
use super::projection;
use super::sharing::Sharing;
use super::vector::{GatedSilu, HeadNorm, RmsNorm, rotate};
use super::vision::EngineVision;
use super::weights::EngineWeights;
use crate::Rotary;
use crate::backend::Row;

#[derive(Debug)]
pub(super) struct Forward {
    arch: Arch,
    pub(super) weights: Arc<EngineWeights>,
    /// `[position, head width / 2]`.
    cos: Vec<f32>,
    sin: Vec<f32>,
    /// Scratch for the cosines and sines of one row whose token is inside an image.
    mixed: (Vec<f32>, Vec<f32>),
    rows: Vec<Row>,
    hidden: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    products: projection::Scratch,
    sharing: Sharing,
    scratch: Scratch,
    /// Logits, `[rows with logits, stride]`; each row is padded with the lowest finite number.
    pub(super) logits: Vec<f32>,
}

impl Forward {
    pub(super) fn new(weights: Arc<EngineWeights>, arch: Arch, max_model_len: usize) -> Self {
        let Rotary { frequencies, attention_factor } = &weights.rotary;
        let angles = (0..max_model_len)
            .flat_map(|position| frequencies.iter().map(move |frequency| position as f64 * frequency));
        let scaled = |value: f64| (value * attention_factor) as f32;
        let (cos, sin) = angles.map(|angle| (scaled(angle.cos()), scaled(angle.sin()))).unzip();
        Self {
            arch,
            weights,
            cos,
            sin,
            mixed: (Vec::new(), Vec::new()),
            rows: Vec::new(),
            hidden: Vec::new(),
            normed: Vec::new(),
            qkv: Vec::new(),
            attended: Vec::new(),
            gate_up: Vec::new(),
            products: projection::Scratch::default(),
            sharing: Sharing::default(),
            scratch: Scratch::default(),
            logits: Vec::new(),
        }
    }

    pub(super) fn logits_stride(&self) -> usize {
        self.weights.output.width
    }

    /// Writes keys and values to the cache, and the requested logits in row order.
    pub(super) fn step(&mut self, rows: &[Row], cache: &mut Cache) {
        let weights = Arc::clone(&self.weights);
        let arch = self.arch;
        let hidden = weights.hidden;
        self.rows.clear();
        self.rows.extend_from_slice(rows);
        self.hidden.clear();
        for row in rows {
            cache.claim(row.slot, row.position);
            weights.embed(row.token, &mut self.hidden);
        }
        self.sharing.plan(rows, cache);
        for (index, layer) in weights.layers.iter().enumerate() {
            self.norm(&layer.input_norm);
            let qkv_stride = layer.qkv.width();
            self.qkv.resize(self.rows.len() * qkv_stride, 0.0);
            layer.qkv.multiply(
                arch,
                &self.normed,
                hidden,
                &mut self.qkv,
                qkv_stride,
                false,
                &mut self.products,
            );
            if !layer.qk_norm.is_empty() {
                arch.dispatch(HeadNorm {
                    qkv: &mut self.qkv,
                    stride: qkv_stride,
                    counts: [weights.heads.queries, weights.heads.keys],
                    weight: &layer.qk_norm,
                    epsilon: weights.epsilon,
                });
            }
            self.rotate_and_store(index, qkv_stride, cache);
            if index + 1 == weights.layers.len() {
                self.drop_unwanted_rows(qkv_stride);
                if self.rows.is_empty() {
                    break;
                }
                if self.rows.len() < rows.len() {
                    self.sharing.plan(&self.rows, cache);
                }
            }
            self.attend(index, qkv_stride, cache);
            let query_width = weights.heads.query_width();
            layer.o.multiply(
                arch,
                &self.attended,
                query_width,
                &mut self.hidden,
                hidden,
                true,
                &mut self.products,
            );

            self.norm(&layer.post_norm);
            let stride = layer.gate_up.width();
            self.gate_up.resize(self.rows.len() * stride, 0.0);
            layer.gate_up.multiply(
                arch,
                &self.normed,
                hidden,
                &mut self.gate_up,
                stride,
                false,
                &mut self.products,
            );
            arch.dispatch(GatedSilu { gate_up: &mut self.gate_up, stride, width: weights.intermediate });
            layer.down.multiply(
                arch,
                &self.gate_up,
                stride,
                &mut self.hidden,
                hidden,
                true,
                &mut self.products,
            );
        }
        self.norm(&weights.final_norm);
        let stride = weights.output.width;
        self.logits.resize(self.rows.len() * stride, 0.0);
        weights.output.multiply(
            arch,
            &self.normed,
            hidden,
            &mut self.logits,
            stride,
            false,
            &mut self.products.tiles,
        );
        for logits in self.logits.chunks_exact_mut(stride) {
            logits[weights.vocab..].fill(f32::MIN);
        }
    }

    fn norm(&mut self, weight: &[f32]) {
        self.normed.resize(self.hidden.len(), 0.0);
        let (x, out) = (&self.hidden, &mut self.normed);
        self.arch.dispatch(RmsNorm { x, weight, epsilon: self.weights.epsilon, out });
    }

    fn rotate_and_store(&mut self, layer: usize, stride: usize, cache: &mut Cache) {
        let heads = self.weights.heads;
        let (query_width, key_width) = (heads.query_width(), heads.keys * heads.width);
        let half = heads.width / 2;
        for (row, qkv) in self.rows.iter().zip(self.qkv.chunks_exact_mut(stride)) {
            let (rotated, value) = qkv.split_at_mut(query_width + key_width);
            let [time, line, column] = row.place;
            let (cos, sin) = if time == line && time == column {
                let angles = time as usize * half..(time as usize + 1) * half;
                (&self.cos[angles.clone()], &self.sin[angles])
            } else {
                let vision = self.weights.vision.as_ref();
                let sections = vision.map_or([half, 0, 0], EngineVision::sections);
                for (to, from) in [(&mut self.mixed.0, &self.cos), (&mut self.mixed.1, &self.sin)] {
                    to.clear();
                    for (place, count) in row.place.into_iter().zip(sections) {
                        let start = place as usize * half + to.len();
                        to.extend_from_slice(&from[start..start + count]);
                    }
                }
                (&self.mixed.0[..], &self.mixed.1[..])
            };
            for head in rotated.chunks_exact_mut(heads.width) {
                rotate(head, cos, sin);
            }
            let key = &rotated[query_width..];
            cache.write(row.slot, layer, row.position, key, &value[..key_width]);
        }
    }

    /// Drops the rows whose logits are not requested; called once the last layer's keys and values
    /// are written.
    fn drop_unwanted_rows(&mut self, stride: usize) {
        let hidden = self.weights.hidden;
        let mut kept = 0;
        for index in 0..self.rows.len() {
            if self.rows[index].logits {
                self.rows.swap(kept, index);
                self.hidden.copy_within(index * hidden..(index + 1) * hidden, kept * hidden);
                self.qkv.copy_within(index * stride..(index + 1) * stride, kept * stride);
                kept += 1;
            }
        }
        self.rows.truncate(kept);
        self.hidden.truncate(kept * hidden);
        self.qkv.truncate(kept * stride);
    }

    fn attend(&mut self, layer: usize, stride: usize, cache: &Cache) {
        self.attended.resize(self.rows.len() * self.weights.heads.query_width(), 0.0);
        self.arch.dispatch(Attention {
            cache,
            layer,
            sharing: &self.sharing,
            queries: &self.qkv,
            stride,
            out: &mut self.attended,
            scratch: &mut self.scratch,
        });
    }
}
