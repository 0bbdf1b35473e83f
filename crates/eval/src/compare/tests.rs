//! Comparisons on hand-made runs.

use std::collections::BTreeMap;

use super::draws::averaged;
use super::methods::Over;
use super::runs::RunResults;
use super::{CompareSettings, Comparison, compare};
use crate::{Agent, Evaluation, KindResult, Outcomes, Rate, TaskOutcome, TrialResult};

/// Tasks with an even index are of kind `even`.
fn run(method: &str, seed: u64, solved: &[bool]) -> RunResults {
    let outcome = |(task, success): (usize, &bool)| TaskOutcome {
        task,
        kind: if task % 2 == 0 { "even" } else { "odd" }.into(),
        success: *success,
        outcome_return: f64::from(u8::from(*success)),
        turns: 4,
    };
    let outcomes: Vec<TaskOutcome> = solved.iter().enumerate().map(outcome).collect();
    let rate = |kind: &str| {
        let of_kind = outcomes.iter().filter(|outcome| kind.is_empty() || outcome.kind == kind);
        Rate::new(of_kind.clone().filter(|outcome| outcome.success).count(), of_kind.count())
    };
    let kind = |kind: &str| (kind.to_owned(), KindResult { success: rate(kind), mean_turns: 4.0 });
    let evaluation = Evaluation {
        split: "test".into(),
        panel: "abc".into(),
        agent: Agent::Plain,
        temperature: 0.0,
        seed,
        success: rate(""),
        trials: Vec::new(),
        kinds: BTreeMap::from([kind("even"), kind("odd")]),
        scenarios: None,
        mean_turns: 4.0,
        mean_return: 0.0,
        metrics: BTreeMap::new(),
        failed: 0,
        resampled: 0,
        overflowed: 0,
        invalid_action_frac: 0.0,
        inadmissible_rate: Some(0.0),
        seconds: 1.0,
        outcomes: Outcomes(outcomes),
    };
    RunResults {
        path: format!("runs/{method}-seed-{seed}").into(),
        name: format!("{method}-seed-{seed}"),
        method: method.into(),
        seed: Some(seed),
        finished: true,
        folders: vec!["eval".into()],
        evaluations: BTreeMap::from([(2, vec![evaluation])]),
        training: vec![(1, 0.25), (2, 0.5)],
    }
}

/// Three seeds of eight tasks each; b solves one more of each kind than a.
fn runs() -> Vec<RunResults> {
    let a = [true, false, true, false, false, false, true, false];
    let b = [true, true, true, false, true, false, true, false];
    let flipped = |solved: [bool; 8], at: u64| {
        let mut solved = solved;
        solved[7 - at as usize] = true;
        solved
    };
    let mut runs: Vec<RunResults> = (0..3).map(|seed| run("a", seed, &flipped(a, seed % 2))).collect();
    runs.extend((0..3).map(|seed| run("b", seed, &flipped(b, seed % 2))));
    runs
}

fn settings() -> CompareSettings {
    CompareSettings::default()
}

fn of(runs: &[RunResults]) -> Comparison {
    compare(runs, &settings()).unwrap()
}

#[test]
fn methods_are_compared_over_seeds_and_tasks() {
    let found = of(&runs());
    assert_eq!((found.baseline.as_str(), found.notes.len()), ("a", 0), "{:?}", found.notes);
    let split = &found.splits[0];
    assert_eq!((split.tasks, split.kinds.len(), split.methods.len()), (8, 2, 2));
    let [a, b] = [&split.methods[0], &split.methods[1]];
    assert_eq!((a.method.as_str(), a.seeds.len(), a.over), ("a", 3, Over::Seeds));
    let mean = (0.5 + 0.375 + 0.5) / 3.0;
    assert!((a.success.value - mean).abs() < 1e-12, "{a:?}");
    assert!(b.success.value > a.success.value && b.iqm.value > a.iqm.value);
    let interval = a.success.interval.unwrap();
    assert!(interval.low <= mean && mean <= interval.high && interval.low < interval.high);
    let pair = &split.pairs[0];
    assert_eq!((pair.method.as_str(), pair.baseline.as_str()), ("b", "a"));
    assert!((pair.difference.value - 0.25).abs() < 1e-12, "{pair:?}");
    // Two tasks differ, so two of four signs are as extreme.
    let test = pair.permutation.unwrap();
    assert!(test.exact && (test.p - 0.5).abs() < 1e-12);
    assert!(pair.improvement.unwrap().value > 0.9);
    let over_seeds = pair.over_seeds.unwrap();
    let interval = over_seeds.interval.unwrap();
    assert!((over_seeds.value - 0.25).abs() < 1e-12 && (interval.high - interval.low).abs() < 1e-12);
    assert_eq!(pair.mcnemar.len(), 3);
    assert_eq!((pair.mcnemar[0].test.only_first, pair.mcnemar[0].test.only_second), (2, 0));
    assert_eq!(found.training[0].points.len(), 2);
    assert_eq!(split.curves[1].points[0].step, 2);

    let settings = CompareSettings { baseline: Some("b".into()), ..settings() };
    let turned = compare(&runs(), &settings).unwrap();
    assert_eq!(turned.splits[0].pairs[0].difference.value, -pair.difference.value);
}

