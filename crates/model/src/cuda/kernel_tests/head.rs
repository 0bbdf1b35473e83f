use super::*;

#[test]
fn the_output_layer_is_that_of_the_cpu() {
    let Some(rig) = Rig::new(64, 16) else { return };
    let (rows, vocabulary, stride) = (5, 1003, 1008);
    let logits: Vec<f64> =
        random(1, rows * stride).iter().map(|z| f64::from((3.0 * z + 40.0) as f32)).collect();
    let others: Vec<f64> =
        random(2, rows * stride).iter().map(|z| f64::from((2.0 * z - 9.0) as f32)).collect();
    let row = |all: &[f64], index: usize| all[index * stride..][..vocabulary].to_vec();
    let targets = [0usize, 1002, 17, 500, 3];
    let derivatives = [[0.7, -0.3], [-1.3, 0.0], [0.0, 0.4], [1.0, 1.0], [0.2, 0.0]];
    let (mut statistics, mut d_logits) = (Vec::new(), Vec::new());
    for (index, (&target, [d_logprob, d_entropy])) in targets.iter().zip(derivatives).enumerate() {
        let mut logits = row(&logits, index);
        let found = row_statistics(&logits, target);
        statistics.extend([found.log_sum, found.logprob, found.entropy]);
        row_backward(&mut logits, found, std::iter::once((target, [d_logprob, d_entropy])));
        d_logits.extend(logits);
    }
    let (a, b, dtargets) = (rig.wide(&logits), rig.wide(&others), rig.ints(&targets));
    let found = rig.room::<f32>(rows * 3);
    rig.kernels.row_statistics((a.all(), stride), vocabulary, dtargets.all(), found.all()).unwrap();
    close("statistics", &rig.read(found.all()), &statistics, 1e-6);
    let d = rig.wide(derivatives.as_flattened());
    let to = rig.room::<Bf16>(rows * stride);
    let numbers = [found.all(), d.all()];
    rig.kernels.row_backward((a.all(), stride), vocabulary, dtargets.all(), numbers, to.all()).unwrap();
    let cut = |all: Vec<f64>| -> Vec<f64> { (0..rows).flat_map(|index| row(&all, index)).collect() };
    close("d_logits", &cut(rig.read_narrow(to.all())), &d_logits, NARROW);
    assert!(off(&cut(rig.read_narrow(to.all())), &cut(logits.clone())) > 0.1);

    let (mut log_sums, mut divergences, mut both) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for index in 0..rows {
        let (mut first, mut second) = (row(&logits, index), row(&others, index));
        let sums = [&first, &second].map(|row| row_statistics(row, 0).log_sum);
        log_sums.extend(sums);
        divergences.push(row_divergence(&first, &second, sums));
        row_divergence_backward(&mut first, &mut second, sums, divergences[index], -1.7);
        both[0].extend(first);
        both[1].extend(second);
    }
    let (log_sums, found) = (rig.wide(&log_sums), rig.room::<f32>(rows));
    let pair = [a.all(), b.all()];
    rig.kernels.row_divergence(pair, stride, vocabulary, log_sums.all(), found.all()).unwrap();
    close("divergences", &rig.read(found.all()), &divergences, 1e-5);
    let slopes: Vec<f64> = divergences.iter().flat_map(|&value| [value, -1.7]).collect();
    let (slopes, to) =
        (rig.wide(&slopes), [rig.room::<Bf16>(rows * stride), rig.room::<Bf16>(rows * stride)]);
    let numbers = [log_sums.all(), slopes.all()];
    let target = [to[0].all(), to[1].all()];
    rig.kernels.row_divergence_backward(pair, stride, vocabulary, numbers, target).unwrap();
    for (to, expected) in to.iter().zip(&both) {
        close("d_logits of a divergence", &cut(rig.read_narrow(to.all())), expected, NARROW);
    }
}

#[test]
fn a_value_is_the_heads() {
    let (hidden, rows) = (80, 9);
    let Some(rig) = Rig::new(hidden, 16) else { return };
    let (normed, weight, d) = (exact(1, rows * hidden), exact(2, hidden + 1), exact(3, rows));
    let expected: Vec<f64> = normed
        .chunks_exact(hidden)
        .map(|row| weight[hidden] + row.iter().zip(&weight).map(|(x, w)| x * w).sum::<f64>())
        .collect();
    let (x, w, slopes, values) =
        (rig.narrow(&normed), rig.wide(&weight), rig.wide(&d), rig.room::<f32>(rows));
    rig.kernels.value_head(x.all(), w.all(), values.all()).unwrap();
    close("values", &rig.read(values.all()), &expected, WIDE);
    let before = exact(4, hidden + 1);
    let (d_normed, d_weight) = (rig.room::<f32>(rows * hidden), rig.wide(&before));
    rig.kernels.value_head_backward(x.all(), w.all(), slopes.all(), d_normed.all(), d_weight.all()).unwrap();
    let expected: Vec<f64> = d.iter().flat_map(|d| weight[..hidden].iter().map(move |w| d * w)).collect();
    close("d_normed", &rig.read(d_normed.all()), &expected, WIDE);
    let mut sums = before.clone();
    for (row, d) in normed.chunks_exact(hidden).zip(&d) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += d * x);
        sums[hidden] += d;
    }
    close("d_weight", &rig.read(d_weight.all()), &sums, WIDE);
}
