use turnwise_core::{Learner as _, Purpose, Seed, TokenSequence, TurnSpan};
use turnwise_text::TokenizerConfig;

use super::*;
use crate::{Compute, Family, LearnerConfig, ModelConfig, NativeLearner, ParameterLayout, RopeScaling};

pub(super) fn config() -> ModelConfig {
    ModelConfig {
        vocab_size: 301,
        hidden_size: 48,
        intermediate_size: 52,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 12,
        max_position_embeddings: 512,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    }
}

fn qwen3() -> ModelConfig {
    let rope_scaling = RopeScaling::Yarn {
        factor: 4.0,
        attention_factor: 1.2,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_max_position_embeddings: 64,
        truncate: true,
    };
    ModelConfig { model_type: Family::Qwen3, head_dim: 20, rope_scaling, ..config() }
}

fn llama() -> ModelConfig {
    let base = config();
    ModelConfig { model_type: Family::Llama, attention_bias: true, mlp_bias: true, ..base }
}

/// Weights large enough that attention and entropies vary by position.
pub(super) fn random(config: ModelConfig, seed: u64) -> Parameters<f32> {
    let layout = ParameterLayout::new(&config);
    let mut rng = Seed::derive(seed, Purpose::Init, &[]).rng();
    let mut data = vec![0.0; layout.len];
    for tensor in &layout.tensors {
        for value in &mut data[tensor.range.clone()] {
            *value = if tensor.name.contains("norm") {
                1.0 + 0.1 * rng.normal() as f32
            } else if tensor.name.contains("embed") || tensor.name.contains("lm_head") {
                0.3 * rng.normal() as f32
            } else {
                0.15 * rng.normal() as f32
            };
        }
    }
    Parameters { config, layout, data }
}

