use std::sync::Arc;

use turnwise_core::{
    LearnError, Learner as _, Objective, ObjectiveError, Purpose, RequiredPasses, SampleRequest,
    Sampler as _, SamplingParams, Seed, TokenBatch, TokenGradients, TokenSequence, TokenStatistics,
};

use super::*;
use crate::backend::Network;
use crate::cpu::decoder::Workspace;
use crate::cpu::decoder::tests::{batch, config, llama, parameters, qwen3, whole_backward};
use crate::engine::{EngineConfig, EngineWeights, NativeEngine};
use crate::packing::Packing;
use crate::testing::{Probe, TensorDifferences, check_gradient, random};
use crate::{
    AdapterBase, Compute, ComputePath, Critic, LearnerConfig, NativeLearner, OptimizerState, Parameters,
    Weights, load_adapter, save_adapter,
};

fn lora(targets: &[&str]) -> LoraConfig {
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    LoraConfig { rank: 3, alpha: 2.0, dropout: 0.0, rslora: false, targets }
}

fn random_adapter(model: &ModelConfig, config: &LoraConfig, seed: u64) -> Adapter<f64> {
    let mut adapter = Adapter::<f64>::zeros(model, config).unwrap();
    adapter.data = random(seed, adapter.data.len()).into_iter().map(|value| 0.3 * value).collect();
    adapter
}

fn packed(batch: &[TokenSequence]) -> Packing {
    let mut packing = Packing::default();
    packing.fill(batch.iter());
    packing
}

fn gradient_of(
    base: &Parameters<f64>,
    adapter: &Adapter<f64>,
    dropout: Option<Dropout>,
    recompute: bool,
) -> (Vec<f64>, impl FnMut(&Adapter<f64>) -> f64 + use<>) {
    let base = base.clone();
    let packing = packed(&batch(base.config.vocab_size, 1));
    let derivatives: Vec<[f64; 2]> =
        random(77, 2 * packing.targets.len()).chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    let mut workspace = Workspace::new(&base.config, recompute);
    let mut gradient = vec![0.0; adapter.layout.len];
    let network = Network { adapter: Some(adapter), dropout, ..Network::from(&base) };
    workspace.forward(network, &packing, 0.8);
    whole_backward(&mut workspace, network, &packing, &(0..packing.sequences()), &derivatives, &mut gradient);
    let loss = move |adapter: &Adapter<f64>| {
        let network = Network { adapter: Some(adapter), dropout, ..Network::from(&base) };
        let rows = workspace.forward(network, &packing, 0.8);
        rows.iter().zip(&derivatives).map(|(row, [d, e])| d * row.logprob + e * row.entropy).sum()
    };
    (gradient, loss)
}

#[test]
fn the_gradient_of_every_tensor_is_its_derivative() {
    for (model, targets, rslora, dropout, recompute) in [
        (config(4, 2, true), &["all-linear"][..], false, 0.0, false),
        (config(4, 2, true), &["all-linear"], true, 0.3, true),
        (qwen3(6, true), &["v_proj", "q_proj", "up_proj"], true, 0.0, true),
        (llama(), &["k_proj", "o_proj", "down_proj", "gate_proj"], false, 0.5, false),
    ] {
        let base = parameters(&model, 5);
        let adapter = random_adapter(&base.config, &LoraConfig { rslora, ..lora(targets) }, 6);
        let dropout = Dropout::new(9, dropout);
        let (gradient, mut loss) = gradient_of(&base, &adapter, dropout, recompute);
        for tensor in &adapter.layout.tensors {
            let mut moved = adapter.clone();
            let range = tensor.range.clone();
            check_gradient(&tensor.name, &adapter.data[range.clone()], &gradient[range.clone()], |values| {
                moved.data[range.clone()].copy_from_slice(values);
                loss(&moved)
            });
        }
    }
}

