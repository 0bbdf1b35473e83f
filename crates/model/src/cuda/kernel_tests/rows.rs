use super::*;

#[test]
fn norms_are_those_of_the_cpu() {
    for (hidden, rows) in [(1104, 3), (64, 300)] {
        let Some(rig) = Rig::new(hidden, 16) else { return };
        let (x, weight, d_y) = (exact(1, rows * hidden), exact(2, hidden), exact(3, rows * hidden));
        let index: Vec<usize> = (0..rows).rev().collect();
        let gathered: Vec<f64> = index.iter().flat_map(|&row| x[row * hidden..][..hidden].to_vec()).collect();
        let (mut y, mut inverse) = (vec![0.0; x.len()], vec![0.0; rows]);
        rms_norm(&gathered, &weight, 1e-5, &mut y, &mut inverse);
        let (dx, dw, dindex) = (rig.wide(&x), rig.narrow(&weight), rig.ints(&index));
        let (dy, dinverse) = (rig.room::<Bf16>(x.len()), rig.room::<f32>(rows));
        let index_part = Some(dindex.all());
        rig.kernels.rms_norm(dx.all(), index_part, dw.all(), 1e-5, rows, dy.all(), dinverse.all()).unwrap();
        close("y", &rig.read_narrow(dy.all()), &y, NARROW);
        close("inverse", &rig.read(dinverse.all()), &inverse, WIDE);
        rms_norm(&gathered, &weight, 1e-1, &mut y, &mut inverse);
        assert!(off(&rig.read(dinverse.all()), &inverse) > 1e-2);
        rms_norm(&gathered, &weight, 1e-5, &mut y, &mut inverse);

        let start = exact(4, x.len());
        let (mut d_gathered, mut d_weight) = (vec![0.0; x.len()], exact(5, hidden));
        let grad = rig.wide(&d_weight);
        rms_norm_backward(&d_y, &gathered, &weight, &inverse, &mut d_gathered, Some(&mut d_weight));
        let mut d_x = start.clone();
        for (row, d) in index.iter().zip(d_gathered.chunks_exact(hidden)) {
            d_x[row * hidden..][..hidden].iter_mut().zip(d).for_each(|(to, d)| *to += d);
        }
        let (to, copy, partials) =
            (rig.wide(&start), rig.room::<Bf16>(x.len()), rig.room::<f32>(256 * hidden));
        let sums = Some((grad.all(), partials.all()));
        let (d_wide, rows_in) = (rig.wide(&d_y), [dx.all(), dinverse.all()]);
        let target = (to.all(), copy.all());
        rig.kernels
            .rms_norm_backward_gathered(d_wide.all(), rows_in, dindex.all(), dw.all(), rows, target, sums)
            .unwrap();
        close("d_x", &rig.read(to.all()), &d_x, 1e-5);
        close("rounded d_x", &rig.read_narrow(copy.all()), &d_x, NARROW);
        close("d_weight", &rig.read(grad.all()), &d_weight, 1e-5);

        // In row order, from bfloat16 gradients.
        rms_norm(&x, &weight, 1e-5, &mut y, &mut inverse);
        let (mut d_x, mut d_weight) = (start.clone(), vec![0.0; hidden]);
        rms_norm_backward(&d_y, &x, &weight, &inverse, &mut d_x, Some(&mut d_weight));
        let (to, grad, d_narrow) = (rig.wide(&start), rig.wide(&vec![0.0; hidden]), rig.narrow(&d_y));
        let (inverse, sums) = (rig.wide(&inverse), Some((grad.all(), partials.all())));
        let target = (to.all(), copy.all());
        rig.kernels
            .rms_norm_backward(d_narrow.all(), [dx.all(), inverse.all()], dw.all(), rows, target, sums)
            .unwrap();
        close("d_x", &rig.read(to.all()), &d_x, 1e-5);
        close("d_weight", &rig.read(grad.all()), &d_weight, 1e-5);
    }
}

