//! Anchor states, and the two estimators that compare turns in the same state.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{group, peer_batch, turn};
use turnwise_core::{Batch, Turn};
use turnwise_credit::anchor::{AnchorConfig, Anchors, Assignment, Matching};
use turnwise_credit::gigpo::GigpoConfig;
use turnwise_credit::hgpo::{BaseGroup, HgpoConfig};
use turnwise_credit::outlier::OutlierConfig;
use turnwise_credit::statistics::{Normalize, Singleton};
use turnwise_credit::{CreditConfig, CreditInputs, EstimatorConfig, Pipeline};

fn run(estimator: EstimatorConfig, batch: &Batch) -> Vec<f64> {
    let config = CreditConfig { estimator, ..CreditConfig::default() };
    let advantages = Pipeline::from_config(&config).unwrap().run(batch).unwrap();
    advantages.values().copied().collect()
}

fn close(got: &[f64], expected: &[f64]) -> bool {
    got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn the_peers_gigpo() {
    let batch = peer_batch();
    for (normalize, expected) in [
        (Normalize::Mean, [8.532499, 4.02, 4.02, -10.4925, -6.08]),
        (Normalize::MeanStd, [1.437388, 0.730282, 0.730282, -1.793446, -1.104505]),
    ] {
        let estimator =
            EstimatorConfig::Gigpo(GigpoConfig { normalize, ..GigpoConfig::default().verl_agent() });
        let got = run(estimator.clone(), &batch);
        assert!(close(&got, &expected), "{normalize:?}: {got:?}");
        let mut other = batch.clone();
        other.groups[0].trajectories[0].turns[0].observation = "s9".into();
        assert!(!close(&run(estimator, &other), &expected));
    }
}

#[test]
fn omega_zero_is_grpo() {
    let batch = peer_batch();
    let gigpo = run(EstimatorConfig::Gigpo(GigpoConfig { omega: 0.0, ..GigpoConfig::default() }), &batch);
    assert_eq!(gigpo, run(EstimatorConfig::default(), &batch));
}

#[test]
fn exact_anchors_are_numbered_by_first_appearance() {
    let anchors = Anchors::find(&peer_batch().groups[0], &AnchorConfig::default());
    assert_eq!(anchors, Anchors { of: vec![vec![0, 1, 2], vec![0, 3]], count: 4 });
    assert_eq!(anchors.gather(&[vec![1.0, 2.0, 3.0], vec![4.0, 5.0]])[0], [1.0, 4.0]);
}

#[test]
fn assignment_decides_between_two_similar_groups() {
    let texts = ["aaaaaaaaaa", "aaaaaaabbb", "aaaaaaaabb"];
    let group = group(vec![texts.iter().map(|text| turn(text, 0.0)).collect()]);
    let anchors = |assignment, threshold| {
        let config = AnchorConfig { matching: Matching::Similarity, assignment, threshold, autojunk: false };
        Anchors::find(&group, &config).of.concat()
    };
    assert_eq!(anchors(Assignment::GreedyMax, 0.8), [0, 1, 1]);
    assert_eq!(anchors(Assignment::FirstMatch, 0.8), [0, 1, 0]);
    // A similarity equal to the threshold matches; a threshold one float higher does not.
    assert_eq!(anchors(Assignment::GreedyMax, 0.9), [0, 1, 1]);
    assert_eq!(anchors(Assignment::GreedyMax, 0.9_f64.next_up()), [0, 1, 2]);
}

#[test]
fn similarity_grouping_is_the_plain_definition() {
    use turnwise_core::{Purpose, Seed};
    let mut rng = Seed::derive(3, Purpose::Credit, &[]).rng();
    for case in 0..60 {
        let texts: Vec<String> = (0..25)
            .map(|_| (0..4 + rng.below(8)).map(|_| *rng.choose(&['a', 'b', 'c']).unwrap()).collect())
            .collect();
        let group = group(vec![texts.iter().map(|text| turn(text, 0.0)).collect()]);
        for assignment in [Assignment::GreedyMax, Assignment::FirstMatch] {
            let threshold = [0.5, 0.7, 0.8][case % 3];
            let config =
                AnchorConfig { matching: Matching::Similarity, assignment, threshold, autojunk: false };
            let mut representatives: Vec<&str> = Vec::new();
            let mut expected = Vec::new();
            for text in &texts {
                let ratios: Vec<f64> = representatives
                    .iter()
                    .map(|other| turnwise_credit::similarity::ratio(text, other, false))
                    .collect();
                let mut best: Option<usize> = None;
                for (index, &ratio) in ratios.iter().enumerate() {
                    let better =
                        best.is_none_or(|best| assignment == Assignment::GreedyMax && ratio > ratios[best]);
                    if ratio >= threshold && better {
                        best = Some(index);
                    }
                }
                expected.push(best.unwrap_or_else(|| {
                    representatives.push(text);
                    representatives.len() - 1
                }));
            }
            assert_eq!(Anchors::find(&group, &config).of[0], expected);
        }
    }
}

#[test]
fn threads_do_not_show() {
    use turnwise_core::{Purpose, Seed};
    let mut rng = Seed::derive(5, Purpose::Credit, &[]).rng();
    let groups = (0..23).map(|number| {
        let mut text =
            || (0..6 + rng.below(30)).map(|_| *rng.choose(&['a', 'b', ' ']).unwrap()).collect::<String>();
        // Groups of very different sizes, so that threads finish out of order.
        group(vec![(0..=number % 7 * 9).map(|_| turn(&text(), 0.0)).collect()])
    });
    let batch = Batch { groups: groups.collect() };
    let config = AnchorConfig { matching: Matching::Similarity, threshold: 0.7, ..AnchorConfig::default() };
    let alone = Anchors::find_all_on(&batch, &config, 1);
    assert!(alone.iter().any(|anchors| anchors.count > 1 && anchors.count < anchors.of[0].len()));
    for threads in [0, 2, 3, 64] {
        assert_eq!(Anchors::find_all_on(&batch, &config, threads), alone, "{threads} threads");
    }
    assert_eq!(Anchors::find_all(&batch, &config), alone);
    assert!(Anchors::find_all(&Batch::default(), &config).is_empty());
}

#[test]
fn hgpo_by_hand() {
    let batch = Batch {
        groups: vec![group(vec![
            vec![turn("x", 0.0), turn("y", 4.0)],
            vec![turn("x", 0.0), turn("y", 0.0)],
            vec![turn("z", 0.0), turn("y", 2.0)],
        ])],
    };
    let config = HgpoConfig { gamma: 1.0, levels: 2, normalize: Normalize::Mean, ..HgpoConfig::default() };
    let got = run(EstimatorConfig::Hgpo(config.clone()), &batch);
    // x: mean 2 at both levels. z: no other turn. y: mean 2 of three at level 1 (weight 2), mean 2
    // of two at level 2 (after x, weight 3); the third is alone there.
    assert!(close(&got, &[2.0, 2.0, -2.0, -2.0, 0.0, 0.0]), "{got:?}");
    let mut other = batch;
    other.groups[0].trajectories[2].turns[1].reward = 5.0;
    // y: level 1 mean 3 (1, -3, 2), level 2 mean 2 (2, -2): (2 * 1 + 3 * 2) / 5 and so on.
    let got = run(EstimatorConfig::Hgpo(config), &other);
    assert!(close(&got, &[2.0, 1.6, -2.0, -2.4, 0.0, 2.0]), "{got:?}");
}

#[test]
fn the_authors_hgpo_leaves_levels_of_advantage_zero_out() {
    let batch = Batch {
        groups: vec![group(vec![
            vec![turn("x", 0.0), turn("y", 3.0)],
            vec![turn("x", 0.0), turn("y", 1.0)],
            vec![turn("z", 0.0), turn("y", 1.0), turn("y", 3.0)],
        ])],
    };
    let config = HgpoConfig { gamma: 1.0, levels: 2, normalize: Normalize::Mean, ..HgpoConfig::default() };
    let papers = run(EstimatorConfig::Hgpo(config.clone()), &batch);
    let authors = run(EstimatorConfig::Hgpo(HgpoConfig { skip_zero_levels: true, ..config }), &batch);
    // Step returns of y: 3, 1, 4, 3 (mean 2.75); after x: 3, 1 (mean 2). No level has advantage 0.
    assert_eq!(papers, authors);
    let mut even = batch;
    even.groups[0].trajectories[2].turns.pop();
    even.groups[0].trajectories[2].turns[1].reward = 5.0;
    // y: 3, 1, 5 (mean 3), so the first is 0 at level 1 (weight 2); after x: 3, 1 (mean 2), so it
    // is 1 (weight 3).
    let config = HgpoConfig { gamma: 1.0, levels: 2, normalize: Normalize::Mean, ..HgpoConfig::default() };
    let papers = run(EstimatorConfig::Hgpo(config.clone()), &even);
    let authors = run(EstimatorConfig::Hgpo(HgpoConfig { skip_zero_levels: true, ..config }), &even);
    assert!(close(&papers[1..2], &[3.0 / 5.0]), "{papers:?}");
    assert!(close(&authors[1..2], &[1.0]), "{authors:?}");
}

/// HGPO by the authors' recipe, turn by turn: compares each turn with the group's other turns with
/// the same last `k` observations, for each available `k`. Weights are (k + 1)^alpha over nonzero
/// advantages.
fn authors_hgpo(batch: &Batch, levels: usize, alpha: f64, gamma: f64, base: bool) -> Vec<f64> {
    let standardised = |value: f64, values: &[f64], ddof: f64| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - ddof);
        if variance < 1e-18 { 0.0 } else { (value - mean) / (variance.sqrt() + 1e-6) }
    };
    let mut advantages = Vec::new();
    for group in &batch.groups {
        // (observations up to the turn, step return, outcome) of each turn.
        let mut turns: Vec<(Vec<&str>, f64, f64)> = Vec::new();
        for trajectory in &group.trajectories {
            let rewards: Vec<f64> = trajectory.turns.iter().map(|turn| turn.reward).collect();
            for t in 0..rewards.len() {
                let seen = trajectory.turns[..=t].iter().map(|turn| turn.observation.as_ref()).collect();
                let discounted = rewards[t..].iter().enumerate();
                let step = discounted.map(|(k, reward)| gamma.powi(k as i32) * reward).sum();
                turns.push((seen, step, rewards.iter().sum()));
            }
        }
        for (seen, step, outcome) in &turns {
            let mut items = Vec::new();
            if base {
                let outcomes: Vec<f64> = turns.iter().map(|turn| turn.2).collect();
                items.push((1.0, standardised(*outcome, &outcomes, 1.0)));
            }
            for k in 1..=levels.min(seen.len()) {
                let history = &seen[seen.len() - k..];
                let alike = turns.iter().filter(|turn| turn.0.ends_with(history));
                let steps: Vec<f64> = alike.map(|turn| turn.1).collect();
                if steps.len() > 1 {
                    items.push(((k as f64 + 1.0).powf(alpha), standardised(*step, &steps, 0.0)));
                }
            }
            items.retain(|item| item.1 != 0.0);
            let weight: f64 = items.iter().map(|item| item.0).sum();
            let sum: f64 = items.iter().map(|item| item.0 * item.1).sum();
            advantages.push(if weight > 0.0 { sum / weight } else { 0.0 });
        }
    }
    advantages
}

