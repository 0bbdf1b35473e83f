//! Gradients, independence of other trajectories, conservation, resumption.

use proptest::prelude::*;
use turnwise_core::{Batch, Group, PerTurn, Purpose, Seed, Task, Trajectory, Turn};
use turnwise_credit::has::{DecomposerKind, HasConfig};
use turnwise_credit::{CreditConfig, CreditInputs, ModelInputs, Pipeline, RefinementConfig};

use super::layout::Tensors;
use super::loss::losses;
use super::model::predictions;
use super::network::{Dropout, Network, Pack};
use super::*;
use turnwise_model::testing::{check_gradient, random};

fn small() -> TurnRdConfig {
    TurnRdConfig {
        hidden: 8,
        heads: 2,
        feed_forward: 2,
        max_turns: 7,
        epochs: 5,
        min_improvement: 0.0,
        batch: 5,
        num_workers: 2,
        ..TurnRdConfig::default()
    }
}

/// The return is 1 if a turn's first feature has the sign of the goal's.
fn samples(count: usize, dim: usize, seed: u64) -> Vec<Sample> {
    let mut rng = Seed::derive(seed, Purpose::World, &[]).rng();
    (0..count)
        .map(|_| {
            let turns = 1 + rng.below(6);
            let mut sample = Sample {
                turns: (0..turns * dim).map(|_| rng.normal() as f32 * 0.5).collect(),
                goal: (0..dim).map(|_| rng.normal() as f32).collect(),
                weight: 0.5 + rng.uniform(),
                ..Sample::default()
            };
            let sign = sample.goal[0].signum();
            for turn in 0..turns {
                sample.turns[turn * dim] = 0.0;
            }
            let decisive = rng.below(turns);
            sample.turns[decisive * dim] = if rng.chance(0.5) { 2.0 } else { -2.0 };
            let success = sample.turns[decisive * dim].signum() == sign;
            sample.ret = f64::from(u8::from(success));
            sample.progress =
                (0..turns).map(|turn| Some(if success && turn >= decisive { 1.0 } else { 0.0 })).collect();
            sample
        })
        .collect()
}

fn network<'a>(config: &'a TurnRdConfig, tensors: &'a Tensors, weights: &'a [f64]) -> Network<'a, f64> {
    Network { config, tensors, weights }
}

#[test]
fn the_gradient_is_the_derivative_of_the_whole_loss() {
    for (film, target) in [(true, ValueTarget::Level), (false, ValueTarget::Change)] {
        // Weights large enough for every term to matter, with dropout.
        let config =
            TurnRdConfig { film, value_target: target, rank_margin: 5.0, progress_weight: 0.5, ..small() };
        let dim = 5;
        let tensors = Tensors::new(&config, dim);
        let weights: Vec<f64> = random(1, tensors.layout.len).iter().map(|x| 0.4 * x).collect();
        let mut batch = samples(4, dim, 2);
        batch[1].progress.clear();
        if let Some(last) = batch[2].progress.last_mut() {
            *last = None;
        }
        let vectors = |part: fn(&Sample) -> &Vec<f32>| -> Vec<f64> {
            batch.iter().flat_map(part).map(|&x| f64::from(x)).collect()
        };
        let pack = Pack {
            inputs: vectors(|sample| &sample.turns),
            goals: vectors(|sample| &sample.goal),
            lengths: batch.iter().map(|sample| sample.turns.len() / dim).collect(),
            dropout: Some(Dropout { run: 1, round: 2, epoch: 3, samples: vec![9, 4, 2, 7] }),
        };
        let loss = |weights: &[f64]| {
            losses(&config, &predictions(&pack, &network(&config, &tensors, weights).forward(&pack)), &batch)
                .0
                .total
        };
        let trace = network(&config, &tensors, &weights).forward(&pack);
        let (parts, derivatives) = losses(&config, &predictions(&pack, &trace), &batch);
        assert!(parts.rank > 0.0 && parts.prior > 0.0 && parts.value > 0.0, "{parts:?}");
        // Weights are relative, however old the records.
        let weighted = |weight: f64| {
            let batch: Vec<Sample> = batch.iter().map(|sample| Sample { weight, ..sample.clone() }).collect();
            losses(&config, &predictions(&pack, &trace), &batch).0
        };
        let (new, old) = (weighted(1.0), weighted(f64::MIN_POSITIVE));
        assert!(new.rank > 0.0 && (old.rank - new.rank).abs() < 1e-12, "{old:?} {new:?}");
        assert!((old.total - new.total).abs() < 1e-12, "{old:?} {new:?}");
        let scores: Vec<f64> = derivatives.iter().flat_map(|d| d.scores.clone()).collect();
        let values: Vec<f64> = derivatives.iter().flat_map(|d| d.values.clone()).collect();
        let mut gradient = vec![0.0; weights.len()];
        network(&config, &tensors, &weights).backward(&pack, &trace, [&scores, &values], &mut gradient);
        for tensor in &tensors.layout.tensors {
            // The softmax over turns ignores a constant.
            if tensor.name == "attention.2.bias" {
                assert!(gradient[tensor.range.start].abs() < 1e-12);
                continue;
            }
            check_gradient(
                &tensor.name,
                &weights[tensor.range.clone()],
                &gradient[tensor.range.clone()],
                |own| {
                    let mut weights = weights.clone();
                    weights[tensor.range.clone()].copy_from_slice(own);
                    loss(&weights)
                },
            );
        }
    }
}

