//! Compares the decoder with `transformers` and AdamW with PyTorch's, through golden files written
//! by `make.py` in each folder of `tests/golden`.

use serde_json::Value;
use turnwise_core::{
    Learner, Objective, ObjectiveError, Purpose, RequiredPasses, SampleRequest, Sampler, SamplingParams,
    Seed, TokenBatch, TokenGradients, TokenSequence, TokenStatistics, TurnSpan,
};

use crate::cpu::decoder::Workspace;
use crate::cpu::decoder::tests::whole_backward;
use crate::engine::{EngineConfig, NativeEngine};
use crate::files::hf::config_from_json;
use crate::packing::Packing;
use crate::{
    AdamWConfig, LearnerConfig, ModelConfig, NativeLearner, OptimizerState, ParameterLayout, Parameters,
    RopeScaling, TensorInfo,
};

fn golden(name: &str) -> Value {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|entry| entry.as_f64().unwrap()).collect()
}

fn formula(tensor: usize, index: usize) -> f64 {
    let i = index as f64;
    (0.37 * i + 1.7 * tensor as f64 + 0.3 * (0.011 * i).sin()).sin()
}

const CASES: [(&str, &str); 7] = [
    ("qwen2", "tied"),
    ("qwen2", "untied"),
    ("qwen3", "tied"),
    ("qwen3", "untied"),
    ("llama", "tied"),
    ("llama", "untied"),
    ("llama", "plain"),
];

fn case(family: &str, name: &str) -> Value {
    golden(&format!("{family}/{family}.json"))[name].clone()
}

/// Returns a golden model's config and its tensors in the order of [`formula`].
fn shape(case: &Value) -> (ModelConfig, Vec<String>) {
    if let Some(names) = case["names"].as_array() {
        let names = names.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        return (config_from_json(&case["config"]).unwrap(), names);
    }
    let shape = &case["config"];
    let size = |key: &str| shape[key].as_u64().unwrap() as usize;
    let config = ModelConfig {
        vocab_size: size("vocab"),
        hidden_size: size("hidden"),
        intermediate_size: size("inner"),
        num_hidden_layers: size("layers"),
        num_attention_heads: size("heads"),
        num_key_value_heads: size("kv"),
        head_dim: size("hidden") / size("heads"),
        max_position_embeddings: 128,
        rope_theta: shape["theta"].as_f64().unwrap(),
        tie_word_embeddings: shape["tied"].as_bool().unwrap(),
        ..ModelConfig::default()
    };
    let mut names = vec!["model.embed_tokens.weight".to_owned()];
    for layer in 0..size("layers") {
        names.extend(
            [
                "input_layernorm.weight",
                "self_attn.q_proj.weight",
                "self_attn.k_proj.weight",
                "self_attn.v_proj.weight",
                "self_attn.q_proj.bias",
                "self_attn.k_proj.bias",
                "self_attn.v_proj.bias",
                "self_attn.o_proj.weight",
                "post_attention_layernorm.weight",
                "mlp.gate_proj.weight",
                "mlp.up_proj.weight",
                "mlp.down_proj.weight",
            ]
            .map(|name| format!("model.layers.{layer}.{name}")),
        );
    }
    names.push("model.norm.weight".into());
    if !config.tie_word_embeddings {
        names.push("lm_head.weight".into());
    }
    (config, names)
}

fn model(case: &Value, factor: f64) -> Parameters<f64> {
    let (config, names) = shape(case);
    let mut parameters = Parameters::<f64>::zeros(config);
    assert_eq!(names.len(), parameters.layout.tensors.len());
    for (tensor, name) in names.iter().enumerate() {
        for (index, value) in parameters.tensor_mut(name).unwrap().iter_mut().enumerate() {
            let base = formula(tensor, index);
            let exact = if name.ends_with("norm.weight") { 1.0 + 0.2 * base } else { 0.25 * base };
            *value = exact * factor;
        }
    }
    parameters
}

