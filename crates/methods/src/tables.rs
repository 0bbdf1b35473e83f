//! Merging of TOML tables.

use toml::{Table, Value};

/// Merges `over` into `base` key by key. Plain values, lists, and tables whose `kind` differs are
/// not merged: they replace the value in `base`.
pub fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(table)) if !replaces(inner, &table) => {
                merge(inner, table);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn replaces(old: &Table, new: &Table) -> bool {
    matches!((old.get("kind"), new.get("kind")), (Some(old), Some(new)) if old != new)
}
