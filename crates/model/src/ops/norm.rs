//! Root mean square norm.

use super::Real;
use super::dispatch::{LANES, Loop, dot, fold, vectorised};

/// `y = x r w` with `r = 1 / sqrt(mean(x^2) + epsilon)` for each row; `inverse` keeps `r`.
///
/// Zhang and Sennrich (2019), "Root Mean Square Layer Normalization".
pub(crate) fn rms_norm<T: Real>(x: &[T], weight: &[T], epsilon: f64, y: &mut [T], inverse: &mut [T]) {
    struct Rows;

    impl<T: Real> Loop<([&[T]; 2], [T; 2], [&mut [T]; 2])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run(([x, weight], [epsilon, share], [y, inverse]): ([&[T]; 2], [T; 2], [&mut [T]; 2])) {
            let width = weight.len();
            for ((x, y), inverse) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(inverse) {
                let r = T::ONE / (dot(x, x) * share + epsilon).sqrt();
                *inverse = r;
                for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
                    *y = x * r * w;
                }
            }
        }
    }

    let (epsilon, share) = (T::from_f64(epsilon), T::from_f64(1.0 / weight.len() as f64));
    vectorised(Rows, ([x, weight], [epsilon, share], [y, inverse]));
}

/// Adds to `d_x` and `d_weight`:
/// `d_x += r (g - x r^2 mean(g x))` with `g = d_y w`, and `d_weight += d_y x r` summed over rows.
pub(crate) fn rms_norm_backward<T: Real>(
    d_y: &[T],
    x: &[T],
    weight: &[T],
    inverse: &[T],
    d_x: &mut [T],
    d_weight: &mut [T],
) {
    struct Rows;

    impl<T: Real> Loop<([&[T]; 4], [&mut [T]; 2])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run(([d_y, x, weight, inverse], [d_x, d_weight]): ([&[T]; 4], [&mut [T]; 2])) {
            let width = weight.len();
            let share = T::from_f64(1.0 / width as f64);
            let rows = d_y.chunks_exact(width).zip(x.chunks_exact(width)).zip(d_x.chunks_exact_mut(width));
            for (((d_y, x), d_x), &r) in rows.zip(inverse) {
                let mut lanes = [T::ZERO; LANES];
                let (d_y_chunks, d_y_rest) = d_y.as_chunks::<LANES>();
                let (x_chunks, x_rest) = x.as_chunks::<LANES>();
                let (w_chunks, w_rest) = weight.as_chunks::<LANES>();
                for ((d_y, x), w) in d_y_chunks.iter().zip(x_chunks).zip(w_chunks) {
                    for lane in 0..LANES {
                        lanes[lane] += d_y[lane] * w[lane] * x[lane];
                    }
                }
                for (lane, ((&d_y, &x), &w)) in d_y_rest.iter().zip(x_rest).zip(w_rest).enumerate() {
                    lanes[lane] += d_y * w * x;
                }
                let pull = fold(lanes) * share * r * r * r;
                let columns = d_y.iter().zip(x).zip(weight).zip(d_x).zip(&mut *d_weight);
                for ((((&d_y, &x), &w), d_x), d_w) in columns {
                    *d_x += d_y * w * r - x * pull;
                    *d_w += d_y * x * r;
                }
            }
        }
    }

    vectorised(Rows, ([d_y, x, weight, inverse], [d_x, d_weight]));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradient, random};
    use super::*;

    #[test]
    fn backward_is_the_derivative() {
        let (width, rows) = (37, 3);
        let (x, weight, d_y) = (random(1, rows * width), random(2, width), random(3, rows * width));
        let output = |x: &[f64], weight: &[f64]| {
            let (mut y, mut inverse) = (vec![0.0; x.len()], vec![0.0; rows]);
            rms_norm(x, weight, 1e-5, &mut y, &mut inverse);
            (y, inverse)
        };
        let loss = |y: &[f64]| y.iter().zip(&d_y).map(|(y, d)| y * d).sum::<f64>();
        let (y, inverse) = output(&x, &weight);
        let mean: f64 = x[..width].iter().map(|x| x * x).sum::<f64>() / width as f64;
        assert!((y[5] - x[5] / (mean + 1e-5).sqrt() * weight[5]).abs() < 1e-14);
        let (mut d_x, mut d_weight) = (vec![0.0; x.len()], vec![0.0; width]);
        rms_norm_backward(&d_y, &x, &weight, &inverse, &mut d_x, &mut d_weight);
        check_gradient("x", &x, &d_x, |x| loss(&output(x, &weight).0));
        check_gradient("weight", &weight, &d_weight, |weight| loss(&output(&x, weight).0));
    }
}
