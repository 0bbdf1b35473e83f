//! Layout of this crate: imports between its rooms go one way.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Modules of the crate's root, each of which may import only those before it.
const ORDER: [&str; 18] = [
    "error", "pictures", "config", "ops", "packing", "weights", "layers", "vision", "files", "bert",
    "backend", "cpu", "cuda", "engine", "train", "plan", "testing", "lib",
];

/// Sources by file (`cpu/decoder.rs`), without those of tests.
type Sources = BTreeMap<String, String>;

fn sources() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Sources::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
            // Tests may import anything.
            if name.trim_end_matches(".rs").ends_with("tests") || name == "cuda/emulator.rs" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// Rooms by the names that `lib.rs` exports from them.
fn exports(lib: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    for item in lib.split("\npub use ").skip(1) {
        let (path, _) = item.split_once(';').unwrap();
        let room = path.split("::").next().unwrap();
        let names = path.rsplit_once("::").unwrap().1.trim_matches(['{', '}']);
        found
            .extend(names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| (name, room)));
    }
    found
}

/// Names that follow `crate::` in a source, outside its tests and comments.
fn names(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = lines.join("\n");
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = Vec::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{').and_then(|group| group.split_once("};")) {
            Some((group, _)) => found.extend(group.split(',').map(word).filter(|name| !name.is_empty())),
            None => found.push(word(path)),
        }
    }
    found
}

/// Imports that run against `ORDER`.
fn backward(sources: &Sources) -> Vec<String> {
    let exports = exports(&sources["lib.rs"]);
    let place = |room: &str| ORDER.iter().position(|&name| name == room);
    let mut wrong = Vec::new();
    for (file, source) in sources {
        let from = place(room(file)).unwrap_or_else(|| panic!("ORDER does not list the room of {file}"));
        for name in names(source) {
            let to = exports.get(name.as_str()).copied().unwrap_or(&name);
            let to = place(to).unwrap_or_else(|| panic!("{file} imports {name}, which is in no room"));
            if to > from {
                wrong.push(format!("{file} imports {}", ORDER[to]));
            }
        }
    }
    wrong
}

#[test]
fn no_import_runs_back() {
    let sources = sources();
    assert!(sources.len() > 80, "only {} sources were found", sources.len());
    let wrong = backward(&sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_import_that_runs_back_is_found() {
    for (line, found) in [
        ("use crate::engine::NativeEngine;\n", "cpu/decoder.rs imports engine"),
        ("use crate::{\n    ModelConfig, NativeLearner,\n};\n", "cpu/decoder.rs imports train"),
    ] {
        let mut sources = sources();
        sources.get_mut("cpu/decoder.rs").unwrap().insert_str(0, line);
        assert_eq!(backward(&sources), [found]);
    }
}
