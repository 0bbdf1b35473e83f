//! Checks values against a schema: types, ranges, choices, unknown and missing keys.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Schema;
use toml::Value;

use crate::problem::{Problem, SettingsError};
use crate::schema::{alternatives, choices, plain, range, shared_schema, tagged};
use crate::suggest;

const SHOWN: usize = 80;

/// Rejects settings outside the ranges that their type declares.
///
/// # Errors
/// Returns all invalid settings, each with key, value and valid range.
pub fn check<T: JsonSchema + Serialize + 'static>(settings: &T) -> Result<(), SettingsError> {
    match Value::try_from(settings) {
        Ok(value) => SettingsError::of(problems(&shared_schema::<T>(), &value)),
        Err(error) => Err(SettingsError(vec![Problem::new("settings", error.to_string())])),
    }
}

/// Returns all problems that a schema ([`crate::schema_of`]) finds in a value. NaN and infinities
/// are problems, too.
pub fn problems(schema: &Schema, value: &Value) -> Vec<Problem> {
    let mut found = Vec::new();
    walk(schema, value, "", &mut found);
    found
}

fn walk(schema: &Schema, value: &Value, key: &str, found: &mut Vec<Problem>) {
    if let Some((tag, variants)) = tagged(schema) {
        return union(tag, &variants, schema, value, key, found);
    }
    if let Some(choices) = choices(schema) {
        let known: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        match value {
            Value::String(text) if known.contains(&text.as_str()) => {}
            _ => found.push(problem(key, value, &not_a_choice(value, &known), schema)),
        }
        return;
    }
    if let Some(alternatives) = alternatives(schema) {
        if let Some(choice) = alternatives.iter().find(|choice| has_type(choice, value)) {
            return walk(choice, value, key, found);
        }
        let names: Vec<String> = alternatives.iter().map(type_name).collect();
        return found.push(problem(key, value, &format!("must be {}", names.join(" or ")), schema));
    }
    if !has_type(schema, value) {
        let (name, range) = (type_name(schema), range(schema));
        let allowed = if range.is_empty() { name } else { format!("{name}, {range}") };
        return found.push(problem(key, value, &format!("must be {allowed}"), schema));
    }
    match value {
        Value::Integer(number) => bounds(schema, *number as f64, value, key, found),
        Value::Float(number) => bounds(schema, *number, value, key, found),
        Value::String(text) => length(schema, "Length", text.chars().count(), value, key, found),
        Value::Array(items) => {
            length(schema, "Items", items.len(), value, key, found);
            let rest = schema.get("items");
            for (index, item) in items.iter().enumerate() {
                let of = schema.get("prefixItems").and_then(|first| first.get(index)).or(rest);
                if let Some(of) = of {
                    walk(of, item, &format!("{key}[{index}]"), found);
                }
            }
        }
        Value::Table(table) => keys(schema, table, key, found),
        Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

fn union(
    tag: &str,
    variants: &[(&str, &Schema)],
    schema: &Schema,
    value: &Value,
    key: &str,
    found: &mut Vec<Problem>,
) {
    let known: Vec<&str> = variants.iter().map(|(name, _)| *name).collect();
    let Value::Table(table) = value else {
        let reason = format!("must be a table with `{tag}`, one of {}", quoted(&known));
        return found.push(problem(key, value, &reason, schema));
    };
    let inner = join(key, tag);
    let Some(name) = table.get(tag) else {
        return found.push(Problem::new(inner, format!("is missing; set it to one of {}", quoted(&known))));
    };
    match variants.iter().find(|(known, _)| Some(*known) == name.as_str()) {
        Some((_, variant)) => keys(variant, table, key, found),
        None => found.push(problem(&inner, name, &not_a_choice(name, &known), &Schema::Null)),
    }
}

fn keys(schema: &Schema, table: &toml::Table, key: &str, found: &mut Vec<Problem>) {
    let empty = serde_json::Map::new();
    let properties = schema.get("properties").and_then(Schema::as_object).unwrap_or(&empty);
    let others = schema.get("additionalProperties");
    for (name, value) in table {
        match properties.get(name).or(others) {
            Some(Schema::Bool(false)) => found.push(unknown(name, key, properties)),
            Some(inner) => walk(inner, value, &join(key, name), found),
            None => {}
        }
    }
    for name in schema.get("required").and_then(Schema::as_array).into_iter().flatten() {
        if let Some(name) = name.as_str()
            && !table.contains_key(name)
        {
            let inner = properties.get(name).unwrap_or(&Schema::Null);
            let allowed = [type_name(inner), range(inner)].into_iter().filter(|text| !text.is_empty());
            let allowed: Vec<String> = allowed.collect();
            found.push(Problem::new(
                join(key, name),
                format!("is missing; it must be {}", allowed.join(", ")),
            ));
        }
    }
}

fn unknown(name: &str, key: &str, properties: &serde_json::Map<String, Schema>) -> Problem {
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    let nearest = suggest(name, &known).map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default();
    let there_are = if known.is_empty() { "none".to_owned() } else { quoted(&known) };
    Problem::new(join(key, name), format!("unknown key.{nearest} There are: {there_are}"))
}

fn not_a_choice(value: &Value, known: &[&str]) -> String {
    let nearest = value.as_str().and_then(|text| suggest(text, known));
    let nearest = nearest.map(|name| format!(". Did you mean {name:?}?")).unwrap_or_default();
    match known {
        [only] => format!("must be {only:?}{nearest}"),
        _ => format!("must be one of {}{nearest}", quoted(known)),
    }
}

fn bounds(schema: &Schema, number: f64, value: &Value, key: &str, found: &mut Vec<Problem>) {
    let bound = |name: &str| schema.get(name).and_then(Schema::as_f64);
    let inside = number.is_finite()
        && bound("minimum").is_none_or(|least| number >= least)
        && bound("maximum").is_none_or(|most| number <= most)
        && bound("exclusiveMinimum").is_none_or(|least| number > least)
        && bound("exclusiveMaximum").is_none_or(|most| number < most);
    if !inside {
        let range = range(schema);
        let reason = match (number.is_finite(), range.is_empty()) {
            (true, _) => format!("must be {range}"),
            (false, true) => "must be a finite number".into(),
            (false, false) => format!("must be a finite number, {range}"),
        };
        found.push(problem(key, value, &reason, schema));
    }
}

fn length(schema: &Schema, of: &str, length: usize, value: &Value, key: &str, found: &mut Vec<Problem>) {
    let bound = |name: &str| schema.get(format!("{name}{of}")).and_then(Schema::as_u64);
    if bound("min").is_some_and(|least| (length as u64) < least)
        || bound("max").is_some_and(|most| length as u64 > most)
    {
        found.push(problem(key, value, &format!("must be {}", range(schema)), schema));
    }
}

fn has_type(schema: &Schema, value: &Value) -> bool {
    let is = |name: &Schema| match name.as_str() {
        Some("string") => value.is_str(),
        Some("integer") => value.is_integer(),
        Some("number") => value.is_float() || value.is_integer(),
        Some("boolean") => value.is_bool(),
        Some("array") => value.is_array(),
        Some("object") => value.is_table(),
        _ => false,
    };
    match schema.get("type") {
        None => true,
        Some(Schema::Array(names)) => names.iter().any(is),
        Some(name) => is(name),
    }
}

pub(crate) fn type_name(schema: &Schema) -> String {
    let one = |name: &Schema| match name.as_str() {
        Some("string") => "a string",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a table",
        _ => "a value",
    };
    match schema.get("type") {
        None => "a value".into(),
        Some(Schema::Array(names)) => names.iter().map(one).collect::<Vec<_>>().join(" or "),
        Some(name) => one(name).into(),
    }
}

fn problem(key: &str, value: &Value, reason: &str, schema: &Schema) -> Problem {
    let mut shown = value.to_string().replace('\n', " ");
    if shown.chars().count() > SHOWN {
        shown = shown.chars().take(SHOWN).chain("...".chars()).collect();
    }
    let default = match schema.get("default") {
        Some(default) if !default.is_object() => format!(" (default {})", plain(default)),
        _ => String::new(),
    };
    Problem { origin: None, key: key.to_owned(), value: Some(shown), reason: format!("{reason}{default}") }
}

pub(crate) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

pub(crate) fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}
