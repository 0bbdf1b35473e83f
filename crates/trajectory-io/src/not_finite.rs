//! Numbers that `json.dumps` writes but JSON forbids.

/// Spellings of non-finite numbers, tried in this order.
const WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Maximum nesting of objects and lists, which is also that of parsed JSON.
const DEEPEST: usize = 128;

/// Replaces non-finite numbers by null; returns `None` if all numbers are finite, or if the text is
/// too deeply nested. Strings are unchanged.
///
/// # Errors
/// Fails if `used` returns true for the path of a non-finite number. A path consists of the keys
/// that lead to the number, from the outermost one, without indices of lists.
pub(crate) fn as_null(text: &str, used: impl Fn(&[&str]) -> bool) -> Result<Option<String>, String> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    let (mut open, mut last) = (vec![""], "");
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let end = at + text_length(&bytes[at..]);
                last = text.get(at..end).unwrap_or_default();
                at = end + 1;
            }
            b':' => open.iter_mut().next_back().into_iter().for_each(|key| *key = last),
            b'{' | b'[' if open.len() > DEEPEST => return Ok(None),
            b'{' | b'[' => open.push(""),
            b'}' | b']' => drop(open.pop()),
            b'N' | b'I' | b'-' => {
                let start = at - 1;
                let Some(word) = WORDS.into_iter().find(|word| text[start..].starts_with(word)) else {
                    continue;
                };
                let keys: Vec<&str> = open.iter().copied().filter(|key| !key.is_empty()).collect();
                if used(&keys) {
                    return Err(format!(
                        "`{}` is {word}, and JSON has no such number; write a number, or null where there is none",
                        keys.join(".")
                    ));
                }
                out.push_str(&text[done..start]);
                out.push_str("null");
                at = start + word.len();
                done = at;
            }
            _ => {}
        }
    }
    Ok((done > 0).then(|| out + &text[done..]))
}

fn text_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at.min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::as_null;

    #[test]
    fn numbers_outside_of_texts_become_null() {
        let never = |_: &[&str]| false;
        for (text, expected) in [
            (
                r#"{"a": NaN, "b": [1, -Infinity, {"c": Infinity}], "é": "NaN \" NaN\\"}"#,
                Some(r#"{"a": null, "b": [1, null, {"c": null}], "é": "NaN \" NaN\\"}"#),
            ),
            (r#"{"a": -1, "NaN": null}"#, None),
            ("NaN", Some("null")),
            (r#"{"a": "NaN"#, None),
            (r#"{"a": "\"#, None),
            ("]}NaN", Some("]}null")),
        ] {
            assert_eq!(as_null(text, never).unwrap().as_deref(), expected, "{text}");
        }
        assert_eq!(as_null(&("[".repeat(1000) + "NaN"), never).unwrap(), None);
    }

    #[test]
    fn a_key_that_is_used_is_named() {
        let text =
            r#"{"x": {"reward": NaN}, "turns": [{"entropy": 1}, {"a": "reward", "reward": -Infinity}]}"#;
        let error = as_null(text, |keys| keys == ["turns", "reward"]).unwrap_err();
        assert!(error.starts_with("`turns.reward` is -Infinity, and JSON has no such number"), "{error}");
        let error = as_null(r#"{"values": [[1], NaN]}"#, |keys| keys == ["values"]).unwrap_err();
        assert!(error.starts_with("`values` is NaN"), "{error}");
    }
}
