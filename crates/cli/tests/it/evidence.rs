//! The evidence page: its summary repeats the differences of the sections it links to, and marks those that are decided.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;

use super::docs::{anchor, links};

/// A line of a table with the heading of its section and the names of its columns.
struct Row<'a> {
    /// The anchors of the headings that it stands under, outermost first.
    sections: Vec<String>,
    columns: &'a [&'a str],
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

/// All lines of all tables of a page.
fn rows<'a>(text: &'a str, headers: &'a [(usize, Vec<&'a str>)]) -> Vec<Row<'a>> {
    let (mut found, mut headings): (Vec<Row<'_>>, Vec<(usize, String)>) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            let level = line.chars().take_while(|c| *c == '#').count();
            headings.retain(|(outer, _)| *outer < level);
            headings.push((level, anchor(line)));
        }
        let header = headers.iter().rfind(|(first, _)| *first <= number);
        let is_cells = line.starts_with('|') && !line.starts_with("|---");
        if let Some((first, columns)) = header
            && is_cells
            && number > *first
        {
            let sections = headings.iter().map(|(_, anchor)| anchor.clone()).collect();
            found.push(Row { sections, columns, cells: cells(line) });
        }
    }
    found
}

/// The lines that name a table's columns: those before a line of dashes.
fn headers(text: &str) -> Vec<(usize, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.windows(2).enumerate().filter(|(_, pair)| pair[1].starts_with("|---"));
    pairs.map(|(number, pair)| (number, cells(pair[0]))).collect()
}

/// Whether the interval of a difference, `+2.4 [1.1, 3.7]`, leaves 0 out.
fn is_decided(difference: &str) -> bool {
    let bounds = difference.split_once('[').and_then(|(_, rest)| rest.trim_end_matches(']').split_once(", "));
    bounds.is_some_and(|(low, high)| low.parse::<f64>().unwrap() > 0.0 || high.parse::<f64>().unwrap() < 0.0)
}

/// What is wrong with the summary of an evidence page.
fn problems(text: &str) -> Vec<String> {
    let headers = headers(text);
    let rows = rows(text, &headers);
    let (summary, tables): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.sections.last().is_some_and(|section| section == "summary"));
    let mut found = Vec::new();
    for row in summary {
        for (column, marked) in row.columns.iter().zip(&row.cells) {
            let Some(section) = links(column).pop() else { continue };
            let (section, cell) = (section.trim_start_matches('#').to_owned(), marked.trim_matches('*'));
            if cell.is_empty() {
                continue;
            }
            if marked.starts_with("**") != is_decided(cell) {
                found.push(format!(
                    "{} in {section}: {cell} is bold though its interval has 0, or the reverse",
                    row.cells[0]
                ));
            }
            let same = |other: &&Row<'_>| {
                let difference = other.cell("difference, greedy").or_else(|| other.cell("difference"));
                other.sections.contains(&section)
                    && other.cell("method") == row.cell("method")
                    && other.cell("against") == row.cell("against")
                    && difference == Some(cell)
            };
            if !tables.iter().copied().any(|other| same(&other)) {
                found.push(format!("{} in {section}: {cell} is not in its table", row.cells[0]));
            }
        }
    }
    found
}

#[test]
fn the_summary_has_the_numbers_of_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/evidence.md");
    let text = fs::read_to_string(page).unwrap();
    let headers = headers(&text);
    let count = rows(&text, &headers).iter().filter(|row| row.sections.last().unwrap() == "summary").count();
    assert!(count >= 20, "{count} lines");
    assert_eq!(problems(&text), Vec::<String>::new());
}

#[test]
fn a_wrong_number_of_the_summary_is_found() {
    let page = |cell: &str| {
        format!(
            "# Evidence\n## Summary\n| method | against | [shop](#shop) |\n|---|---|---|\n| a | b | {cell} |\n\
             ## Shop\n| method | against | difference |\n|---|---|---|\n| a | b | +2.0 [1.0, 3.0] |\n| a | c | -1.0 [-2.0, 3.0] |\n"
        )
    };
    assert_eq!(problems(&page("**+2.0 [1.0, 3.0]**")), Vec::<String>::new());
    assert_eq!(problems(&page("")), Vec::<String>::new());
    assert!(problems(&page("+2.0 [1.0, 3.0]"))[0].contains("bold"));
    assert!(problems(&page("-1.0 [-2.0, 3.0]"))[0].contains("not in its table"));
}
