//! Vectorized loops. Each row is summed in an order that depends only on the row's length.
#![expect(
    clippy::inline_always,
    reason = "code outside of the dispatched function is compiled without its vectors"
)]

use pulp::{Simd, WithSimd};

pub(super) const LINE: usize = 16;

/// Prefetches element `at`, which may be out of bounds. Does nothing on CPUs other than x86-64.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the intrinsic takes a pointer"))]
pub(super) fn prefetch<T>(from: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, at);
}

/// Computes `e^x` to about two units in the last place. For `x` below -87, the result is close to
/// the smallest normal number. Uses the method of `exp` in `ops/real.rs`.
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let x = simd.min_f32s(simd.max_f32s(x, simd.splat_f32s(-87.3)), simd.splat_f32s(88.0));
    let magic = simd.splat_f32s(12_582_912.0);
    let shifted = simd.mul_add_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), magic);
    let n = simd.sub_f32s(shifted, magic);
    let r = simd.mul_add_f32s(n, simd.splat_f32s(-0.693_359_4), x);
    let r = simd.mul_add_f32s(n, simd.splat_f32s(2.121_944_4e-4), r);
    let mut p = simd.splat_f32s(1.987_569_2e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = simd.mul_add_f32s(p, r, simd.splat_f32s(coefficient));
    }
    let y = simd.mul_add_f32s(simd.mul_f32s(r, r), p, simd.add_f32s(r, simd.splat_f32s(1.0)));
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(y), exponent))
}

/// `out = x / sqrt(mean(x^2) + epsilon) * weight`, per row.
pub(super) struct RmsNorm<'a> {
    pub(super) x: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) epsilon: f32,
    pub(super) out: &'a mut [f32],
}

impl WithSimd for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.weight.len();
        let (weight, weight_tail) = S::as_simd_f32s(self.weight);
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let (x, x_tail) = S::as_simd_f32s(x);
            let (out, out_tail) = S::as_mut_simd_f32s(out);
            let mut squares = simd.splat_f32s(0.0);
            for &x in x {
                squares = simd.mul_add_f32s(x, x, squares);
            }
            let sum = simd.reduce_sum_f32s(squares) + x_tail.iter().map(|x| x * x).sum::<f32>();
            let scale = 1.0 / (sum / width as f32 + self.epsilon).sqrt();
            let scales = simd.splat_f32s(scale);
            for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
                *out = simd.mul_f32s(simd.mul_f32s(x, scales), weight);
            }
            for ((out, &x), &weight) in out_tail.iter_mut().zip(x_tail).zip(weight_tail) {
                *out = x * scale * weight;
            }
        }
    }
}

/// In-place RMS norm of the query and key heads in rows `[queries | keys | ..]`. `weight` has the
/// query norm's weights, then the key norm's.
pub(super) struct HeadNorm<'a> {
    pub(super) qkv: &'a mut [f32],
    pub(super) stride: usize,
    pub(super) counts: [usize; 2],
    pub(super) weight: &'a [f32],
    pub(super) epsilon: f32,
}

impl WithSimd for HeadNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.weight.len() / 2;
        let [queries, keys] = self.counts;
        let (query, key) = self.weight.split_at(width);
        for row in self.qkv.chunks_exact_mut(self.stride) {
            for (index, head) in row.chunks_exact_mut(width).take(queries + keys).enumerate() {
                let (weight, weight_tail) = S::as_simd_f32s(if index < queries { query } else { key });
                let (head, tail) = S::as_mut_simd_f32s(head);
                let mut squares = simd.splat_f32s(0.0);
                for &x in &*head {
                    squares = simd.mul_add_f32s(x, x, squares);
                }
                let sum = simd.reduce_sum_f32s(squares) + tail.iter().map(|x| x * x).sum::<f32>();
                let scale = 1.0 / (sum / width as f32 + self.epsilon).sqrt();
                let scales = simd.splat_f32s(scale);
                for (x, &weight) in head.iter_mut().zip(weight) {
                    *x = simd.mul_f32s(simd.mul_f32s(*x, scales), weight);
                }
                for (x, &weight) in tail.iter_mut().zip(weight_tail) {
                    *x = *x * scale * weight;
                }
            }
        }
    }
}

/// Computes `gate = silu(gate) * up` in place, for rows `[gate | up]` with row stride `stride`.
pub(super) struct GatedSilu<'a> {
    pub(super) gate_up: &'a mut [f32],
    pub(super) stride: usize,
    pub(super) width: usize,
}

impl WithSimd for GatedSilu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for row in self.gate_up.chunks_exact_mut(self.stride) {
            let (gate, up) = row.split_at_mut(self.width);
            let (gate, gate_tail) = S::as_mut_simd_f32s(gate);
            let (up, up_tail) = S::as_simd_f32s(&up[..self.width]);
            for (gate, &up) in gate.iter_mut().zip(up) {
                *gate = silu_times(simd, *gate, up);
            }
            let value = silu_times(simd, simd.partial_load_f32s(gate_tail), simd.partial_load_f32s(up_tail));
            simd.partial_store_f32s(gate_tail, value);
        }
    }
}

/// Returns `gate / (1 + e^-gate) * up`. A closure would be compiled without vector instructions.
#[inline(always)]
fn silu_times<S: Simd>(simd: S, gate: S::f32s, up: S::f32s) -> S::f32s {
    let power = exp(simd, simd.sub_f32s(simd.splat_f32s(0.0), gate));
    simd.mul_f32s(simd.div_f32s(gate, simd.add_f32s(simd.splat_f32s(1.0), power)), up)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    pub(super) max: f32,
    /// `Z = sum e^x` with `x = (logit - max) / temperature`; NaN if any logit is not finite.
    pub(super) total: f64,
    pub(super) weighted: f64,
}