/// Logits of each position by definition, in `f64` and without a cache.
fn reference(parameters: &Parameters<f32>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let config = &parameters.config;
    let layout = &parameters.layout;
    let at = |range: &std::ops::Range<usize>| -> Vec<f64> {
        parameters.data[range.clone()].iter().map(|&weight| f64::from(weight)).collect()
    };
    let linear = |x: &[f64], weight: &[f64]| -> Vec<f64> {
        weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    };
    let norm = |x: &[f64], weight: &[f64]| -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().zip(weight).map(|(x, w)| x / (mean + config.rms_norm_eps).sqrt() * w).collect()
    };
    let add = |a: Vec<f64>, b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
    let (width, hidden) = (config.head_dim, config.hidden_size);
    let rotary = config.rotary();
    // Missing biases and head norms have no effect.
    let optional = |range: &Option<std::ops::Range<usize>>| range.as_ref().map(at);
    let biased = |x: Vec<f64>, bias: &Option<std::ops::Range<usize>>| match optional(bias) {
        Some(bias) => add(x, &bias),
        None => x,
    };
    let normed = |x: Vec<f64>, weight: &Option<std::ops::Range<usize>>| match optional(weight) {
        Some(weight) => x.chunks(width).flat_map(|head| norm(head, &weight)).collect(),
        None => x,
    };
    let rope = |mut x: Vec<f64>, position: usize| {
        for head in x.chunks_mut(width) {
            for i in 0..width / 2 {
                let angle = position as f64 * rotary.frequencies[i];
                let (a, b) =
                    (rotary.attention_factor * head[i], rotary.attention_factor * head[i + width / 2]);
                head[i] = a * angle.cos() - b * angle.sin();
                head[i + width / 2] = b * angle.cos() + a * angle.sin();
            }
        }
        x
    };
    let embedding = at(&layout.embedding);
    let mut rows: Vec<Vec<f64>> =
        tokens.iter().map(|&token| embedding[token as usize * hidden..][..hidden].to_vec()).collect();
    for layer in &layout.layers {
        let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (position, row) in rows.iter().enumerate() {
            let x = norm(row, &at(&layer.input_norm));
            let query = biased(linear(&x, &at(&layer.q_weight)), &layer.q_bias);
            let key = biased(linear(&x, &at(&layer.k_weight)), &layer.k_bias);
            queries.push(rope(normed(query, &layer.q_norm), position));
            keys.push(rope(normed(key, &layer.k_norm), position));
            values.push(biased(linear(&x, &at(&layer.v_weight)), &layer.v_bias));
        }
        let group = config.num_attention_heads / config.num_key_value_heads;
        for (position, row) in rows.iter_mut().enumerate() {
            let mut attended = Vec::new();
            for head in 0..config.num_attention_heads {
                let part = head / group * width..(head / group + 1) * width;
                let query = &queries[position][head * width..(head + 1) * width];
                let weights: Vec<f64> = (0..=position)
                    .map(|other| {
                        let dot: f64 = query.iter().zip(&keys[other][part.clone()]).map(|(q, k)| q * k).sum();
                        (dot / (width as f64).sqrt()).exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for column in part {
                    attended
                        .push(weights.iter().zip(&values).map(|(w, v)| w * v[column]).sum::<f64>() / total);
                }
            }
            *row = add(biased(linear(&attended, &at(&layer.o_weight)), &layer.o_bias), row);
            let x = norm(row, &at(&layer.post_norm));
            let gate = biased(linear(&x, &at(&layer.gate_weight)), &layer.gate_bias);
            let up = biased(linear(&x, &at(&layer.up_weight)), &layer.up_bias);
            let gated: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            *row = add(biased(linear(&gated, &at(&layer.down_weight)), &layer.down_bias), row);
        }
    }
    let (final_norm, output) = (at(&layout.final_norm), at(&layout.output));
    rows.iter().map(|row| linear(&norm(row, &final_norm), &output)).collect()
}

fn score(logits: &[f64], temperature: f64, token: u32) -> (f64, f64) {
    let temperature = if temperature == 0.0 { 1.0 } else { temperature };
    let total: f64 = logits.iter().map(|logit| (logit / temperature).exp()).sum();
    let logprob = |logit: f64| logit / temperature - total.ln();
    let entropy = logits.iter().map(|&logit| -logprob(logit) * logprob(logit).exp()).sum();
    (logprob(logits[token as usize]), entropy)
}

fn difference(
    parameters: &Parameters<f32>,
    prompt: &[u32],
    temperature: f32,
    completion: &Completion,
) -> f64 {
    let tokens = [prompt, &completion.tokens].concat();
    let logits = reference(parameters, &tokens);
    let mut largest = 0.0f64;
    for (index, &token) in completion.tokens.iter().enumerate() {
        let (logprob, entropy) = score(&logits[prompt.len() + index - 1], f64::from(temperature), token);
        largest = largest.max((logprob - f64::from(completion.logprobs[index])).abs());
        largest = largest.max((entropy - f64::from(completion.entropies[index])).abs());
    }
    largest
}

pub(super) fn engine(
    parameters: &Parameters<f32>,
    max_num_seqs: usize,
    max_model_len: usize,
) -> NativeEngine {
    let sizes = EngineConfig { max_num_seqs, max_model_len };
    NativeEngine::new(Arc::new(parameters.clone()), 7, sizes, None).unwrap()
}

fn engine_in(
    parameters: &Parameters<f32>,
    max_num_seqs: usize,
    max_model_len: usize,
    compute: Compute,
) -> NativeEngine {
    let weights = EngineWeights::of(&parameters.clone().into(), 7, compute).unwrap();
    NativeEngine::with_weights(Arc::new(weights), EngineConfig { max_num_seqs, max_model_len }, None).unwrap()
}

pub(super) fn params(temperature: f32, max_tokens: usize) -> SamplingParams {
    SamplingParams { temperature, max_tokens, ..SamplingParams::default() }
}

pub(super) fn request(session: u64, turn: u64, prompt: &[u32], params: SamplingParams) -> SampleRequest {
    let seed = Seed::derive(11, Purpose::Rollout, &[session, turn]);
    SampleRequest { session, prompt: prompt.to_vec(), params, seed }
}

/// A prompt whose first `shared` tokens are the same in all sessions.
pub(super) fn prompt(session: u64, len: usize, shared: usize) -> Vec<u32> {
    (0..len)
        .map(|at| ((at * 31 + if at < shared { 0 } else { session as usize * 17 + 5 }) % 301) as u32)
        .collect()
}

/// Plays four turns. Odd sessions append to the conversation; even ones keep only its first 20
/// tokens.
fn play(engine: &mut NativeEngine, sessions: u64, shared: usize) -> Vec<(SampleRequest, Completion)> {
    let mut open = std::collections::BTreeMap::new();
    let mut played = Vec::new();
    for session in 0..sessions {
        let temperature = [1.0, 0.6, 0.0][session as usize % 3];
        let length = 5 + (session as usize * 13) % 9;
        let first = request(
            session,
            0,
            &prompt(session, 25 + session as usize * 3, shared),
            params(temperature, length),
        );
        open.insert(engine.submit(first.clone()).unwrap(), (0, first));
    }
    loop {
        let done = engine.poll().unwrap();
        if done.is_empty() {
            break;
        }
        assert!(done.is_sorted_by_key(|completion| completion.request));
        for completion in done {
            let (turn, asked) = open.remove(&completion.request).unwrap();
            assert_eq!(completion.tokens.len(), asked.params.max_tokens);
            assert_eq!((completion.finish, completion.weights_version), (FinishReason::Length, 7));
            if turn < 3 {
                let observation = prompt(asked.session + turn, 4 + turn as usize, 0);
                let head = if asked.session % 2 == 1 { asked.prompt.len() } else { 20 };
                let next = [&asked.prompt[..head], &completion.tokens, &observation].concat();
                let next = request(asked.session, turn + 1, &next, asked.params.clone());
                open.insert(engine.submit(next.clone()).unwrap(), (turn + 1, next));
            }
            played.push((asked, completion));
        }
    }
    assert!(open.is_empty());
    played
}

#[test]
fn recorded_numbers_equal_a_fresh_scoring() {
    let mut untied = config();
    untied.tie_word_embeddings = false;
    untied.num_key_value_heads = 1;
    untied.num_attention_heads = 8;
    untied.head_dim = 6;
    for config in [config(), untied, qwen3(), llama()] {
        let parameters = random(config, 1);
        // With three slots, caches are evicted and rebuilt between turns.
        for slots in [3, 7, 12] {
            let played = play(&mut engine(&parameters, slots, 200), 7, 18);
            assert_eq!(played.len(), 28);
            for (asked, completion) in &played {
                let found = difference(&parameters, &asked.prompt, asked.params.temperature, completion);
                assert!(found < 1e-4, "{found:e}");
            }
        }
        let mut other = parameters.clone();
        let changed = other.layout.layers[1].v_weight.start + 3;
        other.data[changed] += 0.1;
        let played = play(&mut engine(&parameters, 7, 200), 7, 18);
        let found: Vec<f64> = played
            .iter()
            .map(|(asked, completion)| {
                difference(&other, &asked.prompt, asked.params.temperature, completion)
            })
            .collect();
        assert!(found.iter().all(|&found| found > 1e-4), "{found:?}");
    }
}

#[test]
fn company_and_order_change_no_bit() {
    for config in [config(), qwen3(), llama()] {
        for compute in [Compute::F32, Compute::Bf16] {
            company_and_order_change_no_bit_of(config.clone(), compute);
        }
    }
}

fn company_and_order_change_no_bit_of(config: ModelConfig, compute: Compute) {
    let parameters = random(config, 2);
    let engine =
        |parameters: &Parameters<f32>, slots, context| engine_in(parameters, slots, context, compute);
    let played = play(&mut engine(&parameters, 9, 300), 9, 19);
    for slots in [2, 5] {
        let mut again = play(&mut engine(&parameters, slots, 300), 9, 19);
        again.sort_by_key(|(asked, _)| (asked.session, asked.prompt.len()));
        let mut first = played.clone();
        first.sort_by_key(|(asked, _)| (asked.session, asked.prompt.len()));
        for ((asked, one), (asked_again, other)) in first.iter().zip(&again) {
            assert_eq!(asked, asked_again);
            assert_eq!(bits(one), bits(other));
        }
    }
    for (asked, completion) in &played {
        let mut alone = engine(&parameters, 1, 300);
        alone.submit(asked.clone()).unwrap();
        assert_eq!(bits(&alone.poll().unwrap()[0]), bits(completion));
    }
    let (asked, completion) = &played[0];
    let mut other = engine(&parameters, 1, 300);
    other.submit(SampleRequest { seed: Seed::derive(12, Purpose::Rollout, &[]), ..asked.clone() }).unwrap();
    assert_ne!(bits(&other.poll().unwrap()[0]), bits(completion));
}

/// A bf16 learner's log-probs are nearer to a bf16 engine's than to an `f32` engine's, but not
/// equal, because the learner also rounds attention's products.
#[test]
fn products_are_rounded_as_a_learner_rounds_them() {
    if Compute::Bf16.kernel().is_none() {
        eprintln!("skipped: this CPU multiplies no bf16");
        return;
    }
    for config in [config(), llama()] {
        let parameters = random(config, 5);
        let learner = LearnerConfig { compute: Compute::Bf16, ..LearnerConfig::default() };
        let mut learner = NativeLearner::new(parameters.clone(), learner).unwrap();
        let mut distance = |compute| {
            let mut engine = engine_in(&parameters, 4, 200, compute);
            for session in 0..4 {
                engine.submit(request(session, 0, &prompt(session, 30, 0), params(1.0, 40))).unwrap();
            }
            let (mut sum, mut count, mut largest) = (0.0, 0.0, 0.0f32);
            for (session, completion) in engine.poll().unwrap().iter().enumerate() {
                let tokens = [prompt(session as u64, 30, 0), completion.tokens.clone()].concat();
                let spans = vec![TurnSpan { turn: 0, start: 30, end: tokens.len() }];
                let scored = learner.logprobs(&[&TokenSequence { tokens, spans }]).unwrap();
                for (scored, sampled) in scored[0].iter().zip(&completion.logprobs) {
                    sum += f64::from((scored - sampled).abs());
                    count += 1.0;
                    largest = largest.max((scored - sampled).abs());
                }
                let exact = difference(&parameters, &prompt(session as u64, 30, 0), 1.0, completion);
                assert!(exact < 0.2 && (exact > 1e-3) == (compute == Compute::Bf16), "{exact}");
            }
            println!("{compute:?}: mean {:.2e}, largest {largest:.2e}", sum / count);
            sum / count
        };
        let (rounded, single) = (distance(Compute::Bf16), distance(Compute::F32));
        assert!(rounded < single, "{rounded} against {single}");
    }
}

pub(super) fn bits(completion: &Completion) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    (completion.tokens.clone(), bits(&completion.logprobs), bits(&completion.entropies))
}