fn sequence(case: &Value) -> TokenSequence {
    let spans = case["spans"].as_array().unwrap().iter().enumerate().map(|(turn, span)| TurnSpan {
        turn,
        start: span[0].as_u64().unwrap() as usize,
        end: span[1].as_u64().unwrap() as usize,
    });
    TokenSequence {
        tokens: numbers(&case["tokens"]).into_iter().map(|token| token as u32).collect(),
        spans: spans.collect(),
    }
}

fn derivatives(index: usize) -> [f64; 2] {
    [(0.7 * index as f64).sin(), (0.3 * index as f64).cos()]
}

type Found = (Vec<f64>, Vec<f64>, f64, Vec<f64>);

fn in_double(case: &Value, parameters: &Parameters<f64>, temperature: f64) -> Found {
    let mut packing = Packing::default();
    packing.fill(std::iter::once(&sequence(case)));
    let mut workspace = Workspace::new(&parameters.config, false);
    let rows = workspace.forward(parameters, &packing, temperature).to_vec();
    let derivatives: Vec<[f64; 2]> = (0..rows.len()).map(derivatives).collect();
    let mut gradient = vec![0.0; parameters.data.len()];
    whole_backward(&mut workspace, parameters, &packing, &(0..1), &derivatives, &mut gradient);
    let loss = rows.iter().zip(&derivatives).map(|(row, [a, b])| a * row.logprob + b * row.entropy).sum();
    (
        rows.iter().map(|row| row.logprob).collect(),
        rows.iter().map(|row| row.entropy).collect(),
        loss,
        gradient,
    )
}

#[derive(Default)]
struct Recorder(std::sync::Mutex<(Vec<f64>, Vec<f64>)>);

impl Objective for Recorder {
    fn passes(&self) -> RequiredPasses {
        RequiredPasses { entropies: true, ..RequiredPasses::default() }
    }

    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect();
        *self.0.lock().unwrap() = (wide(tokens.logprobs), wide(tokens.entropies));
        let mut value = TokenGradients::default();
        for (index, (&logprob, &entropy)) in tokens.logprobs.iter().zip(tokens.entropies).enumerate() {
            let [a, b] = derivatives(index);
            value.loss += a * f64::from(logprob) + b * f64::from(entropy);
            value.d_logprobs.push(a as f32);
            value.d_entropies.push(b as f32);
        }
        Ok(value)
    }
}

fn in_single(case: &Value, parameters: &Parameters<f64>, temperature: f64) -> Found {
    let settings = LearnerConfig { temperature, ..LearnerConfig::default() };
    let mut learner = NativeLearner::new(parameters.cast(), settings).unwrap();
    let recorder = Recorder::default();
    let batch = [sequence(case)];
    let report = learner.forward_backward(&TokenBatch::of(&batch), &recorder).unwrap();
    let (logprobs, entropies) = recorder.0.into_inner().unwrap();
    let again: Vec<f64> = learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap()[0]
        .iter()
        .copied()
        .map(f64::from)
        .collect();
    assert_eq!(again, logprobs);
    (logprobs, entropies, report.loss, learner.gradient().iter().copied().map(f64::from).collect())
}

/// Returns the largest errors of the outputs, of the loss, and of the gradients; the last are
/// relative to their tensor's norm.
fn distances(
    case: &Value,
    layout: &ParameterLayout,
    (logprobs, entropies, loss, gradient): &Found,
) -> [f64; 3] {
    let most = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        found.iter().zip(expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
    };
    let outputs =
        most(logprobs, &numbers(&case["logprobs"])).max(most(entropies, &numbers(&case["entropies"])));
    let mut gradients = 0.0f64;
    for tensor in &layout.tensors {
        let expected = &case["gradients"][&tensor.name];
        let norm = expected["norm"].as_f64().unwrap();
        let found = &gradient[tensor.range.clone()];
        let own = found.iter().map(|g| g * g).sum::<f64>().sqrt();
        gradients = gradients.max((own / norm - 1.0).abs());
        for (index, value) in expected["entries"].as_object().unwrap() {
            let index: usize = index.parse().unwrap();
            gradients = gradients.max((found[index] - value.as_f64().unwrap()).abs() / norm);
        }
    }
    [outputs, (loss - case["loss"].as_f64().unwrap()).abs(), gradients]
}

