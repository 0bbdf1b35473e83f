//! Merges the sources of a config, and keeps the origin of each setting.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};
use turnwise_methods::merge;
use turnwise_settings::{Problem, SettingsError, assignment};

#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub(super) table: Table,
    pub(super) origins: Origins,
}

/// Maps each `table.key` to its origin (file and line, or argument).
#[derive(Clone, Debug, Default)]
pub(super) struct Origins(BTreeMap<String, String>);

impl Origins {
    /// Returns the origin of a setting; if unknown, the origin of its table or of the first setting
    /// in the table.
    fn of(&self, key: &str) -> Option<String> {
        let key = key.split('[').next().unwrap_or(key);
        let mut outer = key;
        loop {
            if let Some(origin) = self.0.get(outer) {
                return Some(origin.clone());
            }
            match outer.rsplit_once('.') {
                Some((before, _)) => outer = before,
                None => break,
            }
        }
        let inside = format!("{key}.");
        let mut following = self.0.range(inside.clone()..);
        following.next().filter(|(found, _)| found.starts_with(&inside)).map(|(_, origin)| origin.clone())
    }
}

impl Layer {
    pub(super) fn file(text: &str, name: &str) -> Result<Self, SettingsError> {
        // Counting from the start for each key is too slow for large files.
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let line = |at: usize| 1 + ends.partition_point(|end| *end < at);
        let fail = |error: &toml::de::Error| {
            let at = error.span().map_or_else(String::new, |span| format!(" line {}", line(span.start)));
            let reason = format!("is not TOML: {}", error.message().replace('\n', " "));
            SettingsError(vec![Problem::new(format!("{name}{at}"), reason)])
        };
        let table = text.parse::<Table>().map_err(|error| fail(&error))?;
        let mut origins = BTreeMap::new();
        let spanned = DeTable::parse(text).map_err(|error| fail(&error))?;
        note_lines(spanned.get_ref(), "", &mut |key, at| {
            origins.insert(key, format!("{name} line {}", line(at)));
        });
        Ok(Self { table, origins: Origins(origins) })
    }

    pub(super) fn code(table: Table, name: &str) -> Self {
        let mut origins = BTreeMap::new();
        note_keys(&table, "", &mut |key| {
            origins.insert(key, name.to_owned());
        });
        Self { table, origins: Origins(origins) }
    }

    pub(super) fn argument(text: &str) -> Result<Self, SettingsError> {
        let (key, value) = assignment(text).map_err(|error| {
            SettingsError(vec![Problem::new(format!("argument `{text}`"), error.to_string())])
        })?;
        let mut parts = key.rsplit('.');
        let last = parts.next().unwrap_or(key);
        let innermost = Table::from_iter([(last.to_owned(), value)]);
        let table =
            parts.fold(innermost, |table, part| Table::from_iter([(part.to_owned(), Value::Table(table))]));
        Ok(Self::code(table, &format!("argument `{text}`")))
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.table.get(key).and_then(Value::as_str)
    }

    /// Merges a layer of higher precedence. The layer's plain values, lists, and tables with
    /// another `kind` replace existing values as a whole.
    pub(super) fn put(&mut self, over: Self) {
        merge(&mut self.table, over.table);
        self.origins.0.extend(over.origins.0);
    }

    pub(super) fn put_all(&mut self, over: Vec<Self>) {
        for layer in over {
            self.put(layer);
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        let mut parts = key.split('.').collect::<Vec<_>>();
        let last = parts.pop().unwrap_or(key);
        let inner =
            parts.iter().try_fold(&mut self.table, |table, part| table.get_mut(*part)?.as_table_mut());
        if let Some(table) = inner {
            table.remove(last);
        }
    }

    pub(super) fn names_a_kind(&self) -> bool {
        fn leads_to_a_kind(table: &Table) -> bool {
            table.len() == 1
                && table.iter().all(|(key, value)| match value {
                    Value::Table(inner) => leads_to_a_kind(inner),
                    _ => key == "kind",
                })
        }
        leads_to_a_kind(&self.table)
    }

    pub(super) fn origin(&self, key: &str) -> Option<String> {
        self.origins.of(key)
    }
}

fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Calls `note` with each key and its byte position in the file.
fn note_lines(table: &DeTable<'_>, key: &str, note: &mut dyn FnMut(String, usize)) {
    for (name, value) in table {
        let inner = join(key, name.get_ref());
        note(inner.clone(), name.span().start);
        if let DeValue::Table(inside) = value.get_ref() {
            note_lines(inside, &inner, note);
        }
    }
}

fn note_keys(table: &Table, key: &str, note: &mut dyn FnMut(String)) {
    for (name, value) in table {
        let inner = join(key, name);
        if let Value::Table(inside) = value {
            note_keys(inside, &inner, note);
        }
        note(inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_knows_its_line() {
        let text = "name = \"x\"\n\n[train]\nsteps = 1\n[credit.estimator]\nkind = \"grpo\"\n[[credit.refinements]]\nkind = \"aem\"\n";
        let layer = Layer::file(text, "a.toml").unwrap();
        for (key, line) in [
            ("name", 1),
            ("train.steps", 4),
            ("train.stepz", 3),
            ("credit.estimator.kind", 6),
            ("credit.refinements[0].kind", 7),
        ] {
            assert_eq!(layer.origin(key).unwrap(), format!("a.toml line {line}"), "{key}");
        }
        assert_eq!(layer.origin("eval.tasks"), None);
        let error = Layer::file("name = \"x\"\nsteps 1\n", "b.toml").unwrap_err().to_string();
        assert!(error.starts_with("b.toml line 2: is not TOML"), "{error}");
    }

    #[test]
    fn files_of_many_keys_are_read_in_no_time() {
        let lines: Vec<String> = (0..100_000).map(|number| format!("key_{number} = 1")).collect();
        let text = lines.join("\n");
        let started = std::time::Instant::now();
        let layer = Layer::file(&text, "a.toml").unwrap();
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
        assert_eq!(layer.origin("key_99999").unwrap(), "a.toml line 100000");
    }

    #[test]
    fn later_sources_win_and_other_kinds_replace() {
        let mut layers = Layer::file("[a]\nkind = \"x\"\nold = 1\n[b]\none = 1\ntwo = 2\n", "file").unwrap();
        layers.put(Layer::argument("a={kind=\"y\"}").unwrap());
        layers.put(Layer::argument("b.two=folder/name").unwrap());
        assert_eq!(layers.table["a"].as_table().unwrap().len(), 1);
        assert_eq!(layers.table["b"]["one"].as_integer(), Some(1));
        assert_eq!(layers.table["b"]["two"].as_str(), Some("folder/name"));
        assert_eq!(layers.origin("b.two").unwrap(), "argument `b.two=folder/name`");
        assert_eq!(layers.origin("b.one").unwrap(), "file line 5");
        layers.remove("b.one");
        assert_eq!(layers.table["b"].as_table().unwrap().len(), 1);
        let kinds =
            ["env.kind=x", "credit.estimator={kind=\"x\"}", "a={kind=\"x\",b=1}", "a.b=kind", "kinds=1"];
        let named = kinds.map(|text| Layer::argument(text).unwrap().names_a_kind());
        assert_eq!(named, [true, true, false, false, false]);
        assert!(Layer::argument("steps").is_err() && Layer::argument("a.=1").is_err());
    }
}
