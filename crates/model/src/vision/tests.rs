use std::sync::atomic::{AtomicUsize, Ordering};

use turnwise_core::{
    Learner as _, Objective, ObjectiveError, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed,
    TokenBatch, TokenGradients, TokenSequence, TokenStatistics, TurnSpan,
};

use super::golden_tests::picture;
use super::norm::Normed;
use super::tower::{Activations, Tower, Trace};
use super::*;
use crate::engine::{EngineConfig, NativeEngine, SharedWeights};
use crate::testing::{Probe, check_gradient, random, relative_distance};
use crate::{
    Adapter, Compute, Device, Family, LearnerConfig, LoraConfig, ModelConfig, NativeLearner, Parameters,
    Weights, load_model, save_model,
};

/// Returns a model with merged patches of 8 pixels per side and windows of two by two merged
/// patches.
pub(crate) fn config() -> ModelConfig {
    let vision = VisionConfig {
        kind: TowerKind::Qwen25Vl,
        depth: 2,
        hidden_size: 16,
        intermediate_size: 20,
        num_heads: 2,
        patch_size: 4,
        temporal_patch_size: 2,
        spatial_merge_size: 2,
        window_size: 16,
        fullatt_block_indexes: vec![1],
        initializer_range: 0.02,
        mrope_section: [1, 2, 1],
        tokens: VisionTokens { start: 20, end: 21, image: 22, video: 19 },
        image: ImageSettings { min_pixels: 64, max_pixels: 64 * 64, ..ImageSettings::default() },
        pictures: Pictures::default(),
    };
    ModelConfig {
        model_type: Family::Qwen25Vl,
        vocab_size: 23,
        hidden_size: 32,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        max_position_embeddings: 256,
        vision: Some(vision),
        ..ModelConfig::default()
    }
}

fn older() -> ModelConfig {
    let config = config();
    let vision = VisionConfig {
        kind: TowerKind::Qwen2Vl,
        intermediate_size: 32,
        window_size: 112,
        fullatt_block_indexes: Vec::new(),
        ..vision(&config).clone()
    };
    ModelConfig { model_type: Family::Qwen2Vl, vision: Some(vision), ..config }
}

pub(crate) fn vision(config: &ModelConfig) -> &VisionConfig {
    config.vision.as_ref().unwrap()
}

fn init(config: &ModelConfig) -> Parameters<f32> {
    let config = ModelConfig { initializer_range: 0.2, ..config.clone() };
    Parameters::init(config, Seed::derive(5, Purpose::Init, &[])).unwrap()
}

pub(crate) fn add(config: &ModelConfig, height: usize, width: usize) -> PictureTokens {
    vision(config).pictures.add(&picture(height, width), vision(config)).unwrap()
}

#[test]
fn pictures_that_cannot_be_resized_are_refused() {
    let config = config();
    let thin = Image { width: 1, height: 201, rgb: vec![0; 603] };
    let error = vision(&config).pictures.add(&thin, vision(&config)).unwrap_err().to_string();
    assert!(error.contains("200 times"), "{error}");
    let wrong = Image { width: 2, height: 2, rgb: vec![0; 5] };
    assert!(vision(&config).pictures.add(&wrong, vision(&config)).is_err());
}

#[test]
fn equal_pictures_have_equal_tokens_and_others_share_none() {
    let config = config();
    let (a, b, again) = (add(&config, 16, 24), add(&config, 24, 16), add(&config, 16, 24));
    assert_eq!(a, again);
    assert_eq!((a.grid, a.ids().len()), ([2, 3], 6));
    assert!(b.first >= a.ids().end || b.ids().end <= a.first);
    let pictures = &vision(&config).pictures;
    assert_eq!(pictures.of_token(a.first + 5), Some(a));
    assert_eq!((pictures.of_token(b.ids().end), pictures.of_token(3)), (None, None));
    let prompt = [1, 20, 22, 21, 2, 22];
    let filled = vision(&config).insert(&prompt, &[a, b]).unwrap();
    assert_eq!(filled.len(), prompt.len() - 2 + 12);
    assert_eq!(pictures.hold(&filled).unwrap().len(), 2);
    assert!(vision(&config).insert(&prompt, &[a]).unwrap_err().to_string().contains("2 image tokens for 1"));
    let unknown = pictures.hold(&[FIRST_PICTURE_TOKEN + 1000]).unwrap_err();
    assert!(unknown.contains("not in memory"), "{unknown}");
}

