//! The gated activation of the MLP (SwiGLU).

use super::Real;
use super::dispatch::vectorised;

/// `out = silu(gate) * up` with `silu(g) = g / (1 + e^-g)`; rows of `gate_up` are `[gate | up]`.
///
/// Shazeer (2020), "GLU Variants Improve Transformer".
pub(crate) fn swiglu<T: Real>(gate_up: &[T], width: usize, out: &mut [T]) {
    vectorised(|| {
        for (row, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
            let (gate, up) = row.split_at(width);
            for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
                *out = gate / (T::ONE + (-gate).exp()) * up;
            }
        }
    });
}

/// Overwrites `gate_up` with its derivative:
/// `d_up = d silu(g)`, `d_gate = d up s (1 + g (1 - s))` with `s = 1 / (1 + e^-g)`.
pub(crate) fn swiglu_backward<T: Real>(d_out: &[T], width: usize, gate_up: &mut [T]) {
    vectorised(|| {
        for (row, d_out) in gate_up.chunks_exact_mut(2 * width).zip(d_out.chunks_exact(width)) {
            let (gate, up) = row.split_at_mut(width);
            for ((gate, up), &d) in gate.iter_mut().zip(up).zip(d_out) {
                let (g, u) = (*gate, *up);
                let s = T::ONE / (T::ONE + (-g).exp());
                *up = d * g * s;
                *gate = d * u * s * (T::ONE + g * (T::ONE - s));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradient, random};
    use super::*;

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
}