#[test]
fn logprobs_entropies_and_gradients_equal_transformers() {
    for (family, name) in CASES {
        let case = &case(family, name);
        let temperature = case["temperature"].as_f64().unwrap();
        let parameters = model(case, 1.0);
        // The file has twelve digits.
        let double = distances(case, &parameters.layout, &in_double(case, &parameters, temperature));
        assert!(double.iter().all(|&distance| distance < 1e-9), "{family} {name}: {double:?}");
        let single = distances(case, &parameters.layout, &in_single(case, &parameters, temperature));
        assert!(single.iter().all(|&distance| distance < 1e-4), "{family} {name}: {single:?}");
    }
}

fn part(name: &str) -> String {
    let module = if name.starts_with("up") || name.starts_with("down") { "mlp" } else { "self_attn" };
    format!("{module}.{name}")
}

#[test]
fn small_changes_are_seen() {
    for (family, name) in CASES {
        let case = &case(family, name);
        let temperature = case["temperature"].as_f64().unwrap();
        let mut rope = model(case, 1.0);
        rope.config.rope_theta *= 1.001;
        let mut epsilon = model(case, 1.0);
        epsilon.config.rms_norm_eps *= 1.1;
        let mut wrong = vec![
            (model(case, 1.0 + 1e-6), temperature),
            (model(case, 1.0), temperature * (1.0 + 1e-6)),
            (rope, temperature),
            (epsilon, temperature),
        ];
        let mut scaled = model(case, 1.0);
        if scaled.config.rope_scaling != RopeScaling::None {
            scaled.config.rope_scaling = RopeScaling::None;
            wrong.push((scaled, temperature));
        }
        for name in
            ["k_proj.bias", "o_proj.bias", "up_proj.bias", "down_proj.bias", "q_norm.weight", "k_norm.weight"]
        {
            let mut changed = model(case, 1.0);
            if let Some(values) = changed.tensor_mut(&format!("model.layers.0.{}", part(name))) {
                values[1] += 1e-3;
                wrong.push((changed, temperature));
            }
        }
        for (parameters, temperature) in wrong {
            let found = in_double(case, &parameters, temperature);
            let [outputs, _, gradients] = distances(case, &parameters.layout, &found);
            assert!(outputs > 1e-8 && gradients > 1e-8, "{family} {name}: {outputs} {gradients}");
        }
    }
}

fn generated(case: &Value, parameters: &Parameters<f64>) -> Vec<u32> {
    let settings = EngineConfig { max_num_seqs: 1, max_model_len: 64 };
    let mut engine = NativeEngine::new(parameters.cast().into(), 0, settings, None).unwrap();
    let token = |value: &Value| value.as_u64().unwrap() as u32;
    let prompt = case["greedy"]["prompt"].as_array().unwrap().iter().map(token).collect();
    let max_tokens = case["greedy"]["response"].as_array().unwrap().len();
    let params = SamplingParams { temperature: 0.0, max_tokens, ..SamplingParams::default() };
    let seed = Seed::derive(0, Purpose::Rollout, &[]);
    engine.submit(SampleRequest { session: 0, prompt, params, seed }).unwrap();
    engine.poll().unwrap().remove(0).tokens
}

#[test]
fn greedy_generations_equal_transformers() {
    for (family, name) in CASES {
        let case = case(family, name);
        let Some(response) = case["greedy"]["response"].as_array() else { continue };
        let parameters = model(&case, 1.0);
        let found = generated(&case, &parameters);
        let expected: Vec<u32> = response.iter().map(|token| token.as_u64().unwrap() as u32).collect();
        assert_eq!(found, expected, "{family} {name}");
        let mut wrong = parameters;
        wrong.tensor_mut("model.norm.weight").unwrap().iter_mut().for_each(|weight| *weight *= -1.0);
        assert_ne!(generated(&case, &wrong), expected, "{family} {name}: another model generates the same");
    }
}

