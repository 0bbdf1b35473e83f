use super::Real;
use super::dispatch::{LANES, Loop, dot, fold, vectorised};

/// Computes `y = (x - mean) / sqrt(var + epsilon) w + b` per row, and stores the standardized rows
/// and inverse standard deviations. Ba, Kiros and Hinton (2016), "Layer Normalization".
pub fn layer_norm<T: Real>(
    x: &[T],
    [weight, bias]: [&[T]; 2],
    epsilon: f64,
    [y, standard, inverse]: [&mut [T]; 3],
) {
    struct Rows;

    impl<T: Real> Loop<(&[T], [&[T]; 2], [T; 2], [&mut [T]; 3])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run(
            (x, [weight, bias], [epsilon, share], [y, standard, inverse]): (
                &[T],
                [&[T]; 2],
                [T; 2],
                [&mut [T]; 3],
            ),
        ) {
            let width = weight.len();
            let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
            for (((x, y), standard), inverse) in rows.zip(standard.chunks_exact_mut(width)).zip(inverse) {
                let mean = sum(x) * share;
                for (standard, &x) in standard.iter_mut().zip(x) {
                    *standard = x - mean;
                }
                let r = T::ONE / (dot(standard, standard) * share + epsilon).sqrt();
                *inverse = r;
                for (((y, standard), &w), &b) in y.iter_mut().zip(standard).zip(weight).zip(bias) {
                    *standard *= r;
                    *y = *standard * w + b;
                }
            }
        }
    }

    let (epsilon, share) = (T::from_f64(epsilon), T::from_f64(1.0 / weight.len() as f64));
    vectorised(Rows, (x, [weight, bias], [epsilon, share], [y, standard, inverse]));
}

/// Adds to `d_x`, `d_weight` and `d_bias`. With standardized row `s`, inverse standard deviation
/// `r` and `g = d_y w`: `d_x += r (g - mean(g) - s mean(g s))`.
pub fn layer_norm_backward<T: Real>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

    #[test]
    fn layer_norm_and_its_derivative() {
        let (rows, width) = (3, 37);
        let (x, weight, bias) = (random(1, rows * width), random(2, width), random(3, width));
        let d_y = random(4, rows * width);
        let output = |x: &[f64], weight: &[f64], bias: &[f64]| {
            let (mut y, mut standard, mut inverse) =
                (vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; rows]);
            layer_norm(x, [weight, bias], 1e-5, [&mut y, &mut standard, &mut inverse]);
            (y, standard, inverse)
        };
        let loss = |y: &[f64]| y.iter().zip(&d_y).map(|(y, d)| y * d).sum::<f64>();
        let (y, standard, inverse) = output(&x, &weight, &bias);
        let mean = x[..width].iter().sum::<f64>() / width as f64;
        let variance = x[..width].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        assert!((y[5] - ((x[5] - mean) / (variance + 1e-5).sqrt() * weight[5] + bias[5])).abs() < 1e-12);
        let (mut d_x, mut d_weight, mut d_bias) = (vec![0.0; x.len()], vec![0.0; width], vec![0.0; width]);
        layer_norm_backward(&d_y, [&weight, &standard, &inverse], [&mut d_x, &mut d_weight, &mut d_bias]);
        check_gradient("x", &x, &d_x, |x| loss(&output(x, &weight, &bias).0));
        check_gradient("weight", &weight, &d_weight, |weight| loss(&output(&x, weight, &bias).0));
        check_gradient("bias", &bias, &d_bias, |bias| loss(&output(&x, &weight, bias).0));
    }
}
