//! GELU, attention over all turns, and dropout, with handwritten backward passes.

#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

use turnwise_core::Seed;
use turnwise_model::Real;
use turnwise_model::layers::{
    Accumulate, Loop, View, ViewMut, matmul, softmax_rows, softmax_rows_backward, vectorised,
};

/// `sqrt(2 / pi)`.
const ROOT: f64 = 0.797_884_560_802_865_4;
const CUBE: f64 = 0.044_715;

#[inline(always)]
fn gelu_tanh<T: Real>(x: T) -> T {
    let inner = T::from_f64(ROOT) * (x + T::from_f64(CUBE) * x * x * x);
    T::ONE - T::from_f64(2.0) / ((inner + inner).exp() + T::ONE)
}

/// Computes GELU, `y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))` (Hendrycks and Gimpel
/// 2016).
pub(super) fn gelu<T: Real>(x: &[T], y: &mut [T]) {
    struct Rows;

    impl<T: Real> Loop<(&[T], &mut [T])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((x, y): (&[T], &mut [T])) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = T::from_f64(0.5) * x * (T::ONE + gelu_tanh(x));
            }
        }
    }

    vectorised(Rows, (x, y));
}

/// Computes `d *= gelu'(x)`.
pub(super) fn gelu_backward<T: Real>(x: &[T], d: &mut [T]) {
    struct Rows;

    impl<T: Real> Loop<(&[T], &mut [T])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((x, d): (&[T], &mut [T])) {
            let half = T::from_f64(0.5);
            for (d, &x) in d.iter_mut().zip(x) {
                let t = gelu_tanh(x);
                let inner = T::from_f64(ROOT) * (T::ONE + T::from_f64(3.0 * CUBE) * x * x);
                *d *= half * (T::ONE + t) + half * x * (T::ONE - t * t) * inner;
            }
        }
    }

    vectorised(Rows, (x, d));
}

/// One trajectory's turns in packed rows `[query | key | value]`, each with `width` columns for all
/// heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) turns: usize,
}

impl Attention {
    fn scale<T: Real>(self) -> T {
        T::from_f64(1.0 / ((self.width / self.heads) as f64).sqrt())
    }

    fn views<T>(self, qkv: &[T], head: usize) -> [View<'_, T>; 3] {
        let own = self.width / self.heads;
        [0, 1, 2].map(|part| {
            View::strided(&qkv[part * self.width + head * own..], self.turns, own, 3 * self.width)
        })
    }

    /// Computes `out = softmax(Q K^T / sqrt(head width)) V` over all turns and stores the
    /// probabilities, `[heads, turns, turns]`.
    pub(super) fn forward<T: Real>(self, qkv: &[T], out: &mut [T], probabilities: &mut [T]) {
        let (own, turns) = (self.width / self.heads, self.turns);
        for (head, p) in probabilities.chunks_exact_mut(turns * turns).enumerate() {
            let [query, key, value] = self.views(qkv, head);
            matmul(ViewMut::new(p, turns, turns), query, key.t(), Accumulate::Set, self.scale());
            softmax_rows(p, turns);
            let out = ViewMut::strided(&mut out[head * own..], turns, own, self.width);
            matmul(out, View::new(p, turns, turns), value, Accumulate::Set, T::ONE);
        }
    }

    /// Computes `d_qkv`: `dV = P^T dO`, `dP = dO V^T`, `dS = P (dP - sum(P dP))`,
    /// `dQ = dS K scale`, `dK = dS^T Q scale`.
    pub(super) fn backward<T: Real>(self, qkv: &[T], probabilities: &[T], d_out: &[T], d_qkv: &mut [T]) {
        let (own, turns, row) = (self.width / self.heads, self.turns, 3 * self.width);
        let mut scores = vec![T::ZERO; turns * turns];
        for (head, p) in probabilities.chunks_exact(turns * turns).enumerate() {
            let [query, key, value] = self.views(qkv, head);
            let d_out = View::strided(&d_out[head * own..], turns, own, self.width);
            matmul(ViewMut::new(&mut scores, turns, turns), d_out, value.t(), Accumulate::Set, T::ONE);
            softmax_rows_backward(p, &mut scores, turns);
            let p = View::new(p, turns, turns);
            let d_scores = View::new(&scores, turns, turns);
            for (part, left, right, scale) in [
                (0, d_scores, key, self.scale()),
                (1, d_scores.t(), query, self.scale()),
                (2, p.t(), d_out, T::ONE),
            ] {
                let to = ViewMut::strided(&mut d_qkv[part * self.width + head * own..], turns, own, row);
                matmul(to, left, right, Accumulate::Set, scale);
            }
        }
    }
}

