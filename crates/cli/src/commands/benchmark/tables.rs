use turnwise_eval::benchmark::{Difference, MethodScore, TruthSummary};
use turnwise_eval::compare::Estimate;

use crate::commands::table::{Table, quoted};

pub(super) fn number(estimate: Option<&Estimate>, digits: usize) -> String {
    let Some(Estimate { value, interval }) = estimate else { return "-".into() };
    match interval {
        Some(interval) => {
            format!("{value:.digits$} [{:.digits$}, {:.digits$}]", interval.low, interval.high)
        }
        None => format!("{value:.digits$}"),
    }
}

fn plain(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}

fn value_of(estimate: Option<&Estimate>, digits: usize) -> String {
    plain(estimate.map(|estimate| estimate.value), digits)
}

pub(super) const LEGEND: &str = "\
r: Pearson's correlation of the advantage with A* over all turns; within: of both less their means over a trajectory, which is what
is left of credit once the outcome is known (-: the same for all turns of a trajectory); corrected: without the noise of the truth;
rho: Spearman's. sign: share of right signs where A* is above twice its error, 0 counted half. slope: A* of one unit of advantage.
noise: share of the advantage's variance that does not go with A*. Intervals: 95 %, bootstrap over tasks. a-star K=N: the truth as
N continuations from each state estimate it, against that of others.";

pub(super) fn scores(title: String, scores: &[MethodScore]) -> Table {
    let header = ["method", "r", "corrected", "rho", "within", "corrected", "rho", "sign", "slope", "noise"];
    let row = |score: &MethodScore| {
        vec![
            score.name.clone(),
            number(score.pearson.as_ref(), 2),
            value_of(score.pearson_corrected.as_ref(), 2),
            value_of(score.spearman.as_ref(), 2),
            number(score.within.as_ref(), 2),
            value_of(score.within_corrected.as_ref(), 2),
            value_of(score.within_spearman.as_ref(), 2),
            number(score.signs.as_ref(), 2),
            value_of(score.slope.as_ref(), 3),
            plain(score.noise, 2),
        ]
    };
    Table { title, header: header.map(str::to_owned).to_vec(), rows: scores.iter().map(row).collect() }
}

pub(super) fn differences(differences: &[Difference]) -> Option<Table> {
    let baseline = &differences.first()?.baseline;
    let first = format!("less {baseline}");
    let header = [first.as_str(), "r", "corrected", "within", "corrected", "sign"];
    let row = |difference: &Difference| {
        let numbers = [
            &difference.pearson,
            &difference.pearson_corrected,
            &difference.within,
            &difference.within_corrected,
            &difference.signs,
        ];
        let cells = numbers.into_iter().map(|estimate| signed(estimate.as_ref(), 2));
        std::iter::once(difference.name.clone()).chain(cells).collect()
    };
    Some(Table {
        title: format!(
            "Differences to {baseline} on the same drawn tasks; credit that does not exist counts as 0"
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: differences.iter().map(row).collect(),
    })
}

pub(super) fn signed(estimate: Option<&Estimate>, digits: usize) -> String {
    let Some(Estimate { value, interval }) = estimate else { return "-".into() };
    match interval {
        Some(interval) => {
            format!("{value:+.digits$} [{:+.digits$}, {:+.digits$}]", interval.low, interval.high)
        }
        None => format!("{value:+.digits$}"),
    }
}

pub(super) fn errors(scores: &[MethodScore]) -> Option<Table> {
    let first = scores.first()?;
    let head = |part: &turnwise_eval::benchmark::PartError| format!("{} ({})", part.part, part.turns);
    let header = std::iter::once("method".to_owned()).chain(first.errors.iter().map(head)).collect();
    let truth = std::iter::once("A* itself, root mean square".to_owned())
        .chain(first.errors.iter().map(|part| format!("{:.3}", part.truth)))
        .collect();
    let row = |score: &MethodScore| {
        let cells = score.errors.iter().map(|part| plain(part.error, 2));
        std::iter::once(score.name.clone()).chain(cells).collect()
    };
    let title = "Error of the advantage as an estimate of A*, over A*'s root mean square, by place of the turn and by outcome \
                 (turns): 0 is the truth, 1 no credit at all"
        .to_owned();
    let rows = std::iter::once(truth).chain(scores.iter().map(row)).collect();
    Some(Table { title, header, rows })
}

/// Returns CSV: method, measure, subset of the turns, value, and interval bounds. If a row is a
/// difference between methods, its subset column contains the subtracted method's name.
pub(super) fn csv(summary: &TruthSummary, scores: &[MethodScore], differences: &[Difference]) -> String {
    let mut text = String::from("method,measure,part,value,low,high\n");
    let mut line = |method: &str, measure: &str, part: &str, estimate: Option<Estimate>| {
        let Some(Estimate { value, interval }) = estimate else { return };
        let ends =
            interval.map_or_else(|| ",".to_owned(), |interval| format!("{},{}", interval.low, interval.high));
        text.push_str(&format!("{},{measure},{},{value},{ends}\n", quoted(method), quoted(part)));
    };
    let exactly = |value: f64| Some(Estimate { value, interval: None });
    let truth = [
        ("tasks", summary.tasks as f64),
        ("trajectories", summary.trajectories as f64),
        ("solved", summary.solved),
        ("turns", summary.turns as f64),
        ("continuations", summary.continuations),
        ("deviation", summary.deviation),
        ("error", summary.error),
    ];
    for (measure, value) in truth {
        line("", measure, "", exactly(value));
    }
    line("", "reliability", "", summary.reliability);
    line("", "within_reliability", "", summary.within_reliability);
    for score in scores {
        let measures = [
            ("pearson", score.pearson),
            ("pearson_corrected", score.pearson_corrected),
            ("spearman", score.spearman),
            ("spearman_corrected", score.spearman_corrected),
            ("within", score.within),
            ("within_corrected", score.within_corrected),
            ("within_spearman", score.within_spearman),
            ("within_spearman_corrected", score.within_spearman_corrected),
            ("signs", score.signs),
            ("slope", score.slope),
            ("noise", score.noise.and_then(exactly)),
        ];
        for (measure, estimate) in measures {
            line(&score.name, measure, "", estimate);
        }
        for part in &score.errors {
            line(&score.name, "error", &part.part, part.error.and_then(exactly));
        }
    }
    for difference in differences {
        let measures = [
            ("pearson_difference", difference.pearson),
            ("pearson_corrected_difference", difference.pearson_corrected),
            ("within_difference", difference.within),
            ("within_corrected_difference", difference.within_corrected),
            ("signs_difference", difference.signs),
        ];
        for (measure, estimate) in measures {
            line(&difference.name, measure, &difference.baseline, estimate);
        }
    }
    text
}