#[test]
#[should_panic(expected = "derivative")]
fn a_gradient_of_another_mask_is_found() {
    let base = parameters(&config(4, 2, true), 5);
    let adapter = random_adapter(&base.config, &lora(&["q_proj"]), 6);
    let (gradient, _) = gradient_of(&base, &adapter, Dropout::new(9, 0.3), false);
    let (_, mut loss) = gradient_of(&base, &adapter, Dropout::new(10, 0.3), false);
    let mut moved = adapter.clone();
    check_gradient("all", &adapter.data, &gradient, |values| {
        moved.data.copy_from_slice(values);
        loss(&moved)
    });
}

#[test]
fn a_fresh_adapter_changes_nothing_and_a_merged_one_is_the_same_function() {
    let base = parameters(&config(4, 2, false), 5);
    let seed = Seed::derive(1, Purpose::Init, &[1]);
    let fresh = Adapter::init(&base.config, &lora(&["all-linear"]), seed).unwrap();
    assert!(fresh.is_identity());
    let packing = packed(&batch(23, 2));
    let mut workspace = Workspace::new(&base.config, false);
    let mut logprobs = |network: Network<'_, f64>| -> Vec<f64> {
        workspace.forward(network, &packing, 1.0).iter().map(|row| row.logprob).collect()
    };
    let plain = logprobs((&base).into());
    let fresh = fresh.cast();
    assert_eq!(logprobs(Network { adapter: Some(&fresh), ..(&base).into() }), plain);
    let adapter = random_adapter(&base.config, &lora(&["all-linear"]), 7);
    assert!(!adapter.is_identity());
    let adapted = logprobs(Network { adapter: Some(&adapter), ..(&base).into() });
    let mut merged = base.clone();
    adapter.merge_into(&mut merged).unwrap();
    let most = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    assert!(most(&adapted, &logprobs((&merged).into())) < 1e-12);
    assert!(most(&adapted, &plain) > 1e-2, "the adapter matters");
    let other = ModelConfig { num_hidden_layers: 1, ..base.config.clone() };
    let error = adapter.merge_into(&mut Parameters::zeros(other)).unwrap_err().to_string();
    assert!(error.contains("do not belong together"), "{error}");
}

