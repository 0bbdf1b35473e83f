//! The vision tower's forward pass. Merged patches are sorted by attention window, so that each
//! window is a range of rows; the features are put back in their original order at the end.

use std::ops::Range;

use super::attention::Windows;
use super::norm::Normed;
use super::patches::places;
use super::split::{WORTH_A_THREAD, linear};
use super::{Prepared, TowerKind, VisionConfig, VisionLayout};
use crate::Real;
use crate::layers::Accumulate;
use crate::ops::mlp::{quick_gelu, swiglu};
use crate::ops::rope::{Direction, rotate_rows};
use crate::weights::BlockLayout;

#[derive(Clone, Debug)]
pub(crate) struct Tower<'a, T> {
    pub(super) config: &'a VisionConfig,
    pub(super) layout: VisionLayout,
    data: &'a [T],
    pub(super) width: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) groups: Vec<usize>,
    /// Rows (patches) of each window.
    pub(super) windows: Vec<Range<usize>>,
    pub(super) whole: Vec<Range<usize>>,
}

impl Order {
    pub(super) fn new([rows, columns]: [usize; 2], config: &VisionConfig) -> Self {
        let (side, merged) = (config.window(), config.merged());
        let mut groups = Vec::with_capacity(rows * columns);
        let mut windows = Vec::new();
        for top in (0..rows).step_by(side) {
            for left in (0..columns).step_by(side) {
                let start = groups.len() * merged;
                for row in top..rows.min(top + side) {
                    groups.extend((left..columns.min(left + side)).map(|column| row * columns + column));
                }
                windows.push(start..groups.len() * merged);
            }
        }
        Self { groups, windows, whole: std::iter::once(0..rows * columns * merged).collect() }
    }

    fn sort<T: Real>(&self, from: &[T], width: usize) -> Vec<T> {
        self.groups.iter().flat_map(|&group| &from[group * width..(group + 1) * width]).copied().collect()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Activations<T> {
    pub(super) norm1: Normed<T>,
    pub(super) qkv: Vec<T>,
    pub(super) attended: Vec<T>,
    pub(super) middle: Vec<T>,
    pub(super) norm2: Normed<T>,
    /// Hidden layer of the MLP, before and after the nonlinearity.
    pub(super) up: Vec<T>,
    pub(super) activated: Vec<T>,
}

#[derive(Debug, Default)]
pub(crate) struct Trace<T> {
    pub(super) patches: Vec<T>,
    /// `[rows, cosines | sines]`.
    pub(super) angles: Vec<T>,
    /// Residual stream before each block and after the last.
    pub(super) x: Vec<Vec<T>>,
    pub(super) blocks: Vec<Activations<T>>,
    pub(super) normed: Normed<T>,
    /// Hidden layer of the merger, before and after the nonlinearity.
    pub(super) inner: Vec<T>,
    pub(super) activated: Vec<T>,
    /// `[tokens, width]`.
    pub(crate) features: Vec<T>,
}

impl<'a, T: Real> Tower<'a, T> {
    pub(crate) fn new(config: &'a VisionConfig, width: usize, data: &'a [T]) -> Self {
        Self { config, layout: VisionLayout::new(config, width), data, width }
    }

    pub(super) fn weights(&self, range: &Range<usize>) -> &[T] {
        &self.data[range.clone()]
    }

    /// Returns cosines and sines in window order. A head's first half of pairs rotates by the
    /// patch's row, the second by its column.
    fn angles(&self, grid: [usize; 2], order: &Order) -> Vec<T> {
        let (quarter, merged) = (self.config.head_dim() / 4, self.config.merged());
        let frequency = |pair: usize| 10_000f64.powf(-(pair as f64) / quarter as f64);
        let places: Vec<[usize; 2]> = places(grid, self.config.spatial_merge_size).collect();
        let mut angles = Vec::with_capacity(places.len() * 4 * quarter);
        for &group in &order.groups {
            for place in &places[group * merged..(group + 1) * merged] {
                let of =
                    || place.iter().flat_map(|&at| (0..quarter).map(move |pair| at as f64 * frequency(pair)));
                angles.extend(of().map(|angle| T::from_f64(angle.cos())));
                angles.extend(of().map(|angle| T::from_f64(angle.sin())));
            }
        }
        angles
    }

    pub(super) fn kept(&self, picture: &Prepared) -> usize {
        TowerWork::of(self.config, self.width, picture.tokens()).kept
    }

    pub(super) fn windows<'o>(&self, block: usize, order: &'o Order) -> Windows<'o> {
        let rows = if self.config.attends_whole(block) { &order.whole } else { &order.windows };
        Windows { heads: self.config.num_heads, width: self.config.head_dim(), rows }
    }

