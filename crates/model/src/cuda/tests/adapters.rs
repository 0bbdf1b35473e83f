use super::*;

fn adapted(base: Parameters<f32>, seed: u64, critic: bool) -> Weights {
    let lora = LoraConfig { rank: 4, alpha: 6.0, ..LoraConfig::default() };
    let mut adapter = Adapter::init(&base.config, &lora, Seed::derive(seed, Purpose::Init, &[])).unwrap();
    if critic {
        adapter = adapter.to_critic().unwrap();
    }
    for (index, value) in adapter.data.iter_mut().enumerate() {
        let wave = ((index as f32 + seed as f32) * 0.71).sin() * 0.2;
        *value = Bf16::from_f32(if *value == 0.0 { wave } else { *value }).to_f32();
    }
    Weights::adapted(Arc::new(base), adapter).unwrap()
}

#[test]
fn adapters_train_and_sample_as_on_the_cpu() {
    for (config, critic) in [(&families()[0], false), (&families()[2], false), (&families()[3], true)] {
        let policy = adapted(weights(config, 3), 1, critic);
        let Some([mut host, mut device]) = both(&policy, settings()) else { return };
        let batch = batch(VOCABULARY, 5);
        let (expected, found) = (
            host.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
            device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
        );
        assert!(apart(&found, &expected) < LOGPROBS, "{}", apart(&found, &expected));
        let objective: &dyn Objective = if critic { &Values } else { &Probe { kls: true, ..Probe::PLAIN } };
        for learner in [&mut host, &mut device] {
            learner.set_reference(policy.without_adapter()).unwrap();
            learner.forward_backward(&TokenBatch::of(&batch), objective).unwrap();
        }
        let off = distance(&device.gradient(), &host.gradient());
        assert!(off < GRADIENT, "{off}");
        for tensor in policy.trained_tensors() {
            let at = tensor.range.clone();
            let off = distance(&device.gradient()[at.clone()], &host.gradient()[at]);
            assert!(off < 0.1, "{}: {off}", tensor.name);
        }
        if critic {
            continue;
        }
        let silent = device.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap();
        assert!(
            apart(&silent, &host.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap()) < LOGPROBS
        );
        assert!(apart(&silent, &found) > 4.0 * LOGPROBS);
        device.step(1e-2).unwrap();
        let moved = device.weights();
        assert!(Arc::ptr_eq(&moved.base, &policy.base), "the base is not touched");
        assert!(distance(moved.trained(), policy.trained()) > 1e-3);
        let mut host = NativeLearner::new(rounded(&moved), settings()).unwrap();
        let after = device.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
        assert!(apart(&after, &host.logprobs(&TokenBatch::of(&batch).sequences).unwrap()) < LOGPROBS);
        assert_eq!(
            device.reference_logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
            silent,
            "the reference stays"
        );
        let sizes = EngineConfig { max_num_seqs: 4, max_model_len: 140 };
        let mut engine = NativeEngine::with_shared(&device.engine_weights().unwrap(), sizes, None).unwrap();
        let params = SamplingParams { max_tokens: 4, ..SamplingParams::default() };
        let answers = play(&mut engine, &params);
        let recorded: Vec<Vec<f32>> = answers.iter().map(|(_, answer)| answer.logprobs.clone()).collect();
        assert!(apart(&recorded, &scored(&mut device, &answers)) < LOGPROBS);
    }
    // Both drop the same entries, also with recomputation and in runs of sequences.
    let mut dropping = adapted(weights(&families()[0], 3), 1, false);
    Arc::make_mut(dropping.adapter.as_mut().unwrap()).config.dropout = 0.3;
    for recompute in [false, true] {
        let Some([mut host, mut device]) = both(&dropping, LearnerConfig { recompute, ..settings() }) else {
            return;
        };
        let batch = batch(VOCABULARY, 5);
        let plain = device.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
        let silent = Probe { silent: Some(1), ..Probe::PLAIN };
        let [a, b] = [&mut host, &mut device]
            .map(|learner| learner.forward_backward(&TokenBatch::of(&batch), &silent).unwrap().loss);
        assert!((a - b).abs() < 0.02 * a.abs().max(1.0), "{a} {b}");
        let off = distance(&device.gradient(), &host.gradient());
        assert!(off < GRADIENT, "{off}");
        // Only passes with a gradient drop entries, each with its own mask.
        assert_eq!(device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(), plain);
        let first = device.gradient();
        device.clear_gradient();
        device.forward_backward(&TokenBatch::of(&batch), &silent).unwrap();
        assert!(distance(&device.gradient(), &first) > 3.0 * GRADIENT);
    }
}
