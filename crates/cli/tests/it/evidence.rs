//! Tests of the evidence pages. The summary repeats the differences of the pages it links to, and
//! marks those whose interval excludes 0. The tables follow from the success of every run, seed by
//! seed (`docs/results/seeds`).

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use turnwise_eval::statistics::student;

use super::docs::{anchor, links};

/// A line of a table with the headings that it stands under and the names of its columns.
struct Row<'a> {
    /// The anchors of the headings, outermost first.
    sections: Vec<String>,
    columns: Vec<&'a str>,
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn cell(&self, column: &str) -> Option<&'a str> {
        let index = self.columns.iter().position(|name| *name == column)?;
        self.cells.get(index).copied()
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// All lines of all tables of a page, those with the columns' names left out.
fn rows(text: &str) -> Vec<Row<'_>> {
    let (mut found, mut headings, mut columns): (Vec<Row<'_>>, Vec<(usize, String)>, _) =
        (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        if line.starts_with('#') {
            let level = line.chars().take_while(|c| *c == '#').count();
            headings.retain(|(outer, _)| *outer < level);
            headings.push((level, anchor(line)));
        }
        if !line.starts_with('|') {
            columns = None;
        } else if let Some(columns) = &columns {
            let sections = headings.iter().map(|(_, anchor)| anchor.clone()).collect();
            found.push(Row { sections, columns: Vec::clone(columns), cells: cells(line) });
        } else {
            columns = Some(cells(line));
        }
    }
    found.retain(|row| !row.cells[0].starts_with("---"));
    found
}

/// A difference such as `+2.4 [1.1, 3.7]` is decided if its interval leaves 0 out.
fn is_decided(difference: &str) -> bool {
    let bounds = difference.split_once('[').and_then(|(_, rest)| rest.trim_end_matches(']').split_once(", "));
    bounds.is_some_and(|(low, high)| low.parse::<f64>().unwrap() > 0.0 || high.parse::<f64>().unwrap() < 0.0)
}

/// Problems of the evidence's summary: differences that the tables of the pages it links to do not have, and wrong bold ones. `page`
/// reads a page by the path in the link.
fn problems(summary: &str, page: impl Fn(&str) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for row in rows(summary) {
        for (column, marked) in row.columns.iter().zip(&row.cells) {
            let Some(link) = links(column).pop() else { continue };
            let (path, section) = link.split_once('#').unwrap_or((&link, ""));
            let cell = marked.trim_matches('*');
            if cell.is_empty() {
                continue;
            }
            if marked.starts_with("**") != is_decided(cell) {
                found.push(format!(
                    "{} in {link}: {cell} is bold though its interval has 0, or the reverse",
                    row.cells[0]
                ));
            }
            let same = |other: &Row<'_>| {
                let difference = other.cell("difference, greedy").or_else(|| other.cell("difference"));
                (section.is_empty() || other.sections.iter().any(|name| name == section))
                    && other.cell("method") == row.cell("method")
                    && other.cell("against") == row.cell("against")
                    && difference == Some(cell)
            };
            if !rows(&page(path)).iter().any(same) {
                found.push(format!("{} in {link}: {cell} is not in its table", row.cells[0]));
            }
        }
    }
    found
}

/// Success in percent by column, method and seed, as `benches/seed-table.py` writes it.
type SeedTable = BTreeMap<String, BTreeMap<String, BTreeMap<u64, f64>>>;

fn seed_table(text: &str) -> SeedTable {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let mut found = SeedTable::new();
    for cells in lines {
        for (column, cell) in columns.iter().zip(&cells).skip(2).filter(|(_, cell)| !cell.is_empty()) {
            let of_method = found.entry((*column).to_owned()).or_default().entry(cells[0].to_owned());
            of_method.or_default().insert(cells[1].parse().unwrap(), cell.parse().unwrap());
        }
    }
    found
}

/// A method minus its baseline as the page writes it, such as `+2.4 [1.1, 3.7]`, where both have the same seeds in a column.
fn difference(table: &SeedTable, column: &str, method: &str, baseline: &str) -> Option<String> {
    let (ours, theirs) = (table.get(column)?.get(method)?, table.get(column)?.get(baseline)?);
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{method}, {baseline}");
    let differences: Vec<f64> = ours.values().zip(theirs.values()).map(|(one, other)| one - other).collect();
    let interval = student(&differences)?;
    let mean = format!("{:+.1}", differences.iter().sum::<f64>() / differences.len() as f64);
    let mean = if mean == "-0.0" || mean == "+0.0" { "0.0" } else { &mean };
    Some(format!("{mean} [{:.1}, {:.1}]", interval.low, interval.high))
}

