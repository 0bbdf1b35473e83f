use super::masked_contexts::{Compare, masked_contexts_of, with_contexts};
use super::*;
use crate::packing::tests::family;
use crate::{Adapter, Critic, LoraConfig};

fn shared_batch() -> Vec<TokenSequence> {
    [family(), sequences(), family()].concat()
}

fn settings(share_prefixes: bool) -> LearnerConfig {
    LearnerConfig { share_prefixes, lanes: 1, micro_batch_tokens: 100_000, ..LearnerConfig::default() }
}

fn largest(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    crate::testing::largest_difference(a, b)
}

#[test]
fn loss_gradient_and_log_probabilities_are_those_of_a_flat_batch() {
    let batch = shared_batch();
    let run = |settings: LearnerConfig, silent: Option<usize>| {
        let mut learner = learner(settings);
        let report =
            learner.forward_backward(&TokenBatch::of(&batch), &Probe { silent, ..Probe::PLAIN }).unwrap();
        (report, learner.gradient(), learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap())
    };
    for silent in [None, Some(0), Some(22)] {
        let (flat_report, flat, flat_logprobs) = run(settings(false), silent);
        assert_eq!(flat_report.shared_tokens, 0);
        let base = settings(true);
        let mut shared = Vec::new();
        for settings in [
            base,
            LearnerConfig { recompute: true, ..base },
            LearnerConfig { lanes: 2, ..base },
            LearnerConfig { micro_batch_tokens: 150, ..base },
            LearnerConfig { micro_batch_tokens: 90, lanes: 3, ..base },
            LearnerConfig { micro_batch_tokens: 1, ..base },
        ] {
            let (report, gradient, logprobs) = run(settings, silent);
            assert!((report.loss - flat_report.loss).abs() < 1e-4 * flat_report.loss.abs().max(1.0));
            assert!((report.metrics.entropy - flat_report.metrics.entropy).abs() < 1e-3);
            assert_eq!(report.total_tokens, flat_report.total_tokens);
            assert!(distance(&flat, &gradient) < 1e-5, "{}", distance(&flat, &gradient));
            assert!(largest(&logprobs, &flat_logprobs) < 2e-5);
            assert_eq!(run(settings, silent).1, gradient, "the same bits again");
            shared.push(report.shared_tokens);
        }
        // The smaller the micro-batches, the less they share.
        assert_eq!(shared[0], shared[1]);
        assert!(shared[0] > flat_report.total_tokens / 2, "{shared:?} of {}", flat_report.total_tokens);
        assert!(shared[2..5].iter().all(|&less| less > shared[0] * 3 / 4), "{shared:?}");
        assert!(shared[2] < shared[0] && shared[4] < shared[0], "{shared:?}");
        assert_eq!(shared[5], 0);
    }
    let (_, flat, _) = run(settings(false), None);
    let (_, other, _) = run(settings(true), Some(1));
    assert!(distance(&flat, &other) > 1e-3);
}

#[test]
fn masked_contexts_and_divergences_are_those_of_a_flat_batch() {
    let batch = shared_batch();
    // Two equal prompts, one that a sequence also has, and an unshared one.
    let spans = [(0, 0, 2), (1, 0, 2), (5, 1, 7), (10, 1, 2), (13, 0, 5), (20, 0, 2)];
    let contexts = masked_contexts_of(&batch, &spans);
    let reference: Parameters<f32> = parameters(&config(4, 2, true), 12).cast();
    for (detached, with_reference, kls) in [(false, true, true), (true, true, false), (false, false, false)] {
        let probe = Probe { kls, ..Probe::PLAIN };
        let objective =
            Compare { detached, reference: with_reference, divergences: true, dropped: None, probe };
        let run = |settings: LearnerConfig, objective: &Compare| {
            let mut learner = learner(settings);
            learner.set_reference(Arc::new(reference.clone())).unwrap();
            let report = learner.forward_backward(&with_contexts(&batch, &contexts), objective).unwrap();
            (report, learner.gradient())
        };
        let (flat_report, flat) = run(settings(false), &objective);
        for base in [settings(true), LearnerConfig { micro_batch_tokens: 200, lanes: 2, ..settings(true) }] {
            let (report, gradient) = run(base, &objective);
            assert!((report.loss - flat_report.loss).abs() < 1e-4 * flat_report.loss.abs().max(1.0));
            assert_eq!(report.metrics.masked_contexts, 6.0);
            assert!(distance(&flat, &gradient) < 1e-5, "{}", distance(&flat, &gradient));
            assert!(report.shared_tokens > 0);
        }
        let (_, without) = run(settings(true), &Compare { dropped: Some(2), ..objective });
        assert!(distance(&flat, &without) > 1e-3);
    }
}