#[test]
fn a_new_film_changes_no_bit_and_a_trained_one_does() {
    let dim = 6;
    let data = samples(40, dim, 3);
    let mut film = TurnRd::new(small(), dim, 1).unwrap();
    let blind = TurnRd::new(TurnRdConfig { film: false, ..small() }, dim, 1).unwrap();
    for (sample, other) in data.iter().zip(data.iter().rev()) {
        let own = film.credits(&sample.turns, &sample.goal, sample.ret).unwrap();
        assert_eq!(own, film.credits(&sample.turns, &other.goal, sample.ret).unwrap());
        assert_eq!(own, blind.credits(&sample.turns, &sample.goal, sample.ret).unwrap());
    }
    assert_eq!(film.probe_film_zeroed(&mut data.as_slice()).unwrap().relative_change, 0.0);
    assert_eq!(film.probe_film_norms(&mut data.as_slice()).unwrap(), Some(FilmNorms::default()));
    film.train(&mut data.as_slice(), 0, 1, &mut |_| ()).unwrap();
    let sample = &data[0];
    let own = film.credits(&sample.turns, &sample.goal, sample.ret).unwrap();
    assert_ne!(own, film.credits(&sample.turns, &data[1].goal, sample.ret).unwrap());
    assert!(film.probe_film_zeroed(&mut data.as_slice()).unwrap().relative_change > 0.0);
    assert!(film.probe_film_norms(&mut data.as_slice()).unwrap().unwrap().gamma > 0.0);
    assert_eq!(blind.probe_film_norms(&mut data.as_slice()).unwrap(), None);
}

#[test]
fn it_learns_a_task_that_needs_the_goal() {
    let dim = 6;
    let (data, held_out) = (samples(400, dim, 4), samples(200, dim, 5));
    let fit_of = |film| {
        let config = TurnRdConfig {
            film,
            hidden: 16,
            heads: 2,
            epochs: 20,
            min_improvement: 0.0,
            learning_rate: 3e-3,
            value_target: ValueTarget::Change,
            ..TurnRdConfig::default()
        };
        let mut model = TurnRd::new(config, dim, 1).unwrap();
        let report = model.train(&mut data.as_slice(), 0, 1, &mut |_| ()).unwrap();
        assert!(report.epochs[19].losses.total < report.epochs[0].losses.total);
        let shuffled = model.probe_goals_shuffled(&mut held_out.as_slice(), 1).unwrap();
        (model.fit(&mut held_out.as_slice()).unwrap(), shuffled)
    };
    let (with, shuffled) = fit_of(true);
    let (without, unmoved) = fit_of(false);
    assert!(with.r2.unwrap() > 0.5, "{with:?}");
    assert!(without.r2.unwrap() < 0.3, "{without:?}");
    assert!(with.sum_drift < 1e-9, "{with:?}");
    assert!(shuffled.of_values && shuffled.relative_growth().unwrap() > 0.5, "{shuffled:?}");
    assert_eq!(unmoved.relative_growth(), Some(0.0), "without FiLM goals are not read");
}

