//! Compares the image processor and the model with `transformers`, through files written by
//! `tests/golden/qwen2_5_vl/make.py`.

use serde_json::Value;
use turnwise_core::{
    Purpose, SampleRequest, Sampler as _, SamplingParams, Seed, TokenSequence, TurnSpan, hexadecimal,
};

use super::tower::Tower;
use super::*;
use crate::backend::Network;
use crate::cpu::decoder::Workspace;
use crate::cpu::decoder::tests::whole_backward;
use crate::engine::{EngineConfig, NativeEngine};
use crate::files::hf::config_from_json;
use crate::packing::Packing;
use crate::{Family, ModelConfig, ParameterLayout, Parameters};

fn golden(name: &str) -> Value {
    let path = format!("{}/tests/golden/qwen2_5_vl/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|entry| entry.as_f64().unwrap()).collect()
}

fn wholes(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|number| number as usize).collect()
}

pub(super) fn picture(height: usize, width: usize) -> Image {
    let level = |y: usize, x: usize, c: usize| ((37 * y + 11 * x + 50 * c + 7 * ((x * y) % 23)) % 256) as u8;
    let rows = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| level(y, x, c))));
    Image { width, height, rgb: rows.collect() }
}

fn processor(min_pixels: usize, max_pixels: usize) -> VisionConfig {
    let config = config_from_json(&golden("qwen2_5_vl")["windows"]["config"]).unwrap();
    let mut vision = config.vision.unwrap();
    vision.image = ImageSettings { min_pixels, max_pixels, ..ImageSettings::default() };
    vision
}

#[test]
fn sizes_equal_the_processor() {
    for case in golden("processor")["sizes"].as_array().unwrap() {
        let [height, width, least, most, to_height, to_width] = wholes(case).try_into().unwrap();
        let found = smart_resize([height, width], 28, [least, most]).unwrap();
        assert_eq!(found, [to_height, to_width], "{case}");
    }
    assert!(smart_resize([1, 201], 28, [3136, 10_000]).unwrap_err().contains("200"));
    assert!(smart_resize([0, 5], 28, [3136, 10_000]).unwrap_err().contains("no pixels"));
}