#[test]
fn greedy_is_the_argmax_of_the_reference() {
    let parameters = random(config(), 3);
    let mut engine = engine(&parameters, 4, 200);
    for session in 0..4 {
        engine.submit(request(session, 0, &prompt(session, 40, 0), params(0.0, 12))).unwrap();
    }
    for completion in engine.poll().unwrap() {
        let asked = prompt(completion.request, 40, 0);
        let logits = reference(&parameters, &[&asked[..], &completion.tokens].concat());
        for (index, &token) in completion.tokens.iter().enumerate() {
            let row = &logits[asked.len() + index - 1];
            let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            assert_eq!(best as u32, token);
        }
    }
}

#[test]
fn long_prompts_are_cut_into_steps() {
    let parameters = random(config(), 4);
    let mut engine = engine(&parameters, 3, 512);
    let lengths = [300, 129, 5];
    for (session, len) in (0..).zip(lengths) {
        engine.submit(request(session, 0, &prompt(session, len, 0), params(1.0, 3))).unwrap();
    }
    let mut answered = 0;
    while answered < 3 {
        for completion in engine.poll().unwrap() {
            let asked = prompt(completion.request, lengths[completion.request as usize], 0);
            assert!(difference(&parameters, &asked, 1.0, &completion) < 1e-4);
            answered += 1;
        }
    }
}

