//! Config tables that select a method, and named presets.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Config table `{ kind = "...", ... }` of a method, not yet parsed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MethodTable {
    /// Method name.
    pub kind: String,
    /// Unparsed settings.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

impl MethodTable {
    /// Creates a table from typed settings. Leaves out settings that are `None`, because TOML has
    /// no null.
    ///
    /// # Errors
    /// Fails if the settings do not serialize to a table.
    pub fn new(kind: &str, settings: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut settings = serde_json::to_value(settings)?;
        drop_nulls(&mut settings);
        Ok(Self { kind: kind.to_owned(), settings: serde_json::from_value(settings)? })
    }

    /// Parses the settings.
    ///
    /// # Errors
    /// Fails on rejected settings, such as unknown keys.
    pub fn read<C: DeserializeOwned>(&self) -> Result<C, serde_json::Error> {
        serde_json::from_value(Value::Object(self.settings.clone()))
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, value| !value.is_null());
            table.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// A named starting config, declared in its method's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The preset that this one extends, if any.
    pub base: Option<&'static str>,
    /// Credit, loss and data settings as TOML; lists replace the base's lists.
    pub settings: &'static str,
}

impl Preset {
    /// Creates a preset.
    pub const fn new(name: &'static str, settings: &'static str) -> Self {
        Self { name, base: None, settings }
    }

    /// Creates a preset that extends `base`.
    pub const fn on(base: &'static str, name: &'static str, settings: &'static str) -> Self {
        Self { name, base: Some(base), settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        weight: f64,
        limit: Option<usize>,
    }

    impl Default for Settings {
        fn default() -> Self {
            Self { weight: 0.5, limit: None }
        }
    }

    #[test]
    fn a_table_is_read_into_typed_settings_and_written_back() {
        let table: MethodTable = serde_json::from_str(r#"{"kind":"mine"}"#).unwrap();
        assert_eq!(table.read::<Settings>().unwrap(), Settings::default());
        let spelled_out = MethodTable::new("mine", &Settings::default()).unwrap();
        assert_eq!(serde_json::to_string(&spelled_out).unwrap(), r#"{"kind":"mine","weight":0.5}"#);
        let wrong: MethodTable = serde_json::from_str(r#"{"kind":"mine","wieght":1}"#).unwrap();
        let error = wrong.read::<Settings>().unwrap_err().to_string();
        assert!(error.contains("unknown field `wieght`, expected `weight` or `limit`"), "{error}");
    }
}