/// Sets each entry of `mask` to 0 with probability `dropout`, and otherwise to `1 / (1 - dropout)`.
/// An entry uses 16 random bits, so the dropout rate is a multiple of 1/65536.
pub(super) fn dropout_mask<T: Real>(dropout: f64, seed: Seed, mask: &mut [T]) {
    let threshold = (dropout * 65536.0).round() as u64;
    let keep = T::from_f64(65536.0 / (65536.0 - threshold as f64));
    let mut rng = seed.rng();
    for four in mask.chunks_mut(4) {
        let mut bits = rng.bits();
        for entry in four {
            *entry = if bits & 0xffff < threshold { T::ZERO } else { keep };
            bits >>= 16;
        }
    }
}

/// Computes `x *= mask`, unless the mask is empty.
pub(super) fn apply_mask<T: Real>(mask: &[T], x: &mut [T]) {
    for (x, &mask) in x.iter_mut().zip(mask) {
        *x *= mask;
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::Purpose;

    use super::*;
    use turnwise_model::testing::{check_gradient, random};

    fn weigh(y: &[f64], d_y: &[f64]) -> f64 {
        y.iter().zip(d_y).map(|(y, d)| y * d).sum()
    }

    #[test]
    fn gelu_and_its_derivative() {
        let (x, mut d) = (random(5, 40), random(6, 40));
        let d_y = d.clone();
        gelu_backward(&x, &mut d);
        check_gradient("x", &x, &d, |x| {
            let mut y = vec![0.0; x.len()];
            gelu(x, &mut y);
            weigh(&y, &d_y)
        });
        let mut ends = [0.0f32; 3];
        gelu(&[-100.0f32, 0.0, 100.0], &mut ends);
        assert_eq!(ends, [0.0, 0.0, 100.0], "no overflow at the ends");
    }

    #[test]
    fn attention_is_its_definition_and_backward_its_derivative() {
        for (heads, width, turns) in [(2, 6, 5), (1, 4, 1), (4, 8, 19)] {
            let shape = Attention { heads, width, turns };
            let (qkv, d_out) = (random(7, turns * 3 * width), random(8, turns * width));
            let output = |qkv: &[f64]| {
                let (mut out, mut p) = (vec![0.0; turns * width], vec![0.0; heads * turns * turns]);
                shape.forward(qkv, &mut out, &mut p);
                (out, p)
            };
            let (out, p) = output(&qkv);
            let own = width / heads;
            let at = |turn: usize, part: usize, i: usize| qkv[turn * 3 * width + part * width + i];
            let first = (heads - 1) * own;
            let weights: Vec<f64> = (0..turns)
                .map(|s| (first..width).map(|i| at(0, 0, i) * at(s, 1, i)).sum::<f64>())
                .map(|score| (score / (own as f64).sqrt()).exp())
                .collect();
            let exact = weights.iter().enumerate().map(|(s, w)| w * at(s, 2, first)).sum::<f64>();
            assert!((out[first] - exact / weights.iter().sum::<f64>()).abs() < 1e-12);
            let mut d_qkv = vec![f64::NAN; qkv.len()];
            shape.backward(&qkv, &p, &d_out, &mut d_qkv);
            check_gradient("qkv", &qkv, &d_qkv, |qkv| weigh(&output(qkv).0, &d_out));
        }
    }

    #[test]
    fn dropout_keeps_the_mean_and_belongs_to_its_coordinates() {
        let seed = |index| Seed::derive(1, Purpose::Dropout, &[index]);
        let (mut mask, mut other) = (vec![0.0f64; 100_000], vec![0.0f64; 100_000]);
        dropout_mask(0.1, seed(0), &mut mask);
        dropout_mask(0.1, seed(1), &mut other);
        assert_ne!(mask, other);
        let dropped = mask.iter().filter(|&&value| value == 0.0).count() as f64 / 1e5;
        assert!((dropped - 0.1).abs() < 0.005, "{dropped}");
        assert!((mask.iter().sum::<f64>() / 1e5 - 1.0).abs() < 0.005);
        dropout_mask(0.0, seed(0), &mut mask);
        assert!(mask.iter().all(|&value| value == 1.0));
    }
}
