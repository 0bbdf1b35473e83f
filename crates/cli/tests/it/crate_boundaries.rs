//! Checks that the dependencies between crates are those of ARCHITECTURE.md: which crate may depend
//! on which, and which must not use tensors, HTTP or async code. Development dependencies are not
//! checked.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Crates of the workspace that a crate may depend on.
const MAY_USE: [(&str, &[&str]); 23] = [
    ("core", &[]),
    ("files", &[]),
    ("settings", &[]),
    ("sandbox", &[]),
    ("credit", &["core", "settings"]),
    ("objective", &["core", "settings"]),
    ("methods", &["core", "settings", "credit", "objective"]),
    ("benchmark", &["core", "credit"]),
    ("trajectory-io", &["core", "files"]),
    // Without its feature it uses nothing.
    ("python", &["core", "files", "credit", "objective", "methods", "benchmark", "trajectory-io", "cli"]),
    ("retrieval", &["core", "files", "settings"]),
    ("env", &["core", "files", "settings", "retrieval", "sandbox"]),
    ("text", &["core", "files"]),
    ("model", &["core", "files", "settings", "text"]),
    ("decompose", &["core", "files", "settings", "credit", "text", "model"]),
    ("retrieval-service", &["core", "settings", "retrieval", "text", "model"]),
    ("policy", &["core", "files", "text", "model"]),
    ("serve", &["core", "env", "text", "model", "policy"]),
    ("agent", &["core", "settings", "env", "serve"]),
    (
        "train",
        &[
            "core",
            "files",
            "settings",
            "credit",
            "objective",
            "methods",
            "env",
            "text",
            "model",
            "decompose",
            "policy",
            "trajectory-io",
        ],
    ),
    ("remote", &["core", "files", "settings", "objective", "env", "text", "model", "policy", "train"]),
    (
        "eval",
        &[
            "core",
            "settings",
            "credit",
            "benchmark",
            "objective",
            "env",
            "text",
            "model",
            "decompose",
            "policy",
            "train",
        ],
    ),
    (
        "cli",
        &[
            "core",
            "files",
            "settings",
            "credit",
            "benchmark",
            "objective",
            "methods",
            "trajectory-io",
            "retrieval",
            "retrieval-service",
            "env",
            "text",
            "model",
            "decompose",
            "policy",
            "train",
            "remote",
            "eval",
            "serve",
            "agent",
        ],
    ),
];

/// Crates of this workspace that reach none of the libraries below, not even through others.
const NUMBERS_AND_TEXT_ONLY: [&str; 12] = [
    "core",
    "files",
    "sandbox",
    "settings",
    "credit",
    "objective",
    "methods",
    "benchmark",
    "trajectory-io",
    "retrieval",
    "env",
    "text",
];
const TENSORS: [&str; 12] = [
    "gemm-f32",
    "gemm-f64",
    "gemm-common",
    "gemm",
    "candle-core",
    "candle-nn",
    "burn",
    "tch",
    "ort",
    "ndarray",
    "faer",
    "safetensors",
];
const HTTP: [&str; 10] =
    ["reqwest", "hyper", "ureq", "axum", "h2", "httparse", "actix-web", "tiny_http", "attohttpc", "curl"];
const ASYNC: [&str; 6] = ["tokio", "async-std", "smol", "async-executor", "futures-executor", "mio"];

/// Libraries that few crates alone may depend on directly.
const ONLY: [(&str, &[&str]); 7] = [
    ("gemm-f32", &["model"]),
    ("gemm-f64", &["model"]),
    ("safetensors", &["model"]),
    ("pulp", &["model", "retrieval"]),
    ("tokenizers", &["text"]),
    ("minijinja", &["text"]),
    ("minijinja-contrib", &["text"]),
];

/// The only crates that may depend on an HTTP library directly.
const HTTP_ONLY: [&str; 5] = ["decompose", "policy", "remote", "retrieval-service", "serve"];

/// The only crates that may depend on an async runtime directly.
const ASYNC_ONLY: [&str; 2] = ["remote", "serve"];

const PREFIX: &str = "turnwise-";

/// Every package by name, with the packages it needs to be built and run.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn graph() -> Graph {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(rustc.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: BTreeMap<String, String> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let mut graph = Graph::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let needs = node["deps"].as_array().unwrap().iter().filter(|dependency| {
            dependency["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"] != "dev")
        });
        let needs = needs.map(|dependency| names[dependency["pkg"].as_str().unwrap()].clone());
        // Two versions of a package count as one.
        graph.entry(names[node["id"].as_str().unwrap()].clone()).or_default().extend(needs);
    }
    graph
}

