//! Differences between two configs.

use std::collections::BTreeSet;
use std::fmt;

use toml::{Table, Value};

const SHOWN: usize = 40;

/// A key whose values differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Full key, such as `optimizer.beta1`.
    pub key: String,
    /// Value in the first config, if set.
    pub first: Option<Value>,
    /// Value in the second config, if set.
    pub second: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            let text = value.as_ref().map_or_else(|| "unset".to_owned(), Value::to_string);
            if text.chars().count() > SHOWN {
                format!("{}...", text.chars().take(SHOWN).collect::<String>())
            } else {
                text
            }
        };
        write!(f, "`{}` ({}, {})", self.key, shown(&self.first), shown(&self.second))
    }
}

/// Returns the keys whose values differ, in order.
pub fn differences(first: &Table, second: &Table) -> Vec<Difference> {
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        match (first.get(key), second.get(key)) {
            (Some(Value::Table(first)), Some(Value::Table(second))) => {
                let inner = differences(first, second);
                found.extend(
                    inner.into_iter().map(|at| Difference { key: format!("{key}.{}", at.key), ..at }),
                );
            }
            (first, second) if first != second => {
                found.push(Difference { key: key.clone(), first: first.cloned(), second: second.cloned() });
            }
            _ => {}
        }
    }
    found
}

/// Formats differences for a message.
pub fn list_differences(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_differs_is_named_in_full_with_its_values() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        let first = table("a = 1\n[b]\nc = 2\nd = 3\n");
        assert_eq!(differences(&first, &first), []);
        for (text, said) in [
            ("a = 1\n[b]\nc = 2\nd = 4\n", "`b.d` (3, 4)"),
            ("a = 1\n[b]\nc = 2\n", "`b.d` (3, unset)"),
            ("a = 1\nb = 2\n", "`b` ({ c = 2, d = 3 }, 2)"),
            ("A = 1\na = 2\n[b]\nc = 2\nd = 3\n", "`A` (unset, 1), `a` (1, 2)"),
        ] {
            assert_eq!(list_differences(&differences(&first, &table(text))), said, "{text}");
        }
        let long = table(&format!("a = \"{}\"", "x".repeat(60)));
        let said = list_differences(&differences(&long, &table("a = 1")));
        assert!(said.ends_with("..., 1)") && said.len() < 70, "{said}");
    }
}