/// A success looks around, completes three subgoals and ends; a failure looks around until the
/// limit. Turn vectors encode, with noise, the episode's progress and prospects.
fn episodes(count: usize, seed: u64) -> Vec<Sample> {
    const LIMIT: usize = 10;
    let mut rng = Seed::derive(seed, Purpose::World, &[]).rng();
    (0..count)
        .map(|_| {
            let success = rng.chance(0.5);
            let turns = if success { 6 + rng.below(3) } else { LIMIT };
            let progress: Vec<f32> = (0..turns)
                .map(|turn| if success { (turn + 4).saturating_sub(turns) as f32 / 3.0 } else { 0.0 })
                .collect();
            let skill = if success { 0.7 } else { -0.7 };
            let vectors = progress.iter().flat_map(|level| {
                [*level + 0.2 * rng.normal() as f32, skill + 0.7 * rng.normal() as f32, rng.normal() as f32]
            });
            Sample {
                turns: vectors.collect(),
                goal: vec![1.0, 0.0, 0.0],
                ret: f64::from(u8::from(success)),
                progress: progress.iter().map(|&level| Some(level)).collect(),
                weight: 1.0,
            }
        })
        .collect()
}

/// Correlation of HAS' turn advantage with the outcome, over the first three turns of unseen
/// episodes.
fn early_correlation(credits: CreditRule) -> f64 {
    let config = TurnRdConfig {
        hidden: 16,
        credits,
        learning_rate: 3e-3,
        epochs: 15,
        num_workers: 2,
        max_turns: 10,
        ..TurnRdConfig::default()
    };
    let mut model = TurnRd::new(config, 3, 1).unwrap();
    model.train(&mut episodes(300, 6).as_slice(), 0, 1, &mut |_| ()).unwrap();
    let held_out = episodes(200, 7);
    let credits: Vec<Vec<f64>> = held_out
        .iter()
        .map(|sample| model.credits(&sample.turns, &sample.goal, sample.ret).unwrap().credits)
        .collect();
    let trajectories = held_out.iter().map(|sample| {
        let mut turns = vec![Turn::default(); sample.progress.len()];
        turns.last_mut().unwrap().reward = sample.ret;
        Trajectory::new(Task::new("task", "kind", "goal"), turns)
    });
    let batch = Batch { groups: vec![Group { trajectories: trajectories.collect() }] };
    let model_inputs =
        ModelInputs { credits: Some(PerTurn::from_rows(&batch, credits)), ..ModelInputs::default() };
    let has = HasConfig { decomposer: DecomposerKind::External, ..HasConfig::default() };
    let config = CreditConfig { refinements: vec![RefinementConfig::Has(has)], ..CreditConfig::default() };
    let report = Pipeline::from_config(&config)
        .unwrap()
        .report(&CreditInputs::new(&batch).with_model_inputs(&model_inputs), false)
        .unwrap();
    report.diagnostics["has/early_turn_correlation"]
}

#[test]
fn credits_of_early_turns_agree_with_the_outcome() {
    let attention = early_correlation(CreditRule::Attention);
    assert!(attention > 0.2, "{attention}");
    // Equation 5 subtracts a success's excess equally from every turn, early ones included.
    let projection = early_correlation(CreditRule::Projection);
    assert!(projection < 0.0, "{projection}");
    let weighted = early_correlation(CreditRule::WeightedProjection);
    assert!(weighted > projection, "{weighted} {projection}");
}