#[test]
fn the_towers_gradient_is_its_derivative() {
    for config in [config(), older()] {
        let vision = vision(&config);
        let tokens = add(&config, 24, 40);
        let prepared = vision.pictures.get(tokens.first).unwrap();
        let len = VisionLayout::new(vision, 32).all().len();
        let data: Vec<f64> = random(3, len).into_iter().map(|value| 0.3 * value).collect();
        let d_features = random(4, prepared.tokens() * 32);
        let mut gradient = vec![0.0; len];
        let tower = Tower::new(vision, 32, &data);
        let trace = tower.forward(&prepared, true);
        tower.backward(&prepared, trace, &d_features, &mut gradient);
        let loss = |data: &[f64]| {
            let features = Tower::new(vision, 32, data).forward(&prepared, false).features;
            features.iter().zip(&d_features).map(|(y, d)| y * d).sum()
        };
        check_gradient("tower", &data, &gradient, loss);
        assert!(gradient.iter().filter(|&&g| g == 0.0).count() < len / 100, "every weight matters");
    }
}

#[test]
fn the_memory_of_a_trace_is_counted() {
    for config in [config(), older()] {
        let vision = vision(&config);
        let prepared = vision.pictures.get(add(&config, 24, 40).first).unwrap();
        let data = vec![0.0; VisionLayout::new(vision, 32).all().len()];
        let tower = Tower::new(vision, 32, &data);
        let Trace { patches, angles, x, blocks, normed, inner, activated, .. } =
            tower.forward(&prepared, true);
        let mut found = [patches, angles, inner, activated].concat().len() + x.concat().len();
        let mut norms = vec![normed];
        for block in blocks {
            let Activations { norm1, qkv, attended, middle, norm2, up, activated } = block;
            found += [qkv, attended, middle, up, activated].concat().len();
            norms.extend([norm1, norm2]);
        }
        for Normed { rows, standard, inverse } in norms {
            found += [rows, standard, inverse].concat().len();
        }
        assert_eq!(found, tower.kept(&prepared));
    }
}

fn sequence(tokens: Vec<u32>, response: usize) -> TokenSequence {
    let spans = vec![TurnSpan { turn: 0, start: tokens.len() - response, end: tokens.len() }];
    TokenSequence { tokens, spans }
}

fn batch(config: &ModelConfig) -> Vec<TokenSequence> {
    let (a, b) = (add(config, 24, 16), add(config, 16, 16));
    let with = |before: &[u32], pictures: &[PictureTokens], after: &[u32]| {
        let shown = pictures.iter().flat_map(|picture| [20].into_iter().chain(picture.ids()).chain([21]));
        before.iter().copied().chain(shown).chain(after.iter().copied()).collect::<Vec<_>>()
    };
    vec![
        sequence(with(&[1, 2, 3], &[a], &[4, 5, 6, 7, 8]), 3),
        sequence(with(&[1, 2, 3], &[a], &[4, 5, 9, 10]), 2),
        sequence(with(&[1, 2, 3], &[a, b], &[11, 12]), 2),
        sequence(with(&[], &[b, b], &[13, 14, 15, 1]), 4),
        sequence(vec![1, 2, 3, 4, 5, 6, 7], 4),
    ]
}

#[test]
fn lanes_micro_batches_and_shared_prefixes_do_not_matter_with_pictures() {
    let config = config();
    let (parameters, batch) = (init(&config), batch(&config));
    let run = |settings: LearnerConfig| {
        let mut learner = NativeLearner::new(parameters.clone(), settings).unwrap();
        let report = learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        (
            learner.gradient(),
            learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
            report.shared_tokens,
        )
    };
    let base = LearnerConfig { lanes: 1, share_prefixes: false, ..LearnerConfig::default() };
    let (flat, flat_logprobs, _) = run(base);
    let tower = parameters.layout.vision.clone().unwrap();
    assert!(flat[tower.clone()].iter().any(|&d| d != 0.0));
    for settings in [
        LearnerConfig { share_prefixes: true, ..base },
        LearnerConfig { share_prefixes: true, lanes: 2, recompute: true, ..base },
        LearnerConfig { lanes: 3, micro_batch_tokens: 20, ..base },
    ] {
        let (gradient, logprobs, shared) = run(settings);
        assert!(relative_distance(&gradient, &flat) < 1e-5, "{}", relative_distance(&gradient, &flat));
        let distance = crate::testing::largest_difference(&logprobs, &flat_logprobs);
        assert!(distance < 2e-5, "{distance}");
        assert!(!settings.share_prefixes || settings.lanes > 1 || shared >= 2 * (4 + 6 + 1), "{shared}");
        assert_eq!(run(settings).0, gradient, "the same bits again");
    }
}

