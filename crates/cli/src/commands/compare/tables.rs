use turnwise_eval::compare::methods::{MethodResult, Over};
use turnwise_eval::compare::pairs::Pair;
use turnwise_eval::compare::pools::Pool;
use turnwise_eval::compare::{Comparison, Estimate, SplitComparison};

use crate::commands::table::{Table, quoted};

fn percent(estimate: &Estimate) -> String {
    let value = format!("{:.1}", 100.0 * estimate.value);
    match estimate.interval {
        Some(interval) => format!("{value} [{:.1}, {:.1}]", 100.0 * interval.low, 100.0 * interval.high),
        None => value,
    }
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".into() } else { format!("{p:.3}") }
}

fn tables(comparison: &Comparison) -> Vec<Table> {
    comparison.splits.iter().flat_map(|split| of_split(split, comparison.smooth)).collect()
}

fn of_split(split: &SplitComparison, smooth: usize) -> Vec<Table> {
    let sampling = if split.temperature == 0.0 {
        "greedy".to_owned()
    } else {
        format!("temperature {}", split.temperature)
    };
    let panel = split.panel.get(..12).unwrap_or(&split.panel);
    let over = |method: &MethodResult| if method.over == Over::Seeds { "seeds" } else { "tasks" };
    let mut found = vec![Table {
        title: format!(
            "Success in percent on {} ({} tasks, panel {panel}, {sampling}), 95 % intervals",
            split.split, split.tasks
        ),
        header: ["method", "seeds", "step", "success", "interquartile mean", "interval over", "turns"]
            .map(str::to_owned)
            .to_vec(),
        rows: split
            .methods
            .iter()
            .map(|method| {
                let mut steps: Vec<String> = method.seeds.iter().map(|seed| seed.step.to_string()).collect();
                steps.dedup();
                vec![
                    method.method.clone(),
                    method.seeds.len().to_string(),
                    steps.join(", "),
                    percent(&method.success),
                    percent(&method.iqm),
                    over(method).to_owned(),
                    format!("{:.1}", method.mean_turns),
                ]
            })
            .collect(),
    }];
    if split.kinds.len() > 1 {
        found.push(by_kind(split));
    }
    if let Some(first) = split.pairs.first() {
        let one = split.pairs.iter().all(|pair| pair.baseline == first.baseline);
        let baseline = if one { first.baseline.as_str() } else { "each method's baseline" };
        let rollouts = format!("rollouts of {smooth} steps");
        let header = [
            "method",
            "against",
            "points",
            "over seeds",
            &rollouts,
            "P(better)",
            "permutation p",
            "McNemar p",
        ];
        let mut table = Table {
            title: format!("Against {baseline} on the same tasks of {}", split.split),
            header: header.map(str::to_owned).to_vec(),
            rows: split.pairs.iter().map(pair_row).collect(),
        };
        if one {
            table.header.remove(1);
            for row in &mut table.rows {
                row.remove(1);
            }
        }
        found.push(table);
    }
    if !split.pools.is_empty() {
        let rollouts = format!("rollouts of {smooth} steps");
        found.push(Table {
            title: format!("Averaged over pairs, then over seeds, on {}", split.split),
            header: ["pool", "pairs", "seeds", "over seeds", &rollouts].map(str::to_owned).to_vec(),
            rows: split.pools.iter().map(pool_row).collect(),
        });
    }
    found
}

fn signed(estimate: &Estimate) -> String {
    let sign = if estimate.value > 0.0 { "+" } else { "" };
    format!("{sign}{}", percent(estimate))
}

fn pool_row(pool: &Pool) -> Vec<String> {
    let pairs: Vec<String> =
        pool.pairs.iter().map(|(method, baseline)| format!("{method} - {baseline}")).collect();
    vec![
        pool.name.clone(),
        pairs.join(", "),
        pool.seeds.len().to_string(),
        signed(&pool.difference),
        pool.training.as_ref().map_or("-".into(), signed),
    ]
}

