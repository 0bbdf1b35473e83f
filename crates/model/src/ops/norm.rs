use super::Real;
use super::attention::Heads;
use super::dispatch::{LANES, Loop, dot, fold, vectorised};

/// Computes `y = x r w` with `r = 1 / sqrt(mean(x^2) + epsilon)` per row, and stores `r` in
/// `inverse`. Zhang and Sennrich (2019), "Root Mean Square Layer Normalization".
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

/// Adds `r (g - x r^2 mean(g x))` with `g = d_y w` to `d_x`. Unless the weight is frozen, also adds
/// the sum of `d_y x r` over rows to `d_weight`.
pub(crate) fn rms_norm_backward<T: Real>(
    d_y: &[T],
    x: &[T],
    weight: &[T],
    inverse: &[T],
    d_x: &mut [T],
    d_weight: Option<&mut [T]>,
) {
    struct Rows;

    impl<T: Real> Loop<([&[T]; 4], &mut [T], Option<&mut [T]>)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run(([d_y, x, weight, inverse], d_x, mut d_weight): ([&[T]; 4], &mut [T], Option<&mut [T]>)) {
            let width = weight.len();
            let share = T::from_f64(1.0 / width as f64);
            let rows = d_y.chunks_exact(width).zip(x.chunks_exact(width)).zip(d_x.chunks_exact_mut(width));
            for (((d_y, x), d_x), &r) in rows.zip(inverse) {
                let pull = triple(d_y, weight, x) * share * r * r * r;
                for (((&d_y, &x), &w), d_x) in d_y.iter().zip(x).zip(weight).zip(d_x) {
                    *d_x += d_y * w * r - x * pull;
                }
                if let Some(d_weight) = &mut d_weight {
                    for ((&d_y, &x), d_w) in d_y.iter().zip(x).zip(&mut **d_weight) {
                        *d_w += d_y * x * r;
                    }
                }
            }
        }
    }

    vectorised(Rows, ([d_y, x, weight, inverse], d_x, d_weight));
}

#[inline(always)]
fn triple<T: Real>(a: &[T], b: &[T], c: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let (c_chunks, c_rest) = c.as_chunks::<LANES>();
    for ((a, b), c) in a_chunks.iter().zip(b_chunks).zip(c_chunks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane] * c[lane];
        }
    }
    for (lane, ((&a, &b), &c)) in a_rest.iter().zip(b_rest).zip(c_rest).enumerate() {
        lanes[lane] += a * b * c;
    }
    fold(lanes)
}

/// Applies [`rms_norm`] in place to each query and key head of `qkv`.
///
/// `weight` is `[2, width]`: the query norm's weights, then the key norm's. Stores the original
/// heads in `raw`, `[rows, (queries + keys) width]`, and their inverse RMS in `inverse`,
/// `[rows, queries + keys]`.
pub(crate) fn norm_heads<T: Real>(
    heads: Heads,
    qkv: &mut [T],
    weight: &[T],
    epsilon: f64,
    raw: &mut [T],
    inverse: &mut [T],
) {
    struct Rows;

    impl<T: Real> Loop<(Heads, [&mut [T]; 3], &[T], [T; 2])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((heads, [qkv, raw, inverse], weight, [epsilon, share]): (Heads, [&mut [T]; 3], &[T], [T; 2])) {
            let (width, count) = (heads.width, heads.queries + heads.keys);
            let (query, key) = weight.split_at(width);
            let rows = qkv.chunks_exact_mut(heads.row()).zip(raw.chunks_exact_mut(count * width));
            for ((row, raw), inverse) in rows.zip(inverse.chunks_exact_mut(count)) {
                raw.copy_from_slice(&row[..count * width]);
                let each = row.chunks_exact_mut(width).zip(raw.chunks_exact(width)).zip(inverse);
                for (head, ((y, x), inverse)) in each.enumerate() {
                    let weight = if head < heads.queries { query } else { key };
                    let r = T::ONE / (dot(x, x) * share + epsilon).sqrt();
                    *inverse = r;
                    for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
                        *y = x * r * w;
                    }
                }
            }
        }
    }

    let (epsilon, share) = (T::from_f64(epsilon), T::from_f64(1.0 / heads.width as f64));
    vectorised(Rows, (heads, [qkv, raw, inverse], weight, [epsilon, share]));
}

