//! TOML with a comment above each key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Schema;
use toml::de::{DeTable, DeValue};

use crate::check::{join, type_name};
use crate::problem::{Problem, SettingsError};
use crate::schema::{alternatives, choices, description, plain, range, shared_schema, tagged};

const WIDTH: usize = 100;

/// Formats settings as TOML, with each key below a comment with its description, range and default.
/// Unset keys are commented out, so parsing the text gives the same settings.
///
/// # Errors
/// Fails on settings that TOML cannot represent.
pub fn annotate<T: JsonSchema + Serialize + 'static>(settings: &T) -> Result<String, SettingsError> {
    let fail = |reason: String| SettingsError(vec![Problem::new("settings", reason)]);
    let text = toml::to_string_pretty(settings).map_err(|error| fail(error.to_string()))?;
    let table = DeTable::parse(&text).map_err(|error| fail(error.to_string()))?;
    let schema = shared_schema::<T>();
    let mut notes = Notes { text: &text, above: BTreeMap::new() };
    notes.table(&schema, table.get_ref(), "");
    let unset: Vec<String> =
        missing(&schema, table.get_ref()).into_iter().map(|key| unset(&schema, key)).collect();
    let mut out = unset.concat();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some((_, comment)) = notes.above.get(&start) {
            out.push_str(comment);
        }
        out.push_str(line);
        if let Some((keys, _)) = notes.above.get(&start) {
            out.push_str(keys);
        }
        start += line.len();
    }
    Ok(out)
}

/// Text to insert above and below the lines of `text`: comments above keys, and unset keys below
/// the header of their table.
struct Notes<'a> {
    text: &'a str,
    above: BTreeMap<usize, (String, String)>,
}

impl Notes<'_> {
    fn table(&mut self, schema: &Schema, table: &DeTable<'_>, key: &str) {
        let union = tagged(schema);
        let default = schema.get("default");
        let schema = variant(schema, table);
        for (name, value) in table {
            let Some(inner) = schema.get("properties").and_then(|known| known.get(name.get_ref().as_ref()))
            else {
                continue;
            };
            let path = join(key, name.get_ref());
            let line = self.text[..name.span().start].rfind('\n').map_or(0, |end| end + 1);
            let header = self.text[line..].starts_with('[');
            let own =
                if header { self.text[line..].trim_start_matches('[').starts_with(&path) } else { true };
            match value.get_ref() {
                DeValue::Table(inside) if header && own => {
                    self.header(inner, inside, &path, line);
                    self.table(inner, inside, &path);
                }
                DeValue::Array(items) if header => {
                    for item in items {
                        if let (Some(of), DeValue::Table(inside)) = (inner.get("items"), item.get_ref()) {
                            let line = self.text[..item.span().start].rfind('\n').map_or(0, |end| end + 1);
                            self.header(of, inside, &path, line);
                            self.table(of, inside, &path);
                        }
                    }
                }
                _ if !header => {
                    let text = match &union {
                        Some((tag, variants)) if name.get_ref() == tag => {
                            let names: Vec<String> =
                                variants.iter().map(|(name, _)| format!("{name:?}")).collect();
                            let what = description(schema).unwrap_or_default();
                            let default = default.and_then(|default| default.get(tag)).map(plain);
                            let default =
                                default.map_or_else(String::new, |default| format!(" Default: {default}."));
                            comment(&format!("{what} One of {}.{default}", names.join(", ")))
                        }
                        _ => note(inner),
                    };
                    self.above.insert(line, (String::new(), text));
                }
                _ => {}
            }
        }
    }

    fn header(&mut self, schema: &Schema, table: &DeTable<'_>, path: &str, line: usize) {
        let full = self.text[line..].lines().next().unwrap_or_default().trim_matches(['[', ']']) == path;
        if !full {
            return;
        }
        let of = variant(schema, table);
        let unset: Vec<String> = missing(of, table).into_iter().map(|key| unset(of, key)).collect();
        let text = description(schema).or_else(|| description(of)).unwrap_or_default();
        self.above.insert(line, (unset.concat(), comment(text)));
    }
}

fn variant<'a>(schema: &'a Schema, table: &DeTable<'_>) -> &'a Schema {
    if let Some((tag, variants)) = tagged(schema) {
        let name = table.get(tag).and_then(|value| value.get_ref().as_str());
        return variants.into_iter().find(|(known, _)| Some(*known) == name).map_or(schema, |(_, of)| of);
    }
    let table = |choice: &&Schema| choice.get("properties").is_some();
    alternatives(schema).and_then(|all| all.iter().find(table)).unwrap_or(schema)
}

fn missing<'a>(schema: &'a Schema, table: &DeTable<'_>) -> Vec<&'a str> {
    let properties = schema.get("properties").and_then(Schema::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .filter(|key| !table.contains_key(*key))
        .collect()
}

fn unset(schema: &Schema, key: &str) -> String {
    let of = schema.get("properties").and_then(|known| known.get(key)).unwrap_or(&Schema::Null);
    format!("{}# {key} = (not set)\n", note(of))
}

fn note(schema: &Schema) -> String {
    let mut text = description(schema).unwrap_or_default().trim().to_owned();
    let mut facts = Vec::new();
    if let Some(choices) = choices(schema) {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        facts.push(format!("One of {}", names.join(", ")));
    } else {
        let range = range(schema);
        if !range.is_empty() {
            let mut name = type_name(schema);
            name[..1].make_ascii_uppercase();
            facts.push(format!("{name}, {range}"));
        }
    }
    if let Some(default) = schema.get("default").filter(|default| !default.is_object()) {
        facts.push(format!("Default: {}", plain(default)));
    }
    for fact in facts {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&fact);
        text.push('.');
    }
    comment(&text)
}

fn comment(text: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.split("\n\n") {
        let mut line = String::from("#");
        for word in paragraph.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH && line.len() > 1 {
                lines.push_str(&line);
                lines.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        if line.len() > 1 {
            lines.push_str(&line);
            lines.push('\n');
        }
    }
    lines
}
