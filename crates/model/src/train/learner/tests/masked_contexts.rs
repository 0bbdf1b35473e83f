use super::*;

/// Uses each statistic of a masked context, with its own coefficient.
pub(super) struct Compare {
    pub(super) detached: bool,
    pub(super) reference: bool,
    pub(super) divergences: bool,
    /// Statistic (0 full, 1 masked, 2 kl, 3 reference_kl) whose derivative is omitted.
    pub(super) dropped: Option<usize>,
    pub(super) probe: Probe,
}

impl Objective for Compare {
    fn passes(&self) -> RequiredPasses {
        let &Self { detached, reference, divergences, .. } = self;
        let mask = ContextMask::default();
        let masked_context = Some(MaskedContextPass { mask, divergences, reference, detached });
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
        let MaskedContextStatistics { full, masked, reference, kl, reference_kl } = statistics;
        let tokens = full.len();
        assert_eq!(masked.len(), tokens);
        assert_eq!(reference.len(), if self.reference { tokens } else { 0 });
        assert_eq!(kl.len(), if self.divergences { tokens } else { 0 });
        assert_eq!(reference_kl.len(), if self.divergences && self.reference { tokens } else { 0 });
        let weight =
            |kind: usize, token: usize| ((masked_context * 17 + token * 5 + kind) as f64 * 0.37).sin();
        let slope =
            |kind: usize, token: usize| if self.dropped == Some(kind) { 0.0 } else { weight(kind, token) };
        let mut value = MaskedContextGradients::default();
        for token in 0..tokens {
            for (kind, number, slopes) in
                [(0, full[token], &mut value.d_full), (1, masked[token], &mut value.d_masked)]
            {
                value.loss += weight(kind, token) * f64::from(number);
                slopes.push(slope(kind, token) as f32);
            }
        }
        for (kind, numbers, slopes) in
            [(2, kl, &mut value.d_kl), (3, reference_kl, &mut value.d_reference_kl)]
        {
            for (token, number) in numbers.iter().enumerate() {
                value.loss += weight(kind, token) * number;
                slopes.push(slope(kind, token));
            }
        }
        Ok(value)
    }
}

const NOISE: f64 = 5e-3;

fn differences(policy: &Parameters<f32>, loss: impl Fn(Parameters<f32>) -> f64) -> TensorDifferences {
    let tensors = policy.layout.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone()));
    TensorDifferences::of(&policy.data, tensors, |data| {
        let mut moved = policy.clone();
        moved.data.copy_from_slice(data);
        loss(moved)
    })
}

/// Index of the sequence, index of the span, and the masked prompt followed by that span's
/// response.
pub(super) type Masked = (usize, usize, TokenSequence);

pub(super) fn with_contexts<'a>(batch: &'a [TokenSequence], masked: &'a [Masked]) -> TokenBatch<'a> {
    let context =
        |(sequence, span, tokens): &'a Masked| MaskedContext { sequence: *sequence, span: *span, tokens };
    TokenBatch { masked_contexts: masked.iter().map(context).collect(), ..TokenBatch::of(batch) }
}

fn masked_contexts(batch: &[TokenSequence]) -> Vec<Masked> {
    masked_contexts_of(batch, &[(0, 1, 2), (3, 0, 5), (3, 1, 1), (8, 0, 3)])
}

/// Returns the masked contexts for `(sequence, span, length of the masked prompt)`.
pub(super) fn masked_contexts_of(batch: &[TokenSequence], spans: &[(usize, usize, u32)]) -> Vec<Masked> {
    spans
        .iter()
        .map(|&(sequence, span, prompt)| {
            let source = batch[sequence].spans[span];
            let response = &batch[sequence].tokens[source.start..source.end];
            let mut tokens: Vec<u32> = (0..prompt).map(|index| (7 * index + span as u32) % 23).collect();
            let start = tokens.len();
            tokens.extend_from_slice(response);
            let end = tokens.len();
            (sequence, span, crate::cpu::decoder::tests::sequence(&tokens, &[(start, end)]))
        })
        .collect()
}

