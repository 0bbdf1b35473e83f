use super::*;
use crate::ops;

fn prepared(
    x: &[f64],
    (queries, keys, head): (usize, usize, usize),
    bias: &[f64],
    norms: Option<[&[f64]; 2]>,
    positions: &[usize],
    theta: f64,
) -> Vec<f64> {
    let width = (queries + 2 * keys) * head;
    let half = head / 2;
    let mut out: Vec<f64> = x.iter().enumerate().map(|(at, x)| x + bias[at % width]).collect();
    for (row, &position) in out.chunks_exact_mut(width).zip(positions) {
        for (index, values) in row.chunks_exact_mut(head).enumerate().take(queries + keys) {
            if let Some(norms) = norms {
                let weight = norms[usize::from(index >= queries)];
                let r = 1.0 / (values.iter().map(|x| x * x).sum::<f64>() / head as f64 + 1e-6).sqrt();
                values.iter_mut().zip(weight).for_each(|(x, w)| *x *= r * w);
            }
            for i in 0..half {
                let (sin, cos) = (position as f64 * theta.powf(-(i as f64) / half as f64)).sin_cos();
                let (a, b) = (values[i], values[i + half]);
                (values[i], values[i + half]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
    }
    out
}

#[test]
fn queries_and_keys_are_normed_and_turned_and_turned_back() {
    for (queries, keys, head, normed) in [(5, 2, 48, true), (2, 1, 128, true), (4, 2, 16, false)] {
        let Some(rig) = Rig::new(head * 2, head) else { return };
        let (rows, theta, half) = (23, 1000.0, head / 2);
        let width = (queries + 2 * keys) * head;
        let positions: Vec<usize> = (0..rows).map(|row| row * 7 % 20).collect();
        let (x, bias, d_out) = (exact(1, rows * width), exact(2, width), exact(3, rows * width));
        let norms = [exact(4, head), exact(5, head)];
        let pair = normed.then_some([&norms[0][..], &norms[1][..]]);
        let expected = prepared(&x, (queries, keys, head), &bias, pair, &positions, theta);
        let angles: Vec<f64> = (0..20)
            .flat_map(|position| {
                let angle = move |i: usize| position as f64 * theta.powf(-(i as f64) / half as f64);
                (0..half).map(move |i| angle(i).cos()).chain((0..half).map(move |i| angle(i).sin()))
            })
            .collect();
        let (dbias, weights) = (rig.narrow(&bias), [rig.narrow(&norms[0]), rig.narrow(&norms[1])]);
        let preparation = Preparation {
            bias: Some(dbias.all()),
            q_norm: normed.then(|| weights[0].all()),
            k_norm: normed.then(|| weights[1].all()),
            epsilon: 1e-6,
            heads: Heads { queries, keys },
        };
        let (raw, angles, positions_on_gpu) = (rig.narrow(&x), rig.wide(&angles), rig.ints(&positions));
        let (out, inverse) = (rig.room::<Bf16>(x.len()), rig.room::<f32>(rows * (queries + keys)));
        let cache_rows: Vec<usize> = (0..rows).rev().collect();
        let (cache_rows, cache) = (rig.ints(&cache_rows), rig.room::<Bf16>(rows * 2 * keys * head));
        let kept = normed.then(|| inverse.all());
        rig.kernels
            .prepare_qkv(
                raw.all(),
                &preparation,
                positions_on_gpu.all(),
                angles.all(),
                out.all(),
                kept,
                Some((cache_rows.all(), cache.all())),
            )
            .unwrap();
        let found = rig.read_narrow(out.all());
        close("out", &found, &expected, NARROW);
        let cached = rig.read_narrow(cache.all());
        for row in 0..rows {
            let from = &found[row * width + queries * head..][..2 * keys * head];
            assert_eq!(from, &cached[(rows - 1 - row) * 2 * keys * head..][..2 * keys * head]);
        }

        let loss = |x: &[f64], norms: Option<[&[f64]; 2]>| -> f64 {
            let y = prepared(x, (queries, keys, head), &bias, norms, &positions, theta);
            y.iter().zip(&d_out).map(|(y, d)| y * d).sum()
        };
        let d = rig.narrow(&d_out);
        let (grads, partials) =
            ([rig.wide(&vec![0.0; head]), rig.wide(&vec![0.0; head])], rig.room(rows * 2 * head));
        let sums = normed.then(|| ([grads[0].all(), grads[1].all()], partials.all()));
        rig.kernels
            .prepare_qkv_backward(
                raw.all(),
                &preparation,
                kept,
                positions_on_gpu.all(),
                angles.all(),
                d.all(),
                sums,
            )
            .unwrap();
        let d_x = rig.read_narrow(d.all());
        let slope = |at: usize, of: &dyn Fn(f64) -> f64| {
            let _ = at;
            (of(1e-4) - of(-1e-4)) / 2e-4
        };
        let sample: Vec<usize> = (0..x.len()).step_by(97).collect();
        let expected: Vec<f64> = sample
            .iter()
            .map(|&at| {
                slope(at, &|shift| {
                    let mut x = x.clone();
                    x[at] += shift;
                    loss(&x, pair)
                })
            })
            .collect();
        let found: Vec<f64> = sample.iter().map(|&at| d_x[at]).collect();
        close("d_x", &found, &expected, NARROW);
        if normed {
            for kind in 0..2 {
                let expected: Vec<f64> = (0..head)
                    .map(|at| {
                        slope(at, &|shift| {
                            let mut moved = norms.clone();
                            moved[kind][at] += shift;
                            loss(&x, Some([&moved[0], &moved[1]]))
                        })
                    })
                    .collect();
                close("d_norm", &rig.read(grads[kind].all()), &expected, 1e-4);
            }
        }
    }
}

#[test]
fn attention_is_that_of_the_cpu_forward_and_backward() {
    for (queries, keys, width, lengths) in
        [(4, 2, 16, &[70, 1, 0, 5][..]), (3, 1, 64, &[129, 64]), (2, 2, 48, &[65]), (2, 1, 128, &[80, 33])]
    {
        let Some(rig) = Rig::new(width, width) else { return };
        let heads = ops::attention::Heads { queries, keys, width };
        let rows: usize = lengths.iter().sum();
        let row = heads.row();
        let (qkv, d_out) = (exact(1, rows * row), exact(2, rows * queries * width));
        let mut sequences = Vec::new();
        let (mut out, mut log_sum, mut d_qkv) =
            (vec![0.0; d_out.len()], vec![0.0; rows * queries], vec![0.0; qkv.len()]);
        let mut scratch = ops::attention::Scratch::default();
        for &length in lengths {
            let first = sequences.last().map_or(0, |range: &Range<usize>| range.end);
            let at = first..first + length;
            sequences.push(at.clone());
            let d_out = &d_out[at.start * queries * width..at.end * queries * width];
            let place = Place { rows: at, path: &[] };
            attention(None, heads, &place, &qkv, &mut out, &mut log_sum, &mut scratch);
            let output = ops::attention::Output { out: &out, d_out, log_sum: &log_sum };
            attention_backward(None, heads, &place, &qkv, &output, &mut d_qkv, &mut scratch);
        }
        let (tiles, reverse) = (rig.of(&query_tiles(&sequences)), rig.of(&key_tiles(&sequences)));
        let (dqkv, dout, dlog) =
            (rig.narrow(&qkv), rig.room::<Bf16>(out.len()), rig.room::<f32>(log_sum.len()));
        let count = Heads { queries, keys };
        let part = |first: usize| dqkv.part(first * width..dqkv.len());
        let kv = (part(queries), part(queries + keys), row);
        rig.kernels
            .attention(tiles.all(), (dqkv.all(), row), kv, count, dout.all(), Some(dlog.all()))
            .unwrap();
        close("out", &rig.read_narrow(dout.all()), &out, TWICE);
        close("log sums", &rig.read(dlog.all()), &log_sum, 1e-5);
        let (exact_out, exact_log, d) = (rig.narrow(&out), rig.wide(&log_sum), rig.narrow(&d_out));
        let (pull, to) = (rig.room::<f32>(log_sum.len()), rig.room::<Bf16>(qkv.len()));
        rig.kernels
            .attention_backward(
                [tiles.all(), reverse.all()],
                dqkv.all(),
                [exact_out.all(), d.all()],
                [exact_log.all(), pull.all()],
                count,
                to.all(),
            )
            .unwrap();
        let found = rig.read_narrow(to.all());
        close("d_qkv", &found, &d_qkv, 2e-2);
        // Each kind on its own scale, because the largest would hide the others' errors.
        for (name, kind) in
            [("dq", 0..queries), ("dk", queries..queries + keys), ("dv", queries + keys..queries + 2 * keys)]
        {
            let pick = |all: &[f64]| -> Vec<f64> {
                all.chunks_exact(row).flat_map(|r| r[kind.start * width..kind.end * width].to_vec()).collect()
            };
            close(name, &pick(&found), &pick(&d_qkv), 2e-2);
        }
        if lengths[0] > 1 {
            let mut shifted = sequences.clone();
            shifted[0].start += 1;
            let tiles = rig.of(&query_tiles(&shifted));
            rig.kernels.attention(tiles.all(), (dqkv.all(), row), kv, count, dout.all(), None).unwrap();
            assert!(off(&rig.read_narrow(dout.all()), &out) > 0.1);
        }
    }
}

#[test]
fn decoding_attends_as_a_whole_pass_does() {
    for (queries, keys, width) in [(14, 2, 64), (3, 3, 16), (16, 1, 128), (2, 1, 48)] {
        let Some(rig) = Rig::new(width, width) else { return };
        let heads = ops::attention::Heads { queries, keys, width };
        let (row, context) = (heads.row(), 200);
        // The last row of each sequence is decoded, earlier ones cached.
        let lengths = [1usize, 17, 64, 65, 200];
        let cache_width = 2 * keys * width;
        let mut cache = vec![0.0; lengths.len() * context * cache_width];
        let (mut expected, mut last) = (Vec::new(), Vec::new());
        for (slot, &length) in lengths.iter().enumerate() {
            let qkv = exact(slot as u64, length * row);
            let (mut out, mut log_sum) = (vec![0.0; length * queries * width], vec![0.0; length * queries]);
            let place = Place { rows: 0..length, path: &[] };
            let mut scratch = ops::attention::Scratch::default();
            attention(None, heads, &place, &qkv, &mut out, &mut log_sum, &mut scratch);
            expected.extend_from_slice(&out[(length - 1) * queries * width..]);
            last.extend_from_slice(&qkv[(length - 1) * row..]);
            for (position, qkv) in qkv.chunks_exact(row).enumerate() {
                cache[(slot * context + position) * cache_width..][..cache_width]
                    .copy_from_slice(&qkv[queries * width..]);
            }
        }
        let positions: Vec<usize> = lengths.iter().map(|length| length - 1).collect();
        let key_rows: Vec<usize> = (0..lengths.len()).map(|slot| slot * context).collect();
        let (positions, key_rows) = (rig.ints(&positions), rig.ints(&key_rows));
        let (qkv, cache) = (rig.narrow(&last), rig.narrow(&cache));
        for splits in [1, 3] {
            let out = rig.room::<Bf16>(expected.len());
            let partials = rig.room::<f32>(lengths.len() * queries * splits * (width + 2));
            let indices = [positions.all(), key_rows.all()];
            let count = Heads { queries, keys };
            rig.kernels
                .attention_decode(indices, qkv.all(), cache.all(), count, splits, out.all(), partials.all())
                .unwrap();
            let found = rig.read_narrow(out.all());
            close("out", &found, &expected, TWICE);
            let shifted = [expected[width..].to_vec(), expected[..width].to_vec()].concat();
            assert!(off(&found, &shifted) > 0.1);
        }
    }
}

#[test]
fn decoding_keeps_a_nan_and_gives_zeros_for_a_row_without_keys() {
    let (keys, queries, width, context) = (1, 2, 16, 192);
    let Some(rig) = Rig::new(width, width) else { return };
    let row = (queries + 2 * keys) * width;
    // The second query contains NaN; the third row is padding.
    let mut qkv = exact(1, 3 * row);
    qkv[row + 3] = f64::NAN;
    let cache = rig.narrow(&exact(2, context * 2 * keys * width));
    let (positions, key_rows) = (rig.of(&[150i32, 150, -1]), rig.ints(&[0, 0, 0]));
    let qkv = rig.narrow(&qkv);
    for splits in [1, 3] {
        let out = rig.room::<Bf16>(3 * queries * width);
        let partials = rig.room::<f32>(3 * queries * splits * (width + 2));
        let (indices, count) = ([positions.all(), key_rows.all()], Heads { queries, keys });
        rig.kernels
            .attention_decode(indices, qkv.all(), cache.all(), count, splits, out.all(), partials.all())
            .unwrap();
        let found = rig.read_narrow(out.all());
        let heads: Vec<&[f64]> = found.chunks_exact(width).collect();
        for sound in [0, 1, 3] {
            assert!(heads[sound].iter().all(|x| x.is_finite() && *x != 0.0), "{splits} {sound}");
        }
        assert!(heads[2].iter().all(|x| x.is_nan()), "{splits}: {:?}", heads[2]);
        assert!(found[4 * width..].iter().all(|&x| x == 0.0), "{splits}: {:?}", &found[4 * width..]);
    }
}