/// The shortest way from a package to another, both included.
fn way(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut known = BTreeSet::from([from.to_owned()]);
    let mut ways = vec![vec![from.to_owned()]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in graph.get(way.last()?).into_iter().flatten() {
                let mut way = way.clone();
                way.push(next.clone());
                if next == to {
                    return Some(way);
                }
                if known.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Every dependency that is not allowed, one sentence each.
fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (package, needs) in graph {
        let Some(name) = package.strip_prefix(PREFIX) else { continue };
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            found.push(format!("{package} is new: list what it may use in ARCHITECTURE.md and in this test"));
            continue;
        };
        for need in needs {
            if let Some(other) = need.strip_prefix(PREFIX)
                && !allowed.contains(&other)
            {
                found.push(format!("{package} must not depend on {need}"));
            }
            if let Some((_, only)) =
                ONLY.iter().find(|(library, only)| library == need && !only.contains(&name))
            {
                found.push(format!(
                    "{package} must not depend on {need} directly: only {} may",
                    only.join(" and ")
                ));
            }
            if HTTP.contains(&need.as_str()) && !HTTP_ONLY.contains(&name) {
                found.push(format!(
                    "{package} must not depend on {need} directly: only {} do",
                    HTTP_ONLY.join(" and ")
                ));
            }
            if ASYNC.contains(&need.as_str()) && !ASYNC_ONLY.contains(&name) {
                found.push(format!(
                    "{package} must not depend on {need} directly: only {} do",
                    ASYNC_ONLY.join(" and ")
                ));
            }
        }
        if name == "model" {
            let http = HTTP.iter().filter_map(|library| way(graph, package, library));
            found.extend(http.map(|way| format!("{package} must not reach HTTP: {}", way.join(" -> "))));
        }
        if NUMBERS_AND_TEXT_ONLY.contains(&name) {
            let forbidden = TENSORS.iter().chain(&HTTP).chain(&ASYNC);
            found.extend(
                forbidden.filter_map(|library| way(graph, package, library)).map(|way| {
                    format!("{package} must not reach {}: {}", way[way.len() - 1], way.join(" -> "))
                }),
            );
        }
    }
    found
}

#[test]
fn every_dependency_is_allowed() {
    let graph = graph();
    for (name, _) in MAY_USE {
        assert!(graph.contains_key(&format!("{PREFIX}{name}")), "{name} is gone: remove it here too");
    }
    // The check finds what is there: the model does know its tensor library.
    assert!(way(&graph, "turnwise-model", "gemm-f32").is_some());
    assert!(way(&graph, "turnwise-text", "tokenizers").is_some());
    assert!(way(&graph, "turnwise-decompose", "ureq").is_some());
    assert!(way(&graph, "turnwise-retrieval-service", "ureq").is_some());
    assert!(way(&graph, "turnwise-remote", "tokio").is_some());
    assert!(way(&graph, "turnwise-serve", "axum").is_some());
    assert_eq!(violations(&graph), Vec::<String>::new());
}

#[test]
fn a_forbidden_dependency_is_found() {
    let sound = graph();
    let wrong = [
        ("turnwise-core", "turnwise-env", "turnwise-core must not depend on turnwise-env"),
        ("turnwise-model", "turnwise-objective", "turnwise-model must not depend on turnwise-objective"),
        ("turnwise-train", "turnwise-eval", "turnwise-train must not depend on turnwise-eval"),
        ("turnwise-train", "gemm-f32", "turnwise-train must not depend on gemm-f32 directly"),
        ("turnwise-model", "tokenizers", "turnwise-model must not depend on tokenizers directly"),
        ("turnwise-text", "gemm-f32", "turnwise-text must not reach gemm-f32: turnwise-text -> gemm-f32"),
        (
            "turnwise-credit",
            "turnwise-model",
            "turnwise-credit must not reach gemm-f32: turnwise-credit -> turnwise-model -> gemm-f32",
        ),
        ("serde_json", "tokio", "turnwise-env must not reach tokio: turnwise-env -> serde_json -> tokio"),
        ("turnwise-objective", "ureq", "turnwise-objective must not reach ureq"),
        ("turnwise-retrieval", "ureq", "turnwise-retrieval must not reach ureq"),
        ("turnwise-train", "ureq", "turnwise-train must not depend on ureq directly"),
        (
            "safetensors",
            "hyper",
            "turnwise-model must not reach HTTP: turnwise-model -> safetensors -> hyper",
        ),
        ("turnwise-decompose", "turnwise-train", "turnwise-decompose must not depend on turnwise-train"),
        ("turnwise-remote", "turnwise-eval", "turnwise-remote must not depend on turnwise-eval"),
        (
            "turnwise-train",
            "tokio",
            "turnwise-train must not depend on tokio directly: only remote and serve do",
        ),
        ("turnwise-elsewhere", "turnwise-core", "turnwise-elsewhere is new"),
    ];
    for (from, to, expected) in wrong {
        let mut doctored = sound.clone();
        doctored.entry(from.to_owned()).or_default().insert(to.to_owned());
        let found = violations(&doctored);
        assert!(found.iter().any(|violation| violation.starts_with(expected)), "{from} -> {to}: {found:#?}");
    }
}