#[test]
fn tasks_that_failed_are_noted() {
    let mut all = runs();
    let evaluation = all[1].evaluations.get_mut(&2).unwrap();
    evaluation[0].failed = 3;
    let notes = of(&all).notes.join("\n");
    assert!(
        notes.contains("test: 3 of 11 tasks failed in the environment or the sampler of a-seed-1"),
        "{notes}"
    );
    assert!(!notes.contains("a-seed-0"), "{notes}");
}

#[test]
fn one_seed_has_intervals_over_tasks_alone() {
    let all = runs();
    let found = of(&[all[0].clone(), all[4].clone()]);
    let method = &found.splits[0].methods[0];
    assert_eq!(method.over, Over::Tasks);
    let (low, high) = crate::wilson(4, 8);
    let interval = method.success.interval.unwrap();
    assert_eq!((interval.low, interval.high), (low, high));
    assert_eq!(method.iqm.interval, None);
    assert_eq!(found.splits[0].pairs[0].mcnemar.len(), 1);
}

#[test]
fn seeds_that_one_method_lacks_are_left_out_of_its_differences() {
    let all = runs();
    let mut fewer = all[..3].to_vec();
    fewer[0] = run("a", 0, &[true; 8]);
    fewer.push(all[4].clone());
    let found = of(&fewer);
    let pair = &found.splits[0].pairs[0];
    assert!((pair.difference.value - 0.25).abs() < 1e-12, "{pair:?}");
    assert_eq!((pair.mcnemar.len(), pair.by_seed.len()), (1, 1));
    assert_eq!(pair.improvement.unwrap().value, 1.0);
    assert_eq!(found.splits[0].methods[0].seeds.len(), 3);
    let note = "b has seeds 1, a 0, 1, 2: they are compared on those that both have, 1";
    assert_eq!(found.notes, [note]);
    let found = of(&[all[0].clone(), all[2].clone(), all[4].clone()]);
    assert_eq!(
        found.notes,
        ["b has seeds 1, a 0, 2: they share none, so that their difference is one of seeds, too"]
    );
}

#[test]
fn a_method_may_have_a_baseline_of_its_own() {
    let mut all = runs();
    let more = [true, true, true, true, true, false, true, false];
    all.extend((0..3).map(|seed| run("c", seed, &more)));
    let own = |name: &str, baseline: &str| (name.to_owned(), baseline.to_owned());
    let settings = CompareSettings { baselines: BTreeMap::from([own("c", "b")]), ..settings() };
    let pairs = |settings: &CompareSettings| -> Vec<(String, String)> {
        let found = compare(&all, settings).unwrap();
        found.splits[0].pairs.iter().map(|pair| own(&pair.method, &pair.baseline)).collect()
    };
    assert_eq!(pairs(&settings), [own("b", "a"), own("c", "b")]);
    let for_all = CompareSettings { baseline: Some("a".into()), ..settings.clone() };
    assert_eq!(pairs(&for_all), [own("b", "a"), own("c", "a")]);
    let absent = CompareSettings { baselines: BTreeMap::from([own("c", "d")]), ..settings };
    assert_eq!(pairs(&absent), [own("b", "a")]);
    let notes = compare(&all, &absent).unwrap().notes;
    assert_eq!(notes, ["test: c is held against d, of which no run is here"]);
}

