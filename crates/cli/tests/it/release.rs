//! Tests that the packages, features, files and commands in the release workflow and the Dockerfile
//! exist. Neither is run.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the word after an option.
fn after<'a>(words: &[&'a str], option: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == option).and_then(|place| words.get(place + 1)).copied()
}

/// Returns the selection of a build: package or manifest, and features.
fn selection(line: &str) -> Option<[String; 4]> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let features = after(&words, "--features")?.trim_matches('"');
    let (option, value) = match after(&words, "-p") {
        Some(package) => ("--package", package),
        None => ("--manifest-path", after(&words, "--manifest-path")?),
    };
    Some([option, value, "--features", features].map(str::to_owned))
}

/// Returns cargo's complaint about a selection; none if it can be built.
fn complaint(selection: &[String]) -> Option<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--depth", "0"])
        .args(selection)
        .current_dir(root())
        .output()
        .unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn builds_of_a_release_name_packages_and_features_that_exist() {
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let docker = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let default = docker.lines().find_map(|line| line.strip_prefix("ARG FEATURES=")).unwrap();
    let docker = docker.replace("$FEATURES", &format!("{default},cuda"));
    let found: Vec<[String; 4]> = workflow.lines().chain(docker.lines()).filter_map(selection).collect();
    assert_eq!(found.len(), 3, "wheel, program and image: {found:?}");
    for selection in &found {
        assert_eq!(complaint(selection), None);
    }
    // What does not exist is found.
    for wrong in [
        "cargo build -p turnwise-cli --features hubs",
        "build --manifest-path bindings/Cargo.toml --features a",
    ] {
        assert!(complaint(&selection(wrong).unwrap()).is_some(), "{wrong}");
    }
}

#[test]
fn the_image_has_the_toolchains_rust() {
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let docker = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let version = docker.lines().find_map(|line| line.strip_prefix("FROM rust:")?.split_once('-')).unwrap().0;
    assert!(toolchain.contains(&format!("channel = \"{version}")), "{version}: {toolchain}");
}

#[test]
fn files_and_commands_of_a_release_exist() {
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let packed =
        workflow.lines().find_map(|line| line.trim().strip_prefix("cp target/release/turnwise ")).unwrap();
    let files: Vec<&str> = packed.split(' ').take_while(|word| !word.starts_with('"')).collect();
    assert_eq!(files.len(), 3, "{packed}");
    for file in files {
        assert!(root().join(file).is_file(), "{file}");
    }
    let mut count = 0;
    for line in workflow.lines() {
        let Some((_, arguments)) = line.split_once("/turnwise quickstart") else { continue };
        count += 1;
        let output = Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .arg("quickstart")
            .args(arguments.split_whitespace())
            .arg("--help")
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(count, 2);
}