#[test]
fn hidden_states_values_and_reference_are_those_of_a_flat_batch() {
    let batch = shared_batch();
    let ranges: Vec<(Vec<u32>, Vec<Range<usize>>)> = batch
        .iter()
        .filter(|sequence| sequence.tokens.len() > 4)
        .map(|sequence| (sequence.tokens.clone(), vec![0..2, 3..sequence.tokens.len()]))
        .collect();
    let (mut shared, mut flat) = (learner(settings(true)), learner(settings(false)));
    let states = [shared.mean_hidden(&ranges).unwrap(), flat.mean_hidden(&ranges).unwrap()];
    for (a, b) in states[0].iter().zip(&states[1]) {
        assert!(largest(a, b) < 1e-5);
    }
    assert!(largest(&states[0][0], &states[0][3]) > 1e-3);
    let reference: Parameters<f32> = parameters(&config(4, 2, true), 12).cast();
    let of = |learner: &mut NativeLearner| {
        learner.set_reference(Arc::new(reference.clone())).unwrap();
        learner.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap()
    };
    assert!(largest(&of(&mut shared), &of(&mut flat)) < 2e-5);
    let critic = |share| {
        let mut weights: Parameters<f32> = parameters(&config(4, 2, true), 3).cast::<f32>().to_critic();
        let value = weights.layout.value.clone().unwrap();
        let head = crate::testing::random(4, value.len());
        weights.data[value].iter_mut().zip(head).for_each(|(to, x)| *to = x as f32);
        Critic::new(weights, settings(share)).unwrap()
    };
    assert!(
        largest(
            &critic(true).values(&TokenBatch::of(&batch).sequences).unwrap(),
            &critic(false).values(&TokenBatch::of(&batch).sequences).unwrap()
        ) < 2e-5
    );
}

#[test]
fn an_adapter_shares_prefixes_and_one_with_dropout_does_not() {
    let batch = shared_batch();
    let base: Parameters<f32> = parameters(&config(4, 2, true), 11).cast();
    let run = |share, dropout| {
        let targets = vec!["all-linear".to_owned()];
        let lora = LoraConfig { rank: 3, alpha: 2.0, dropout, rslora: false, targets };
        let mut adapter = Adapter::<f32>::zeros(&base.config, &lora).unwrap();
        let numbers = crate::testing::random(6, adapter.data.len());
        adapter.data.iter_mut().zip(numbers).for_each(|(to, x)| *to = 0.3 * x as f32);
        let weights = Weights { base: Arc::new(base.clone()), adapter: Some(Arc::new(adapter)) };
        let mut learner = NativeLearner::new(weights, settings(share)).unwrap();
        let report = learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        (report.shared_tokens, learner.gradient())
    };
    let ((saved, shared), (none, flat)) = (run(true, 0.0), run(false, 0.0));
    assert!(saved > 0 && none == 0);
    assert!(distance(&flat, &shared) < 1e-5, "{}", distance(&flat, &shared));
    let ((saved, dropped), (_, flat)) = (run(true, 0.3), run(false, 0.3));
    assert_eq!(saved, 0);
    assert_eq!(dropped, flat);
    assert!(distance(&dropped, &shared) > 1e-3);
}