/// Backpropagates through [`norm_heads`] in place, as in [`rms_norm_backward`].
pub(crate) fn norm_heads_backward<T: Real>(
    heads: Heads,
    d_qkv: &mut [T],
    raw: &[T],
    weight: &[T],
    inverse: &[T],
    d_weight: Option<&mut [T]>,
) {
    struct Rows;

    impl<T: Real> Loop<(Heads, [&[T]; 3], &mut [T], Option<&mut [T]>)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run(
            (heads, [raw, weight, inverse], d_qkv, mut d_weight): (
                Heads,
                [&[T]; 3],
                &mut [T],
                Option<&mut [T]>,
            ),
        ) {
            let (width, count) = (heads.width, heads.queries + heads.keys);
            let share = T::from_f64(1.0 / width as f64);
            let rows = d_qkv.chunks_exact_mut(heads.row()).zip(raw.chunks_exact(count * width));
            for ((row, raw), inverse) in rows.zip(inverse.chunks_exact(count)) {
                let each = row.chunks_exact_mut(width).zip(raw.chunks_exact(width)).zip(inverse);
                for (head, ((d, x), &r)) in each.enumerate() {
                    let start = if head < heads.queries { 0 } else { width };
                    let weight = &weight[start..start + width];
                    let pull = triple(d, weight, x) * share * r * r * r;
                    if let Some(d_weight) = &mut d_weight {
                        let d_weight = &mut d_weight[start..start + width];
                        for ((&d_y, &x), d_w) in d.iter().zip(x).zip(d_weight) {
                            *d_w += d_y * x * r;
                        }
                    }
                    for ((d, &x), &w) in d.iter_mut().zip(x).zip(weight) {
                        *d = *d * w * r - x * pull;
                    }
                }
            }
        }
    }

    vectorised(Rows, (heads, [raw, weight, inverse], d_qkv, d_weight));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

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
        rms_norm_backward(&d_y, &x, &weight, &inverse, &mut d_x, Some(&mut d_weight));
        let mut frozen = vec![0.0; x.len()];
        rms_norm_backward(&d_y, &x, &weight, &inverse, &mut frozen, None);
        assert_eq!(d_x, frozen);
        check_gradient("x", &x, &d_x, |x| loss(&output(x, &weight).0));
        check_gradient("weight", &weight, &d_weight, |weight| loss(&output(&x, weight).0));
    }

    #[test]
    fn heads_are_normed_one_by_one() {
        let heads = Heads { queries: 3, keys: 2, width: 18 };
        let (rows, count) = (2, 5);
        let (qkv, weight) = (random(1, rows * heads.row()), random(2, 2 * heads.width));
        let d_y = random(3, qkv.len());
        let run = |qkv: &[f64], weight: &[f64]| {
            let mut y = qkv.to_vec();
            let (mut raw, mut inverse) = (vec![0.0; rows * count * heads.width], vec![0.0; rows * count]);
            norm_heads(heads, &mut y, weight, 1e-5, &mut raw, &mut inverse);
            (y, raw, inverse)
        };
        let loss = |y: &[f64]| y.iter().zip(&d_y).map(|(y, d)| y * d).sum::<f64>();
        let (y, raw, inverse) = run(&qkv, &weight);
        for row in 0..rows {
            for head in 0..count {
                let range =
                    row * heads.row() + head * heads.width..row * heads.row() + (head + 1) * heads.width;
                let weight = if head < 3 { &weight[..heads.width] } else { &weight[heads.width..] };
                let (mut alone, mut r) = (vec![0.0; heads.width], [0.0]);
                rms_norm(&qkv[range.clone()], weight, 1e-5, &mut alone, &mut r);
                assert_eq!(y[range], alone);
                assert_eq!(inverse[row * count + head], r[0]);
            }
            let values = row * heads.row() + count * heads.width..(row + 1) * heads.row();
            assert_eq!(y[values.clone()], qkv[values], "values stay as they are");
        }
        let (mut d_qkv, mut d_weight) = (d_y.clone(), vec![0.0; weight.len()]);
        norm_heads_backward(heads, &mut d_qkv, &raw, &weight, &inverse, Some(&mut d_weight));
        check_gradient("qkv", &qkv, &d_qkv, |qkv| loss(&run(qkv, &weight).0));
        check_gradient("weight", &weight, &d_weight, |weight| loss(&run(&qkv, weight).0));
    }
}