/// Tabulates success by task kind. The rows are the methods if they outnumber the kinds, and
/// otherwise the kinds.
fn by_kind(split: &SplitComparison) -> Table {
    let methods_go_down = split.methods.len() > split.kinds.len();
    let corner = if methods_go_down { "method" } else { "kind" };
    let mut lines: Vec<Vec<String>> =
        vec![std::iter::once(corner.to_owned()).chain(split.kinds.iter().cloned()).collect()];
    lines.extend(split.methods.iter().map(|method| {
        let rates = split.kinds.iter().map(|kind| method.kinds.get(kind).map_or("-".into(), percent));
        std::iter::once(method.method.clone()).chain(rates).collect()
    }));
    if !methods_go_down {
        lines = (0..=split.kinds.len())
            .map(|column| lines.iter().map(|line| line[column].clone()).collect())
            .collect();
    }
    Table {
        title: format!("Success in percent by kind of task on {}", split.split),
        header: lines.remove(0),
        rows: lines,
    }
}

fn pair_row(pair: &Pair) -> Vec<String> {
    let improvement = |estimate: &Estimate| {
        let value = format!("{:.2}", estimate.value);
        let interval =
            estimate.interval.map(|interval| format!(" [{:.2}, {:.2}]", interval.low, interval.high));
        value + &interval.unwrap_or_default()
    };
    let mcnemar: Vec<String> = pair.mcnemar.iter().map(|pair| p_value(pair.test.p)).collect();
    vec![
        pair.method.clone(),
        pair.baseline.clone(),
        signed(&pair.difference),
        pair.over_seeds.as_ref().map_or("-".into(), signed),
        pair.training.as_ref().map_or("-".into(), signed),
        pair.improvement.as_ref().map_or("-".into(), improvement),
        pair.permutation.map_or("-".into(), |test| p_value(test.p)),
        if mcnemar.is_empty() { "-".into() } else { mcnemar.join(" ") },
    ]
}

const LEGEND: &str = "\
success: mean over seeds; interquartile mean: of the rates by seed and kind (every kind counts the same).
points: difference of success by task, interval over tasks; over seeds: difference of runs with the same seed, Student's
interval over those seeds; rollouts: the same of the success in training's last steps (--smooth); P(better): that a run is
better than one of the baseline on a kind of task, interval over seeds; permutation: paired by task over seeds; McNemar:
exact, by pair of runs.";

pub(super) fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for table in tables(comparison) {
        text.push_str(&table.text());
        text.push('\n');
    }
    text.push_str(LEGEND);
    text.push('\n');
    for note in &comparison.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

pub(super) fn markdown(comparison: &Comparison) -> String {
    let mut text = String::new();
    for table in tables(comparison) {
        text.push_str(&table.markdown());
        text.push('\n');
    }
    for note in &comparison.notes {
        text.push_str(&format!("* {note}\n"));
    }
    text
}

fn latex_escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '<' => escaped.push_str("$<$"),
            '>' => escaped.push_str("$>$"),
            c => escaped.push(c),
        }
    }
    escaped
}

pub(super) fn latex(comparison: &Comparison) -> String {
    let mut text = String::from("% needs \\usepackage{booktabs}\n");
    for table in tables(comparison) {
        let line = |row: &[String]| {
            let cells: Vec<String> = row.iter().map(|cell| latex_escape(cell)).collect();
            format!("{} \\\\\n", cells.join(" & "))
        };
        let columns = "l".to_owned() + &"r".repeat(table.header.len() - 1);
        text.push_str(&format!(
            "\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n",
            latex_escape(&table.title)
        ));
        text.push_str(&line(&table.header));
        text.push_str("\\midrule\n");
        for row in &table.rows {
            text.push_str(&line(row));
        }
        text.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
    }
    for note in &comparison.notes {
        text.push_str(&format!("% {note}\n"));
    }
    text
}

