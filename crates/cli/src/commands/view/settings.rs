//! A run's settings that differ from its preset or its environment's defaults.

use std::fmt::Write as _;

use toml::{Table, Value};
use turnwise_train::config::{Config, ConfigSource, differences};

use crate::commands::pages::html::escape;
use crate::worlds::load;

/// Keys that only identify the run.
const NAMES: [&str; 2] = ["name", "preset"];

const LONGEST: usize = 120;

/// Returns a table of the settings that differ from the preset or defaults (if these can be
/// determined), and the collapsed config.
pub(super) fn page(text: &str) -> String {
    let mut body = String::new();
    if let Some((against, rows)) = compared(text) {
        let _ = write!(
            body,
            "<details open><summary>{} settings differ from {}</summary><div class=\"scroll\"><table class=\"settings\">\
             <tr><th>setting</th><th>this run</th><th>{}</th></tr>",
            rows.len(),
            escape(&against),
            if against.starts_with("the preset") { "preset" } else { "default" }
        );
        for [key, own, other] in rows {
            let _ = write!(
                body,
                "<tr><td><code>{}</code></td><td>{}</td><td class=\"status\">{}</td></tr>",
                escape(&key),
                escape(&own),
                escape(&other)
            );
        }
        body.push_str("</table></div></details>");
    }
    let _ = write!(body, "<details><summary>config.toml</summary><pre>{}</pre></details>", escape(text));
    body
}

/// Compares a config with its preset, or with the environment's defaults if the preset cannot be
/// used. Returns what it was compared with, and the differences. A difference is
/// `[key, own value, their value]`.
fn compared(text: &str) -> Option<(String, Vec<[String; 3]>)> {
    let own: Table = text.parse().ok()?;
    let preset = own.get("preset").and_then(Value::as_str).map(str::to_owned);
    let kind = own.get("env")?.get("kind")?.as_str()?;
    let template = own.get("prompt").and_then(|prompt| prompt.get("template"));
    let environment = vec![format!("env.kind={kind:?}")];
    // The default template fits only the default environment.
    let with_template =
        template.map(|template| [environment.clone(), vec![format!("prompt.template={template}")]].concat());
    let tries = [
        (preset.clone(), Some(Vec::new())),
        (preset.clone(), Some(environment.clone())),
        (preset, with_template.clone()),
        (None, Some(environment)),
        (None, with_template),
    ];
    // A preset may be only a method, which needs the environment.
    let of_kind = |config: &Config| config.env.kind == kind;
    let base = tries.into_iter().find_map(|(preset, overrides)| {
        load(ConfigSource { preset, overrides: overrides?, ..ConfigSource::default() }).ok().filter(of_kind)
    })?;
    let against = match &base.preset {
        Some(preset) => format!("the preset {preset}"),
        None => format!("the defaults of {kind}"),
    };
    let base: Table = base.to_toml().ok()?.parse().ok()?;
    let shown = |value: Option<Value>| {
        let text = value.map_or_else(|| "unset".to_owned(), |value| value.to_string());
        crate::commands::credit::table::shortened(&text, LONGEST)
    };
    let differences = differences(&own, &base).into_iter();
    let rows = differences
        .filter(|difference| !NAMES.contains(&difference.key.as_str()))
        .map(|difference| [difference.key, shown(difference.first), shown(difference.second)]);
    Some((against, rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_differ_are_listed() {
        let source = ConfigSource {
            preset: Some("gigpo".into()),
            overrides: [
                "seed=7",
                "env.kind=\"sokoban\"",
                "prompt.template=\"sokoban-compact\"",
                "train.steps=3",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..ConfigSource::default()
        };
        let config = load(source).unwrap();
        let (against, rows) = compared(&config.to_toml().unwrap()).unwrap();
        assert_eq!(against, "the preset gigpo");
        let of = |key: &str| rows.iter().find(|row| row[0] == key);
        assert_eq!(of("seed").map(|row| row[1].as_str()), Some("7"));
        assert_eq!(of("train.steps").map(|row| row[1].as_str()), Some("3"));
        assert_eq!(of("optimizer.learning_rate"), None);
        let page = page("[env]\nkind = \"<mine>\"\n");
        assert!(page.contains("&lt;mine&gt;") && !page.contains("<table"), "{page}");
    }
}
