//! Tests that the program and its tests share one build (docs/adr/0017): if features of a
//! dependency differed, the README's second command would build it again.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The feature sets of every package, which may have one for the machine that builds and another for the program.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Packages of the workspace (or of the program alone) over these kinds of dependencies.
fn features(selection: &[&str], kinds: &str) -> Features {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", "--edges", kinds])
        .args(selection)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = Features::new();
    // Members of the workspace have a blank line between them.
    for line in String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()) {
        let (package, features) = line.trim_end_matches(" (*)").split_once('|').unwrap();
        found.entry(package.to_owned()).or_default().insert(features.to_owned());
    }
    found
}

/// Packages of `program` that the two builds have with other features.
fn different(program: &Features, build: &Features, tests: &Features) -> Vec<String> {
    let differs = |package: &&String| build.get(*package) != tests.get(*package);
    program
        .keys()
        .filter(differs)
        .map(|package| format!("{package}: {:?} and in tests {:?}", build.get(package), tests.get(package)))
        .collect()
}

#[test]
fn tests_are_built_of_what_the_program_is_built_of() {
    // Without `-p`, cargo joins the features of all members of the workspace.
    let program = features(&["--package", "turnwise-cli"], "normal,build");
    let build = features(&["--workspace"], "normal,build");
    let mut tests = features(&["--workspace"], "normal,build,dev");
    assert!(program.keys().any(|package| package.starts_with("serde ")), "{:?}", program.keys());
    assert_eq!(different(&program, &build, &tests), Vec::<String>::new());
    // One feature more is found.
    let core = tests.keys().find(|package| package.starts_with("serde_core ")).unwrap().clone();
    tests.insert(core.clone(), BTreeSet::from(["alloc,default,rc,std".to_owned()]));
    let found = different(&program, &build, &tests);
    assert!(found.len() == 1 && found[0].starts_with(&core), "{found:?}");
}
