//! Imports between folders go one way, files of a folder have no import cycles, and the training
//! step fits one page.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Each root module may import only earlier ones. The table in `lib.rs` has the same order.
const ORDER: [&str; 12] = [
    "error", "config", "embedder", "setup", "record", "rollout", "learners", "plan", "sft", "step", "run",
    "lib",
];

type Sources = BTreeMap<String, String>;

fn sources() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Sources::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap().with_extension("");
                let name = name.to_str().unwrap().replace('\\', "/");
                let name = name.strip_suffix("/mod").unwrap_or(&name).to_owned();
                if !name.split('/').any(|part| part == "tests") {
                    found.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    found
}

/// Returns modules named outside tests and comments, as `a/b` or `a`.
fn imports(from: &str, source: &str, modules: &BTreeSet<&str>) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = BTreeSet::new();
    let folder = from.split('/').next().unwrap_or_default();
    for line in lines.map(|line| line.replace("super::", &format!("crate::{folder}::"))) {
        for path in line.split("crate::").skip(1) {
            let mut parts = path.split("::").map(|part| {
                part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
            });
            let first = parts.next().unwrap_or_default();
            let longer = format!("{first}/{}", parts.next().unwrap_or_default());
            if modules.contains(longer.as_str()) {
                found.insert(longer);
            } else if modules.contains(first) {
                found.insert(first.to_owned());
            }
        }
    }
    found
}

fn backward(sources: &Sources) -> Vec<String> {
    let modules: BTreeSet<&str> = sources.keys().map(String::as_str).collect();
    let place = |module: &str| {
        let root = module.split('/').next().unwrap_or_default();
        ORDER.iter().position(|&name| name == root).unwrap_or_else(|| panic!("ORDER does not list `{root}`"))
    };
    let graph: BTreeMap<&str, BTreeSet<String>> =
        sources.iter().map(|(name, source)| (name.as_str(), imports(name, source, &modules))).collect();
    let mut wrong = Vec::new();
    for (&from, targets) in &graph {
        for to in targets.iter().filter(|to| place(to) > place(from)) {
            wrong.push(format!("{from} imports {to}"));
        }
        // A folder's `mod.rs` and its files may name each other.
        let sibling = |name: &str| name.contains('/');
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = vec![from];
        while let Some(module) = open.pop() {
            for to in graph.get(module).into_iter().flatten().map(String::as_str) {
                if sibling(to) && sibling(from) && reached.insert(to) {
                    open.push(to);
                }
            }
        }
        if reached.contains(from) {
            wrong.push(format!("{from} imports itself through others"));
        }
    }
    wrong
}

#[test]
fn no_import_runs_back() {
    let sources = sources();
    assert!(sources.len() > 50, "only {} sources were found", sources.len());
    let wrong = backward(&sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_import_that_runs_back_is_found() {
    let mut sources = sources();
    let config = sources.get_mut("config/load").unwrap();
    config.insert_str(0, "use crate::rollout::Job;\n");
    assert_eq!(backward(&sources), ["config/load imports rollout"]);

    let mut sources = self::sources();
    sources.get_mut("rollout/pool").unwrap().insert_str(0, "use crate::rollout::lane::Lane;\n");
    sources.get_mut("rollout/lane").unwrap().insert_str(0, "use super::pool::EnvPool;\n");
    let wrong = backward(&sources);
    assert!(wrong.contains(&"rollout/lane imports itself through others".to_owned()), "{wrong:?}");
}

#[test]
fn the_front_page_has_the_same_order() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let listed: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split('`').next()).collect();
    let folders: Vec<&str> =
        ORDER.iter().copied().filter(|name| !["error", "embedder", "lib"].contains(name)).collect();
    assert_eq!(listed, folders);
}

#[test]
fn the_step_has_at_most_fifty_lines() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/step/mod.rs")).unwrap();
    let step = page.split_once("pub(crate) fn step(").unwrap().1.split_once("\n}\n").unwrap().0;
    let lines = step.lines().count() + 1;
    assert!(lines <= 50, "the step has {lines} lines; a stage belongs into a function of its own");
}