#[test]
fn rows_are_embedded_gathered_scattered_and_summed() {
    let (hidden, vocabulary) = (80, 7);
    let Some(rig) = Rig::new(hidden, 16) else { return };
    let tokens = [3usize, 1, 3, 6, 0, 3, 1];
    let rows = tokens.len();
    let (weight, d_out, before) =
        (exact(1, vocabulary * hidden), exact(2, rows * hidden), exact(3, vocabulary * hidden));
    let out = rig.room::<f32>(rows * hidden);
    let (dtokens, dweight) = (rig.ints(&tokens), rig.narrow(&weight));
    rig.kernels.embed(dtokens.all(), dweight.all(), out.all()).unwrap();
    let expected: Vec<f64> = tokens.iter().flat_map(|&t| weight[t * hidden..][..hidden].to_vec()).collect();
    assert_eq!(rig.read(out.all()), expected);

    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by_key(|&row| tokens[row]);
    let mut starts: Vec<usize> =
        (0..rows).filter(|&at| at == 0 || tokens[order[at]] != tokens[order[at - 1]]).collect();
    starts.push(rows);
    let (order, starts) = (rig.ints(&order), rig.ints(&starts));
    let (d, gradient) = (rig.wide(&d_out), rig.wide(&before));
    rig.kernels.embed_backward(dtokens.all(), order.all(), starts.all(), d.all(), gradient.all()).unwrap();
    let mut sums = before.clone();
    for (row, &token) in tokens.iter().enumerate() {
        for column in 0..hidden {
            sums[token * hidden + column] += d_out[row * hidden + column];
        }
    }
    close("embedding", &rig.read(gradient.all()), &sums, WIDE);

    // Scattering to the same rows must give the same sums.
    let gradient = rig.wide(&before);
    rig.kernels.scatter_rows(d.all(), dtokens.all(), gradient.all()).unwrap();
    close("scatter", &rig.read(gradient.all()), &sums, WIDE);
    let to = rig.room::<Bf16>(rows * hidden);
    rig.kernels.gather_rows(dweight.all(), dtokens.all(), to.all()).unwrap();
    assert_eq!(rig.read_narrow(to.all()), expected);

    let (ranges, means) = (rig.ints(&[0, 3, 2, 7]), rig.room::<f32>(2 * hidden));
    rig.kernels.mean_rows(to.all(), ranges.all(), means.all()).unwrap();
    let mean = |range: Range<usize>| -> Vec<f64> {
        let count = range.len() as f64;
        (0..hidden).map(|c| range.clone().map(|r| expected[r * hidden + c]).sum::<f64>() / count).collect()
    };
    close("means", &rig.read(means.all()), &[mean(0..3), mean(2..7)].concat(), WIDE);

    let columns = |start: &[f64]| -> Vec<f64> {
        (0..hidden).map(|c| start[c] + (0..rows).map(|r| d_out[r * hidden + c]).sum::<f64>()).collect()
    };
    let (narrow, wide) = (rig.wide(&before[..hidden]), rig.wide(&before[..hidden]));
    rig.kernels.column_sums(d.all(), rows, hidden, wide.all()).unwrap();
    close("column sums", &rig.read(wide.all()), &columns(&before), WIDE);
    let d_narrow = rig.narrow(&d_out);
    rig.kernels.column_sums_narrow(d_narrow.all(), rows, hidden, narrow.all()).unwrap();
    close("column sums", &rig.read(narrow.all()), &columns(&before), WIDE);

    let bias = exact(9, hidden);
    let (dbias, y, y_narrow) = (rig.narrow(&bias), rig.wide(&d_out), rig.narrow(&d_out));
    rig.kernels.add_bias_wide(dbias.all(), rows, y.all()).unwrap();
    rig.kernels.add_bias(dbias.all(), rows, y_narrow.all()).unwrap();
    let biased: Vec<f64> = d_out.iter().enumerate().map(|(at, x)| x + bias[at % hidden]).collect();
    close("bias", &rig.read(y.all()), &biased, WIDE);
    close("bias", &rig.read_narrow(y_narrow.all()), &biased, NARROW);
}

#[test]
fn the_gated_activation_is_that_of_the_cpu() {
    let (rows, width) = (70, 48);
    let Some(rig) = Rig::new(64, 16) else { return };
    let (x, d_out) = (exact(1, rows * 2 * width), exact(2, rows * width));
    let mut out = vec![0.0; rows * width];
    swiglu(&x, width, &mut out);
    let (dx, to) = (rig.narrow(&x), rig.room::<Bf16>(out.len()));
    rig.kernels.swiglu(dx.all(), rows, width, to.all()).unwrap();
    close("out", &rig.read_narrow(to.all()), &out, NARROW);
    let mut d_x = x.clone();
    swiglu_backward(&d_out, width, &mut d_x);
    let d = rig.narrow(&d_out);
    rig.kernels.swiglu_backward(d.all(), rows, width, dx.all()).unwrap();
    close("d_x", &rig.read_narrow(dx.all()), &d_x, NARROW);
    assert!(off(&rig.read_narrow(dx.all()), &x) > 0.1);
}

#[test]
fn an_update_is_that_of_the_cpu() {
    let Some(rig) = Rig::new(64, 16) else { return };
    let model = config(4, 2, true);
    let layout = crate::ParameterLayout::new(&model);
    let len = layout.len;
    let to_f32 = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
    let (mut weights, gradient) = (to_f32(random(1, len)), to_f32(random(2, len)));
    let config = AdamWConfig { weight_decay: 0.1, ..AdamWConfig::default() };
    let mut state = OptimizerState::new(len);
    let (w, m, v) = (rig.of(&weights), rig.of(&vec![0.0f32; len]), rig.of(&vec![0.0f32; len]));
    let (g, copy, partials) = (rig.of(&gradient), rig.room::<Bf16>(len), rig.room::<f64>(3));
    let norm = rig.kernels.square_sum(g.all(), partials.all()).unwrap().sqrt();
    let exact = gradient.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    assert!((norm / exact - 1.0).abs() < 1e-12);
    for _ in 0..3 {
        let (rates, keep) = state.rates(&config, 1e-2, norm);
        state.update(&config, &layout.tensors, 1e-2, norm, &gradient, &mut weights);
        for tensor in &layout.tensors {
            let at = tensor.range.clone();
            let keep = if tensor.decays { keep } else { 1.0 };
            let moved = [w.part(at.clone()), m.part(at.clone()), v.part(at.clone())];
            rig.kernels.adamw(&rates, keep, g.part(at.clone()), moved, copy.part(at)).unwrap();
        }
    }
    let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    close("weights", &rig.read(w.all()), &wide(&weights), WIDE);
    close("first moments", &rig.read(m.all()), &wide(&state.first), WIDE);
    close("second moments", &rig.read(v.all()), &wide(&state.second), WIDE);
    close("rounded weights", &rig.read_narrow(copy.all()), &wide(&weights), NARROW);
    rig.kernels.scale(g.all(), -0.5).unwrap();
    assert_eq!(rig.read(g.all()), gradient.iter().map(|&x| f64::from(x * -0.5)).collect::<Vec<_>>());
}