#[test]
fn the_initialisation_is_pefts() {
    let model = ModelConfig { intermediate_size: 400, ..config(4, 2, true) };
    let seed = Seed::derive(1, Purpose::Init, &[1]);
    let settings = LoraConfig { rank: 16, ..lora(&["all-linear"]) };
    let adapter = Adapter::init(&model, &settings, seed).unwrap();
    assert_eq!(adapter, Adapter::init(&model, &settings, seed).unwrap());
    for tensor in &adapter.layout.tensors {
        let values = &adapter.data[tensor.range.clone()];
        if tensor.name.ends_with("lora_B.weight") {
            assert!(values.iter().all(|&value| value == 0.0));
            continue;
        }
        // Uniform in ±1 / sqrt(inputs) has a third of the squared bound as variance.
        let bound = 1.0 / (tensor.shape[1] as f32).sqrt();
        assert!(values.iter().all(|value| value.abs() <= bound));
        let variance = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
        assert!((variance / (bound * bound / 3.0) - 1.0).abs() < 0.25, "{}: {variance}", tensor.name);
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    assert_eq!(lora(&["down_proj", "q_proj"]).modules().unwrap(), [Module::Query, Module::Down]);
    assert_eq!(lora(&["q_proj", "all-linear"]).modules().unwrap(), Module::ALL);
    let base = lora(&["all-linear"]);
    for (settings, expected) in [
        (LoraConfig { rank: 0, ..base.clone() }, "rank = 0: must be at least 1"),
        (LoraConfig { alpha: 0.0, ..base.clone() }, "alpha = 0.0: must be above 0"),
        (LoraConfig { alpha: f64::NAN, ..base.clone() }, "alpha = nan: must be a finite number"),
        (LoraConfig { dropout: 1.0, ..base.clone() }, "dropout = 1.0: must be at least 0 and below 1"),
        (lora(&[]), "targets = []: must be not empty"),
        (lora(&["lm_head"]), "targets: `lm_head` cannot"),
        (lora(&["qproj"]), "targets: `qproj` is none; there are: all-linear, q_proj"),
    ] {
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

const PROBE: Probe = Probe { entropies: false, ..Probe::PLAIN };

fn sequences() -> Vec<TokenSequence> {
    [batch(23, 1), batch(23, 2), batch(23, 3)].concat()
}

fn adapted(dropout: f64) -> Weights {
    let base: Parameters<f32> = parameters(&config(4, 2, true), 11).cast();
    let settings = LoraConfig { dropout, ..lora(&["all-linear"]) };
    let adapter = random_adapter(&base.config, &settings, 12).cast();
    Weights::adapted(Arc::new(base), adapter).unwrap()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    let scale = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / scale
}

#[test]
fn micro_batches_lanes_and_recomputation_drop_the_same_entries() {
    let batch = sequences();
    for dropout in [0.0, 0.4] {
        let run = |settings: LearnerConfig| {
            let mut learner = NativeLearner::new(adapted(dropout), settings).unwrap();
            let report = learner.forward_backward(&TokenBatch::of(&batch), &PROBE).unwrap();
            (report.loss, learner.gradient())
        };
        let base = LearnerConfig { lanes: 1, micro_batch_tokens: 100_000, ..LearnerConfig::default() };
        let (loss, gradient) = run(base);
        for settings in [
            LearnerConfig { micro_batch_tokens: 1, ..base },
            LearnerConfig { micro_batch_tokens: 80, lanes: 3, ..base },
            LearnerConfig { lanes: 2, recompute: true, micro_batch_tokens: 50, ..base },
        ] {
            let (other_loss, other) = run(settings);
            assert!((loss - other_loss).abs() < 1e-4 * loss.abs().max(1.0));
            assert!(distance(&gradient, &other) < 1e-5, "{}", distance(&gradient, &other));
            assert_eq!(run(settings).1, other);
        }
        let (_, seeded) = run(LearnerConfig { seed: 1, ..base });
        assert_eq!(distance(&gradient, &seeded) > 1e-2, dropout > 0.0);
    }
}

#[test]
fn bf16_stays_near_f32() {
    let batch = sequences();
    let run = |compute: Compute| {
        let settings = LearnerConfig { compute, ..LearnerConfig::default() };
        let mut learner = NativeLearner::new(adapted(0.2), settings).unwrap();
        learner.forward_backward(&TokenBatch::of(&batch), &PROBE).unwrap();
        learner.gradient()
    };
    let (reference, first, second) = (run(Compute::F32), run(Compute::Bf16), run(Compute::Bf16));
    assert_eq!(first, second);
    let off = distance(&reference, &first);
    if Compute::Bf16.path() == ComputePath::F32 {
        eprintln!("skipped: part of a test: this CPU multiplies no bf16 (AMX or AVX512-BF16)");
        assert_eq!(reference, first);
    } else {
        assert!(off > 1e-5 && off < 0.05, "{off}");
    }
}

#[test]
fn every_pass_drops_other_entries_and_scoring_none() {
    let batch = sequences();
    let mut learner = NativeLearner::new(adapted(0.4), LearnerConfig::default()).unwrap();
    let mut without = NativeLearner::new(adapted(0.0), LearnerConfig::default()).unwrap();
    assert_eq!(
        learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
        without.logprobs(&TokenBatch::of(&batch).sequences).unwrap()
    );
    let first = learner.forward_backward(&TokenBatch::of(&batch), &PROBE).unwrap().loss;
    let second = learner.forward_backward(&TokenBatch::of(&batch), &PROBE).unwrap().loss;
    assert!((first - second).abs() > 1e-3, "{first} {second}");
    // An empty step, so that dropout coordinates change.
    learner.clear_gradient();
    learner.step(0.0).unwrap();
    let third = learner.forward_backward(&TokenBatch::of(&batch), &PROBE).unwrap().loss;
    assert!((first - third).abs() > 1e-3 && (second - third).abs() > 1e-3);
    let mut resumed = NativeLearner::new(learner.weights(), LearnerConfig::default()).unwrap();
    resumed.restore_optimizer(learner.optimizer_state().clone()).unwrap();
    assert_eq!(resumed.forward_backward(&TokenBatch::of(&batch), &PROBE).unwrap().loss, third);
}

#[test]
fn steps_move_the_adapter_and_keep_the_base() {
    let weights = adapted(0.0);
    let before = (*weights.base).clone();
    let adapter = weights.adapter.clone().unwrap();
    let mut learner = NativeLearner::new(weights.clone(), LearnerConfig::default()).unwrap();
    assert_eq!(learner.trained_len(), adapter.layout.len);
    let mut last = f64::INFINITY;
    for step in 1..=5 {
        let report = learner.forward_backward(&TokenBatch::of(&sequences()), &PROBE).unwrap();
        assert_eq!(learner.gradient().len(), adapter.layout.len, "the frozen weights have no gradient");
        assert!(learner.gradient().iter().all(|&g| g != 0.0), "the others all have one");
        assert!(report.loss < last, "the loss falls");
        last = report.loss;
        let norm = learner.grad_norm().unwrap();
        let report = learner.step(3e-3).unwrap();
        assert_eq!(report.step, step);
        assert!((report.grad_norm / norm - 1.0).abs() < 1e-6);
    }
    assert_eq!(learner.optimizer_state().first.len(), adapter.layout.len);
    let after = learner.weights();
    assert!(Arc::ptr_eq(&after.base, &weights.base), "nothing copied the base");
    assert_eq!(*after.base, before);
    assert_ne!(after.adapter.unwrap().data, adapter.data);
    assert_eq!(weights.adapter.unwrap(), adapter, "a kept copy stays");
}

#[test]
fn a_restored_optimizer_continues_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let advance = |learner: &mut NativeLearner| {
        learner.forward_backward(&TokenBatch::of(&sequences()), &PROBE).unwrap();
        learner.step(1e-3).unwrap();
    };
    let settings = LearnerConfig { seed: 5, ..LearnerConfig::default() };
    let mut learner = NativeLearner::new(adapted(0.2), settings).unwrap();
    advance(&mut learner);
    advance(&mut learner);
    learner.optimizer_state().save(&path, learner.trained_tensors()).unwrap();
    let base = AdapterBase { name: "base".into(), revision: None };
    save_adapter(learner.weights().adapter.as_ref().unwrap(), &folder.path().join("policy"), &base).unwrap();
    let adapter = load_adapter(&folder.path().join("policy"), learner.model()).unwrap();
    let state = OptimizerState::load(&path, learner.trained_tensors()).unwrap();
    assert_eq!(&state, learner.optimizer_state());
    let weights = Weights::adapted(learner.weights().base, adapter).unwrap();
    let mut resumed = NativeLearner::new(weights.clone(), settings).unwrap();
    let mut fresh = NativeLearner::new(weights.clone(), settings).unwrap();
    resumed.restore_optimizer(state).unwrap();
    for other in [&mut learner, &mut resumed, &mut fresh] {
        advance(other);
    }
    assert_eq!(learner.weights().trained(), resumed.weights().trained());
    assert_ne!(learner.weights().trained(), fresh.weights().trained(), "the moments matter");
    let full = NativeLearner::new((*weights.base).clone(), settings).unwrap();
    assert!(resumed.restore_optimizer(full.optimizer_state().clone()).is_err());
}

#[test]
fn the_reference_is_the_adapter_switched_off() {
    struct Full;
    impl Objective for Full {
        fn passes(&self) -> RequiredPasses {
            RequiredPasses { reference_kls: true, ..RequiredPasses::default() }
        }

        fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
            let kls = tokens.reference_kls;
            Ok(TokenGradients {
                loss: kls.iter().sum(),
                d_logprobs: vec![0.0; kls.len()],
                d_reference_kls: vec![1.0; kls.len()],
                ..TokenGradients::default()
            })
        }
    }
    let batch = sequences();
    let weights = adapted(0.0);
    let mut learner = NativeLearner::new(weights.clone(), LearnerConfig::default()).unwrap();
    learner.set_reference(weights.without_adapter()).unwrap();
    let mut base = NativeLearner::new(Arc::clone(&weights.base), LearnerConfig::default()).unwrap();
    let reference = learner.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap();
    assert_eq!(reference, base.logprobs(&TokenBatch::of(&batch).sequences).unwrap());
    assert_ne!(reference, learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap());
    assert!(matches!(
        base.reference_logprobs(&TokenBatch::of(&batch).sequences),
        Err(LearnError::Backend(_))
    ));
    let loss = learner.forward_backward(&TokenBatch::of(&batch), &Full).unwrap().loss;
    let gradient = learner.gradient();
    let mut merged = NativeLearner::new(weights.merged().unwrap(), LearnerConfig::default()).unwrap();
    merged.set_reference(weights.without_adapter()).unwrap();
    let other = merged.forward_backward(&TokenBatch::of(&batch), &Full).unwrap().loss;
    assert!(loss > 0.1 && (loss - other).abs() < 1e-4 * loss, "{loss} {other}");
    let adapter = weights.adapter.as_ref().unwrap();
    let tensors = adapter.layout.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone()));
    let differences = TensorDifferences::of(&adapter.data, tensors, |data| {
        let mut adapter = (**adapter).clone();
        adapter.data.copy_from_slice(data);
        let moved = Weights::adapted(Arc::clone(&weights.base), adapter).unwrap();
        let mut learner = NativeLearner::new(moved, LearnerConfig::default()).unwrap();
        learner.set_reference(weights.without_adapter()).unwrap();
        learner.forward_backward(&TokenBatch::of(&batch), &Full).unwrap().loss
    });
    differences.check(&gradient, 5e-3);
}

