//! Settings given as command-line arguments.

use thiserror::Error;
use toml::{Table, Value};

/// Why an argument is not a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AssignmentError {
    /// The argument has no `=`.
    #[error("a setting is written key.sub=value")]
    Form,
    /// The key, or a part of it between dots, is empty.
    #[error("a setting is written key.sub=value; the key is incomplete")]
    Key,
}

/// Splits `key.sub=value` into key and value and trims both. Values are TOML; tables and lists may
/// also be JSON. Any other text is a string, so paths and names need no quotes.
///
/// ```
/// use toml::Value;
/// use turnwise_settings::assignment;
///
/// assert_eq!(assignment("env.max_turns=50"), Ok(("env.max_turns", Value::Integer(50))));
/// assert_eq!(assignment("env.data=games/official"), Ok(("env.data", Value::String("games/official".into()))));
/// assert!(assignment("env.max_turns").is_err());
/// ```
///
/// # Errors
/// Fails if the argument has no `=`, or if the key or a part of it is empty.
pub fn assignment(text: &str) -> Result<(&str, Value), AssignmentError> {
    let (key, value) = text.split_once('=').ok_or(AssignmentError::Form)?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(AssignmentError::Key);
    }
    let of_toml = || format!("value = {value}").parse::<Table>().ok()?.remove("value");
    let of_json = || serde_json::from_str(value).ok().filter(|_| value.starts_with(['{', '[']));
    Ok((key, of_toml().or_else(of_json).unwrap_or_else(|| Value::String(value.to_owned()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_bare_strings() {
        let string = |text: &str| Value::String(text.to_owned());
        assert_eq!(assignment(" a.b = \"x=y\" "), Ok(("a.b", string("x=y"))));
        assert_eq!(assignment("a=x=y"), Ok(("a", string("x=y"))));
        assert_eq!(assignment("a="), Ok(("a", string(""))));
        assert_eq!(
            assignment("a={b=1}"),
            Ok(("a", Value::Table(Table::from_iter([("b".into(), 1.into())]))))
        );
        let refinements = assignment("r=[{kind=\"aem\", lambda=2.5}]").unwrap();
        assert_eq!(assignment("r=[{\"kind\": \"aem\", \"lambda\": 2.5}]").unwrap(), refinements);
        assert_eq!(assignment("a={b").unwrap().1, string("{b"));
        assert_eq!(assignment("a"), Err(AssignmentError::Form));
        for text in ["=1", " = 1", "a.=1", ".a=1", "a..b=1"] {
            assert_eq!(assignment(text), Err(AssignmentError::Key), "{text}");
        }
    }
}