#[test]
fn nothing_depends_on_the_order_in_which_ids_were_assigned() {
    let gradient = |order: [usize; 5]| {
        let config = config();
        for index in order {
            add(&config, 16, 16 + 8 * index);
        }
        let shown = |index: usize| {
            let picture = [20].into_iter().chain(add(&config, 16, 16 + 8 * index).ids()).chain([21]);
            [vec![1, 2, 3], picture.collect(), vec![4 + index as u32, 5, 6]].concat()
        };
        let batch: Vec<TokenSequence> = (0..5).map(|index| sequence(shown(index), 2)).collect();
        let settings = LearnerConfig { lanes: 2, micro_batch_tokens: 24, ..LearnerConfig::default() };
        let mut learner = NativeLearner::new(init(&config), settings).unwrap();
        learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        learner.gradient()
    };
    assert_eq!(gradient([0, 1, 2, 3, 4]), gradient([3, 1, 4, 0, 2]));
}

#[test]
fn pictures_in_responses_are_rejected() {
    let config = config();
    let mut learner = NativeLearner::new(init(&config), LearnerConfig::default()).unwrap();
    let tokens: Vec<u32> = [1].into_iter().chain(add(&config, 16, 16).ids()).collect();
    let length = tokens.len() - 1;
    let error = learner.logprobs(&[&sequence(tokens, length)]).unwrap_err().to_string();
    assert!(error.contains("token 1 of a response is a picture"), "{error}");
}

#[test]
fn an_adapter_leaves_the_tower_as_it_is_and_samples_what_it_trains() {
    let config = config();
    let base = init(&config);
    let lora = LoraConfig { rank: 2, ..LoraConfig::default() };
    let adapter = Adapter::init(&config, &lora, Seed::derive(1, Purpose::Init, &[])).unwrap();
    assert!(adapter.layout.tensors[0].name.starts_with("base_model.model.model.language_model.layers.0."));
    let weights = Weights::adapted(base.clone().into(), adapter).unwrap();
    let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
    let batch = batch(&config);
    let before = learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
    learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    learner.step(1e-2).unwrap();
    assert_ne!(learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap(), before);
    assert_eq!(learner.weights().base.data, base.data);
    let shared = SharedWeights::of(&learner.weights(), 0, Device::Cpu, Compute::F32).unwrap();
    let sizes = EngineConfig { max_num_seqs: 2, max_model_len: 64 };
    let mut engine = NativeEngine::with_shared(&shared, sizes, None).unwrap();
    let mut prompts: Vec<Vec<u32>> =
        batch.iter().map(|sequence| sequence.tokens[..sequence.spans[0].start].to_vec()).collect();
    // A picture advances positions by its longer side, also before a sampled token.
    prompts.push([vec![1, 20], add(&config, 24, 40).ids().collect()].concat());
    for (session, prompt) in (0..).zip(prompts) {
        let params = SamplingParams { max_tokens: 6, ..SamplingParams::default() };
        let seed = Seed::derive(2, Purpose::Rollout, &[session]);
        engine.submit(SampleRequest { session, prompt: prompt.clone(), params, seed }).unwrap();
        let found = engine.poll().unwrap().remove(0);
        let tokens = [prompt, found.tokens.clone()].concat();
        let again = learner.logprobs(&[&super::tests::sequence(tokens, found.tokens.len())]).unwrap();
        let distance = crate::testing::largest_difference(&again, &[found.logprobs]);
        assert!(distance < 1e-4, "{distance}");
    }
    let cut = SampleRequest {
        session: 9,
        prompt: batch[0].tokens[..6].to_vec(),
        params: SamplingParams::default(),
        seed: Seed::derive(0, Purpose::Rollout, &[]),
    };
    assert!(engine.submit(cut).unwrap_err().to_string().contains("is cut"));
}

struct Likelihood;

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        let loss = -tokens.logprobs.iter().copied().map(f64::from).sum::<f64>();
        let d_logprobs = vec![-1.0; tokens.logprobs.len()];
        Ok(TokenGradients { loss, d_logprobs, ..TokenGradients::default() })
    }
}

struct FailsLast(AtomicUsize);

impl Objective for FailsLast {
    fn evaluate(&self, index: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        if self.0.fetch_add(1, Ordering::Relaxed) == 4 {
            return Err(ObjectiveError::Setting("fails".into()));
        }
        Likelihood.evaluate(index, tokens)
    }
}

