use super::*;

#[test]
fn a_choice_is_the_cpus() {
    let Some(rig) = Rig::new(64, 16) else { return };
    for vocabulary in [2 * CHOICE_CHUNK + 77, 301] {
        let (rows, stride) = (8, vocabulary.next_multiple_of(16));
        let logits: Vec<f32> = random(3, rows * stride).into_iter().map(|x| (3.0 * x) as f32).collect();
        let temperatures = [1.0f32, 0.7, 1.0, 1.3, 1.0, 0.0, 1.0, 1.0];
        let mut expected = Vec::new();
        let mut uniforms = Vec::new();
        let mut inverses = Vec::new();
        for (row, &temperature) in temperatures.iter().enumerate() {
            let mut padded = logits[row * stride..][..vocabulary].to_vec();
            padded.resize(stride, f32::MIN);
            let params = SamplingParams { temperature, ..SamplingParams::default() };
            let uniform = Seed::derive(row as u64, Purpose::Rollout, &[]).rng().uniform();
            let chosen =
                TokenSampler::default().choose(Arch::new(), &padded, vocabulary, &params, uniform).unwrap();
            expected.push(chosen);
            uniforms.push(if temperature == 0.0 { -1.0 } else { uniform });
            inverses.push(if temperature == 0.0 { 1.0 } else { 1.0 / temperature });
        }
        let choose = |logits: &[f32]| {
            let (logits, inverses, uniforms) = (rig.of(logits), rig.of(&inverses), rig.of(&uniforms));
            let chunks = rig.room::<f32>(rows * vocabulary.div_ceil(CHOICE_CHUNK) * 4);
            let choices = rig.room::<f32>(rows * 4);
            let from = (logits.all(), stride);
            rig.kernels
                .choose(from, vocabulary, inverses.all(), uniforms.all(), chunks.all(), choices.all())
                .unwrap();
            choices.all().download(&*rig.driver).unwrap()
        };
        let found = choose(&logits);
        for (found, expected) in found.chunks_exact(4).zip(&expected) {
            assert_eq!(found[0].to_bits(), expected.token);
            assert!((found[1] - expected.logprob).abs() < 1e-5);
            assert!((found[2] - expected.entropy).abs() < 1e-5);
        }
        let mut broken = logits.clone();
        broken[3 * stride + vocabulary - 1] = f32::NAN;
        broken[6 * stride] = f32::INFINITY;
        let found = choose(&broken);
        let bad: Vec<usize> = (0..rows).filter(|row| found[4 * row].to_bits() as i32 == -1).collect();
        assert_eq!(bad, [3, 6]);
    }
}

#[test]
fn a_draw_past_a_chunk_s_elements_goes_to_the_heaviest() {
    let Some(rig) = Rig::new(64, 16) else { return };
    let vocabulary: usize = 301;
    // The chunk's sum is 1 + 9e-8, which f32 rounds up.
    let mut logits = vec![-200.0_f32; vocabulary.next_multiple_of(16)];
    (logits[7], logits[8]) = (0.0, 9e-8_f32.ln());
    let draw = |uniform: f64| {
        let (logits, inverses, uniforms) = (rig.of(&logits), rig.of(&[1.0_f32]), rig.of(&[uniform]));
        let (chunks, choices) = (rig.room::<f32>(4), rig.room::<f32>(4));
        let from = (logits.all(), vocabulary.next_multiple_of(16));
        rig.kernels
            .choose(from, vocabulary, inverses.all(), uniforms.all(), chunks.all(), choices.all())
            .unwrap();
        choices.all().download(&*rig.driver).unwrap()[0].to_bits()
    };
    assert_eq!((draw(1.0 - 1e-12), draw(0.5), draw(1.0 - 3e-8)), (7, 7, 8));
}

