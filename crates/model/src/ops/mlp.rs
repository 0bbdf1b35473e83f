use super::Real;
use super::dispatch::{LANES, Loop, vectorised};

/// Computes `out = silu(gate) * up` with `silu(g) = g / (1 + e^-g)`, from rows `[gate | up]`.
/// Shazeer (2020), "GLU Variants Improve Transformer".
pub(crate) fn swiglu<T: Real>(gate_up: &[T], width: usize, out: &mut [T]) {
    struct Rows;

    impl<T: Real> Loop<(&[T], usize, &mut [T])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((gate_up, width, out): (&[T], usize, &mut [T])) {
            for (row, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
                let (gate, up) = row.split_at(width);
                for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
                    *out = gate / (T::ONE + (-gate).exp()) * up;
                }
            }
        }
    }

    vectorised(Rows, (gate_up, width, out));
}

#[inline(always)]
fn derivative<T: Real>(gate: T, up: T, d_out: T) -> (T, T) {
    let s = T::ONE / (T::ONE + (-gate).exp());
    (d_out * up * s * (T::ONE + gate * (T::ONE - s)), d_out * gate * s)
}

/// Overwrites `gate_up` with its gradient: `d_up = d silu(g)`, `d_gate = d up s (1 + g (1 - s))`
/// with `s = 1 / (1 + e^-g)`.
pub(crate) fn swiglu_backward<T: Real>(d_out: &[T], width: usize, gate_up: &mut [T]) {
    struct Rows;

    impl<T: Real> Loop<(&[T], usize, &mut [T])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((d_out, width, gate_up): (&[T], usize, &mut [T])) {
            for (row, d_out) in gate_up.chunks_exact_mut(2 * width).zip(d_out.chunks_exact(width)) {
                let (gate, up) = row.split_at_mut(width);
                let (gate, gate_rest) = gate.as_chunks_mut::<LANES>();
                let (up, up_rest) = up.as_chunks_mut::<LANES>();
                let (d_out, d_out_rest) = d_out.as_chunks::<LANES>();
                for ((gate, up), d_out) in gate.iter_mut().zip(up).zip(d_out) {
                    // Local arrays: the compiler cannot know that the slices do not overlap.
                    let (mut d_gate, mut d_up) = ([T::ZERO; LANES], [T::ZERO; LANES]);
                    for lane in 0..LANES {
                        (d_gate[lane], d_up[lane]) = derivative(gate[lane], up[lane], d_out[lane]);
                    }
                    (*gate, *up) = (d_gate, d_up);
                }
                for ((gate, up), &d) in gate_rest.iter_mut().zip(up_rest).zip(d_out_rest) {
                    (*gate, *up) = derivative(*gate, *up, d);
                }
            }
        }
    }

    vectorised(Rows, (d_out, width, gate_up));
}

const QUICK: f64 = 1.702;

/// Computes QuickGELU, `out = x / (1 + e^(-1.702 x))` (Hendrycks and Gimpel (2016), "Gaussian Error
/// Linear Units", section 2).
pub(crate) fn quick_gelu<T: Real>(x: &[T], out: &mut [T]) {
    struct Each;

    impl<T: Real> Loop<(&[T], T, &mut [T])> for Each {
        type Output = ();
        #[inline(always)]
        fn run((x, factor, out): (&[T], T, &mut [T])) {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = x / (T::ONE + (-(factor * x)).exp());
            }
        }
    }

    vectorised(Each, (x, T::from_f64(QUICK), out));
}

/// Overwrites `x` with its gradient: `d_x = d s (1 + 1.702 x (1 - s))` with
/// `s = 1 / (1 + e^(-1.702 x))`.
pub(crate) fn quick_gelu_backward<T: Real>(d_out: &[T], x: &mut [T]) {
    struct Each;

    impl<T: Real> Loop<(&[T], T, &mut [T])> for Each {
        type Output = ();
        #[inline(always)]
        fn run((d_out, factor, x): (&[T], T, &mut [T])) {
            for (x, &d) in x.iter_mut().zip(d_out) {
                let s = T::ONE / (T::ONE + (-(factor * *x)).exp());
                *x = d * s * (T::ONE + factor * *x * (T::ONE - s));
            }
        }
    }

    vectorised(Each, (d_out, T::from_f64(QUICK), x));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

    #[test]
    fn backward_is_the_derivative() {
        let (x, d_out) = (random(1, 3 * 2 * 19), random(2, 3 * 19));
        let output = |x: &[f64]| {
            let mut out = vec![0.0; 3 * 19];
            swiglu(x, 19, &mut out);
            out
        };
        assert!((output(&x)[4] - x[4] / (1.0 + (-x[4]).exp()) * x[19 + 4]).abs() < 1e-14);
        let mut d_x = x.clone();
        swiglu_backward(&d_out, 19, &mut d_x);
        check_gradient("gate_up", &x, &d_x, |x| output(x).iter().zip(&d_out).map(|(y, d)| y * d).sum());
    }
    #[test]
    fn backward_of_quick_gelu_is_the_derivative() {
        let (x, d_out) = (random(1, 37), random(2, 37));
        let output = |x: &[f64]| {
            let mut out = vec![0.0; x.len()];
            quick_gelu(x, &mut out);
            out
        };
        assert!((output(&x)[4] - x[4] / (1.0 + (-1.702 * x[4]).exp())).abs() < 1e-14);
        let mut d_x = x.clone();
        quick_gelu_backward(&d_out, &mut d_x);
        check_gradient("x", &x, &d_x, |x| output(x).iter().zip(&d_out).map(|(y, d)| y * d).sum());
    }
}