#[test]
fn a_critic_stands_on_the_policys_base() {
    struct Squares;
    impl Objective for Squares {
        fn evaluate(
            &self,
            sequence: usize,
            tokens: TokenStatistics<'_>,
        ) -> Result<TokenGradients, ObjectiveError> {
            let off = |value: f32| value - (sequence as f32 - 1.5);
            Ok(TokenGradients {
                loss: tokens.logprobs.iter().map(|&v| f64::from(off(v)).powi(2)).sum(),
                d_logprobs: tokens.logprobs.iter().map(|&v| 2.0 * off(v)).collect(),
                ..TokenGradients::default()
            })
        }
    }
    let policy = adapted(0.0);
    let error = Critic::new(policy.clone(), LearnerConfig::default()).err().unwrap().to_string();
    assert!(error.contains("no value head"), "{error}");
    let adapter = policy.adapter.as_ref().unwrap().to_critic().unwrap();
    let weights = Weights::adapted(Arc::clone(&policy.base), adapter).unwrap();
    let mut critic = Critic::new(weights, LearnerConfig::default()).unwrap();
    let batch = batch(23, 1);
    assert!(
        critic.values(&TokenBatch::of(&batch).sequences).unwrap().iter().flatten().all(|&value| value == 0.0)
    );
    let first = critic.forward_backward(&TokenBatch::of(&batch), &Squares).unwrap().loss;
    critic.step(1e-2).unwrap();
    for _ in 0..60 {
        critic.forward_backward(&TokenBatch::of(&batch), &Squares).unwrap();
        critic.step(1e-2).unwrap();
    }
    let last = critic.forward_backward(&TokenBatch::of(&batch), &Squares).unwrap().loss;
    assert!(last < 0.05 * first, "{first} to {last}");
    assert!(Arc::ptr_eq(&critic.weights().base, &policy.base));
}