#[test]
fn the_gradient_of_masked_contexts_is_the_derivative_of_their_loss() {
    let batch = sequences();
    let masked_contexts = masked_contexts(&batch);
    let reference = parameters(&config(4, 2, true), 12).cast();
    let base = LearnerConfig { temperature: 0.8, ..LearnerConfig::default() };
    for (detached, with_reference, divergences) in
        [(false, true, true), (true, true, true), (false, false, true), (false, true, false)]
    {
        let exact =
            Compare { detached, reference: with_reference, divergences, dropped: None, probe: Probe::PLAIN };
        let under = |objective: &Compare, settings: LearnerConfig, parameters: Parameters<f32>| {
            let mut learner = NativeLearner::new(parameters, settings).unwrap();
            learner.set_reference(Arc::new(reference.clone())).unwrap();
            let report =
                learner.forward_backward(&with_contexts(&batch, &masked_contexts), objective).unwrap();
            assert_eq!(report.metrics.masked_contexts, 4.0);
            (report.loss, learner.gradient())
        };
        let run = |settings, parameters| under(&exact, settings, parameters);
        let policy: Parameters<f32> = parameters(&config(4, 2, true), 11).cast();
        let (loss, gradient) = run(base, policy.clone());
        for settings in [
            LearnerConfig { micro_batch_tokens: 1, lanes: 3, ..base },
            LearnerConfig { recompute: true, micro_batch_tokens: 120, ..base },
        ] {
            let (other_loss, other) = run(settings, policy.clone());
            assert!((loss - other_loss).abs() < 1e-4 * loss.abs().max(1.0));
            assert!(distance(&gradient, &other) < 1e-5, "{}", distance(&gradient, &other));
        }
        let differences = differences(&policy, |moved| run(base, moved).0);
        if detached {
            // A detached side adds to the loss but has no derivative.
            assert!(!differences.wrong(&gradient, NOISE).is_empty());
            continue;
        }
        differences.check(&gradient, NOISE);
        for dropped in [(2, divergences), (3, divergences && with_reference)] {
            if let (kind, true) = dropped {
                let (_, without) = under(&Compare { dropped: Some(kind), ..exact }, base, policy.clone());
                assert!(!differences.wrong(&without, NOISE).is_empty(), "number {kind} is not seen");
            }
        }
    }
}

#[test]
fn masked_contexts_that_do_not_fit_are_refused() {
    let batch = sequences();
    let probe = Probe::PLAIN;
    let objective = Compare { detached: false, reference: false, divergences: true, dropped: None, probe };
    let mut learner = learner(LearnerConfig::default());
    let mut wrong = masked_contexts(&batch);
    wrong[0].2.tokens[2] += 1;
    let error = learner.forward_backward(&with_contexts(&batch, &wrong), &objective).unwrap_err();
    assert!(error.to_string().contains("does not end in its response"), "{error}");
    let objective = Compare { reference: true, ..objective };
    let masked = masked_contexts(&batch);
    let error = learner.forward_backward(&with_contexts(&batch, &masked), &objective).unwrap_err();
    assert!(error.to_string().contains("set_reference"), "{error}");
    let error = learner.forward_backward(&with_contexts(&batch, &masked), &Probe::PLAIN).unwrap_err();
    assert!(error.to_string().contains("the loss uses none"), "{error}");
}

#[test]
fn the_full_divergence_from_the_reference_has_its_gradient() {
    struct Full;
    impl Objective for Full {
        fn passes(&self) -> RequiredPasses {
            RequiredPasses { reference_kls: true, ..RequiredPasses::default() }
        }

        fn evaluate(
            &self,
            sequence: usize,
            tokens: TokenStatistics<'_>,
        ) -> Result<TokenGradients, ObjectiveError> {
            let weight = |token: usize| 1.0 + ((sequence * 13 + token) as f64).cos();
            let kls = tokens.reference_kls;
            assert_eq!(kls.len(), tokens.logprobs.len());
            assert!(kls.iter().all(|&kl| kl > 0.0));
            Ok(TokenGradients {
                loss: kls.iter().enumerate().map(|(token, kl)| weight(token) * kl).sum(),
                d_logprobs: vec![0.0; kls.len()],
                d_reference_kls: (0..kls.len()).map(weight).collect(),
                ..TokenGradients::default()
            })
        }
    }
    let batch = sequences();
    let reference: Parameters<f32> = parameters(&config(4, 2, true), 12).cast();
    let policy: Parameters<f32> = parameters(&config(4, 2, true), 11).cast();
    let run = |parameters: Parameters<f32>| {
        let mut learner = NativeLearner::new(parameters, LearnerConfig::default()).unwrap();
        learner.set_reference(Arc::new(reference.clone())).unwrap();
        let loss = learner.forward_backward(&TokenBatch::of(&batch), &Full).unwrap().loss;
        (loss, learner.gradient())
    };
    let (_, gradient) = run(policy.clone());
    differences(&policy, |moved| run(moved).0).check(&gradient, NOISE);
}