#[test]
fn a_round_repeats_to_the_bit_and_goes_on_from_a_checkpoint() {
    let dim = 6;
    let data = samples(23, dim, 6);
    let folder = tempfile::tempdir().unwrap();
    let mut straight = TurnRd::new(small(), dim, 1).unwrap();
    straight.train(&mut data.as_slice(), 0, 9, &mut |_| ()).unwrap();
    straight.save(folder.path()).unwrap();
    let mut resumed = TurnRd::load(folder.path()).unwrap();
    assert_eq!(resumed, straight);
    // A second save ignores a killed save's leftover and replaces the first.
    std::fs::write(folder.path().join("turnrd.safetensors.tmp"), b"half").unwrap();
    let mut steps = 0;
    let report = straight.train(&mut data.as_slice(), 1, 9, &mut |progress| steps = progress.total).unwrap();
    assert_eq!((steps, report.epochs.len()), (25, 5));
    assert_eq!(resumed.train(&mut data.as_slice(), 1, 9, &mut |_| ()).unwrap(), report);
    assert_eq!(resumed, straight);
    resumed.save(folder.path()).unwrap();
    assert_eq!(TurnRd::load(folder.path()).unwrap(), straight);
    let mut other = TurnRd::new(small(), dim, 1).unwrap();
    other.train(&mut data.as_slice(), 0, 10, &mut |_| ()).unwrap();
    assert_ne!(other.weights, straight.weights);
    let path = folder.path().join("turnrd.safetensors");
    std::fs::write(&path, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert!(TurnRd::load(folder.path()).unwrap_err().to_string().contains("not a TurnRD checkpoint"));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let model = TurnRd::new(small(), 3, 0).unwrap();
    let refused = |turns: &[f32], goal: &[f32], name: &str| {
        let error = model.credits(turns, goal, 1.0).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    };
    refused(&[], &[0.0; 3], "sample.turns");
    refused(&[0.0; 4], &[0.0; 3], "sample.turns");
    refused(&[0.0; 24], &[0.0; 3], "max_turns");
    refused(&[0.0; 3], &[0.0; 2], "sample.goal");
    refused(&[f32::NAN; 3], &[0.0; 3], "not finite");
    for bad in [
        TurnRdConfig { heads: 3, ..small() },
        TurnRdConfig { dropout: 1.0, ..small() },
        TurnRdConfig { batch: 0, ..small() },
        TurnRdConfig { half_life: 0.0, ..small() },
        TurnRdConfig { learning_rate: f64::NAN, ..small() },
    ] {
        assert!(TurnRd::new(bad, 3, 0).is_err());
    }
    let mut empty: &[Sample] = &[];
    assert!(TurnRd::new(small(), 3, 0).unwrap().train(&mut empty, 0, 0, &mut |_| ()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn credits_do_not_know_their_company_and_sum_to_the_return(
        seed in 0u64..1000,
        count in 1usize..12,
        scale in prop::sample::select(vec![0.1f32, 1.0, 30.0]),
        ret in -20.0f64..20.0,
        rms in any::<bool>(),
        credits in prop::sample::select(vec![
            CreditRule::Attention,
            CreditRule::Projection,
            CreditRule::WeightedProjection,
        ]),
    ) {
        let config = TurnRdConfig {
            input_norm: if rms { InputNorm::Rms } else { InputNorm::None },
            credits,
            ..small()
        };
        let dim = 6;
        let mut model = TurnRd::new(config, dim, seed).unwrap();
        let mut data = samples(count, dim, seed);
        model.train(&mut data.as_slice(), 0, seed, &mut |_| ()).unwrap();
        for x in data.iter_mut().flat_map(|sample| &mut sample.turns) {
            *x *= scale;
        }
        let batch: Vec<(&[f32], &[f32], f64)> =
            data.iter().map(|sample| (&sample.turns[..], &sample.goal[..], ret)).collect();
        let together = model.credits_of(&batch).unwrap();
        for (sample, together) in data.iter().zip(&together) {
            let alone = model.credits(&sample.turns, &sample.goal, ret).unwrap();
            prop_assert_eq!(&alone, together);
            prop_assert!((alone.credits.iter().sum::<f64>() - ret).abs() < 1e-5);
            prop_assert!((alone.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(alone.credits.iter().all(|credit| credit.is_finite()));
        }
        let pack = model.pack(data.iter().map(|sample| (&sample.turns[..], &sample.goal[..])), None);
        for (packed, alone) in predictions(&pack, &model.network().forward(&pack)).iter().zip(&together) {
            for (packed, alone) in packed.values.iter().zip(&alone.values) {
                prop_assert!((packed - alone).abs() <= 1e-4 * (1.0 + alone.abs()));
            }
        }
    }
}
