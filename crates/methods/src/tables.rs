//! TOML tables, one over another.

use toml::{Table, Value};

/// Lays a table over another: tables are merged key by key; a value, a list, and a table that names another `kind`, is
/// replaced whole.
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

/// A table that names another `kind` is another thing: nothing of the old one carries over.
fn replaces(old: &Table, new: &Table) -> bool {
    matches!((old.get("kind"), new.get("kind")), (Some(old), Some(new)) if old != new)
}
