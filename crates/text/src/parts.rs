//! Loads a `tokenizer.json`, rejecting parts that could crash the program or exhaust memory.

use std::fmt::Display;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::utils::SysRegex;
use turnwise_files::catch_panic;

/// Maximum factor by which a normalizer or decoder may lengthen a text.
const MOST_GROWTH: f64 = 256.0;
const LONGEST: usize = 1024;
const MOST_PARTS: usize = 64;
/// Sample text for finding patterns that match the empty string.
const PROBE: &str = "aZ 09_.-'\"\n\té漢\u{2581}x";

/// Reads a tokenizer.
///
/// # Errors
/// Returns a message, starting with the key, if the text is not a `tokenizer.json` or has a
/// rejected part.
pub(crate) fn library(json: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    #[derive(Deserialize)]
    struct Parts {
        #[serde(default)]
        normalizer: Value,
        #[serde(default)]
        pre_tokenizer: Value,
        #[serde(default)]
        decoder: Value,
    }
    let file: Parts = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    for (key, part) in
        [("normalizer", &file.normalizer), ("pre_tokenizer", &file.pre_tokenizer), ("decoder", &file.decoder)]
    {
        check(key, part)?;
    }
    catch_panic(|| tokenizers::Tokenizer::from_bytes(json))
        .map_err(|panic| format!("the `tokenizers` library failed on it: {panic}"))?
        .map_err(|error| error.to_string())
}

/// Rejects disallowed parts at any depth. Parts are recognized by their keys, because `type` may be
/// missing.
fn check(key: &str, part: &Value) -> Result<(), String> {
    let (mut growth, mut parts) = (1.0, 0);
    let mut open = vec![(key.to_owned(), part)];
    while let Some((key, part)) = open.pop() {
        match part {
            Value::Array(list) => {
                open.extend(list.iter().enumerate().map(|(index, part)| (format!("{key}[{index}]"), part)));
            }
            Value::Object(table) => {
                parts += 1;
                let texts = ["content", "prepend"].map(|name| table.get(name).and_then(Value::as_str));
                if let Some(text) = texts.iter().flatten().find(|text| text.len() > LONGEST) {
                    return Err(format!(
                        "{key}: puts in a text of {} bytes; at most {LONGEST} are accepted",
                        text.len()
                    ));
                }
                if let Some(pattern) = table.get("pattern") {
                    let shortest = shortest_match(&key, pattern, texts[0].is_some())?;
                    let put_in = texts[0].map_or(0, str::len) as f64;
                    growth *= (put_in / shortest as f64).max(1.0);
                }
                let inside = table.iter().filter(|(name, _)| *name != "pattern");
                open.extend(inside.map(|(name, part)| (format!("{key}.{name}"), part)));
            }
            _ => {}
        }
    }
    let refuse = |what: &dyn Display| Err(format!("{key}: {what}; is this file a tokenizer's?"));
    if parts > MOST_PARTS {
        return refuse(&format!("has more than {MOST_PARTS} parts"));
    }
    if growth > MOST_GROWTH {
        return refuse(&format!(
            "its `Replace` parts make a text up to {growth:.0} times longer; at most {MOST_GROWTH} are accepted"
        ));
    }
    Ok(())
}

/// Returns the fewest bytes that a pattern can match. Rejects patterns that match the empty string,
/// because `Replace` panics on them.
fn shortest_match(key: &str, pattern: &Value, replaces: bool) -> Result<usize, String> {
    let empty = |pattern: &str| {
        Err(format!(
            "{key}.pattern: `{pattern}` matches without a character, which the tokenizers library cannot use"
        ))
    };
    if let Some(text) = pattern.get("String").and_then(Value::as_str) {
        return if text.is_empty() { empty(text) } else { Ok(text.len()) };
    }
    if let Some(regex) = pattern.get("Regex").and_then(Value::as_str).filter(|_| replaces) {
        let found = SysRegex::new(regex).map_err(|error| format!("{key}.pattern: {error}"))?;
        if ["", PROBE].iter().any(|text| found.find_iter(text).any(|(start, end)| start == end)) {
            return empty(regex);
        }
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(normalizer: &Value) -> Result<tokenizers::Tokenizer, String> {
        let file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": normalizer,
            "model": { "type": "BPE", "vocab": { "a": 0, "b": 1 }, "merges": [] },
        });
        library(file.to_string().as_bytes())
    }

    fn replace(pattern: &Value, content: &str) -> Value {
        json!({ "type": "Replace", "pattern": pattern, "content": content })
    }

    fn sequence(parts: &[Value]) -> Value {
        json!({ "type": "Sequence", "normalizers": parts })
    }

    #[test]
    fn a_replace_that_matches_nothing_is_refused() {
        for pattern in [
            json!({ "String": "" }),
            json!({ "Regex": "" }),
            json!({ "Regex": "b*" }),
            json!({ "Regex": "^" }),
            json!({ "Regex": "\\b" }),
            json!({ "Regex": "(?=a)" }),
        ] {
            let part = replace(&pattern, "x");
            for part in [part.clone(), sequence(&[json!({ "type": "NFC" }), part])] {
                let error = read(&part).unwrap_err();
                assert!(error.contains("pattern: `") && error.starts_with("normalizer"), "{error}");
            }
        }
        for pattern in [json!({ "String": " " }), json!({ "Regex": " {2,}" }), json!({ "Regex": "\\s+" })] {
            let library = read(&replace(&pattern, "\u{2581}")).unwrap();
            library.encode_fast("a  b", false).unwrap();
        }
    }

    #[test]
    fn parts_on_which_the_library_panics_are_refused() {
        let template = json!({
            "type": "TemplateProcessing", "single": [{ "SpecialToken": { "id": "[X]", "type_id": 0 } }],
            "pair": [], "special_tokens": {},
        });
        let model = json!({ "type": "BPE", "vocab": { "a": 0, "b": 1 }, "merges": [] });
        let short = json!({
            "type": "BPE", "vocab": { "a": 0, "b": 1 }, "merges": ["a b"], "continuing_subword_prefix": "####",
        });
        let decoder =
            json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true });
        for (name, normalizer, model, post) in [
            ("template", Value::Null, &model, template),
            (
                "charsmap",
                json!({ "type": "Precompiled", "precompiled_charsmap": "AAAAAA==" }),
                &model,
                Value::Null,
            ),
            ("prefix", Value::Null, &short, Value::Null),
        ] {
            let file = json!({
                "version": "1.0", "added_tokens": [], "normalizer": normalizer, "decoder": decoder,
                "post_processor": post, "model": model,
            });
            assert!(crate::Tokenizer::from_json(file.to_string().as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn parts_that_make_a_text_much_longer_are_refused() {
        let double = replace(&json!({ "String": "a" }), "aa");
        assert!(read(&sequence(&vec![double.clone(); 8])).is_ok());
        let error = read(&sequence(&vec![double.clone(); 9])).unwrap_err();
        assert!(error.contains("512 times longer"), "{error}");
        let nested = sequence(&[sequence(&vec![double.clone(); 5]), sequence(&vec![double; 4])]);
        assert_eq!(read(&nested).unwrap_err(), error);
        for long in [
            replace(&json!({ "String": "a".repeat(2000) }), &"b".repeat(2000)),
            json!({ "type": "Prepend", "prepend": "b".repeat(2000) }),
        ] {
            let error = read(&long).unwrap_err();
            assert!(error.contains("a text of 2000 bytes"), "{error}");
        }
        let error = read(&sequence(&vec![json!({ "type": "NFC" }); 64])).unwrap_err();
        assert!(error.contains("more than 64 parts"), "{error}");
    }
}