#[test]
fn responses_end_where_they_should() {
    let parameters = random(config(), 5);
    let tokenizer = Tokenizer::train(
        ["go to shelf 1 and shelf 2"].into_iter(),
        &TokenizerConfig { max_pieces: 30, ..TokenizerConfig::default() },
    )
    .unwrap();
    let sizes = EngineConfig { max_num_seqs: 2, max_model_len: 60 };
    let tokenizer = Arc::new(tokenizer);
    let mut engine =
        NativeEngine::new(Arc::new(parameters.clone()), 1, sizes, Some(Arc::clone(&tokenizer))).unwrap();
    let mut answer = |asked: SampleRequest| {
        let id = engine.submit(asked).unwrap();
        let done = engine.poll().unwrap();
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].request, id);
        done.into_iter().next().unwrap()
    };
    let asked = prompt(1, 30, 0);
    let free = answer(request(0, 0, &asked, params(1.0, 20)));
    assert_eq!((free.finish, free.tokens.len()), (FinishReason::Length, 20));

    let stopped = answer(request(
        0,
        0,
        &asked,
        SamplingParams { stop_tokens: vec![free.tokens[6]], ..params(1.0, 20) },
    ));
    let end = free.tokens.iter().position(|token| *token == free.tokens[6]).unwrap();
    assert_eq!((stopped.finish, &stopped.tokens[..]), (FinishReason::Stop, &free.tokens[..=end]));

    let two = (1..20).find(|&at| free.tokens[at] < 256 && free.tokens[at - 1] < 256).unwrap();
    let text: Vec<u8> =
        free.tokens[two - 1..=two].iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
    if let Ok(stop) = String::from_utf8(text) {
        let stopped =
            answer(request(0, 0, &asked, SamplingParams { stop_strings: vec![stop], ..params(1.0, 20) }));
        assert_eq!((stopped.finish, &stopped.tokens[..]), (FinishReason::Stop, &free.tokens[..=two]));
    }

    let full = answer(request(0, 0, &asked, params(1.0, 500)));
    assert_eq!((full.finish, full.tokens.len()), (FinishReason::Context, 30));
    assert_eq!(full.tokens[..20], free.tokens[..]);
    assert!(difference(&parameters, &asked, 1.0, &full) < 1e-4);
    let none = answer(request(3, 0, &prompt(1, 60, 0), params(1.0, 5)));
    assert_eq!((none.finish, none.tokens.len()), (FinishReason::Context, 0));
    let none = answer(request(3, 0, &asked, params(1.0, 0)));
    assert_eq!((none.finish, none.tokens.len()), (FinishReason::Length, 0));
    assert!(engine.poll().unwrap().is_empty());
}