#[test]
fn patches_equal_the_processor() {
    for case in golden("processor")["cases"].as_array().unwrap() {
        let [height, width, least, most] = wholes(&case["input"]).try_into().unwrap();
        let config = processor(least, most);
        let found = Prepared::new(&picture(height, width), &config).unwrap();
        let hex = hexadecimal(&found.levels);
        assert!(hex == case["levels"].as_str().unwrap(), "levels of {}", case["input"]);
        let expected = numbers(&case["every_97th"]);
        let distance = |config: &VisionConfig| {
            let patches: Vec<f64> = found.patches(config);
            let sampled = patches.iter().step_by(97);
            assert_eq!(sampled.len(), expected.len());
            sampled.zip(&expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
        };
        assert!(distance(&config) < 1e-5, "{}", distance(&config));
        let mut wrong = config.clone();
        wrong.image.mean[1] += 1e-4;
        assert!(distance(&wrong) > 1e-4);
    }
}

const CASES: [(&str, &str); 3] = [("qwen2_5_vl", "windows"), ("qwen2_5_vl", "rows"), ("qwen2_vl", "whole")];

fn formula(tensor: usize, index: usize) -> f64 {
    let i = index as f64;
    (0.37 * i + 1.7 * tensor as f64 + 0.3 * (0.011 * i).sin()).sin()
}

fn model(case: &Value, factor: f64) -> (Parameters<f64>, Vec<PictureTokens>) {
    let mut config: ModelConfig = config_from_json(&case["config"]).unwrap();
    let vision = config.vision.as_mut().unwrap();
    vision.image.min_pixels = 1;
    let vision = vision.clone();
    let mut parameters = Parameters::<f64>::zeros(config);
    let names = case["names"].as_array().unwrap();
    assert_eq!(names.len(), parameters.layout.tensors.len());
    for (tensor, name) in names.iter().enumerate() {
        let name = name.as_str().unwrap();
        let info = parameters.layout.tensors.iter().find(|info| info.name == name).unwrap();
        let norm = !info.decays && name.ends_with(".weight");
        let scale = if name.contains("patch_embed") { 0.02 } else { 0.25 };
        for (index, value) in parameters.tensor_mut(name).unwrap().iter_mut().enumerate() {
            let base = formula(tensor, index);
            *value = factor * if norm { 1.0 + 0.2 * base } else { scale * base };
        }
    }
    let pictures = case["pictures"].as_array().unwrap().iter().map(|size| {
        let [height, width] = wholes(size).try_into().unwrap();
        vision.pictures.add(&picture(height, width), &vision).unwrap()
    });
    let pictures = pictures.collect();
    (parameters, pictures)
}

fn with_pictures(tokens: &[usize], pictures: &[PictureTokens]) -> Vec<u32> {
    let mut ids = pictures.iter().flat_map(PictureTokens::ids);
    tokens.iter().map(|&token| if token == 60 { ids.next().unwrap() } else { token as u32 }).collect()
}

fn distance(found: &[f64], golden: &Value) -> f64 {
    let step = golden["step"].as_u64().unwrap() as usize;
    let expected = numbers(&golden["values"]);
    assert_eq!(found.iter().step_by(step).len(), expected.len());
    let norm = golden["norm"].as_f64().unwrap();
    let own = found.iter().map(|x| x * x).sum::<f64>().sqrt();
    let unit = (norm / (found.len() as f64).sqrt()).max(1e-12);
    let entries = found.iter().step_by(step).zip(&expected).map(|(a, b)| (a - b).abs() / unit);
    entries.fold((own - norm).abs() / norm.max(1e-12), f64::max)
}

#[test]
fn a_2b_model_has_the_known_number_of_parameters() {
    let case = &golden("qwen2_vl")["2b"];
    let config = config_from_json(&case["config"]).unwrap();
    assert_eq!(config.model_type, Family::Qwen2Vl);
    assert_eq!(ParameterLayout::new(&config).len as u64, case["parameters"].as_u64().unwrap());
}

#[test]
fn places_equal_transformers() {
    for (file, name) in CASES {
        let case = &golden(file)[name];
        let (parameters, pictures) = model(case, 1.0);
        let table = parameters.config.vision.unwrap().pictures;
        let tokens = with_pictures(&wholes(&case["tokens"]), &pictures);
        table.hold(&tokens).unwrap();
        let mut before = None;
        for (&token, expected) in tokens.iter().zip(case["positions"].as_array().unwrap()) {
            let place = table.place_after(before, token);
            assert_eq!(place.map(|at| at as usize).to_vec(), wholes(expected), "{name}");
            before = Some((token, place));
        }
        let delta = i64::from(table.place_after(before, 0)[0]) - tokens.len() as i64;
        assert_eq!(delta, case["delta"].as_i64().unwrap(), "{name}");
        let cut = tokens.iter().position(|&token| token >= FIRST_PICTURE_TOKEN).unwrap();
        assert!(table.hold(&tokens[cut + 1..]).unwrap_err().contains("is cut"));
    }
}

#[test]
fn every_block_of_the_tower_equals_transformers() {
    for (file, name) in CASES {
        let case = &golden(file)[name];
        let distances = |factor: f64| {
            let (parameters, pictures) = model(case, factor);
            let vision = parameters.config.vision.as_ref().unwrap();
            let data = &parameters.data[parameters.layout.vision.clone().unwrap()];
            let tower = Tower::new(vision, parameters.config.hidden_size, data);
            let traces: Vec<_> = pictures
                .iter()
                .map(|picture| tower.forward(&vision.pictures.get(picture.first).unwrap(), true))
                .collect();
            let mut found: Vec<f64> = (0..=vision.depth)
                .map(|index| {
                    let all: Vec<f64> = traces.iter().flat_map(|trace| trace.x[index].clone()).collect();
                    distance(&all, &case["tower"][index])
                })
                .collect();
            let features: Vec<f64> = traces.iter().flat_map(|trace| trace.features.clone()).collect();
            found.push(distance(&features, &case["features"]));
            found
        };
        let found = distances(1.0);
        assert!(found.iter().all(|&distance| distance < 1e-9), "{name}: {found:?}");
        assert!(distances(1.0 + 1e-6).iter().all(|&distance| distance > 1e-8), "{name}");
    }
}

fn whole(case: &Value, factor: f64, keep: bool) -> [f64; 2] {
    let (parameters, pictures) = model(case, factor);
    let tokens = with_pictures(&wholes(&case["tokens"]), &pictures);
    let spans = wholes(&case["taken_at"]).into_iter().enumerate();
    let spans = spans.map(|(turn, at)| TurnSpan { turn, start: at, end: at + 1 }).collect();
    let table = parameters.config.vision.as_ref().unwrap().pictures.clone();
    let encoded = encode(&parameters, &table, keep, tokens.iter().copied()).unwrap();
    let network = Network { pictures: Some(&encoded), ..Network::from(&parameters) };
    let mut packing = Packing::default();
    packing.fill(std::iter::once(&TokenSequence { tokens, spans }));
    let mut workspace = Workspace::new(&parameters.config, false);
    let rows = workspace.forward(network, &packing, 1.0).to_vec();
    let expected = numbers(&case["logprobs"]);
    let outputs = rows.iter().zip(&expected).map(|(row, expected)| (row.logprob - expected).abs());
    let outputs = outputs.fold(0.0, f64::max);
    let derivatives: Vec<[f64; 2]> = (0..rows.len()).map(|index| [(0.7 * index as f64).sin(), 0.0]).collect();
    let mut gradient = vec![0.0; parameters.data.len()];
    whole_backward(&mut workspace, network, &packing, &(0..1), &derivatives, &mut gradient);
    let d_features = workspace.take_picture_gradient();
    encode_backward(&parameters, encoded, &d_features, 2, &mut gradient);
    let mut worst = 0.0f64;
    for tensor in &parameters.layout.tensors {
        worst = worst.max(distance(&gradient[tensor.range.clone()], &case["gradients"][&tensor.name]));
    }
    [outputs, worst]
}

#[test]
fn logprobs_and_gradients_equal_transformers() {
    for (file, name) in CASES {
        let case = &golden(file)[name];
        for keep in [true, false] {
            let [outputs, gradients] = whole(case, 1.0, keep);
            assert!(outputs < 1e-9 && gradients < 1e-7, "{name}: {outputs} {gradients}");
        }
        let [outputs, gradients] = whole(case, 1.0 + 1e-6, true);
        assert!(outputs > 1e-8 && gradients > 1e-6, "{name}: {outputs} {gradients}");
    }
}

fn conversation(case: &Value, parameters: &Parameters<f64>, pictures: &[PictureTokens]) -> Vec<Vec<u32>> {
    let texts: Vec<Vec<u32>> = case["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| wholes(text).into_iter().map(|token| token as u32).collect())
        .collect();
    let settings = EngineConfig { max_num_seqs: 2, max_model_len: 200 };
    let mut engine = NativeEngine::new(parameters.cast().into(), 0, settings, None).unwrap();
    let mut prompt = texts[0].clone();
    let mut replies = Vec::new();
    for (turn, picture) in pictures.iter().enumerate() {
        prompt.extend([vec![58], picture.ids().collect(), vec![59], texts[turn + 1].clone()].concat());
        let params = SamplingParams { temperature: 0.0, max_tokens: 5, ..SamplingParams::default() };
        let seed = Seed::derive(0, Purpose::Rollout, &[]);
        engine.submit(SampleRequest { session: 7, prompt: prompt.clone(), params, seed }).unwrap();
        let reply = engine.poll().unwrap().remove(0).tokens;
        prompt.extend(&reply);
        replies.push(reply);
    }
    let saved = engine.prompt_tokens().saved;
    assert!(saved as usize > pictures[0].ids().len(), "earlier pictures stay in the cache");
    replies
}

#[test]
fn a_conversation_with_pictures_equals_transformers() {
    for (file, name) in CASES {
        let case = &golden(file)[name];
        let (parameters, pictures) = model(case, 1.0);
        let expected: Vec<Vec<u32>> = serde_json::from_value(case["turns"].clone()).unwrap();
        assert_eq!(conversation(case, &parameters, &pictures), expected, "{name}");
        let (mut wrong, pictures) = model(case, 1.0);
        wrong.tensor_mut("visual.merger.mlp.2.weight").unwrap().iter_mut().for_each(|weight| *weight *= -1.0);
        assert_ne!(conversation(case, &wrong, &pictures), expected, "{name}");
    }
}