#[test]
fn the_authors_hgpo() {
    use turnwise_core::{Purpose, Seed};
    let mut rng = Seed::derive(7, Purpose::Credit, &[]).rng();
    let mut differs = [0; 3];
    for case in 0..40 {
        let groups = (0..2).map(|_| {
            let trajectories = (0..4).map(|_| {
                let turns = 1 + rng.below(5);
                (0..turns).map(|_| turn(rng.choose(&["x", "y", "z"]).unwrap(), rng.below(2) as f64)).collect()
            });
            group(trajectories.collect())
        });
        let batch = Batch { groups: groups.collect() };
        let base_group = [BaseGroup::None, BaseGroup::Turn][case % 2];
        let config = HgpoConfig { alpha: 1.5, levels: 3, base_group, ..HgpoConfig::default() }.verl_agent();
        let got = run(EstimatorConfig::Hgpo(config.clone()), &batch);
        let expected = authors_hgpo(&batch, 3, 1.5, 0.95, base_group != BaseGroup::None);
        assert!(close(&got, &expected), "{case}: {got:?} {expected:?}");
        let others = [
            HgpoConfig { skip_zero_levels: false, ..config.clone() },
            HgpoConfig { skip_short_histories: false, ..config.clone() },
            HgpoConfig { base_group: BaseGroup::Trajectory, ..config },
        ];
        for (count, other) in differs.iter_mut().zip(others) {
            *count += usize::from(!close(&run(EstimatorConfig::Hgpo(other), &batch), &expected));
        }
    }
    assert!(differs.iter().all(|&count| count > 0), "{differs:?}");
}

