//! Built-in Rust libraries with the calls that check them.
//!
//! Compiling a library with a defect takes 0.2 s, so each library has a file `record` with the
//! results of its calls. A test recomputes the recorded results.

use std::collections::BTreeMap;

use super::super::mutation::{self, Mutant};

pub(in super::super) struct Library {
    pub(in super::super) name: &'static str,
    pub(in super::super) sources: &'static [(&'static str, &'static str)],
    calls: &'static str,
    record: &'static str,
}

macro_rules! library {
    ($name:literal: $($module:literal),+) => {
        Library {
            name: $name,
            sources: &[$((
                concat!("src/", $module, ".rs"),
                include_str!(concat!("../libraries/rust/", $name, "/", $module, ".rs")),
            )),+],
            calls: include_str!(concat!("../libraries/rust/", $name, "/calls")),
            record: include_str!(concat!("../libraries/rust/", $name, "/record")),
        }
    };
}

pub(in super::super) const LIBRARIES: [Library; 6] = [
    library!("board": "lib", "cells", "life", "routes"),
    library!("calculator": "lib", "lexer", "machine", "parser"),
    library!("glob": "lib", "letters", "path"),
    library!("linediff": "lib", "lcs", "merge"),
    library!("quantity": "lib", "parse", "units"),
    library!("timespan": "lib", "clock", "hours"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Defect {
    pub(in super::super) path: &'static str,
    pub(in super::super) mutant: Mutant,
    pub(in super::super) digest: String,
}

/// Recorded results of a library's calls. For each defect (by digest), `failing` has the index of
/// the first failing call and its wrong value (`None` if the call does not finish).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    pub(in super::super) values: Vec<String>,
    pub(in super::super) failing: BTreeMap<String, (usize, Option<String>)>,
}

impl Library {
    pub(in super::super) fn calls(&self) -> Vec<String> {
        self.calls.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }

    /// Returns all possible defects of the library, including ones that do not compile and ones
    /// that do not change the value of any call.
    pub(in super::super) fn defects(&self) -> Vec<Defect> {
        let of_source = |(path, source): &(&'static str, &'static str)| {
            let path = *path;
            mutation::rust_mutants(source).into_iter().map(move |mutant| {
                let digest = turnwise_core::digest([path.as_bytes(), b"\n", mutant.text.as_bytes()]);
                Defect { path, digest: digest.chars().take(8).collect(), mutant }
            })
        };
        self.sources.iter().flat_map(of_source).collect()
    }

    pub(in super::super) fn record(&self) -> Record {
        Record::parse(self.record)
    }

    pub(in super::super) fn source(&self, path: &str) -> &'static str {
        self.sources.iter().find(|(known, _)| *known == path).map_or("", |(_, source)| source)
    }
}

impl Record {
    /// Parses tab-separated lines: `value TEXT` for each call in order, and `DIGEST CALL VALUE` for
    /// the first failing call of each defect.
    pub(super) fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields.as_slice() {
                ["value", value] => record.values.push((*value).to_owned()),
                [digest, call, rest @ ..] => {
                    let value = rest.first().map(|value| (*value).to_owned());
                    record.failing.insert((*digest).to_owned(), (call.parse().unwrap_or(0), value));
                }
                _ => {}
            }
        }
        record
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> = self.values.iter().map(|value| format!("value\t{value}")).collect();
        for (digest, (call, value)) in &self.failing {
            let value = value.as_ref().map(|value| format!("\t{value}")).unwrap_or_default();
            lines.push(format!("{digest}\t{call}{value}"));
        }
        lines.join("\n") + "\n"
    }
}