    /// Encodes an image; with `keep`, also stores activations for backward.
    pub(crate) fn forward(&self, picture: &Prepared, keep: bool) -> Trace<T> {
        let Self { config, layout, width, .. } = self;
        let width = *width;
        let (hidden, merged) = (config.hidden_size, config.merged());
        let order = Order::new(picture.grid, config);
        let (tokens, rows) = (picture.tokens(), picture.tokens() * merged);
        let length = config.patch_len();
        let patches = order.sort(&picture.patches::<T>(config), merged * length);
        let mut x = vec![T::ZERO; rows * hidden];
        linear(&patches, self.weights(&layout.patch), None, &mut x, Accumulate::Set, [rows, length, hidden]);
        let mut trace = Trace { angles: self.angles(picture.grid, &order), ..Trace::default() };
        let mut scores = Vec::new();
        let mut kept = Activations::default();
        for (index, block) in layout.blocks.iter().enumerate() {
            let before = x.clone();
            let windows = self.windows(index, &order);
            self.block(block, windows, &trace.angles, &before, &mut x, &mut kept, &mut scores);
            if keep {
                trace.x.push(before);
                trace.blocks.push(std::mem::take(&mut kept));
            }
        }
        let mut normed = Normed::default();
        self.norm(&x, &layout.merge_norm, &mut normed);
        let mut inner = vec![T::ZERO; tokens * merged * hidden];
        self.linear(&normed.rows, &layout.merge_weight, &layout.merge_bias, &mut inner, Accumulate::Set);
        let activated: Vec<T> = inner.iter().map(|&x| gelu(x)).collect();
        let mut sorted = vec![T::ZERO; tokens * width];
        self.linear(&activated, &layout.out_weight, &layout.out_bias, &mut sorted, Accumulate::Set);
        trace.features = vec![T::ZERO; tokens * width];
        for (row, &group) in sorted.chunks_exact(width).zip(&order.groups) {
            trace.features[group * width..(group + 1) * width].copy_from_slice(row);
        }
        if keep {
            trace.x.push(x);
            Trace { patches, normed, inner, activated, ..trace }
        } else {
            Trace { features: trace.features, ..Trace::default() }
        }
    }

    fn block(
        &self,
        layout: &BlockLayout,
        windows: Windows<'_>,
        angles: &[T],
        x: &[T],
        out: &mut [T],
        kept: &mut Activations<T>,
        scores: &mut Vec<T>,
    ) {
        let hidden = self.config.hidden_size;
        kept.resize(x.len() / hidden, self.config);
        let Activations { norm1, qkv, attended, middle, norm2, up, activated } = kept;
        self.norm(x, &layout.norm1, norm1);
        self.linear(&norm1.rows, &layout.qkv_weight, &layout.qkv_bias, qkv, Accumulate::Set);
        let half = self.config.head_dim() / 2;
        rotate_rows(angles, half, qkv, 3 * hidden, 2 * self.config.num_heads, Direction::Forward);
        windows.forward(qkv, attended, scores);
        middle.copy_from_slice(x);
        self.linear(attended, &layout.proj_weight, &layout.proj_bias, middle, Accumulate::Add);
        self.norm(middle, &layout.norm2, norm2);
        self.linear(&norm2.rows, &layout.up_weight, &layout.up_bias, up, Accumulate::Set);
        match self.config.kind {
            TowerKind::Qwen2Vl => quick_gelu(up, activated),
            TowerKind::Qwen25Vl => swiglu(up, self.config.intermediate_size, activated),
        }
        out.copy_from_slice(middle);
        self.linear(activated, &layout.down_weight, &layout.down_bias, out, Accumulate::Add);
    }

    fn linear(&self, x: &[T], weight: &Range<usize>, bias: &Range<usize>, y: &mut [T], into: Accumulate) {
        let outputs = bias.len();
        let inputs = weight.len() / outputs;
        let (weight, bias) = (self.weights(weight), Some(self.weights(bias)));
        linear(x, weight, bias, y, into, [x.len() / inputs, inputs, outputs]);
    }

    pub(super) fn splits(&self, picture: &Prepared) -> bool {
        TowerWork::of(self.config, self.width, picture.tokens()).splits
    }
}

/// The tower's buffer sizes for one image, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TowerWork {
    /// Activations kept for the backward pass.
    pub(crate) kept: usize,
    /// Scratch of a forward pass without `keep`, excluding features.
    pub(crate) forward: usize,
    /// Scratch of a backward pass, excluding kept activations and gradient.
    pub(crate) backward: usize,
    pub(crate) splits: bool,
}

impl TowerWork {
    /// Returns the sizes for an image of `tokens` tokens; `width` is the decoder's hidden size.
    pub(crate) fn of(config: &VisionConfig, width: usize, tokens: usize) -> Self {
        let (hidden, rows) = (config.hidden_size, tokens * config.merged());
        // Normed rows and inverses; layer norms keep standardized rows, too.
        let norm = 1 + if config.kind == TowerKind::Qwen2Vl { 2 * hidden } else { hidden };
        let block = 6 * hidden + 2 * norm + config.up_width() + config.intermediate_size;
        let ends = config.patch_len() + config.head_dim() + 3 * hidden + norm;
        // Patches (sorted and unsorted), the stream before and after a block, and unsorted
        // features.
        let forward = rows * (config.patch_len() + ends + block + hidden) + tokens * width;
        let inside = (config.intermediate_size + 4 * hidden).max(hidden);
        let backward = rows * (3 * hidden + inside) + tokens * width;
        let splits = rows * hidden * hidden >= WORTH_A_THREAD;
        Self { kept: rows * (ends + config.depth * block), forward, backward, splits }
    }
}

impl<T> Trace<T> {
    pub(super) fn is_kept(&self) -> bool {
        !self.x.is_empty()
    }
}

impl<T: Real> Activations<T> {
    fn resize(&mut self, rows: usize, config: &VisionConfig) {
        let hidden = config.hidden_size;
        for (buffer, width) in [
            (&mut self.qkv, 3 * hidden),
            (&mut self.attended, hidden),
            (&mut self.middle, hidden),
            (&mut self.up, config.up_width()),
            (&mut self.activated, config.intermediate_size),
        ] {
            buffer.resize(rows * width, T::ZERO);
        }
    }
}

/// Returns `x Phi(x)` with the normal CDF `Phi`.
fn gelu<T: Real>(x: T) -> T {
    let x = x.to_f64();
    T::from_f64(0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)))
}

/// Returns `Phi(x) + x phi(x)`.
pub(super) fn gelu_derivative<T: Real>(x: T) -> T {
    let x = x.to_f64();
    let below = 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    T::from_f64(below + x * density)
}
