//! Golden values of SciPy and `rliable` (`tests/golden/golden_statistics.py`).

use serde::Deserialize;

use super::{
    Bootstrap, Interval, iqm, mcnemar, mean_of_strata, paired_permutation, percentile,
    probability_of_improvement,
};

#[derive(Deserialize)]
struct Golden {
    x: Vec<Vec<f64>>,
    y: Vec<Vec<f64>>,
    iqm: [f64; 2],
    mean: [f64; 2],
    iqm_interval: [f64; 2],
    mean_interval: [f64; 2],
    improvement: f64,
    improvement_interval: [f64; 2],
    mcnemar: Vec<(usize, usize, f64)>,
    differences: Vec<f64>,
    permutation: f64,
    percentiles: Vec<(f64, f64)>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../tests/golden/statistics.json")).unwrap()
}

/// Transposes scores to `[stratum][run]`.
fn strata(runs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..runs[0].len()).map(|stratum| runs.iter().map(|run| run[stratum]).collect()).collect()
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-9
}

#[test]
fn aggregates_are_rliables() {
    let golden = golden();
    for (index, runs) in [&golden.x, &golden.y].into_iter().enumerate() {
        assert!(close(iqm(&runs.concat()), golden.iqm[index]));
        assert!(close(mean_of_strata(&strata(runs)), golden.mean[index]));
        // The comparison can fail.
        assert!(!close(iqm(&runs.concat()), golden.mean[index]));
    }
}

#[test]
fn intervals_are_rliables() {
    let golden = golden();
    let (x, y) = (strata(&golden.x), strata(&golden.y));
    let bootstrap = Bootstrap { resamples: 50_000, seed: 0 };
    // The draws differ, so the ends agree within the sampling error.
    let agrees = |found: Interval, expected: [f64; 2]| {
        (found.low - expected[0]).abs() < 0.006 && (found.high - expected[1]).abs() < 0.006
    };
    let of_iqm = bootstrap.interval(&[&x], |drawn| iqm(&drawn[0].concat())).unwrap();
    assert!(agrees(of_iqm, golden.iqm_interval), "{of_iqm:?} {:?}", golden.iqm_interval);
    let of_mean = bootstrap.interval(&[&x], |drawn| mean_of_strata(&drawn[0])).unwrap();
    assert!(agrees(of_mean, golden.mean_interval), "{of_mean:?} {:?}", golden.mean_interval);
    assert!(!agrees(of_mean, golden.iqm_interval));
    let pooled = [x.concat()];
    let mixed = bootstrap.interval(&[&pooled], |drawn| iqm(&drawn[0].concat())).unwrap();
    assert!(!agrees(mixed, golden.iqm_interval), "{mixed:?}");
    let improvement = |drawn: &[Vec<Vec<f64>>]| probability_of_improvement(&drawn[0], &drawn[1]).unwrap();
    let found = bootstrap.interval(&[&x, &y], improvement).unwrap();
    // Its values are multiples of 1/48.
    let step = 1.0 / 48.0;
    let [low, high] = golden.improvement_interval;
    assert!((found.low - low).abs() < step && (found.high - high).abs() < step, "{found:?}");
}

#[test]
fn improvement_is_rliables() {
    let golden = golden();
    let (x, y) = (strata(&golden.x), strata(&golden.y));
    assert!(close(probability_of_improvement(&x, &y).unwrap(), golden.improvement));
    assert!(!close(probability_of_improvement(&y, &x).unwrap(), golden.improvement));
}

#[test]
fn tests_are_scipys() {
    let golden = golden();
    for (first, second, p) in &golden.mcnemar {
        let pairs = |first: usize, second: usize| {
            let one = std::iter::repeat_n((true, false), first);
            one.chain(std::iter::repeat_n((false, true), second)).collect::<Vec<_>>()
        };
        assert!(close(mcnemar(&pairs(*first, *second)).p, *p), "{first} {second}");
        assert!(!close(mcnemar(&pairs(*first, *second + 1)).p, *p), "{first} {second}");
    }
    let found = paired_permutation(&golden.differences, 0, 0).unwrap();
    assert!(found.exact && close(found.p, golden.permutation), "{found:?} {}", golden.permutation);
    assert!(!close(paired_permutation(&golden.differences[1..], 0, 0).unwrap().p, golden.permutation));
    let mut sorted = golden.differences.clone();
    sorted.sort_by(f64::total_cmp);
    for (share, expected) in golden.percentiles {
        assert!(close(percentile(&sorted, share), expected), "{share}");
    }
}