/// Number of elements that are summed in `f32` before their sum is added to the total in `f64`.
pub(super) const CHUNK: usize = 256;

/// Writes each logit's exponential and each chunk's sum. `logits` and `weights` must fill whole
/// panels.
pub(super) struct Exponentials<'a> {
    pub(super) logits: &'a [f32],
    pub(super) inverse_temperature: f32,
    pub(super) weights: &'a mut [f32],
    pub(super) chunks: &'a mut Vec<f64>,
}

impl WithSimd for Exponentials<'_> {
    type Output = Softmax;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Softmax {
        let max = maximum(simd, self.logits);
        let maxima = simd.splat_f32s(max);
        let inverse = simd.splat_f32s(self.inverse_temperature);
        let lowest = simd.splat_f32s(-87.3);
        let zero = simd.splat_f32s(0.0);
        let (mut total, mut weighted) = (0.0, 0.0);
        // Becomes NaN at a logit that is not finite; a maximum would skip a NaN.
        let mut poison = zero;
        self.chunks.clear();
        for (logits, weights) in self.logits.chunks(CHUNK).zip(self.weights.chunks_mut(CHUNK)) {
            let (logits, _) = S::as_simd_f32s(logits);
            let (weights, _) = S::as_mut_simd_f32s(weights);
            let (mut sums, mut products) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
            for (&logit, weight) in logits.iter().zip(weights) {
                poison = simd.mul_add_f32s(logit, zero, poison);
                let x = simd.max_f32s(simd.mul_f32s(simd.sub_f32s(logit, maxima), inverse), lowest);
                let e = exp(simd, x);
                *weight = e;
                sums = simd.add_f32s(sums, e);
                products = simd.mul_add_f32s(x, e, products);
            }
            let sum = f64::from(simd.reduce_sum_f32s(sums));
            self.chunks.push(sum);
            total += sum;
            weighted += f64::from(simd.reduce_sum_f32s(products));
        }
        Softmax { max, total: total + f64::from(simd.reduce_sum_f32s(poison)), weighted }
    }
}

#[inline(always)]
pub(super) fn maximum<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let (vectors, tail) = S::as_simd_f32s(values);
    let mut maxima = simd.splat_f32s(f32::NEG_INFINITY);
    for &vector in vectors {
        maxima = simd.max_f32s(maxima, vector);
    }
    tail.iter().copied().fold(simd.reduce_max_f32s(maxima), f32::max)
}

/// Rotates each pair `(i, i + half)` of a head by the position's angle.
#[inline]
pub(super) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (left, right) = head.split_at_mut(cos.len());
    for (((left, right), &cos), &sin) in left.iter_mut().zip(right).zip(cos).zip(sin) {
        let (a, b) = (*left, *right);
        *left = a * cos - b * sin;
        *right = b * cos + a * sin;
    }
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::*;

    fn exp_of(arch: Arch, values: &mut [f32]) {
        struct All<'a>(&'a mut [f32]);
        impl WithSimd for All<'_> {
            type Output = ();
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let (vectors, _) = S::as_mut_simd_f32s(self.0);
                for vector in vectors {
                    *vector = exp(simd, *vector);
                }
            }
        }
        arch.dispatch(All(values));
    }

    #[test]
    fn exp_is_accurate() {
        let inputs: Vec<f32> =
            (0..174_000).map(|index| -87.0 + index as f32 * 1e-3).chain([0.0; 16]).collect();
        let inputs = &inputs[..inputs.len() / 16 * 16];
        for arch in [Arch::new(), Arch::Scalar] {
            let mut values = inputs.to_vec();
            exp_of(arch, &mut values);
            for (&x, &value) in inputs.iter().zip(&values) {
                let exact = f64::from(x).exp();
                let error = (f64::from(value) - exact).abs() / exact;
                assert!(error < 3e-7, "exp({x}) = {value}, relative error {error:e}");
            }
        }
        let mut far = [f32::NEG_INFINITY; 16];
        exp_of(Arch::new(), &mut far);
        assert!(far.iter().all(|&value| value > 0.0 && value < 1.3e-38), "{far:?}");
    }

    #[test]
    fn rows_equal_their_definitions() {
        let width = 37;
        let x: Vec<f32> = (0..2 * width).map(|index| (index as f32 * 0.7).sin() * 3.0).collect();
        let weight: Vec<f32> = (0..width).map(|index| 1.0 + index as f32 * 0.01).collect();
        let mut out = vec![0.0; 2 * width];
        Arch::new().dispatch(RmsNorm { x: &x, weight: &weight, epsilon: 1e-6, out: &mut out });
        for (row, out) in x.chunks(width).zip(out.chunks(width)) {
            let mean: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
            for index in 0..width {
                let exact = f64::from(row[index]) / (mean + 1e-6).sqrt() * f64::from(weight[index]);
                assert!((f64::from(out[index]) - exact).abs() < 1e-5);
            }
        }
        let mut gated = x.clone();
        let half = 18;
        Arch::new().dispatch(GatedSilu { gate_up: &mut gated, stride: width, width: half });
        for (row, out) in x.chunks(width).zip(gated.chunks(width)) {
            for index in 0..half {
                let gate = f64::from(row[index]);
                let exact = gate / (1.0 + (-gate).exp()) * f64::from(row[half + index]);
                assert!((f64::from(out[index]) - exact).abs() < 1e-5);
            }
        }
    }
}
