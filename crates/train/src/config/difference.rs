//! The difference of two configs.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// The first key, in order, whose values differ: `optimizer.beta1` where that is in a table; `None` where the tables are equal.
pub fn first_difference(a: &Table, b: &Table) -> Option<String> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter().find_map(|key| match (a.get(key), b.get(key)) {
        (Some(Value::Table(a)), Some(Value::Table(b))) => {
            first_difference(a, b).map(|inner| format!("{key}.{inner}"))
        }
        (a, b) => (a != b).then(|| key.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_that_differs_is_named_in_full() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        let first = table("a = 1\n[b]\nc = 2\nd = 3\n");
        assert_eq!(first_difference(&first, &first), None);
        for (text, key) in [
            ("a = 1\n[b]\nc = 2\nd = 4\n", "b.d"),
            ("a = 1\n[b]\nc = 2\n", "b.d"),
            ("a = 1\nb = 2\n", "b"),
            ("A = 1\na = 2\n", "A"),
        ] {
            assert_eq!(first_difference(&first, &table(text)).as_deref(), Some(key), "{text}");
        }
    }
}