#[test]
fn a_critics_gradient_is_its_derivative() {
    let base = parameters(&config(4, 2, true), 5);
    let mut adapter = random_adapter(&base.config, &lora(&["v_proj", "down_proj"]), 6).to_critic().unwrap();
    let value = adapter.layout.value.clone().unwrap();
    let head = random(8, value.len());
    adapter.data[value].copy_from_slice(&head);
    let packing = packed(&batch(23, 1));
    let derivatives: Vec<[f64; 2]> = random(7, packing.targets.len()).into_iter().map(|d| [d, 0.0]).collect();
    let mut workspace = Workspace::new(&base.config, false);
    let loss = |workspace: &mut Workspace<f64>, adapter: &Adapter<f64>| -> f64 {
        let network = Network { adapter: Some(adapter), ..(&base).into() };
        let rows = workspace.forward(network, &packing, 1.0);
        rows.iter().zip(&derivatives).map(|(row, [d, _])| d * row.logprob).sum()
    };
    loss(&mut workspace, &adapter);
    let mut gradient = vec![0.0; adapter.layout.len];
    let network = Network { adapter: Some(&adapter), ..(&base).into() };
    whole_backward(&mut workspace, network, &packing, &(0..5), &derivatives, &mut gradient);
    for tensor in &adapter.layout.tensors {
        let mut moved = adapter.clone();
        let range = tensor.range.clone();
        check_gradient(&tensor.name, &adapter.data[range.clone()], &gradient[range.clone()], |values| {
            moved.data[range.clone()].copy_from_slice(values);
            loss(&mut workspace, &moved)
        });
    }
}

