//! Rejects settings that have no effect because another setting, their switch, is not set. A switch
//! that is explicitly off counts as set, so that a sweep can turn off a feature of its base config
//! without removing the feature's settings.

use toml::{Table, Value};
use turnwise_settings::Problem;

struct Switched {
    /// Name of the table; `[]` means each table of a list.
    table: &'static str,
    /// Keys that have no effect without the switch; empty: all other keys of the table.
    keys: &'static [&'static str],
    switch: &'static str,
    /// The switch's default, and how to set it.
    hint: &'static str,
}

const ANCHOR: &[&str] = &["threshold", "assignment", "autojunk"];
const ANCHOR_HINT: &str = "states are matched exactly by default; set matching = \"similarity\" beside it";

const SWITCHED: &[Switched] = &[
    Switched {
        table: "objective.kl",
        keys: &["apply_to", "estimator"],
        switch: "coef",
        hint: "the KL penalty is off by default; set objective.kl.coef (for example 0.01)",
    },
    Switched { table: "credit.estimator.anchor", keys: ANCHOR, switch: "matching", hint: ANCHOR_HINT },
    Switched { table: "credit.outliers.anchor", keys: ANCHOR, switch: "matching", hint: ANCHOR_HINT },
    Switched {
        table: "credit.refinements[]",
        keys: &["threshold"],
        switch: "matching",
        hint: "observations are matched exactly by default; set matching = \"embedding\" beside it",
    },
    Switched {
        table: "decomposer.network",
        keys: &["value_clip"],
        switch: "credits",
        hint: "credits are shares of the return by attention by default; set decomposer.network.credits = \"projection\" or \
               \"weighted-projection\"",
    },
    Switched {
        table: "sft",
        keys: &[],
        switch: "steps",
        hint: "there is no warm start by default; set sft.steps (0 for none)",
    },
];

pub(super) fn without_switch(sources: &Table) -> Vec<Problem> {
    let mut found = Vec::new();
    for rule in SWITCHED {
        for (place, table) in tables(sources, rule.table) {
            // `sft.data` also turns SFT on.
            if table.contains_key(rule.switch) || (rule.table == "sft" && table.contains_key("data")) {
                continue;
            }
            let read = |key: &&String| rule.keys.is_empty() || rule.keys.contains(&key.as_str());
            for key in table.keys().filter(read) {
                let reason = format!("is set, and has no effect: {}, or leave it out", rule.hint);
                found.push(Problem::new(format!("{place}.{key}"), reason));
            }
        }
    }
    found
}

fn tables<'a>(sources: &'a Table, path: &str) -> Vec<(String, &'a Table)> {
    let (path, is_list) = path.strip_suffix("[]").map_or((path, false), |path| (path, true));
    let mut keys = path.split('.');
    let first = keys.next().and_then(|key| sources.get(key));
    let value = keys.fold(first, |value, key| value?.get(key));
    match value {
        Some(Value::Table(table)) if !is_list => vec![(path.to_owned(), table)],
        Some(Value::Array(list)) if is_list => list
            .iter()
            .enumerate()
            .filter_map(|(index, value)| Some((format!("{path}[{index}]"), value.as_table()?)))
            .collect(),
        _ => Vec::new(),
    }
}