/// Returns the token that `uniform` selects among those that top-k and top-p keep, and how many
/// they keep.
fn draw_truncated(logits: &[f32], inverse: f32, top_k: usize, top_p: f64, uniform: f64) -> (usize, usize) {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let weight = |token: usize| f64::from((logits[token] - most) * inverse).exp();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Adding 0 makes 0 and -0 equal.
    order.sort_by(|&a, &b| (logits[b] + 0.0).total_cmp(&(logits[a] + 0.0)).then(a.cmp(&b)));
    order.truncate(if top_k == 0 { logits.len() } else { top_k });
    let whole: f64 = order.iter().map(|&token| weight(token)).sum();
    let mut sum = 0.0;
    let kept = order.iter().take_while(|&&token| {
        let before = sum;
        sum += weight(token);
        before < top_p * whole
    });
    let kept = kept.count();
    order.truncate(kept);
    order.sort_unstable();
    let mut target = uniform * order.iter().map(|&token| weight(token)).sum::<f64>();
    let token = order.iter().find(|&&token| {
        target -= weight(token);
        target < 0.0
    });
    (*token.unwrap(), kept)
}

#[test]
fn a_truncated_choice_is_its_definition() {
    let Some(rig) = Rig::new(64, 16) else { return };
    for vocabulary in [CHOICE_CHUNK + 77, 301] {
        let kinds: [(usize, f32); 8] =
            [(0, 0.9), (5, 1.0), (40, 0.7), (1, 1.0), (0, 1.0), (vocabulary, 1.0), (3, 0.5), (0, 0.05)];
        let (rows, stride) = (3 * kinds.len(), vocabulary.next_multiple_of(16));
        // Rounded, so that cuts fall between equal logits.
        let logits: Vec<f32> =
            random(3, rows * stride).into_iter().map(|x| ((6.0 * x).round() / 2.0) as f32).collect();
        let kind = |row: usize| kinds[row % kinds.len()];
        let uniforms: Vec<f64> =
            (0..rows).map(|row| Seed::derive(row as u64, Purpose::Rollout, &[]).rng().uniform()).collect();
        let inverses: Vec<f32> = (0..rows).map(|row| 1.0 / (0.7 + 0.1 * row as f32)).collect();
        let run = |kind: &dyn Fn(usize) -> (usize, f32)| {
            let top_ks = rig.ints(&(0..rows).map(|row| kind(row).0).collect::<Vec<_>>());
            let top_ps = rig.of(&(0..rows).map(|row| kind(row).1).collect::<Vec<f32>>());
            let (logits, inverses, uniforms) = (rig.of(&logits), rig.of(&inverses), rig.of(&uniforms));
            let chunks = rig.room::<f32>(rows * vocabulary.div_ceil(CHOICE_CHUNK) * 4);
            let choices = rig.room::<f32>(rows * 4);
            let from = (logits.all(), stride);
            let (numbers, draws) = (inverses.all(), uniforms.all());
            rig.kernels.choose(from, vocabulary, numbers, draws, chunks.all(), choices.all()).unwrap();
            let kept = (top_ks.all(), top_ps.all());
            rig.kernels.choose_truncated(from, vocabulary, numbers, draws, kept, choices.all()).unwrap();
            choices.all().download(&*rig.driver).unwrap()
        };
        let found = run(&kind);
        let mut cut = 0;
        for (row, words) in found.chunks_exact(4).enumerate() {
            let logits = &logits[row * stride..][..vocabulary];
            let (top_k, top_p) = kind(row);
            let (token, kept) = draw_truncated(logits, inverses[row], top_k, f64::from(top_p), uniforms[row]);
            assert_eq!(words[0].to_bits() as usize, token, "row {row}: top_k {top_k}, top_p {top_p}");
            cut += usize::from(kept < vocabulary);
            let scaled = |token: usize| f64::from(logits[token] * inverses[row]);
            let total: f64 = (0..vocabulary).map(|token| scaled(token).exp()).sum();
            assert!((f64::from(words[1]) - (scaled(token) - total.ln())).abs() < 1e-4);
        }
        assert_eq!(cut, rows / kinds.len() * 6);
        let other = run(&|row| (2 * kind(row).0, kind(row).1.min(0.99)));
        assert!(
            other.chunks_exact(4).zip(found.chunks_exact(4)).any(|(a, b)| a[0].to_bits() != b[0].to_bits())
        );
    }
}
