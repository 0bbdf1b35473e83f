//! Markdown page with all keys of a settings type.

use schemars::JsonSchema;
use serde_json::Value as Schema;

use crate::check::{join, type_name};
use crate::schema::{alternatives, choices, description, plain, range, shared_schema, tagged};

const DEEPEST: usize = 5;

/// Returns a settings type's keys as Markdown: a heading per table, and a row per key with range,
/// default and description.
pub fn reference<T: JsonSchema + 'static>() -> String {
    let mut page = String::new();
    table(&shared_schema::<T>(), "", 2, &mut page);
    page
}

fn table(schema: &Schema, key: &str, level: usize, page: &mut String) {
    let Some(properties) = schema.get("properties").and_then(Schema::as_object) else { return };
    let rows: Vec<_> = properties.iter().filter(|(_, inner)| shape(inner) == Shape::Value).collect();
    let rows: Vec<_> = rows.into_iter().filter(|(_, inner)| inner.get("const").is_none()).collect();
    if !rows.is_empty() {
        page.push_str("| key | allowed | default | meaning |\n|---|---|---|---|\n");
        for (name, inner) in rows {
            row(name, inner, page);
        }
        page.push('\n');
    }
    for (name, inner) in properties {
        let path = join(key, name);
        if shape(inner) != Shape::Value {
            section(inner, &path, level, page);
        }
    }
}

fn section(schema: &Schema, key: &str, level: usize, page: &mut String) {
    let marks = "#".repeat(level.min(DEEPEST));
    if shape(schema) == Shape::List {
        page.push_str(&format!("{marks} `[[{key}]]`\n\n"));
        paragraph(schema, page);
        return inside(schema.get("items").unwrap_or(&Schema::Null), key, level, page);
    }
    page.push_str(&format!("{marks} `[{key}]`\n\n"));
    paragraph(schema, page);
    if schema.get("default").is_none() && shape(schema) == Shape::Table {
        page.push_str("Not there unless it is set.\n\n");
    }
    inside(schema, key, level, page);
}

fn inside(schema: &Schema, key: &str, level: usize, page: &mut String) {
    let Some((tag, variants)) = tagged(schema) else {
        let table_of = |choice: &&Schema| choice.get("properties").is_some();
        let schema = alternatives(schema).and_then(|all| all.iter().find(table_of)).unwrap_or(schema);
        return table(schema, key, level + 1, page);
    };
    let names: Vec<String> = variants.iter().map(|(name, _)| format!("`{name}`")).collect();
    page.push_str(&format!("`{tag}` is one of {}", names.join(", ")));
    match schema.get("default").and_then(|default| default.get(tag)) {
        Some(default) => page.push_str(&format!("; the default is {}.\n\n", code(default))),
        None => page.push_str(".\n\n"),
    }
    let marks = "#".repeat((level + 1).min(DEEPEST));
    for (name, variant) in variants {
        page.push_str(&format!("{marks} `[{key}]` with `{tag} = \"{name}\"`\n\n"));
        paragraph(variant, page);
        table(variant, key, level + 2, page);
    }
}

fn row(name: &str, schema: &Schema, page: &mut String) {
    let mut meaning = description(schema).unwrap_or_default().to_owned();
    let allowed = match choices(schema) {
        Some(choices) => {
            for (choice, text) in &choices {
                if let Some(text) = text {
                    meaning.push_str(&format!(" `{choice}`: {text}"));
                }
            }
            choices.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
        None => allowed(schema),
    };
    let default = schema.get("default").map_or_else(|| "not set".into(), code);
    page.push_str(&format!("| `{name}` | {} | {} | {} |\n", cell(&allowed), cell(&default), cell(&meaning)));
}

fn allowed(schema: &Schema) -> String {
    if let Some(all) = alternatives(schema) {
        return all.iter().map(allowed).collect::<Vec<_>>().join(" or ");
    }
    let mut text = type_name(schema);
    if let Some(items) = schema.get("items").filter(|_| text == "a list") {
        match choices(items) {
            Some(choices) => {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("`{name}`")).collect();
                text.push_str(&format!(" of {}", names.join(", ")));
            }
            None => text.push_str(&format!(", each {}", allowed(items))),
        }
    }
    let range = range(schema);
    if range.is_empty() { text } else { format!("{text}, {range}") }
}

fn paragraph(schema: &Schema, page: &mut String) {
    if let Some(text) = description(schema) {
        page.push_str(text.trim());
        page.push_str("\n\n");
    }
}

fn code(value: &Schema) -> String {
    format!("`{}`", plain(value))
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[derive(PartialEq)]
enum Shape {
    Value,
    Table,
    List,
}

fn shape(schema: &Schema) -> Shape {
    let is_table = |schema: &Schema| schema.get("properties").is_some() || tagged(schema).is_some();
    let has_table = alternatives(schema).is_some_and(|all| all.iter().any(is_table));
    match schema.get("items") {
        Some(items) if is_table(items) => Shape::List,
        _ if is_table(schema) || has_table => Shape::Table,
        _ => Shape::Value,
    }
}