/// Cells of a section's tables that are not what the success by seed gives, and the number of those that were looked at.
/// `columns` are names of the page beside the names in the table of seeds.
fn wrong_cells(
    text: &str,
    section: &str,
    table: &SeedTable,
    columns: &[(&str, &str)],
) -> (Vec<String>, usize) {
    let (mut found, mut count) = (Vec::new(), 0);
    for row in rows(text).iter().filter(|row| row.sections.last().is_some_and(|last| last == section)) {
        let (Some(method), Some(against)) = (row.cell("method"), row.cell("against")) else { continue };
        for (shown, column) in columns {
            let Some(cell) = row.cell(shown) else { continue };
            let expected = if shown.contains("by seed") {
                let seeds = table.get(*column).and_then(|methods| methods.get(method));
                seeds
                    .map(|seeds| seeds.values().map(|one| format!("{one:.1}")).collect::<Vec<_>>().join(", "))
            } else {
                difference(table, column, method, against)
            };
            let Some(expected) = expected else { continue };
            count += 1;
            if cell != expected {
                found.push(format!("{section}, {method}, {shown}: {cell} and by the seeds {expected}"));
            }
        }
    }
    (found, count)
}

/// The text of a file among the results.
fn results(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_tables_have_what_follows_from_the_seeds() {
    let columns = [
        ("greedy, by seed", "greedy_60"),
        ("difference, greedy", "greedy_60"),
        ("sampled", "sampled_60"),
        ("rollouts 41 to 60", "rollouts_41_60"),
    ];
    let table = seed_table(&results("seeds/household-full.csv"));
    let page = results("evidence/long-horizons.md");
    let (found, count) = wrong_cells(&page, "full-rooms", &table, &columns);
    assert_eq!(found, Vec::<String>::new());
    assert!(count >= 15, "{count} cells");
    let columns = [
        ("after 60 steps, by seed", "greedy_60"),
        ("difference", "greedy_60"),
        ("rollouts 1 to 20", "rollouts_1_20"),
        ("rollouts 41 to 60", "rollouts_41_60"),
    ];
    let table = seed_table(&results("seeds/shop-dapo.csv"));
    let (found, count) = wrong_cells(&results("evidence/shop.md"), "the-shop", &table, &columns);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(count, 9, "DAPO's own success, and four cells of AEM and SALT each");
}

#[test]
fn a_number_that_the_seeds_do_not_give_is_found() {
    let table = seed_table("method,seed,greedy_60\na,0,51.5\na,1,52.5\nb,0,50\nb,1,50\n");
    let page = |seeds: &str, cell: &str| {
        format!(
            "## Shop\n| method | against | by seed | greedy |\n|---|---|---|---|\n| a | b | {seeds} | {cell} |\n"
        )
    };
    let columns = [("by seed", "greedy_60"), ("greedy", "greedy_60")];
    let wrong = |seeds: &str, cell: &str| wrong_cells(&page(seeds, cell), "shop", &table, &columns);
    // Student's quantile of one degree of freedom is 12.706, the standard error of 1.5 and 2.5 is 0.5.
    assert_eq!(wrong("51.5, 52.5", "+2.0 [-4.4, 8.4]"), (Vec::new(), 2));
    assert_eq!(wrong("51.5, 52.6", "+2.0 [-4.3, 8.4]").0.len(), 2);
    // The section has another name, so that nothing is looked at.
    assert_eq!(wrong_cells(&page("", ""), "search", &table, &columns), (Vec::new(), 0));
}

#[test]
fn the_summary_has_the_numbers_of_the_tables() {
    let summary = results("evidence.md");
    let count = rows(&summary).len();
    assert!(count >= 20, "{count} lines");
    assert_eq!(problems(&summary, results), Vec::<String>::new());
}

#[test]
fn a_wrong_number_of_the_summary_is_found() {
    let summary = |link: &str, cell: &str| {
        format!("## Summary\n| method | against | [shop]({link}) |\n|---|---|---|\n| a | b | {cell} |\n")
    };
    let page = |path: &str| {
        assert_eq!(path, "shop.md");
        "# Worlds\n## Shop\n| method | against | difference |\n|---|---|---|\n| a | b | +2.0 [1.0, 3.0] |\n\
         | a | c | -1.0 [-2.0, 3.0] |\n"
            .to_owned()
    };
    let problems = |link: &str, cell: &str| problems(&summary(link, cell), page);
    assert_eq!(problems("shop.md", "**+2.0 [1.0, 3.0]**"), Vec::<String>::new());
    assert_eq!(problems("shop.md#shop", "**+2.0 [1.0, 3.0]**"), Vec::<String>::new());
    assert_eq!(problems("shop.md", ""), Vec::<String>::new());
    assert!(problems("shop.md", "+2.0 [1.0, 3.0]")[0].contains("bold"));
    assert!(problems("shop.md", "-1.0 [-2.0, 3.0]")[0].contains("not in its table"));
    assert!(problems("shop.md#search", "**+2.0 [1.0, 3.0]**")[0].contains("not in its table"));
}
