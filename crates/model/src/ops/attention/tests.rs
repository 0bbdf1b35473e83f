use super::*;
use crate::testing::{check_gradient, random};

fn alone(length: usize) -> Place<'static> {
    Place { rows: 0..length, path: &[] }
}

fn definition(heads: Heads, length: usize, qkv: &[f64]) -> Vec<f64> {
    let (row, width) = (heads.row(), heads.width);
    let mut out = Vec::new();
    for at in 0..length {
        for head in 0..heads.queries {
            let [query, key, value] = heads.offsets(head);
            let weights: Vec<f64> = (0..=at)
                .map(|other| {
                    let score: f64 =
                        (0..width).map(|i| qkv[at * row + query + i] * qkv[other * row + key + i]).sum();
                    (score / (width as f64).sqrt()).exp()
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..width {
                let mixed: f64 =
                    weights.iter().enumerate().map(|(other, w)| w * qkv[other * row + value + i]).sum();
                out.push(mixed / sum);
            }
        }
    }
    out
}

#[test]
fn forward_is_the_definition_and_backward_its_derivative() {
    for (queries, keys, length) in [(4, 2, 70), (3, 1, 5), (2, 2, 129), (1, 1, 1), (3, 3, 2)] {
        let heads = Heads { queries, keys, width: 6 };
        let (qkv, d_out) = (random(1, length * heads.row()), random(2, length * heads.queries * heads.width));
        let mut scratch = Scratch::default();
        let mut forward = |qkv: &[f64]| {
            let (mut out, mut log_sum) = (vec![0.0; d_out.len()], vec![0.0; length * queries]);
            attention(None, heads, &alone(length), qkv, &mut out, &mut log_sum, &mut scratch);
            (out, log_sum)
        };
        let (out, log_sum) = forward(&qkv);
        for (out, exact) in out.iter().zip(definition(heads, length, &qkv)) {
            assert!((out - exact).abs() < 1e-12);
        }
        let mut d_qkv = vec![0.0; qkv.len()];
        let output = Output { out: &out, d_out: &d_out, log_sum: &log_sum };
        let mut scratch = Scratch::default();
        attention_backward(None, heads, &alone(length), &qkv, &output, &mut d_qkv, &mut scratch);
        check_gradient("qkv", &qkv, &d_qkv, |qkv| {
            forward(qkv).0.iter().zip(&d_out).map(|(y, d)| y * d).sum()
        });
    }
}

/// Returns output, log-sums and derivatives twice: for a place with a path, and for the same rows
/// as one sequence.
pub(in crate::ops) fn with_path_and_without<T: Real>(
    bf16: Option<Kernel>,
    heads: Heads,
    place: &Place<'_>,
    scratch: &mut Scratch<T>,
) -> [[Vec<f64>; 3]; 2] {
    let (row, out_row) = (heads.row(), heads.query_width());
    let cast = |values: Vec<f64>| values.into_iter().map(T::from_f64).collect::<Vec<T>>();
    let total = place.rows.end;
    let (qkv, d_out) = (cast(random(1, total * row)), cast(random(2, place.rows.len() * out_row)));
    let rows: Vec<usize> = place.path.iter().cloned().flatten().chain(place.rows.clone()).collect();
    let mut run = |place: &Place<'_>, qkv: &[T], d_out: &[T]| {
        let (mut out, mut log_sum) =
            (vec![T::ZERO; qkv.len() / row * out_row], vec![T::ZERO; qkv.len() / row * heads.queries]);
        attention(bf16, heads, place, qkv, &mut out, &mut log_sum, scratch);
        let mut d_qkv = vec![T::ZERO; qkv.len()];
        let output = Output { out: &out, d_out, log_sum: &log_sum };
        attention_backward(bf16, heads, place, qkv, &output, &mut d_qkv, scratch);
        [out, log_sum, d_qkv]
    };
    let pick = |values: &[T], width: usize, rows: &[usize]| -> Vec<f64> {
        rows.iter().flat_map(|row| &values[row * width..(row + 1) * width]).map(|x| x.to_f64()).collect()
    };
    let own: Vec<usize> = place.rows.clone().collect();
    let [out, log_sum, d_qkv] = run(place, &qkv, &d_out);
    let found = [pick(&out, out_row, &own), pick(&log_sum, heads.queries, &own), pick(&d_qkv, row, &rows)];
    let flat: Vec<T> = rows.iter().flat_map(|at| &qkv[at * row..(at + 1) * row]).copied().collect();
    // Rows of the path get no derivative from their own outputs.
    let before = place.before();
    let flat_d_out = [vec![T::ZERO; before * out_row], d_out].concat();
    let [out, log_sum, d_qkv] = run(&alone(rows.len()), &flat, &flat_d_out);
    let (all, last): (Vec<usize>, Vec<usize>) = ((0..rows.len()).collect(), (before..rows.len()).collect());
    [found, [pick(&out, out_row, &last), pick(&log_sum, heads.queries, &last), pick(&d_qkv, row, &all)]]
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "a list of ranges is what is meant")]
fn a_path_is_seen_as_if_it_stood_before_the_queries() {
    let mut scratch = Scratch::<f64>::default();
    for (queries, keys) in [(4, 2), (3, 1), (2, 2)] {
        let heads = Heads { queries, keys, width: 6 };
        let paths = [vec![], vec![0..1], vec![0..64], vec![3..40, 50..83], vec![0..5, 9..10, 20..60]];
        for path in &paths {
            for rows in [90..91, 90..170] {
                let [found, exact] =
                    with_path_and_without(None, heads, &Place { rows: rows.clone(), path }, &mut scratch);
                for (found, exact) in found.iter().zip(&exact) {
                    assert_eq!(found.len(), exact.len());
                    assert!(found.iter().zip(exact).all(|(a, b)| (a - b).abs() < 1e-12), "{path:?} {rows:?}");
                }
                let other: Vec<_> = path.iter().map(|part| part.start + 1..part.end + 1).collect();
                let [wrong, _] =
                    with_path_and_without(None, heads, &Place { rows, path: &other }, &mut scratch);
                let differs = wrong[0].iter().zip(&exact[0]).any(|(a, b)| (a - b).abs() > 1e-3);
                assert_eq!(differs, !path.is_empty());
            }
        }
    }
}
