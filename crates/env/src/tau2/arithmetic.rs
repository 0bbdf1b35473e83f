//! The `calculate` tool, evaluated as in Python.

use crate::python::values::{
    Caller, Class, Raise, Value, contains, evaluate, float_of, iterate, parse, round,
};

const ALLOWED: &str = "0123456789+-*/(). ";

struct Nothing;

impl Caller for Nothing {
    fn find(&self, object: &str, _: &str) -> Result<(), Raise> {
        Err(Raise::new(Class::Name, format!("name '{object}' is not defined")))
    }

    fn call(
        &mut self,
        object: &str,
        method: &str,
        _: Vec<Value>,
        _: Vec<(String, Value)>,
    ) -> Result<Value, Raise> {
        self.find(object, method).map(|()| Value::None)
    }
}

/// Evaluates an expression and rounds the result to two decimals.
pub(super) fn calculate(expression: &Value) -> Result<String, Raise> {
    let allowed = Value::from(ALLOWED);
    for character in iterate(expression)? {
        if !contains(&allowed, &character)? {
            return Err(Raise::value_error("Invalid characters in expression"));
        }
    }
    let text = expression
        .as_str()
        .ok_or_else(|| Raise::type_error("eval() arg 1 must be a string, bytes or code object"))?;
    if text.trim_matches([' ', '\t']).is_empty() {
        return Err(Raise::new(Class::Syntax, "invalid syntax (<string>, line 0)"));
    }
    let value = float_of(&evaluate(parse(text)?, &mut Nothing)?)?;
    Ok(round(&Value::Float(value), &Value::Int(2))?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated_and_rounded() {
        let calculate = |text: &str| calculate(&text.into()).map_err(|raise| raise.text);
        assert_eq!(calculate("(1.1 + 2.2) * 3 / 4").unwrap(), "2.48");
        assert_eq!(calculate("2").unwrap(), "2.0");
        assert_eq!(calculate("x").unwrap_err(), "Invalid characters in expression");
        assert_eq!(calculate("1 / 0").unwrap_err(), "division by zero");
        assert_eq!(calculate("(1").unwrap_err(), "'(' was never closed (<string>, line 1)");
        // Python would not finish.
        assert!(calculate("9**9**9").is_err());
    }
}