pub(super) fn csv(comparison: &Comparison) -> String {
    let mut text = String::from("split,method,baseline,measure,kind,run,step,value,low,high\n");
    let mut line = |cells: [&str; 6], step: Option<u64>, estimate: &Estimate| {
        let mut row: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
        row.push(step.map_or_else(String::new, |step| step.to_string()));
        row.push(estimate.value.to_string());
        let (low, high) =
            estimate.interval.map_or((None, None), |interval| (Some(interval.low), Some(interval.high)));
        row.extend([low, high].map(|end| end.map_or_else(String::new, |end| end.to_string())));
        text.push_str(&row.join(","));
        text.push('\n');
    };
    let plain = |value: f64| Estimate { value, interval: None };
    for split in &comparison.splits {
        let name = split.split.as_str();
        for method in &split.methods {
            let of = |measure: &'static str| [name, &method.method, "", measure, "", ""];
            line(of("success"), None, &method.success);
            line(of("iqm"), None, &method.iqm);
            line(of("mean_turns"), None, &plain(method.mean_turns));
            for (kind, estimate) in &method.kinds {
                line([name, &method.method, "", "success_of_kind", kind, ""], None, estimate);
            }
            for seed in &method.seeds {
                let cells = [name, &method.method, "", "success_of_run", "", &seed.run];
                line(cells, Some(seed.step), &plain(seed.success));
            }
        }
        for pair in &split.pairs {
            let of = |measure: &'static str| [name, &pair.method, &pair.baseline, measure, "", ""];
            line(of("difference"), None, &pair.difference);
            if let Some(over_seeds) = &pair.over_seeds {
                line(of("difference_over_seeds"), None, over_seeds);
            }
            if let Some(training) = &pair.training {
                line(of("training_difference_over_seeds"), None, training);
            }
            if let Some(improvement) = &pair.improvement {
                line(of("probability_of_improvement"), None, improvement);
            }
            if let Some(test) = &pair.permutation {
                line(of("permutation_p"), None, &plain(test.p));
            }
            for runs in &pair.mcnemar {
                let cells = [name, &pair.method, &runs.baseline, "mcnemar_p", "", &runs.run];
                line(cells, None, &plain(runs.test.p));
            }
        }
        for pool in &split.pools {
            let of = |measure: &'static str| [name, &pool.name, "", measure, "", ""];
            line(of("pooled_difference_over_seeds"), None, &pool.difference);
            if let Some(training) = &pool.training {
                line(of("pooled_training_difference_over_seeds"), None, training);
            }
        }
        for curve in &split.curves {
            for point in &curve.points {
                let cells = [name, &curve.method, "", "success_at", "", ""];
                line(cells, Some(point.step), &point.success);
            }
        }
    }
    for curve in &comparison.training {
        for point in &curve.points {
            let cells = ["", &curve.method, "", "training_success_at", "", ""];
            line(cells, Some(point.step), &point.success);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_escaped_where_their_form_needs_it() {
        assert_eq!(latex_escape("a_b 5 % <0.001"), "a\\_b 5 \\% $<$0.001");
        assert_eq!((p_value(0.0), p_value(0.25)), ("<0.001".into(), "0.250".into()));
    }

    #[test]
    fn the_longer_list_of_methods_and_kinds_goes_down() {
        let table = |methods: &[&str], kinds: &[&str]| {
            let estimate = Estimate { value: 0.5, interval: None };
            let method = |name: &&str| MethodResult {
                method: (*name).to_owned(),
                seeds: Vec::new(),
                over: Over::Seeds,
                success: estimate,
                iqm: estimate,
                kinds: kinds[..kinds.len() - 1].iter().map(|kind| ((*kind).to_owned(), estimate)).collect(),
                mean_turns: 1.0,
            };
            by_kind(&SplitComparison {
                split: "test".into(),
                panel: String::new(),
                temperature: 0.0,
                tasks: 4,
                kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
                methods: methods.iter().map(method).collect(),
                pairs: Vec::new(),
                pools: Vec::new(),
                curves: Vec::new(),
            })
        };
        let many = table(&["a", "b", "c"], &["heat", "cool"]);
        assert_eq!(many.header, ["method", "heat", "cool"]);
        assert_eq!((many.rows.len(), &many.rows[2]), (3, &["c", "50.0", "-"].map(str::to_owned).to_vec()));
        let few = table(&["a"], &["heat", "cool"]);
        assert_eq!(few.header, ["kind", "a"]);
        assert_eq!(few.rows, [["heat", "50.0"], ["cool", "-"]].map(|row| row.map(str::to_owned).to_vec()));
    }
}