#[test]
fn verl_agents_switches_keep_the_users_matching() {
    let anchor = AnchorConfig { matching: Matching::Similarity, threshold: 0.8, ..AnchorConfig::default() };
    let gigpo = EstimatorConfig::Gigpo(GigpoConfig { anchor, omega: 2.0, ..GigpoConfig::default() });
    let Some(EstimatorConfig::Gigpo(switched)) = gigpo.verl_agent() else { panic!() };
    assert_eq!((switched.anchor.matching, switched.anchor.threshold), (Matching::Similarity, 0.8));
    assert_eq!((switched.anchor.assignment, switched.anchor.autojunk), (Assignment::FirstMatch, true));
    assert_eq!((switched.omega, switched.single_sample_advantage), (2.0, Singleton::Raw));
    let hgpo = HgpoConfig { base_group: BaseGroup::Trajectory, alpha: 0.5, ..HgpoConfig::default() };
    let Some(EstimatorConfig::Hgpo(switched)) = EstimatorConfig::Hgpo(hgpo).verl_agent() else { panic!() };
    assert_eq!((switched.base_group, switched.alpha), (BaseGroup::Turn, 0.5));
    assert!(switched.skip_zero_levels && switched.skip_short_histories);
}

#[test]
fn outliers_are_compared_in_the_estimators_anchor_states() {
    let with_entropy = |text: &str| Turn { entropies: vec![0.5], response_ids: vec![1], ..turn(text, 0.0) };
    let members =
        ["the red door is open now", "the red door is open now!"].map(|text| vec![with_entropy(text)]);
    let batch = Batch { groups: vec![group(members.to_vec())] };
    let states = |own: Option<AnchorConfig>| {
        let alike = AnchorConfig { matching: Matching::Similarity, ..AnchorConfig::default() };
        let config = CreditConfig {
            estimator: EstimatorConfig::Gigpo(GigpoConfig { anchor: alike, ..GigpoConfig::default() }),
            outliers: Some(OutlierConfig { anchor: own, ..OutlierConfig::default() }),
            ..CreditConfig::default()
        };
        let report =
            Pipeline::from_config(&config).unwrap().report(&CreditInputs::new(&batch), false).unwrap();
        report.outliers.unwrap().states[0].count
    };
    assert_eq!(states(None), 1);
    assert_eq!(states(Some(AnchorConfig::default())), 2);
}

