//! pydantic's messages for invalid fields.

use std::fmt::Write as _;

use crate::python::values::{Class, Raise, Value};

const LONGEST_INPUT: usize = 50;

/// Version of pydantic in the URLs of error messages; replays do not compare it.
const VERSION: &str = "2.12";

/// Path, reason, error code and value of an invalid field.
pub(super) struct Fault<'a> {
    pub(super) field: &'a str,
    pub(super) reason: &'static str,
    pub(super) code: &'static str,
    pub(super) input: &'a Value,
}

pub(super) fn invalid(model: &str, faults: &[Fault<'_>]) -> Raise {
    let plural = if faults.len() == 1 { "" } else { "s" };
    let mut text = format!("{} validation error{plural} for {model}", faults.len());
    for Fault { field, reason, code, input } in faults {
        let repr = input.repr();
        let length = repr.chars().count();
        let shown = if length > LONGEST_INPUT {
            let first: String = repr.chars().take(25).collect();
            let last: String = repr.chars().skip(length - 24).collect();
            format!("{first}...{last}")
        } else {
            repr
        };
        let kind = input.type_name();
        let _ = write!(
            text,
            "\n{field}\n  {reason} [type={code}, input_value={shown}, input_type={kind}]\n    \
             For further information visit https://errors.pydantic.dev/{VERSION}/v/{code}"
        );
    }
    Raise::new(Class::Value, text)
}

/// Returns a model's fields, which must be strings.
pub(super) fn strings<const N: usize>(
    model: &str,
    fields: [(&str, &Value); N],
) -> Result<[String; N], Raise> {
    let wrong: Vec<Fault<'_>> = fields
        .iter()
        .filter(|(_, value)| value.as_str().is_none())
        .map(|(field, input)| Fault {
            field,
            reason: "Input should be a valid string",
            code: "string_type",
            input,
        })
        .collect();
    if wrong.is_empty() {
        Ok(fields.map(|(_, value)| value.as_str().unwrap_or_default().to_owned()))
    } else {
        Err(invalid(model, &wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_every_field_and_shorten_values() {
        let long = Value::List(vec![Value::Int(1_000_000); 9]);
        let text = Value::from("x");
        let error = strings("M", [("a", &Value::None), ("b", &text), ("c", &long)]).unwrap_err().text;
        let expected = "2 validation errors for M\n\
            a\n  Input should be a valid string [type=string_type, input_value=None, input_type=NoneType]\n    \
            For further information visit https://errors.pydantic.dev/2.12/v/string_type\n\
            c\n  Input should be a valid string [type=string_type, input_value=[1000000, 1000000, 100000...0, 1000000, 1000000, 1000000], input_type=list]\n    \
            For further information visit https://errors.pydantic.dev/2.12/v/string_type";
        assert!(error.starts_with(expected.split("c\n").next().unwrap()), "{error}");
        assert!(error.contains("...") && error.matches("input_type").count() == 2, "{error}");
        assert_eq!(strings("M", [("b", &text)]).unwrap(), ["x".to_owned()]);
    }
}