#[test]
fn pools_average_pairs_seed_by_seed() {
    let solved = |count: usize| (0..8).map(|task| task < count).collect::<Vec<_>>();
    let all = |counts: &[(&str, [usize; 3])]| -> Vec<RunResults> {
        let of = |(method, counts): &(&str, [usize; 3])| -> Vec<RunResults> {
            (0..3).map(|seed| run(method, seed as u64, &solved(counts[seed]))).collect()
        };
        counts.iter().flat_map(of).collect()
    };
    let mut runs = all(&[("a", [4, 4, 4]), ("b", [5, 4, 7]), ("x", [2, 2, 3]), ("y", [3, 4, 3])]);
    // b's training ends 0.2, 0.2 and 0.5 above a's, and y's above x's.
    for (index, more) in [(3, 0.2), (4, 0.2), (5, 0.5)] {
        runs[index].training = vec![(1, 0.0), (2, 0.5 + more)];
    }
    let own = |name: &str, baseline: &str| (name.to_owned(), baseline.to_owned());
    let settings = CompareSettings {
        baselines: BTreeMap::from([own("y", "x")]),
        pools: vec![("idea".into(), vec!["b".into(), "y".into()])],
        smooth: 1,
        ..settings()
    };
    let found = compare(&runs, &settings).unwrap();
    let pool = &found.splits[0].pools[0];
    assert_eq!((pool.name.as_str(), pool.seeds.as_slice()), ("idea", [0, 1, 2].as_slice()));
    assert_eq!(pool.pairs, [own("b", "a"), own("y", "x")]);
    // By seed (1 + 1) / 2, (0 + 2) / 2 and (3 + 0) / 2 of eight tasks.
    let by_seed = [1.0 / 8.0, 1.0 / 8.0, 1.5 / 8.0];
    let expected = crate::statistics::student(&by_seed).unwrap();
    let interval = pool.difference.interval.unwrap();
    assert!((pool.difference.value - 3.5 / 24.0).abs() < 1e-12, "{pool:?}");
    assert!((interval.low - expected.low).abs() < 1e-12 && (interval.high - expected.high).abs() < 1e-12);
    let six = crate::statistics::student(&[1.0, 0.0, 3.0, 1.0, 2.0, 0.0].map(|tasks| tasks / 8.0)).unwrap();
    assert!((six.high - interval.high).abs() > 0.01);
    assert!((pool.training.unwrap().value - 0.15).abs() < 1e-12, "{pool:?}");
    assert!((found.splits[0].pairs[0].training.unwrap().value - 0.3).abs() < 1e-12);

    let fewer: Vec<RunResults> = runs[..11].to_vec();
    assert_eq!(compare(&fewer, &settings).unwrap().splits[0].pools[0].seeds, [0, 1]);
    let without = compare(&runs[..9], &settings).unwrap();
    assert!(without.splits[0].pools.is_empty());
    assert!(
        without.notes.iter().any(|note| note.contains("the pool idea is left out") && note.ends_with(": y"))
    );
    let one: Vec<RunResults> = runs.iter().filter(|run| run.seed == Some(0)).cloned().collect();
    assert!(
        compare(&one, &settings).unwrap().notes.iter().any(|note| note.contains("have 1 seeds in common"))
    );
}

#[test]
fn draws_of_a_run_are_averaged_and_stay_one_run() {
    let evaluation = |seed: u64, solved: &[bool]| {
        let mut found = run("a", 0, solved).evaluations.remove(&2).unwrap().remove(0);
        (found.temperature, found.seed) = (1.0, seed);
        found
    };
    let draws =
        || vec![evaluation(1, &[true, false, false, false]), evaluation(2, &[true, true, true, false])];
    let both = averaged(draws()).unwrap();
    assert_eq!((both.success.successes, both.success.trials, both.success.rate), (4, 8, 0.5));
    assert_eq!((both.kinds["even"].success.rate, both.kinds["odd"].success.rate), (0.75, 0.25));
    let drawn = |method: &str, seed: u64, evaluation: Evaluation| RunResults {
        folders: vec!["sampled-1".into(), "sampled-2".into()],
        evaluations: BTreeMap::from([(2, vec![evaluation])]),
        ..run(method, seed, &[])
    };
    let none =
        averaged(vec![evaluation(1, &[false; 4]), evaluation(2, &[true, false, false, false])]).unwrap();
    let found = of(&[drawn("a", 0, none), drawn("b", 0, both)]);
    let split = &found.splits[0];
    assert_eq!((split.tasks, split.methods[0].seeds.len()), (4, 1));
    // A rate over four tasks, not eight games.
    let half = split.methods[1].success.interval.unwrap();
    let (low, high) = crate::wilson(2, 4);
    assert!((half.low - low).abs() < 1e-12 && (half.high - high).abs() < 1e-12, "{half:?}");
    let pair = &split.pairs[0];
    assert!((pair.difference.value - 0.375).abs() < 1e-12, "{pair:?}");
    assert!((pair.permutation.unwrap().p - 0.25).abs() < 1e-12 && pair.mcnemar.is_empty());

    let refused = |change: fn(&mut Evaluation)| {
        let mut draws = draws();
        change(&mut draws[1]);
        averaged(draws).unwrap_err()
    };
    assert!(refused(|draw| draw.seed = 1).contains("the same seed 1"));
    let mut greedy = vec![evaluation(1, &[true, false]), evaluation(2, &[true, false])];
    for draw in &mut greedy {
        draw.temperature = 0.0;
    }
    assert!(averaged(greedy).unwrap_err().contains("greedy and alike"));
    assert!(refused(|draw| draw.panel = "other".into()).contains("different panels"));
    assert!(refused(|draw| draw.temperature = 0.5).contains("different temperatures"));
    assert!(refused(|draw| draw.trials = vec![trial()]).contains("different numbers of trials"));
}