#[test]
fn requests_that_cannot_be_served_are_refused() {
    let parameters = random(config(), 6);
    let mut engine = engine(&parameters, 1, 50);
    let mut reason = |asked: SampleRequest| match engine.submit(asked) {
        Err(SampleError::Request { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(request(0, 0, &prompt(0, 51, 0), params(1.0, 5))).contains("51 tokens, the context 50"));
    assert!(reason(request(0, 0, &[], params(1.0, 5))).contains("empty"));
    assert!(reason(request(0, 0, &[301], params(1.0, 5))).contains("301"));
    for temperature in [-1.0, f32::NAN, f32::INFINITY] {
        assert!(reason(request(0, 0, &[1], params(temperature, 5))).contains("temperature"));
    }
    assert!(reason(request(0, 0, &[1], SamplingParams { top_p: 0.0, ..params(1.0, 5) })).contains("top_p"));
    let stop_strings = vec!["x".to_string()];
    assert!(
        reason(request(0, 0, &[1], SamplingParams { stop_strings, ..params(1.0, 5) })).contains("tokenizer")
    );
    assert!(engine.poll().unwrap().is_empty());

    let sizes = |max_num_seqs, max_model_len| EngineConfig { max_num_seqs, max_model_len };
    for (sizes, key) in
        [(sizes(0, 10), "max_num_seqs"), (sizes(1, 1), "max_model_len"), (sizes(1, 513), "max_model_len")]
    {
        let error = NativeEngine::new(Arc::new(parameters.clone()), 0, sizes, None).unwrap_err();
        assert!(error.to_string().contains(key));
    }

    let mut broken = parameters.clone();
    broken.data[broken.layout.final_norm.start] = f32::NAN;
    let mut engine = self::engine(&broken, 1, 50);
    engine.submit(request(0, 0, &[1, 2], params(1.0, 5))).unwrap();
    assert!(engine.poll().unwrap_err().to_string().contains("not finite"));
    assert!(engine.poll().unwrap().is_empty());
}

#[test]
fn sessions_share_queue_and_end() {
    let parameters = random(config(), 8);
    let mut engine = engine(&parameters, 2, 100);
    let first = engine.submit(request(5, 0, &prompt(5, 20, 0), params(1.0, 4))).unwrap();
    let second = engine.submit(request(5, 1, &prompt(5, 20, 0), params(1.0, 4))).unwrap();
    engine.end_session(5);
    assert_eq!(engine.poll().unwrap()[0].request, first);
    engine.end_session(5);
    assert!(engine.slots.iter().all(|slot| slot.session.is_none()));
    assert_eq!(engine.poll().unwrap()[0].request, second);
    engine.submit(request(6, 0, &prompt(6, 20, 0), params(1.0, 2))).unwrap();
    engine.submit(request(7, 0, &prompt(7, 20, 0), params(1.0, 9))).unwrap();
    assert_eq!(engine.poll().unwrap().len(), 1);
    engine.end_session(7);
    assert_eq!(engine.poll().unwrap()[0].tokens.len(), 9);
    assert!(engine.slots.iter().all(|slot| slot.session != Some(7)));
    assert!(engine.slots.iter().any(|slot| slot.session == Some(6)));
}
