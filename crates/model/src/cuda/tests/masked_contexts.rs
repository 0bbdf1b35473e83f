//! Divergences and masked contexts.

use super::*;

/// Sums of all statistics of a masked context, each with its own coefficient.
struct Compare {
    detached: bool,
}

impl MaskedContextObjective for Compare {
    fn needs_divergences(&self) -> bool {
        true
    }

    fn needs_reference(&self) -> bool {
        true
    }

    fn detaches_masked(&self) -> bool {
        self.detached
    }

    fn evaluate(
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
    let masked_contexts: Vec<MaskedContext> = [(0, 1, 3), (3, 0, 5), (3, 1, 2)]
        .into_iter()
        .map(|(sequence, span, prompt)| {
            let own = &batch[sequence].spans[span];
            let mut tokens: Vec<u32> = (0..prompt).map(|index| (index * 7 + 1) as u32).collect();
            tokens.extend_from_slice(&batch[sequence].tokens[own.start..own.end]);
            let end = tokens.len();
            MaskedContext { sequence, span, tokens: self::sequence(&tokens, &[(prompt, end)]) }
        })
        .collect();
    let missing = device.forward_backward(&batch, &Probe { kls: true, ..Probe::PLAIN }).unwrap_err();
    assert!(missing.to_string().contains("set_reference"), "{missing}");
    for learner in [&mut host, &mut device] {
        learner.set_reference(Arc::clone(&reference)).unwrap();
    }
    let (expected, found) =
        (host.reference_logprobs(&batch).unwrap(), device.reference_logprobs(&batch).unwrap());
    assert!(apart(&found, &expected) < LOGPROBS);
    assert!(apart(&device.logprobs(&batch).unwrap(), &expected) > 10.0 * LOGPROBS);
    for detached in [false, true] {
        let objective = (
            &Probe { kls: true, ..Probe::PLAIN } as &dyn Objective,
            &Compare { detached } as &dyn MaskedContextObjective,
        );
        let [a, b] = [&mut host, &mut device].map(|learner| {
            learner.clear_gradient();
            learner.forward_backward_masked(&batch, &masked_contexts, objective).unwrap()
        });
        assert!((a.loss - b.loss).abs() < 0.02 * a.loss.abs().max(1.0), "{} {}", a.loss, b.loss);
        let off = distance(&device.gradient(), &host.gradient());
        assert!(off < GRADIENT, "{off}");
    }
    let detached = device.gradient();
    device.clear_gradient();
    let objective = (
        &Probe { kls: true, ..Probe::PLAIN } as &dyn Objective,
        &Compare { detached: false } as &dyn MaskedContextObjective,
    );
    device.forward_backward_masked(&batch, &masked_contexts, objective).unwrap();
    assert!(distance(&device.gradient(), &detached) > GRADIENT);
}
