//! Comparison with PyTorch, through a file that `tests/golden/turnrd/make.py` wrote. It also
//! defines weights and inputs.

use serde_json::Value;

use super::layout::Tensors;
use super::loss::losses;
use super::model::predictions;
use super::network::{Network, Pack};
use super::*;

fn golden() -> Value {
    let path = format!("{}/tests/golden/turnrd/turnrd.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|entry| entry.as_f64().unwrap()).collect()
}

fn config(case: &Value) -> TurnRdConfig {
    TurnRdConfig {
        film: case["film"].as_bool().unwrap(),
        value_target: if case["change"].as_bool().unwrap() {
            ValueTarget::Change
        } else {
            ValueTarget::Level
        },
        hidden: 8,
        heads: 2,
        max_turns: 7,
        dropout: 0.0,
        epochs: 1,
        credits: CreditRule::Projection,
        // Parts of two, two and one trajectory; PyTorch has one padded batch.
        num_workers: 3,
        ..TurnRdConfig::default()
    }
}

fn formula(tensor: usize, index: usize, name: &str) -> f64 {
    let i = index as f64;
    let base = (0.37 * i + 1.7 * tensor as f64 + 0.3 * (0.011 * i).sin()).sin();
    if name.contains("norm") && name.ends_with("weight") { 1.0 + 0.2 * base } else { 0.35 * base }
}

fn weights(golden: &Value, config: &TurnRdConfig, tensors: &Tensors) -> Vec<f64> {
    let names = &golden["names"][if config.film { "film" } else { "blind" }];
    let names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let mut weights = vec![f64::NAN; tensors.layout.len];
    assert_eq!(names.len(), tensors.layout.tensors.len());
    for tensor in &tensors.layout.tensors {
        let order = names.iter().position(|name| *name == tensor.name).unwrap();
        for (index, value) in weights[tensor.range.clone()].iter_mut().enumerate() {
            *value = formula(order, index, &tensor.name);
        }
    }
    weights
}

fn inputs(golden: &Value, dim: usize) -> (Pack<f64>, Vec<Sample>) {
    let mut pack = Pack::default();
    let mut samples = Vec::new();
    for (j, trajectory) in golden["trajectories"].as_array().unwrap().iter().enumerate() {
        let turns = trajectory["turns"].as_u64().unwrap() as usize;
        let j = j as f64;
        let own: Vec<f64> = (0..turns * dim).map(|k| (0.9 * k as f64 + 2.3 * j + 0.2).sin()).collect();
        let goal: Vec<f64> = (0..dim).map(|k| (1.1 * k as f64 + 0.7 * j).cos()).collect();
        let progress = trajectory["progress"].as_array().unwrap();
        samples.push(Sample {
            turns: own.iter().map(|&x| x as f32).collect(),
            goal: goal.iter().map(|&x| x as f32).collect(),
            ret: trajectory["ret"].as_f64().unwrap(),
            progress: progress.iter().map(|value| value.as_f64().map(|value| value as f32)).collect(),
            weight: trajectory["weight"].as_f64().unwrap(),
        });
        pack.inputs.extend(own);
        pack.goals.extend(goal);
        pack.lengths.push(turns);
    }
    (pack, samples)
}

fn check(what: &str, found: f64, expected: f64, tolerance: f64) {
    let error = (found - expected).abs() / expected.abs().max(1.0);
    assert!(error < tolerance, "{what}: {found}, PyTorch has {expected}");
}

/// Compares in `f64`; `shift` is added to the first weight.
fn compare(golden: &Value, case: &Value, shift: f64) {
    let config = config(case);
    let dim = golden["input_dim"].as_u64().unwrap() as usize;
    let tensors = Tensors::new(&config, dim);
    let mut weights = weights(golden, &config, &tensors);
    weights[0] += shift;
    let (pack, samples) = inputs(golden, dim);
    let network = Network { config: &config, tensors: &tensors, weights: &weights[..] };
    let trace = network.forward(&pack);
    let found = predictions(&pack, &trace);
    for (prediction, expected) in found.iter().zip(case["trajectories"].as_array().unwrap()) {
        check("estimate", prediction.estimate, expected["estimate"].as_f64().unwrap(), 1e-9);
        for (name, found) in [("weights", &prediction.weights), ("values", &prediction.values)] {
            for (found, expected) in found.iter().zip(numbers(&expected[name])) {
                check(name, *found, expected, 1e-9);
            }
        }
    }
    let (parts, derivatives) = losses(&config, &found, &samples);
    for (name, part) in [
        ("prediction", parts.prediction),
        ("rank", parts.rank),
        ("prior", parts.prior),
        ("value", parts.value),
        ("total", parts.total),
    ] {
        check(name, part, case["steps"][0][name].as_f64().unwrap(), 1e-7);
    }
    let scores: Vec<f64> = derivatives.iter().flat_map(|d| d.scores.clone()).collect();
    let values: Vec<f64> = derivatives.iter().flat_map(|d| d.values.clone()).collect();
    let mut gradient = vec![0.0; weights.len()];
    network.backward(&pack, &trace, [&scores, &values], &mut gradient);
    for tensor in &tensors.layout.tensors {
        let own = &gradient[tensor.range.clone()];
        let expected = numbers(&case["gradients"][&tensor.name]);
        check(&tensor.name, own.iter().sum(), expected[0], 1e-7);
        check(&tensor.name, own.iter().map(|g| g * g).sum::<f64>().sqrt(), expected[1], 1e-7);
    }
}

#[test]
fn forward_losses_and_gradients_are_pytorchs() {
    let golden = golden();
    for case in golden["cases"].as_array().unwrap() {
        compare(&golden, case, 0.0);
    }
}

#[test]
#[should_panic(expected = "PyTorch has")]
fn another_weight_is_noticed() {
    let golden = golden();
    compare(&golden, &golden["cases"][0], 1e-5);
}

#[test]
fn training_and_credits_are_pytorchs() {
    let golden = golden();
    for case in golden["cases"].as_array().unwrap() {
        let config = config(case);
        let dim = golden["input_dim"].as_u64().unwrap() as usize;
        let mut model = TurnRd::new(config.clone(), dim, 0).unwrap();
        model.weights = weights(&golden, &config, &model.tensors).iter().map(|&x| x as f32).collect();
        let (_, samples) = inputs(&golden, dim);
        for (sample, expected) in samples.iter().zip(case["trajectories"].as_array().unwrap()) {
            let found = model.credits(&sample.turns, &sample.goal, sample.ret).unwrap();
            for (found, expected) in found.credits.iter().zip(numbers(&expected["credits"])) {
                check("credit", *found, expected, 1e-5);
            }
        }
        for (round, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let report = model.train(&mut samples.as_slice(), round as u64, 0, &mut |_| ()).unwrap();
            let epoch = &report.epochs[0];
            check("loss", epoch.losses.total, step["total"].as_f64().unwrap(), 2e-5);
            check("norm", epoch.grad_norm, step["grad_norm"].as_f64().unwrap(), 1e-4);
        }
    }
}
