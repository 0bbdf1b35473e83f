use std::collections::BTreeSet;

use turnwise_eval::compare::curves::Curve;
use turnwise_eval::compare::methods::MethodResult;
use turnwise_eval::compare::pairs::Pair;
use turnwise_eval::compare::{Comparison, Estimate, SplitComparison};

use crate::plot::forest::{Forest, Mark, Row};
use crate::plot::lines::lines;
use crate::plot::{Piece, document};

pub(super) fn plots(comparison: &Comparison, name: &str) -> String {
    let mut panels: Vec<(String, &[Curve])> = comparison
        .splits
        .iter()
        .map(|split| (format!("evaluation on {}", split.split), split.curves.as_slice()))
        .collect();
    if !comparison.training.is_empty() {
        let title = format!("training rollouts, mean of {} steps", comparison.smooth);
        panels.push((title, comparison.training.as_slice()));
    }
    let names: Vec<&str> = comparison
        .splits
        .first()
        .map(|split| split.methods.iter().map(|method| method.method.as_str()).collect())
        .unwrap_or_default();
    let mut pieces = vec![lines(&panels, &names)];
    pieces.extend(differences(comparison));
    document(name, &[seeds(comparison)], &pieces)
}

fn seeds(comparison: &Comparison) -> String {
    let of_method = |method: &MethodResult| -> BTreeSet<u64> {
        method.seeds.iter().filter_map(|seed| seed.seed).collect()
    };
    let methods = || comparison.splits.iter().take(1).flat_map(|split| &split.methods);
    let sets: Vec<BTreeSet<u64>> = methods().map(of_method).collect();
    let list = |seeds: &BTreeSet<u64>| seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let words = match sets.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) && !first.is_empty() => {
            format!("seeds {}", list(first))
        }
        _ => {
            let runs = methods().map(|method| format!("{} {}", method.method, method.seeds.len()));
            format!("runs: {}", runs.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{words}; bands and bars are 95 % intervals")
}

fn differences(comparison: &Comparison) -> Option<Piece> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for pair in comparison.splits.iter().flat_map(|split| &split.pairs) {
        if !names.contains(&(pair.method.as_str(), pair.baseline.as_str())) {
            names.push((&pair.method, &pair.baseline));
        }
    }
    let trained =
        comparison.splits.first().filter(|split| split.pairs.iter().any(|pair| pair.training.is_some()));
    let found = |split: &SplitComparison, of: &dyn Fn(&Pair) -> Option<Estimate>, name: (&str, &str)| {
        let pair = split.pairs.iter().find(|pair| (pair.method.as_str(), pair.baseline.as_str()) == name)?;
        of(pair).map(Mark::difference)
    };
    let evaluated = |pair: &Pair| Some(pair.over_seeds.unwrap_or(pair.difference));
    let mut rows: Vec<Row> = names
        .iter()
        .map(|&name| {
            let splits = comparison.splits.iter().map(|split| found(split, &evaluated, name));
            let training = trained.map(|split| found(split, &|pair| pair.training, name));
            Row { name: format!("{} vs {}", name.0, name.1), marks: splits.chain(training).collect() }
        })
        .collect();
    let pools: BTreeSet<&str> =
        comparison.splits.iter().flat_map(|split| &split.pools).map(|pool| pool.name.as_str()).collect();
    for name in pools {
        let of = |split: &SplitComparison| split.pools.iter().find(|pool| pool.name == name).cloned();
        let splits = comparison.splits.iter().map(|split| Some(Mark::difference(of(split)?.difference)));
        let training = trained.map(|split| Some(Mark::difference(of(split)?.training?)));
        rows.push(Row { name: format!("{name} (pool)"), marks: splits.chain(training).collect() });
    }
    if rows.is_empty() {
        return None;
    }
    let titles = comparison.splits.iter().map(|split| format!("difference on {}", split.split));
    let training = trained.map(|_| "training rollouts".to_owned());
    let forest = Forest {
        panels: titles.chain(training).collect(),
        rows,
        row: 22.0,
        covers: (-1.0, 1.0),
        limits: (-100.0, 100.0),
        label: |tick| if tick == 0.0 { "0".into() } else { format!("{tick:+.0}") },
        numbers: true,
        words: vec![(0.0, "points of success".into())],
    };
    Some(forest.draw())
}
