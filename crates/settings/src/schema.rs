//! The schema of a settings type.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Cache of schemas by type, because generating a schema takes milliseconds.
static KNOWN: Mutex<Option<HashMap<TypeId, Arc<Value>>>> = Mutex::new(None);

/// Returns the JSON Schema (draft 2020-12) of a settings type, without references.
///
/// Unlike in the schemas that `schemars` generates, objects with named properties reject other
/// keys. Unit variants of tagged enums reject other keys too, although `serde` accepts any key.
/// Optional keys may be absent but not null, because TOML has no null.
pub fn schema_of<T: JsonSchema + 'static>() -> Value {
    Value::clone(&shared_schema::<T>())
}

pub(crate) fn shared_schema<T: JsonSchema + 'static>() -> Arc<Value> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = known().as_ref().and_then(|known| known.get(&TypeId::of::<T>())) {
        return Arc::clone(schema);
    }
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    close(&mut schema);
    let schema = Arc::new(schema);
    known().get_or_insert_default().insert(TypeId::of::<T>(), Arc::clone(&schema));
    schema
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.contains_key("properties") {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            if map.get("format").is_some_and(|format| format == "uint32") {
                map.entry("maximum").or_insert(u32::MAX.into());
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            for name in ["anyOf", "oneOf"] {
                let Some(Value::Array(choices)) = map.get_mut(name) else { continue };
                choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
                if choices.len() == 1
                    && let Some(Value::Object(only)) = choices.pop()
                {
                    map.remove(name);
                    only.into_iter().for_each(|(key, value)| {
                        map.entry(key).or_insert(value);
                    });
                }
            }
            map.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Returns the tag of a union of tables, and the value that the tag has in each variant.
pub(crate) fn tagged(schema: &Value) -> Option<(&str, Vec<(&str, &Value)>)> {
    let choices = alternatives(schema)?;
    let tag_of = |choice: &'_ Value| {
        let properties = choice.get("properties")?.as_object()?;
        properties.iter().find(|(_, value)| value.get("const").is_some()).map(|(key, _)| key.clone())
    };
    let tag = tag_of(choices.first()?)?;
    let properties = choices.first()?.get("properties")?.as_object()?;
    let (tag, _) = properties.get_key_value(&tag)?;
    let variants = choices
        .iter()
        .map(|choice| Some((choice.get("properties")?.get(tag)?.get("const")?.as_str()?, choice)))
        .collect::<Option<Vec<_>>>()?;
    Some((tag.as_str(), variants))
}

pub(crate) fn choices(schema: &Value) -> Option<Vec<(&str, Option<&str>)>> {
    if let Some(names) = schema.get("enum").and_then(Value::as_array) {
        return names.iter().map(|name| Some((name.as_str()?, None))).collect();
    }
    if let Some(name) = schema.get("const").and_then(Value::as_str) {
        return Some(vec![(name, description(schema))]);
    }
    let lists = schema.get("oneOf")?.as_array()?.iter().map(choices).collect::<Option<Vec<_>>>()?;
    Some(lists.into_iter().flatten().collect())
}

pub(crate) fn description(schema: &Value) -> Option<&str> {
    schema.get("description").and_then(Value::as_str)
}

pub(crate) fn alternatives(schema: &Value) -> Option<&Vec<Value>> {
    ["anyOf", "oneOf"].iter().find_map(|name| schema.get(*name)).and_then(Value::as_array)
}

/// Returns a schema's range in words, such as `at least 0 and below 1`; empty if unbounded.
pub(crate) fn range(schema: &Value) -> String {
    let number = |name: &str| schema.get(name).filter(|bound| !bound.is_null()).map(plain);
    // Unsigned integers state their minimum 0 only with an upper bound.
    let low = match (number("exclusiveMinimum"), number("minimum")) {
        (Some(bound), _) => Some(format!("above {bound}")),
        (None, Some(bound)) => Some(format!("at least {bound}")),
        (None, None) => None,
    };
    let high = match (number("exclusiveMaximum"), number("maximum")) {
        (Some(bound), _) => Some(format!("below {bound}")),
        (None, Some(bound)) => Some(format!("at most {bound}")),
        (None, None) => None,
    };
    let mut parts: Vec<String> = low.into_iter().chain(high).collect();
    for (name, what) in [("minItems", "entries"), ("minLength", "characters")] {
        match schema.get(name).and_then(Value::as_u64) {
            Some(1) => parts.push("not empty".into()),
            Some(least) if least > 1 => parts.push(format!("at least {least} {what}")),
            _ => {}
        }
    }
    for (name, what) in [("maxItems", "entries"), ("maxLength", "characters")] {
        if let Some(most) = schema.get(name).and_then(Value::as_u64) {
            parts.push(format!("at most {most} {what}"));
        }
    }
    parts.join(" and ")
}

/// Formats a value as TOML. Numbers of type f32 get their shortest form.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => shortest(float),
            _ => number.to_string(),
        },
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{key} = {}", plain(value)))
                .collect();
            if entries.is_empty() { "{}".into() } else { format!("{{ {} }}", entries.join(", ")) }
        }
        other => other.to_string(),
    }
}

fn shortest(number: f64) -> String {
    let double = format!("{number:?}");
    let single = format!("{:?}", number as f32);
    let text =
        if f64::from(number as f32) == number && single.len() < double.len() { single } else { double };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
