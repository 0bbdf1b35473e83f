use super::Real;
use super::dispatch::{LANES, Loop, dot, fold, maximum, vectorised};

/// Applies softmax in place and returns the denominator's log.
#[inline(always)]
pub fn softmax<T: Real>(scores: &mut [T]) -> T {
    let max = maximum(scores);
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = (chunk[lane] - max).exp();
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, score) in rest.iter_mut().enumerate() {
        *score = (*score - max).exp();
        lanes[lane] += *score;
    }
    let sum = fold(lanes);
    let inverse = T::ONE / sum;
    for score in scores {
        *score *= inverse;
    }
    max + sum.ln()
}

/// Applies [`softmax`] to each row of `width` scores.
pub fn softmax_rows<T: Real>(scores: &mut [T], width: usize) {
    struct Rows;

    impl<T: Real> Loop<(&mut [T], usize)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((scores, width): (&mut [T], usize)) {
            for row in scores.chunks_exact_mut(width) {
                softmax(row);
            }
        }
    }

    vectorised(Rows, (scores, width));
}

/// Replaces the gradients of [`softmax_rows`]' probabilities with those of its scores:
/// `d_s = p (d_p - sum(p d_p))`.
pub fn softmax_rows_backward<T: Real>(probabilities: &[T], derivatives: &mut [T], width: usize) {
    struct Rows;

    impl<T: Real> Loop<(&[T], &mut [T], usize)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((probabilities, derivatives, width): (&[T], &mut [T], usize)) {
            for (p, d) in probabilities.chunks_exact(width).zip(derivatives.chunks_exact_mut(width)) {
                let mean = dot(p, d);
                for (d, &p) in d.iter_mut().zip(p) {
                    *d = p * (*d - mean);
                }
            }
        }
    }

    vectorised(Rows, (probabilities, derivatives, width));
}
