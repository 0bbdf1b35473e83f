use super::*;

#[test]
fn sampling_on_the_device_is_that_of_the_learner_and_the_cpu() {
    let plain = (1.0, 1.0, 0);
    for (config, kinds) in
        [(&families()[0], &[(0.0, 1.0, 0), (0.8, 0.9, 20)][..]), (&families()[2], &[plain])]
    {
        let weights = weights(config, 3);
        let Some([mut host, mut device]) = both(&weights, settings()) else { return };
        let sizes = EngineConfig { max_num_seqs: 4, max_model_len: 140 };
        let engine = |learner: &NativeLearner| {
            NativeEngine::with_shared(&learner.engine_weights().unwrap(), sizes, None).unwrap()
        };
        for &(temperature, top_p, top_k) in kinds {
            let params =
                SamplingParams { temperature, top_p, top_k, max_tokens: 9, ..SamplingParams::default() };
            let answers = play(&mut engine(&device), &params);
            assert_eq!(answers.len(), 12);
            assert!(answers.iter().all(|(_, answer)| answer.tokens.len() == 9));
            // Recorded log-probs match both learners' at the sampling temperature.
            if temperature == 1.0 || temperature == 0.0 {
                let recorded: Vec<Vec<f32>> =
                    answers.iter().map(|(_, answer)| answer.logprobs.clone()).collect();
                let own = apart(&recorded, &scored(&mut device, &answers));
                assert!(own < LOGPROBS, "{own}");
                let other = apart(&recorded, &scored(&mut host, &answers));
                assert!(other < LOGPROBS, "{other}");
            }
            if temperature == 1.0 {
                assert_eq!(play(&mut engine(&device), &params), answers, "the same bits every time");
            }
            if temperature == 0.0 {
                // Both take the most probable token if it is clear.
                let expected = play(&mut engine(&host), &params);
                let pairs = answers.iter().zip(&expected);
                let equal = pairs.filter(|(a, b)| a.1.tokens == b.1.tokens).count();
                assert!(equal >= 9, "{equal} of 12 greedy answers are equal");
            }
        }
        if kinds.len() == 1 {
            continue;
        }
        let mut kept = engine(&device);
        let params = SamplingParams { temperature: 0.0, max_tokens: 5, ..SamplingParams::default() };
        let before = play(&mut kept, &params);
        device.forward_backward(&TokenBatch::of(&batch(VOCABULARY, 1)), &Probe::PLAIN).unwrap();
        device.step(0.05).unwrap();
        for session in 0..6 {
            kept.end_session(session);
        }
        // Prompts with a cached prefix finish earlier.
        let strip = |mut answers: Vec<(Vec<u32>, Completion)>| -> Vec<Vec<u32>> {
            answers.sort_by(|(a, _), (b, _)| a.cmp(b));
            answers.into_iter().map(|(_, answer)| answer.tokens).collect()
        };
        assert_eq!(strip(play(&mut kept, &params)), strip(before.clone()));
        assert_ne!(strip(play(&mut engine(&device), &params)), strip(before));
    }
}
