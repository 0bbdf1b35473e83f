//! Draws `docs/images/evidence.svg` from `docs/results/evidence.md`:
//! `TURNWISE_WRITE_DOCS=1 cargo test --release -p turnwise-cli --lib evidence`.

use std::path::Path;

use turnwise_eval::compare::Estimate;
use turnwise_eval::statistics::Interval;

use super::document;
use super::forest::{Forest, Mark, Row};

fn estimate(cell: &str) -> Option<Estimate> {
    let cell = cell.trim_matches('*');
    let (value, rest) = cell.split_once(" [")?;
    let (low, high) = rest.strip_suffix(']')?.split_once(", ")?;
    let number = |text: &str| Some(text.parse::<f64>().ok()? / 100.0);
    let interval = Interval { low: number(low)?, high: number(high)? };
    Some(Estimate { value: number(value)?, interval: Some(interval) })
}

fn draw(page: &str) -> String {
    let mut panels: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if cells[0] == "method" {
            let name = |cell: &&str| {
                let name = cell.split_once(']').map_or(*cell, |(name, _)| name);
                name.trim_start_matches('[').to_owned()
            };
            panels = cells[3..].iter().map(name).collect();
        } else if !panels.is_empty() && cells.len() == panels.len() + 3 {
            let marks = cells[3..].iter().map(|cell| estimate(cell).map(Mark::difference)).collect();
            rows.push(Row { name: format!("{} vs {}", cells[0], cells[1]), marks });
        }
    }
    assert!(!rows.is_empty(), "no summary table");
    let forest = Forest {
        panels,
        rows,
        row: 17.0,
        covers: (-20.0, 20.0),
        limits: (-40.0, 40.0),
        label: |tick| if tick == 0.0 { "0".into() } else { format!("{tick:+.0}") },
        numbers: false,
        words: Vec::new(),
    };
    let about = "difference in success, in points; bars are 95 % intervals over 5 seeds (Student's t)";
    document("Each method against its baseline", &[about.into()], &[forest.draw()])
}

#[test]
fn the_plot_of_the_evidence_is_that_of_its_table() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let drawn = draw(&std::fs::read_to_string(docs.join("results/evidence.md")).unwrap());
    assert!(drawn.contains("<title>hgpo vs gigpo: -3.7 [-6.8, -0.5]</title>"), "{drawn}");
    let image = docs.join("images/evidence.svg");
    if std::env::var_os("TURNWISE_WRITE_DOCS").is_some() {
        std::fs::write(&image, &drawn).unwrap();
    }
    let written = std::fs::read_to_string(&image).unwrap();
    assert!(written == drawn, "{}: write it with TURNWISE_WRITE_DOCS=1", image.display());
}