#[test]
fn a_failed_pass_leaves_no_gradient_of_pictures() {
    let config = config();
    let (parameters, batch) = (init(&config), batch(&config));
    let settings = LearnerConfig { lanes: 1, micro_batch_tokens: 1, ..LearnerConfig::default() };
    let mut learner = NativeLearner::new(parameters, settings).unwrap();
    learner.forward_backward(&TokenBatch::of(&batch), &Likelihood).unwrap();
    let expected = learner.gradient();
    learner.clear_gradient();
    learner.forward_backward(&TokenBatch::of(&batch), &FailsLast(AtomicUsize::new(0))).unwrap_err();
    learner.forward_backward(&TokenBatch::of(&batch), &Likelihood).unwrap();
    assert_eq!(learner.gradient(), expected);
}

fn field(row: usize, column: usize, background: u8) -> Image {
    let level = |y: usize, x: usize| if [y / 8, x / 8] == [row, column] { 230 } else { background };
    let rgb = (0..32).flat_map(|y| (0..32).flat_map(move |x| [level(y, x); 3])).collect();
    Image { width: 32, height: 32, rgb }
}

#[test]
fn a_model_learns_where_something_is_from_pixels_alone() {
    let config = config();
    let vision = vision(&config);
    let parameters = init(&ModelConfig { initializer_range: 0.05, ..config.clone() });
    let mut learner = NativeLearner::new(parameters, LearnerConfig::default()).unwrap();
    let shown = |row: usize, column: usize, background: u8| {
        let picture = vision.pictures.add(&field(row, column, background), vision).unwrap();
        let prompt = vision.insert(&[1, 20, 22, 21, 2], &[picture]).unwrap();
        [prompt, vec![4 + row as u32, 8 + column as u32]].concat()
    };
    let of = |backgrounds: &[u8]| {
        let fields =
            (0..16).flat_map(|at| backgrounds.iter().map(move |&background| (at / 4, at % 4, background)));
        fields
            .map(|(row, column, background)| sequence(shown(row, column, background), 2))
            .collect::<Vec<_>>()
    };
    let (train, test) = (of(&[0, 60, 120]), of(&[30, 90]));
    let likely = |learner: &mut NativeLearner| {
        let found = learner.logprobs(&TokenBatch::of(&test).sequences).unwrap();
        let right = found.iter().filter(|logprobs| logprobs.iter().all(|&logprob| logprob > -0.7)).count();
        right as f64 / test.len() as f64
    };
    assert!(likely(&mut learner) < 0.1);
    for _ in 0..150 {
        learner.forward_backward(&TokenBatch::of(&train), &Likelihood).unwrap();
        learner.step(4e-3).unwrap();
    }
    // Without pixels, the best guess has probability 1/4, which counts as wrong.
    let found = likely(&mut learner);
    assert!(found > 0.5, "{found}");
}

#[test]
fn a_folder_comes_back_with_its_tower_and_its_processor() {
    for config in [config(), older()] {
        let parameters = init(&config);
        let folder = tempfile::tempdir().unwrap();
        save_model(&parameters, folder.path()).unwrap();
        let found = load_model(folder.path()).unwrap();
        assert_eq!(found.data, parameters.data);
        assert_eq!(found.config, parameters.config);
        let processor = folder.path().join("preprocessor_config.json");
        let text = std::fs::read_to_string(&processor).unwrap();
        std::fs::write(&processor, text.replace("\"patch_size\": 4", "\"patch_size\": 5")).unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        assert!(error.contains("preprocessor_config.json") && error.contains("patch_size"), "{error}");
    }
}

#[test]
fn shapes_that_cannot_run_are_refused_by_their_key() {
    type Change = fn(&mut VisionConfig);
    let changes: [(Change, &str); 7] = [
        (|vision| vision.depth = 0, "vision_config.depth"),
        (|vision| vision.num_heads = 3, "vision_config.hidden_size"),
        (|vision| vision.window_size = 7, "vision_config.window_size"),
        (|vision| vision.mrope_section = [1, 1, 1], "mrope_section"),
        (|vision| vision.image.max_pixels = 10, "max_pixels"),
        (|vision| vision.image.std[2] = 0.0, "image.std"),
        (|vision| vision.patch_size = 1 << 20, "vision_config.patch_size"),
    ];
    for (change, key) in changes {
        let mut config = config();
        change(config.vision.as_mut().unwrap());
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
    let uneven = VisionConfig { intermediate_size: 33, ..vision(&older()).clone() };
    for wrong in [
        ModelConfig { vision: None, ..config() },
        ModelConfig { vision: older().vision, ..config() },
        ModelConfig { vision: Some(uneven), ..older() },
    ] {
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.contains("vision_config"), "{error}");
    }
    assert!(config().check_device(Device::Cuda).is_err());
}
