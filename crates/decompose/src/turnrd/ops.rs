//! The operations that TurnRD needs beyond the decoder's: layer norm, GELU, attention over all turns,
//! dropout. Each has its hand-written backward.

#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

use turnwise_core::Seed;
use turnwise_model::Real;
use turnwise_model::layers::{
    Accumulate, LANES, Loop, View, ViewMut, dot, fold, matmul, softmax_rows, softmax_rows_backward,
    vectorised,
};

/// Added to the variance by layer norm, as PyTorch does.
const EPSILON: f64 = 1e-5;

/// `y = (x - mean) / sqrt(var + 1e-5) w + b` for each row; keeps the standardized rows and the inverse
/// deviations.
pub(super) fn layer_norm<T: Real>(x: &[T], [weight, bias]: [&[T]; 2], [y, standard, inverse]: [&mut [T]; 3]) {
    struct Rows;

    impl<T: Real> Loop<(&[T], [&[T]; 2], [&mut [T]; 3])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((x, [weight, bias], [y, standard, inverse]): (&[T], [&[T]; 2], [&mut [T]; 3])) {
            let width = weight.len();
            let share = T::from_f64(1.0 / width as f64);
            let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
            for (((x, y), standard), inverse) in rows.zip(standard.chunks_exact_mut(width)).zip(inverse) {
                let mean = sum(x) * share;
                for (standard, &x) in standard.iter_mut().zip(x) {
                    *standard = x - mean;
                }
                let r = T::ONE / (dot(standard, standard) * share + T::from_f64(EPSILON)).sqrt();
                *inverse = r;
                for (((y, standard), &w), &b) in y.iter_mut().zip(standard).zip(weight).zip(bias) {
                    *standard *= r;
                    *y = *standard * w + b;
                }
            }
        }
    }

    vectorised(Rows, (x, [weight, bias], [y, standard, inverse]));
}

/// Adds to `d_x`, `d_weight` and `d_bias`; with `s` the standardized row, `r` the inverse deviation and
/// `g = d_y w`: `d_x += r (g - mean(g) - s mean(g s))`.
pub(super) fn layer_norm_backward<T: Real>(
    d_y: &[T],
    [weight, standard, inverse]: [&[T]; 3],
    [d_x, d_weight, d_bias]: [&mut [T]; 3],
) {
    struct Rows;

    impl<T: Real> Loop<(&[T], [&[T]; 3], [&mut [T]; 3])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run(
            (d_y, [weight, standard, inverse], [d_x, d_weight, d_bias]): (&[T], [&[T]; 3], [&mut [T]; 3]),
        ) {
            let width = weight.len();
            let share = T::from_f64(1.0 / width as f64);
            let mut g = vec![T::ZERO; width];
            let rows = d_y.chunks_exact(width).zip(standard.chunks_exact(width));
            for (((d_y, s), d_x), &r) in rows.zip(d_x.chunks_exact_mut(width)).zip(inverse) {
                for ((((g, &d_y), &w), d_w), (d_b, &s)) in
                    g.iter_mut().zip(d_y).zip(weight).zip(&mut *d_weight).zip(d_bias.iter_mut().zip(s))
                {
                    *g = d_y * w;
                    *d_w += d_y * s;
                    *d_b += d_y;
                }
                let (mean, pull) = (sum(&g) * share, dot(&g, s) * share);
                for ((d_x, &g), &s) in d_x.iter_mut().zip(&g).zip(s) {
                    *d_x += r * (g - mean - s * pull);
                }
            }
        }
    }

    vectorised(Rows, (d_y, [weight, standard, inverse], [d_x, d_weight, d_bias]));
}

#[inline(always)]
fn sum<T: Real>(x: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        lanes[lane] += x;
    }
    fold(lanes)
}

/// `sqrt(2 / pi)`.
const ROOT: f64 = 0.797_884_560_802_865_4;
const CUBE: f64 = 0.044_715;

/// `tanh(sqrt(2 / pi) (x + 0.044715 x^3))`.
#[inline(always)]
fn gelu_tanh<T: Real>(x: T) -> T {
    let inner = T::from_f64(ROOT) * (x + T::from_f64(CUBE) * x * x * x);
    T::ONE - T::from_f64(2.0) / ((inner + inner).exp() + T::ONE)
}

/// `y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, Hendrycks and Gimpel (2016).
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

/// `d *= gelu'(x)`.
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

/// Turns of one trajectory in packed rows of `[query | key | value]`, each `width` wide in all heads.
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

    /// Query, key and value of a head in the rows of `qkv`.
    fn views<T>(self, qkv: &[T], head: usize) -> [View<'_, T>; 3] {
        let own = self.width / self.heads;
        [0, 1, 2].map(|part| {
            View::strided(&qkv[part * self.width + head * own..], self.turns, own, 3 * self.width)
        })
    }

    /// `out = softmax(Q K^T / sqrt(width of a head)) V`, every turn looking at all; keeps the
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

    /// Writes `d_qkv`: `dV = P^T dO`, `dP = dO V^T`, `dS = P (dP - sum(P dP))`, `dQ = dS K scale`,
    /// `dK = dS^T Q scale`.
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

/// Fills `mask` with 0 at the rate of `dropout` and `1 / (1 - rate)` elsewhere. Sixteen random bits decide
/// each entry, so that the rate is a multiple of 1/65536.
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

/// `x *= mask`; an empty mask changes nothing.
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
    fn layer_norm_and_its_derivative() {
        let (rows, width) = (3, 37);
        let (x, weight, bias) = (random(1, rows * width), random(2, width), random(3, width));
        let d_y = random(4, rows * width);
        let output = |x: &[f64], weight: &[f64], bias: &[f64]| {
            let (mut y, mut standard, mut inverse) =
                (vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; rows]);
            layer_norm(x, [weight, bias], [&mut y, &mut standard, &mut inverse]);
            (y, standard, inverse)
        };
        let (y, standard, inverse) = output(&x, &weight, &bias);
        let mean = x[..width].iter().sum::<f64>() / width as f64;
        let variance = x[..width].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        assert!((y[5] - ((x[5] - mean) / (variance + 1e-5).sqrt() * weight[5] + bias[5])).abs() < 1e-12);
        let (mut d_x, mut d_weight, mut d_bias) = (vec![0.0; x.len()], vec![0.0; width], vec![0.0; width]);
        layer_norm_backward(&d_y, [&weight, &standard, &inverse], [&mut d_x, &mut d_weight, &mut d_bias]);
        check_gradient("x", &x, &d_x, |x| weigh(&output(x, &weight, &bias).0, &d_y));
        check_gradient("weight", &weight, &d_weight, |weight| weigh(&output(&x, weight, &bias).0, &d_y));
        check_gradient("bias", &bias, &d_bias, |bias| weigh(&output(&x, &weight, bias).0, &d_y));
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
            // The last head of the first turn.
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