#[test]
fn the_engine_samples_what_the_learner_trains() {
    let weights = adapted(0.0);
    let sizes = EngineConfig { max_num_seqs: 2, max_model_len: 64 };
    let sampled = |packed: EngineWeights| {
        let mut engine = NativeEngine::with_weights(Arc::new(packed), sizes, None).unwrap();
        let params = SamplingParams { max_tokens: 30, ..SamplingParams::default() };
        let seed = Seed::derive(3, Purpose::Rollout, &[]);
        engine.submit(SampleRequest { session: 0, prompt: vec![1, 5, 9, 2], params, seed }).unwrap();
        engine.poll().unwrap().remove(0)
    };
    let mut learner = NativeLearner::new(weights.clone(), LearnerConfig::default()).unwrap();
    let mut most = |packed: EngineWeights| {
        let completion = sampled(packed);
        let tokens = [vec![1, 5, 9, 2], completion.tokens.clone()].concat();
        let end = tokens.len();
        let sequence = crate::cpu::decoder::tests::sequence(&tokens, &[(4, end)]);
        let own = learner.logprobs(&[&sequence]).unwrap().remove(0);
        own.iter().zip(&completion.logprobs).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
    };
    let with = most(EngineWeights::of(&weights, 1, Compute::F32).unwrap());
    assert!(with < 2e-5, "{with}");
    let beside = EngineWeights::pack_network((&weights).into(), 1, Compute::F32, true).unwrap();
    let beside = most(beside);
    assert!(beside < 2e-5, "{beside}");
    let without = most(EngineWeights::pack(&weights.base, 1).unwrap());
    assert!(without > 1e-2, "without the adapter the numbers are others: {without}");
}

#[test]
fn a_small_update_reaches_sampling_in_bf16() {
    if Compute::Bf16.path() == ComputePath::F32 {
        println!("skipped: this CPU multiplies no bf16");
        return;
    }
    let whole = adapted(0.0);
    let mut base = (*whole.base).clone();
    base.data.iter_mut().for_each(|weight| *weight = half::bf16::from_f32(*weight).to_f32());
    let base = Arc::new(base);
    let sampled = |size: f32| {
        let mut adapter = (**whole.adapter.as_ref().unwrap()).clone();
        adapter.data.iter_mut().for_each(|value| *value *= size);
        let weights = Weights { base: Arc::clone(&base), adapter: Some(Arc::new(adapter)) };
        let packed = EngineWeights::of(&weights, 1, Compute::Bf16).unwrap();
        let sizes = EngineConfig { max_num_seqs: 1, max_model_len: 64 };
        let mut engine = NativeEngine::with_weights(Arc::new(packed), sizes, None).unwrap();
        let params = SamplingParams { max_tokens: 8, temperature: 0.0, ..SamplingParams::default() };
        let seed = Seed::derive(3, Purpose::Rollout, &[]);
        engine.submit(SampleRequest { session: 0, prompt: vec![1, 5, 9, 2], params, seed }).unwrap();
        engine.poll().unwrap().remove(0).entropies
    };
    // A and B are a hundredth as large, so their product is a ten-thousandth.
    assert_ne!(sampled(1e-2), sampled(0.0));
}
