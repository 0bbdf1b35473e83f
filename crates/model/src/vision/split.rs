//! The tower's matrix products, split over threads by shape only, so the number of threads does not
//! change results.

use rayon::prelude::*;

use crate::Real;
use crate::layers::{
    Accumulate, View, ViewMut, linear_backward_bias, linear_backward_input, linear_backward_weight, matmul,
};

/// Minimum number of multiplications for which an operation is split over threads.
pub(super) const WORTH_A_THREAD: usize = 1 << 24;

const PART: usize = 160;

fn part(rows: usize, each: usize) -> usize {
    let parts = if rows * each < WORTH_A_THREAD { 1 } else { (rows / PART).max(1) };
    rows.div_ceil(parts).max(1)
}

/// Computes `y = x W^T + bias`, or `y += x W^T + bias`. The shape is `[rows, inputs, outputs]`.
pub(super) fn linear<T: Real>(
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
    into: Accumulate,
    [rows, inputs, outputs]: [usize; 3],
) {
    let each = part(rows, inputs * outputs);
    x.par_chunks(each * inputs).zip(y.par_chunks_mut(each * outputs)).for_each(|(x, y)| {
        crate::layers::linear(x, weight, bias, y, into, [x.len() / inputs, inputs, outputs]);
    });
}

pub(super) fn linear_backward<T: Real>(
    x: &[T],
    d_y: &[T],
    weight: &[T],
    d_x: &mut [T],
    [d_weight, d_bias]: [&mut [T]; 2],
    [rows, inputs, outputs]: [usize; 3],
) {
    let each = part(rows, inputs * outputs);
    d_y.par_chunks(each * outputs).zip(d_x.par_chunks_mut(each * inputs)).for_each(|(d_y, d_x)| {
        let shape = [d_x.len() / inputs, inputs, outputs];
        linear_backward_input(d_y, weight, d_x, Accumulate::Set, shape);
    });
    weight_backward(x, d_y, d_weight, [rows, inputs, outputs]);
    linear_backward_bias(d_y, d_bias);
}

/// Computes `d_weight += d_y^T x`.
pub(super) fn weight_backward<T: Real>(
    x: &[T],
    d_y: &[T],
    d_weight: &mut [T],
    [rows, inputs, outputs]: [usize; 3],
) {
    let each = part(outputs, inputs * rows);
    if each >= outputs {
        return linear_backward_weight(d_y, x, d_weight, [rows, inputs, outputs]);
    }
    d_weight.par_chunks_mut(each * inputs).enumerate().for_each(|(index, d_weight)| {
        let (first, count) = (index * each, d_weight.len() / inputs);
        let d_y = View::strided(&d_y[first..], rows, count, outputs).t();
        let d_weight = ViewMut::new(d_weight, count, inputs);
        matmul(d_weight, d_y, View::new(x, rows, inputs), Accumulate::Add, T::ONE);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn parts_add_up_to_the_whole() {
        let shape = [350, 190, 330];
        let [rows, inputs, outputs] = shape;
        assert!(part(rows, inputs * outputs) < rows && part(outputs, inputs * rows) < outputs);
        let (x, weight, bias) = (random(1, rows * inputs), random(2, outputs * inputs), random(3, outputs));
        let d_y = random(4, rows * outputs);
        let near = |name: &str, found: &[f64], expected: &[f64]| {
            let most = found.iter().zip(expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(most < 1e-10 && expected.iter().any(|&value| value != 0.0), "{name}: {most}");
        };
        let (mut y, mut whole) = (vec![0.0; rows * outputs], vec![0.0; rows * outputs]);
        linear(&x, &weight, Some(&bias), &mut y, Accumulate::Set, shape);
        crate::layers::linear(&x, &weight, Some(&bias), &mut whole, Accumulate::Set, shape);
        near("y", &y, &whole);
        let (mut d_x, mut d_weight, mut d_bias) =
            (vec![1.0; rows * inputs], vec![1.0; outputs * inputs], vec![1.0; outputs]);
        linear_backward(&x, &d_y, &weight, &mut d_x, [&mut d_weight, &mut d_bias], shape);
        let (mut e_x, mut e_weight, mut e_bias) =
            (vec![0.0; rows * inputs], vec![1.0; outputs * inputs], vec![1.0; outputs]);
        linear_backward_input(&d_y, &weight, &mut e_x, Accumulate::Set, shape);
        linear_backward_weight(&d_y, &x, &mut e_weight, shape);
        linear_backward_bias(&d_y, &mut e_bias);
        for (name, found, expected) in
            [("x", d_x, e_x), ("weight", d_weight, e_weight), ("bias", d_bias, e_bias)]
        {
            near(name, &found, &expected);
        }
    }
}