#[test]
fn the_explanation_names_the_anchor_group() {
    let batch = peer_batch();
    let config =
        CreditConfig { estimator: EstimatorConfig::Gigpo(GigpoConfig::default()), ..CreditConfig::default() };
    let report = Pipeline::from_config(&config).unwrap().report(&CreditInputs::new(&batch), true).unwrap();
    let facts = &report.explanations[0][1][0][0].facts;
    assert_eq!((facts.get("anchor"), facts.get("anchor_size")), (Some(0.0), Some(2.0)), "{facts:?}");
    assert_eq!(report.diagnostics["gigpo/singleton_turns"], 0.6);
}

#[test]
fn states_are_compared_by_their_keys() {
    // A clock makes each observation's text unique; keys identify equal states.
    let keyed = |time: &str, key: &str, reward| Turn {
        state_key: Some(key.into()),
        ..turn(&format!("{time}: you are here"), reward)
    };
    let with_keys = Batch {
        groups: vec![group(vec![
            vec![keyed("12:00", "s0", 0.0), keyed("12:01", "s1", 0.0), keyed("12:02", "s2", 10.0)],
            vec![keyed("12:03", "s0", 0.0), keyed("12:04", "s3", 0.0)],
        ])],
    };
    let mut with_words = with_keys.clone();
    for turn in with_words.groups[0].trajectories.iter_mut().flat_map(|trajectory| &mut trajectory.turns) {
        turn.observation = turn.state_key.take().unwrap();
    }
    let anchors = |batch: &Batch| Anchors::find(&batch.groups[0], &AnchorConfig::default());
    assert_eq!(anchors(&with_keys), Anchors { of: vec![vec![0, 1, 2], vec![0, 3]], count: 4 });
    assert_eq!(anchors(&with_keys), anchors(&with_words));
    for estimator in
        [EstimatorConfig::Gigpo(GigpoConfig::default()), EstimatorConfig::Hgpo(HgpoConfig::default())]
    {
        assert_eq!(run(estimator.clone(), &with_keys), run(estimator, &with_words));
    }
}
