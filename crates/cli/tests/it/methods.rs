//! Tests that the files and tests named in METHODS.md exist.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use turnwise_train::Methods;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The texts in backticks of a table cell, `a-{b,c}` spelled out.
fn quoted(cell: &str) -> Vec<String> {
    let mut names = Vec::new();
    for text in cell.split('`').skip(1).step_by(2) {
        match text.split_once('{').and_then(|(start, rest)| Some((start, rest.strip_suffix('}')?))) {
            Some((start, list)) => names.extend(list.split(',').map(|end| format!("{start}{end}"))),
            None => names.push(text.to_owned()),
        }
    }
    names
}

/// Problems of the tables of a text, and the presets that they name.
fn problems(text: &str) -> (Vec<String>, BTreeSet<String>) {
    let (mut found, mut presets, mut rows) = (Vec::new(), BTreeSet::new(), 0);
    let mut folder = None;
    let mut columns: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            let named = line.split('`').nth(1).and_then(|path| path.strip_suffix("/src"));
            folder = named.map(|path| root().join(path));
        }
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split(" | ").collect();
        if cells[0] == "Method" {
            columns = cells;
            continue;
        }
        let Some(folder) = &folder else { continue };
        rows += 1;
        let name = cells[0];
        let cell = |column: &str| {
            columns
                .iter()
                .position(|known| *known == column)
                .and_then(|index| cells.get(index))
                .unwrap_or(&"")
        };
        let files = quoted(cell("File"));
        let tests = quoted(cell("Tests"));
        if cells.len() != columns.len() || files.is_empty() || tests.is_empty() {
            found.push(format!("{name}: the row is not complete"));
        }
        for file in files {
            if !folder.join("src").join(&file).is_file() {
                found.push(format!("{name}: there is no file {file}"));
            }
        }
        for test in tests {
            let Some((file, function)) = test.split_once("::") else {
                found.push(format!("{name}: `{test}` is not written file.rs::test"));
                continue;
            };
            let paths = ["tests/it", "tests", "src"].map(|inner| folder.join(inner).join(file));
            let is_test = |path: &PathBuf| {
                std::fs::read_to_string(path).is_ok_and(|text| {
                    text.split("#[test]").skip(1).any(|rest| {
                        // Attributes may stand between the mark and the function.
                        rest.split_once("fn ")
                            .is_some_and(|(_, rest)| rest.starts_with(&format!("{function}(")))
                    })
                })
            };
            if !paths.iter().any(is_test) {
                found.push(format!("{name}: there is no test {test}"));
            }
        }
        for preset in quoted(cell("Preset")) {
            if Methods::builtin().preset(&preset).is_none() {
                found.push(format!("{name}: there is no preset {preset}"));
            }
            presets.insert(preset);
        }
    }
    if rows == 0 {
        found.push("there is no table".into());
    }
    (found, presets)
}

#[test]
fn everything_that_methods_md_names_exists() {
    let text = std::fs::read_to_string(root().join("METHODS.md")).unwrap();
    let (found, presets) = problems(&text);
    assert_eq!(found, Vec::<String>::new());
    for preset in Methods::builtin().presets() {
        assert!(presets.contains(preset.name), "no row names the preset {}", preset.name);
    }
    // The list of all of them, up to the paragraph's end.
    let list = text.split("`Methods::presets` lists them:").nth(1).unwrap().split("(`").next().unwrap();
    let listed: BTreeSet<String> = quoted(list).into_iter().collect();
    let known: BTreeSet<String> = Methods::builtin().presets().map(|preset| preset.name.to_owned()).collect();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("{} presets:", known.len())), "README.md counts other presets");
    assert_eq!(listed, known);
    let guide = std::fs::read_to_string(root().join("docs/methods/index.md")).unwrap();
    for preset in listed {
        assert!(guide.contains(&format!("`{preset}`")), "docs/methods/index.md does not name {preset}");
    }
}

#[test]
fn a_wrong_name_is_found() {
    let text = std::fs::read_to_string(root().join("METHODS.md")).unwrap();
    for (right, wrong, expected) in [
        ("| `gigpo.rs`, ", "| `gigppo.rs`, ", "there is no file gigppo.rs"),
        (
            "anchors.rs::hgpo_by_hand",
            "anchors.rs::hgpo_by_heart",
            "there is no test anchors.rs::hgpo_by_heart",
        ),
        ("`golden.rs::token_advantages`", "`golden.rs`", "is not written file.rs::test"),
        ("| `empg` |", "| `empgg` |", "there is no preset empgg"),
        ("| `hgpo` | ", "| ", "the row is not complete"),
    ] {
        let doctored = text.replacen(right, wrong, 1);
        assert_ne!(doctored, text, "{right} is not in METHODS.md any more");
        let (found, _) = problems(&doctored);
        assert!(found.iter().any(|problem| problem.contains(expected)), "{expected}: {found:?}");
    }
}
