use super::*;

/// An objective that sums all statistics of a masked context, each with its own coefficient.
struct Compare {
    detached: bool,
    probe: Probe,
}

impl Objective for Compare {
    fn passes(&self) -> RequiredPasses {
        let masked_context = Some(MaskedContextPass {
            mask: ContextMask::default(),
            divergences: true,
            reference: true,
            detached: self.detached,
        });
        RequiredPasses { masked_context, ..self.probe.passes() }
    }

    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        self.probe.evaluate(sequence, tokens)
    }

    fn evaluate_masked_context(
        &self,
        masked_context: usize,
        statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError> {
        let coefficient = |index: usize| ((masked_context * 17 + index) as f64 * 0.4).sin();
        let mut found = MaskedContextGradients::default();
        for index in 0..statistics.full.len() {
            let c = coefficient(index);
            found.loss += c * (f64::from(statistics.full[index]) - 0.5 * f64::from(statistics.masked[index]))
                + (1.0 + c) * statistics.kl[index]
                - c * statistics.reference_kl[index]
                + 0.0 * f64::from(statistics.reference[index]);
            found.d_full.push(c as f32);
            found.d_masked.push(-0.5 * c as f32);
            found.d_kl.push(1.0 + c);
            found.d_reference_kl.push(-c);
        }
        Ok(found)
    }
}

#[test]
fn divergences_and_masked_contexts_are_the_cpus() {
    let config = &families()[3];
    let (weights, reference) = (weights(config, 3), Arc::new(weights(config, 8)));
    let Some([mut host, mut device]) = both(&weights, settings()) else { return };
    let batch = batch(VOCABULARY, 5);
    let masked: Vec<(usize, usize, TokenSequence)> = [(0, 1, 3), (3, 0, 5), (3, 1, 2)]
        .into_iter()
        .map(|(sequence, span, prompt)| {
            let own = &batch[sequence].spans[span];
            let mut tokens: Vec<u32> = (0..prompt).map(|index| (index * 7 + 1) as u32).collect();
            tokens.extend_from_slice(&batch[sequence].tokens[own.start..own.end]);
            let end = tokens.len();
            (sequence, span, self::sequence(&tokens, &[(prompt, end)]))
        })
        .collect();
    let masked_contexts =
        masked.iter().map(|&(sequence, span, ref tokens)| MaskedContext { sequence, span, tokens }).collect();
    let with_contexts = TokenBatch { masked_contexts, ..TokenBatch::of(&batch) };
    let probe = Probe { kls: true, ..Probe::PLAIN };
    let missing = device.forward_backward(&TokenBatch::of(&batch), &probe).unwrap_err();
    assert!(missing.to_string().contains("set_reference"), "{missing}");
    for learner in [&mut host, &mut device] {
        learner.set_reference(Arc::clone(&reference)).unwrap();
    }
    let (expected, found) = (
        host.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
        device.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
    );
    assert!(apart(&found, &expected) < LOGPROBS);
    assert!(apart(&device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(), &expected) > 10.0 * LOGPROBS);
    for detached in [false, true] {
        let objective = Compare { detached, probe };
        let [a, b] = [&mut host, &mut device].map(|learner| {
            learner.clear_gradient();
            learner.forward_backward(&with_contexts, &objective).unwrap()
        });
        assert!((a.loss - b.loss).abs() < 0.02 * a.loss.abs().max(1.0), "{} {}", a.loss, b.loss);
        let off = distance(&device.gradient(), &host.gradient());
        assert!(off < GRADIENT, "{off}");
    }
    let detached = device.gradient();
    device.clear_gradient();
    device.forward_backward(&with_contexts, &Compare { detached: false, probe }).unwrap();
    assert!(distance(&device.gradient(), &detached) > GRADIENT);
}
