//! The evidence page: its summary repeats the differences of the sections it links to, and marks those that are decided.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;

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

    fn is_summary(&self) -> bool {
        self.sections.last().is_some_and(|section| section == "summary")
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

/// Problems of an evidence page's summary: differences that the sections' tables do not have, and wrong bold ones.
fn problems(text: &str) -> Vec<String> {
    let (summary, tables): (Vec<_>, Vec<_>) = rows(text).into_iter().partition(Row::is_summary);
    let mut found = Vec::new();
    for row in &summary {
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
            let same = |other: &Row<'_>| {
                let difference = other.cell("difference, greedy").or_else(|| other.cell("difference"));
                other.sections.contains(&section)
                    && other.cell("method") == row.cell("method")
                    && other.cell("against") == row.cell("against")
                    && difference == Some(cell)
            };
            if !tables.iter().any(same) {
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
    let count = rows(&text).iter().filter(|row| row.is_summary()).count();
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
