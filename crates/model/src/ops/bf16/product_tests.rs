use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::super::linear::matmul;
use super::*;
use crate::testing::random;

fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

fn laid_out(values: &[f32], rows: usize, columns: usize, gap: usize, across: bool) -> Vec<f32> {
    let stride = gap + if across { rows } else { columns };
    let mut data = vec![f32::NAN; stride * if across { columns } else { rows }];
    for row in 0..rows {
        for column in 0..columns {
            let offset = if across { column * stride + row } else { row * stride + column };
            data[offset] = values[row * columns + column];
        }
    }
    data
}

fn view(data: &[f32], rows: usize, columns: usize, gap: usize, across: bool) -> View<'_, f32> {
    if across {
        View::strided(data, columns, rows, rows + gap).t()
    } else {
        View::strided(data, rows, columns, columns + gap)
    }
}

/// Whole and partial panels, and several blocks of rows and depth.
const SHAPES: [[usize; 3]; 9] = [
    [32, 32, 32],
    [1, 1, 1],
    [5, 70, 3],
    [33, 65, 31],
    [64, 96, 64],
    [17, 16, 47],
    [300, 40, 33],
    [40, 33, 1100],
    [258, 34, 514],
];

#[test]
fn whole_numbers_are_multiplied_exactly() {
    for kernel in kernels() {
        for [rows, columns, depth] in SHAPES {
            // Small integers and their sums are exact.
            let whole = |seed: u64, count: usize| -> Vec<f32> {
                random(seed, count).iter().map(|x| (x * 4.0).round().clamp(-15.0, 15.0) as f32).collect()
            };
            let (a, b, old) =
                (whole(1, rows * depth), whole(2, depth * columns), whole(3, rows * (columns + 2)));
            for (a_across, b_across, gap, into, scale) in [
                (false, false, 0, Accumulate::Set, 1.0),
                (false, true, 3, Accumulate::Add, 1.0),
                (true, false, 1, Accumulate::Add, 0.5),
                (true, true, 0, Accumulate::Set, -2.0),
            ] {
                let a_data = laid_out(&a, rows, depth, gap, a_across);
                let b_data = laid_out(&b, depth, columns, gap, b_across);
                let mut found = old.clone();
                let to = ViewMut::strided(&mut found, rows, columns, columns + 2);
                let (a_view, b_view) =
                    (view(&a_data, rows, depth, gap, a_across), view(&b_data, depth, columns, gap, b_across));
                product(kernel, to, a_view, b_view, into, scale);
                let mut exact = old.clone();
                for row in 0..rows {
                    for column in 0..columns {
                        let sum: f32 = (0..depth).map(|k| a[row * depth + k] * b[k * columns + column]).sum();
                        let value = &mut exact[row * (columns + 2) + column];
                        *value = scale * sum + if into == Accumulate::Add { *value } else { 0.0 };
                    }
                }
                assert!(
                    found == exact,
                    "{kernel:?} {rows} x {columns} x {depth}, across {a_across} {b_across}"
                );
            }
        }
    }
}

/// Compares with the exact product up to the rounding of `f32` sums.
fn check(found: &[f32], a: &[f32], b: &[f32], [rows, columns, depth]: [usize; 3]) {
    for row in 0..rows {
        for column in 0..columns {
            let terms =
                (0..depth).map(|k| f64::from(a[row * depth + k]) * f64::from(b[k * columns + column]));
            let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            // Half a unit in the last place per addition.
            let bound = size * depth as f64 * f64::from(f32::EPSILON) / 2.0;
            let error = (f64::from(found[row * columns + column]) - exact).abs();
            assert!(error <= bound, "({row}, {column}): {error:e} off, {bound:e} allowed");
        }
    }
}

#[test]
fn a_product_is_that_of_the_rounded_numbers() {
    for kernel in kernels() {
        for shape in [[70, 33, 100], [40, 64, 700]] {
            let [rows, columns, depth] = shape;
            let narrow = |seed: u64, count: usize| -> Vec<f32> {
                random(seed, count).iter().map(|&x| x as f32).collect()
            };
            let (a, b) = (narrow(4, rows * depth), narrow(5, depth * columns));
            let mut found = vec![0.0; rows * columns];
            let to = ViewMut::new(&mut found, rows, columns);
            product(
                kernel,
                to,
                View::new(&a, rows, depth),
                View::new(&b, depth, columns),
                Accumulate::Set,
                1.0,
            );
            let (a_rounded, b_rounded): (Vec<f32>, Vec<f32>) =
                (a.iter().map(|&x| rounded(x)).collect(), b.iter().map(|&x| rounded(x)).collect());
            check(&found, &a_rounded, &b_rounded, shape);
            // The bound is far below the rounding of operands.
            assert!(catch_unwind(AssertUnwindSafe(|| check(&found, &a, &b, shape))).is_err());
            let mut lost = b_rounded.clone();
            lost[columns * (depth - 1) + 7] = 0.0;
            assert!(catch_unwind(AssertUnwindSafe(|| check(&found, &a_rounded, &lost, shape))).is_err());
            let mut reference = vec![0.0; rows * columns];
            let to = ViewMut::new(&mut reference, rows, columns);
            matmul(
                to,
                View::new(&a_rounded, rows, depth),
                View::new(&b_rounded, depth, columns),
                Accumulate::Set,
                1.0,
            );
            check(&reference, &a_rounded, &b_rounded, shape);
        }
    }
}

#[test]
fn what_is_not_finite_stays_so_and_keeps_to_its_row() {
    for kernel in kernels() {
        let (mut a, b) = (vec![1.0; 40 * 40], vec![1.0; 40 * 40]);
        a[3 * 40 + 5] = f32::NAN;
        a[4 * 40 + 6] = f32::INFINITY;
        let mut found = vec![0.0; 1600];
        product(
            kernel,
            ViewMut::new(&mut found, 40, 40),
            View::new(&a, 40, 40),
            View::new(&b, 40, 40),
            Accumulate::Set,
            1.0,
        );
        for (row, values) in found.chunks(40).enumerate() {
            match row {
                3 => assert!(values.iter().all(|x| x.is_nan())),
                4 => assert!(values.iter().all(|&x| x == f32::INFINITY)),
                _ => assert!(values.iter().all(|&x| x == 40.0)),
            }
        }
    }
}

#[test]
fn nothing_to_sum_is_zero() {
    for kernel in kernels() {
        let mut found = [3.0f32; 6];
        let nothing = || (View::new(&[], 2, 0), View::new(&[], 0, 3));
        let (a, b) = nothing();
        product(kernel, ViewMut::new(&mut found, 2, 3), a, b, Accumulate::Add, 1.0);
        assert_eq!(found, [3.0; 6]);
        let (a, b) = nothing();
        product(kernel, ViewMut::new(&mut found, 2, 3), a, b, Accumulate::Set, 1.0);
        assert_eq!(found, [0.0; 6]);
    }
}

#[test]
fn a_product_outside_its_slice_is_refused() {
    for kernel in kernels() {
        let refused = catch_unwind(|| {
            let mut to = [0.0f32; 4];
            let (a, b) = ([0.0; 3], [0.0; 4]);
            product(
                kernel,
                ViewMut::new(&mut to, 2, 2),
                View::new(&a, 2, 2),
                View::new(&b, 2, 2),
                Accumulate::Set,
                1.0,
            );
        });
        assert!(refused.is_err());
    }
}