#[test]
fn logits_equal_transformers() {
    for (family, name) in CASES {
        let case = case(family, name);
        if case["logits"].is_null() {
            continue;
        }
        let expected = numbers(&case["logits"]);
        let tokens: Vec<u32> = numbers(&case["tokens"]).into_iter().map(|token| token as u32).collect();
        // Logits are recovered up to their common log-sum.
        let distance = |parameters: &Parameters<f64>| {
            let logprobs = (0..expected.len() as u32).map(|next| {
                let mut packing = Packing::default();
                let tokens = [&tokens[..], &[next]].concat();
                let spans = vec![TurnSpan { turn: 0, start: tokens.len() - 1, end: tokens.len() }];
                packing.fill(std::iter::once(&TokenSequence { tokens, spans }));
                Workspace::new(&parameters.config, false).forward(parameters, &packing, 1.0)[0].logprob
            });
            let log_sum = expected.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            let distances = logprobs.zip(&expected).map(|(found, logit)| (found - (logit - log_sum)).abs());
            distances.fold(0.0, f64::max)
        };
        let found = distance(&model(&case, 1.0));
        assert!(found < 1e-9, "{family} {name}: {found}");
        assert!(distance(&model(&case, 1.0 + 1e-6)) > 1e-8, "{family} {name}");
    }
}

/// Returns the largest difference of any weight from PyTorch's after any step.
fn adamw_distance(change: impl FnOnce(&mut AdamWConfig)) -> f64 {
    let golden = golden("qwen2/adamw.json");
    let mut settings: AdamWConfig = serde_json::from_value(golden["settings"].clone()).unwrap();
    change(&mut settings);
    let tensor = |name: &str, shape: &[usize], range: std::ops::Range<usize>| TensorInfo {
        name: name.into(),
        shape: shape.to_vec(),
        range,
        decays: shape.len() > 1,
    };
    let layout = ParameterLayout {
        value: None,
        vision: None,
        embedding: 0..0,
        layers: Vec::new(),
        final_norm: 0..0,
        output: 0..0,
        tensors: vec![tensor("matrix", &[3, 4], 0..12), tensor("bias", &[4], 12..16)],
        len: 16,
    };
    let values = |matrix: usize, bias: usize, scale: f64| -> Vec<f32> {
        let matrix = (0..12).map(|index| (scale * formula(matrix, index)) as f32);
        matrix.chain((0..4).map(|index| (scale * formula(bias, index)) as f32)).collect()
    };
    let mut weights = values(0, 1, 1.0);
    let mut state = OptimizerState::new(16);
    let mut distance = 0.0f64;
    for (index, step) in golden["steps"].as_array().unwrap().iter().enumerate() {
        let mut gradients = [values(2 + index, 20 + index, step["scale"].as_f64().unwrap())];
        let norm = crate::ops::gradients::sum_gradients(&mut gradients);
        assert!((norm - step["norm"].as_f64().unwrap()).abs() < 1e-5);
        let rate = step["learning_rate"].as_f64().unwrap();
        state.update(&settings, &layout.tensors, rate, norm, &gradients[0], &mut weights);
        let expected = [numbers(&step["matrix"]), numbers(&step["bias"])].concat();
        for (&weight, expected) in weights.iter().zip(expected) {
            distance = distance.max((f64::from(weight) - expected).abs());
        }
    }
    distance
}

#[test]
fn adamw_equals_pytorch() {
    assert!(adamw_distance(|_| {}) < 5e-7, "{}", adamw_distance(|_| {}));
    assert!(adamw_distance(|settings| settings.weight_decay = 0.101) > 5e-6);
    assert!(adamw_distance(|settings| settings.beta1 = 0.901) > 5e-6);
    assert!(adamw_distance(|settings| settings.beta2 = 0.951) > 5e-6);
    assert!(adamw_distance(|settings| settings.epsilon = 1e-4) > 5e-6);
    assert!(adamw_distance(|settings| settings.clip_norm = 0.0) > 5e-6);
}
