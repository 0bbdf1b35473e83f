use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::super::attention::{self as reference, Place, attention, attention_backward};
use super::super::product::kernels;
use super::*;
use crate::testing::random;

fn run<T: crate::Real>(
    bf16: Option<Kernel>,
    heads: Heads,
    length: usize,
    qkv: &[f64],
    d_out: &[f64],
    scratch: &mut reference::Scratch<T>,
) -> [Vec<f64>; 3] {
    let cast = |values: &[f64]| values.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>();
    let (qkv, d_out) = (cast(qkv), cast(d_out));
    let mut out = vec![T::from_f64(f64::NAN); d_out.len()];
    let mut log_sum = vec![T::from_f64(f64::NAN); length * heads.queries];
    let mut d_qkv = vec![T::ZERO; qkv.len()];
    let place = Place { rows: 0..length, path: &[] };
    attention(bf16, heads, &place, &qkv, &mut out, &mut log_sum, scratch);
    let output = AttentionOutput { out: &out, d_out: &d_out, log_sum: &log_sum };
    attention_backward(bf16, heads, &place, &qkv, &output, &mut d_qkv, scratch);
    [out, log_sum, d_qkv].map(|values| values.iter().map(|x| x.to_f64()).collect())
}

/// Panics unless each block of columns is within `tolerance` of the exact one, in norm.
fn check(found: &[f64], exact: &[f64], row: usize, blocks: &[usize], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    let mut start = 0;
    for &width in blocks {
        let (mut off, mut size) = (0.0, 0.0);
        for (found, exact) in found.chunks(row).zip(exact.chunks(row)) {
            for column in start..start + width {
                off += (found[column] - exact[column]).powi(2);
                size += exact[column].powi(2);
            }
        }
        assert!(off <= tolerance.powi(2) * size, "columns from {start}: {:e} off", (off / size).sqrt());
        start += width;
    }
}

#[test]
fn stays_close_to_the_reference_forward_and_backward() {
    for kernel in kernels() {
        let mut scratch = reference::Scratch::default();
        // Partial blocks, and widths that do not fill a panel.
        for (queries, keys, width, length) in
            [(4, 2, 64, 200), (2, 1, 32, 33), (3, 3, 24, 31), (1, 1, 40, 577), (2, 2, 64, 1), (2, 1, 6, 130)]
        {
            let heads = Heads { queries, keys, width };
            let (qkv, d_out) = (random(1, length * heads.row()), random(2, length * queries * width));
            let exact = run::<f64>(None, heads, length, &qkv, &d_out, &mut reference::Scratch::default());
            let found = run::<f32>(Some(kernel), heads, length, &qkv, &d_out, &mut scratch);
            // Rounding to 8 bits changes a number by up to 2e-3 of itself.
            let tolerance = 8e-3;
            check(&found[0], &exact[0], queries * width, &[queries * width], tolerance);
            for (found, exact) in found[1].iter().zip(&exact[1]) {
                assert!((found - exact).abs() < 3e-2, "{found} {exact}");
            }
            let blocks = [queries * width, keys * width, keys * width];
            if length > 1 {
                check(&found[2], &exact[2], heads.row(), &blocks, tolerance);
                let (mut start, row) = (0, heads.row());
                for block in blocks {
                    let mut wrong = found[2].clone();
                    for column in start..start + block {
                        wrong.swap((length - 1) * row + column, (length / 2) * row + column);
                        wrong.swap(column, (length / 3) * row + column);
                    }
                    let checked = AssertUnwindSafe(|| check(&wrong, &exact[2], row, &blocks, tolerance));
                    assert!(catch_unwind(checked).is_err(), "{heads:?} {length} from {start}");
                    start += block;
                }
            }
        }
    }
}

#[test]
fn the_future_does_not_matter() {
    for kernel in kernels() {
        let heads = Heads { queries: 2, keys: 1, width: 32 };
        let (length, shorter) = (150, 71);
        let (qkv, d_out) = (random(3, length * heads.row()), random(4, length * 64));
        let mut scratch = reference::Scratch::default();
        let long = run::<f32>(Some(kernel), heads, length, &qkv, &d_out, &mut scratch);
        let end = shorter * heads.row();
        let short =
            run::<f32>(Some(kernel), heads, shorter, &qkv[..end], &d_out[..shorter * 64], &mut scratch);
        assert_eq!(long[0][..shorter * 64], short[0]);
        assert_eq!(long[1][..shorter * 2], short[1]);
        // Derivatives of earlier rows depend on later ones.
        assert_ne!(long[2][..end], short[2]);
    }
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "a list of ranges is what is meant")]
fn a_path_is_seen_as_if_it_stood_before_the_queries() {
    use super::super::super::attention::tests::with_path_and_without;
    for kernel in kernels() {
        let mut scratch = reference::Scratch::<f32>::default();
        // Partial and whole panels, and several blocks of keys and queries.
        for (path, rows) in [
            (vec![0..64], 64..96),
            (vec![0..1], 1..40),
            (vec![0..31], 31..32),
            (vec![0..33], 40..104),
            (vec![3..40, 50..83], 90..170),
            (vec![0..150], 200..207),
            (vec![0..5, 10..210], 220..900),
        ] {
            let heads = Heads { queries: 4, keys: 2, width: 24 };
            let place = Place { rows: rows.clone(), path: &path };
            let [found, exact] = with_path_and_without(Some(kernel), heads, &place, &mut scratch);
            let row = heads.row();
            for (index, width) in [96, 4, row].into_iter().enumerate() {
                // Blocks of 32 are cut elsewhere, so sums are rounded in another order.
                check(&found[index], &exact[index], width, &[width], 4e-3);
            }
            let other: Vec<_> = path.iter().map(|part| part.start + 1..part.end + 1).collect();
            let [wrong, _] =
                with_path_and_without(Some(kernel), heads, &Place { rows, path: &other }, &mut scratch);
            let checked = AssertUnwindSafe(|| check(&wrong[2], &exact[2], row, &[row], 4e-3));
            assert!(catch_unwind(checked).is_err(), "{path:?}");
        }
    }
}