fn trial() -> TrialResult {
    TrialResult { trial: 1, solved: Rate::new(0, 8), success: Rate::new(0, 8) }
}

#[test]
fn a_curve_has_the_steps_that_were_evaluated_alike() {
    type Change = fn(&mut Evaluation);

    let mut all = runs();
    let others: [(u64, Change); 5] = [
        (3, |_| {}),
        (4, |result| result.panel = "other".into()),
        (5, |result| result.temperature = 1.0),
        (6, |result| result.agent = Agent::React),
        (7, |result| result.trials = vec![trial()]),
    ];
    for (step, change) in others {
        let mut results = all[0].evaluations[&2].clone();
        results.iter_mut().for_each(change);
        all[0].evaluations.insert(step, results);
    }
    let found = compare(&all, &CompareSettings { at: Some(2), ..settings() }).unwrap();
    let points = &found.splits[0].curves[0].points;
    assert_eq!(points.iter().map(|point| (point.step, point.runs)).collect::<Vec<_>>(), [(2, 3), (3, 1)]);
    let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
    assert!(note.starts_with("test: left out of the learning curve of a,"), "{note}");
    assert!(
        note.ends_with(": step 4 of a-seed-0, step 5 of a-seed-0, step 6 of a-seed-0, step 7 of a-seed-0"),
        "{note}"
    );
}

#[test]
fn runs_that_were_not_evaluated_alike_are_refused() {
    let change = |change: fn(&mut Evaluation)| {
        let mut runs = runs();
        for result in runs[4].evaluations.values_mut().flatten() {
            change(result);
        }
        compare(&runs, &settings()).unwrap_err().to_string()
    };
    for (error, words) in [
        (change(|result| result.panel = "other".into()), "other tasks (abc and other)"),
        (change(|result| result.temperature = 1.0), "temperatures (0 and 1)"),
        (change(|result| result.agent = Agent::React), "agents (plain and react)"),
        (change(|result| result.trials = vec![trial()]), "numbers of trials (0 and 1)"),
        (change(|result| result.split = "train".into()), "different splits (test and train)"),
    ] {
        assert!(error.contains("runs/a-seed-0 and runs/b-seed-1"), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let mut all = runs();
    all[4].finished = false;
    all[5].seed = Some(0);
    for result in all[1].evaluations.values_mut().flatten() {
        result.outcomes = Outcomes::default();
    }
    let found = of(&all);
    let pair = &found.splits[0].pairs[0];
    assert!(pair.permutation.is_none() && pair.mcnemar.is_empty() && pair.difference.interval.is_none());
    // The two runs of a whose seeds b has, and all three of b.
    let expected = (6.0 + 5.0 + 6.0) / 24.0 - (4.0 + 3.0) / 16.0;
    assert!((pair.difference.value - expected).abs() < 1e-12);
    let notes = found.notes.join("\n");
    let seeds = "b has seeds 0, 1, a 0, 1, 2: they are compared on those that both have, 0, 1";
    for words in ["b-seed-1 is not finished", "the same seed 0", "runs/a-seed-1/eval/step-000002.json", seeds]
    {
        assert!(notes.contains(words), "{notes}");
    }
    let error = |settings: &CompareSettings| compare(&runs(), settings).unwrap_err().to_string();
    let at = error(&CompareSettings { at: Some(9), ..settings() });
    assert!(
        at.contains("runs/a-seed-0: has no evaluation on test at step 9; there are evaluations of steps 2"),
        "{at}"
    );
    let name = error(&CompareSettings { baseline: Some("c".into()), ..settings() });
    assert!(name.contains("there are: a, b"), "{name}");
    assert!(compare(&[], &settings()).is_err());
    let mut none = runs();
    none[2].evaluations.clear();
    let error = compare(&none, &settings()).unwrap_err().to_string();
    assert!(error.starts_with("runs/a-seed-2: has no evaluation; train it"), "{error}");
    none[2].folders = vec!["sampled-1".into(), "sampled-2".into()];
    let error = compare(&none, &settings()).unwrap_err().to_string();
    assert!(error.ends_with("a step is compared that all of sampled-1, sampled-2 have"), "{error}");
}
