//! Evaluates Python expressions.

use super::numbers::power;
use super::operators::{add, divide, hashable, multiply, negate, subtract};
use super::raise::{Class, Raise};
use super::syntax::{Expression, Operator};
use super::value::{Dict, Value};

/// Functions that expressions may call.
pub trait Caller {
    /// Checks that an object has a method.
    ///
    /// # Errors
    /// Returns a `NameError` or `AttributeError`.
    fn find(&self, object: &str, method: &str) -> Result<(), Raise>;

    /// Calls a method.
    ///
    /// # Errors
    /// Returns the exception that the method raises.
    fn call(
        &mut self,
        object: &str,
        method: &str,
        arguments: Vec<Value>,
        keywords: Vec<(String, Value)>,
    ) -> Result<Value, Raise>;
}

fn unknown(name: &str) -> Raise {
    Raise::new(Class::Name, format!("name '{name}' is not defined"))
}

/// `eval(expression)`
///
/// # Errors
/// Returns the exception that the expression raises.
pub fn evaluate(expression: Expression, caller: &mut impl Caller) -> Result<Value, Raise> {
    let items = |items: Vec<Expression>, caller: &mut _| -> Result<Vec<Value>, Raise> {
        items.into_iter().map(|item| evaluate(item, caller)).collect()
    };
    Ok(match expression {
        Expression::Constant(value) => value,
        Expression::Name(name) => return Err(unknown(&name)),
        Expression::Attribute(value, name) => {
            let value = evaluate(*value, caller)?;
            return Err(Raise::no_attribute(&value, &name));
        }
        Expression::Call(function, arguments, keywords) => {
            return call(*function, arguments, keywords, caller);
        }
        Expression::List(list) => Value::List(items(list, caller)?),
        Expression::Tuple(list) => Value::Tuple(items(list, caller)?),
        Expression::Set(list) => {
            let mut set = Vec::new();
            for item in items(list, caller)? {
                hashable(&item)?;
                if !set.contains(&item) {
                    set.push(item);
                }
            }
            Value::Set(set)
        }
        Expression::Dict(pairs) => {
            let mut dict = Dict::default();
            for (key, value) in pairs {
                let (key, value) = (evaluate(key, caller)?, evaluate(value, caller)?);
                hashable(&key)?;
                dict.insert(key, value);
            }
            Value::Dict(dict)
        }
        Expression::Negative(value) => negate(&evaluate(*value, caller)?)?,
        Expression::Not(value) => Value::Bool(!evaluate(*value, caller)?.is_true()),
        Expression::Binary(operator, left, right) => {
            let (left, right) = (evaluate(*left, caller)?, evaluate(*right, caller)?);
            match operator {
                Operator::Add => add(&left, &right)?,
                Operator::Subtract => subtract(&left, &right)?,
                Operator::Multiply => multiply(&left, &right)?,
                Operator::Divide => divide(&left, &right)?,
                Operator::Power => power(&left, &right)?,
            }
        }
        Expression::Subscript(value, index) => {
            let (value, index) = (evaluate(*value, caller)?, evaluate(*index, caller)?);
            subscript(&value, &index)?
        }
    })
}

fn call(
    function: Expression,
    arguments: Vec<Expression>,
    keywords: Vec<(String, Expression)>,
    caller: &mut impl Caller,
) -> Result<Value, Raise> {
    let (object, method) = match function {
        Expression::Attribute(object, method) => match *object {
            Expression::Name(object) => (object, method),
            other => {
                let value = evaluate(other, caller)?;
                return Err(Raise::no_attribute(&value, &method));
            }
        },
        Expression::Name(name) => return Err(unknown(&name)),
        other => {
            let value = evaluate(other, caller)?;
            let name = value.type_name();
            return Err(Raise::type_error(format!("'{name}' object is not callable")));
        }
    };
    caller.find(&object, &method)?;
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        values.push(evaluate(argument, caller)?);
    }
    let mut named = Vec::with_capacity(keywords.len());
    for (name, value) in keywords {
        named.push((name, evaluate(value, caller)?));
    }
    caller.call(&object, &method, values, named)
}

/// `value[index]`
fn subscript(value: &Value, index: &Value) -> Result<Value, Raise> {
    let at = |length: usize, kind: &str| -> Result<usize, Raise> {
        let place = match index {
            Value::Int(place) => *place,
            Value::Bool(place) => i64::from(*place),
            _ => {
                let name = index.type_name();
                let text = match kind {
                    "string" => format!("string indices must be integers, not '{name}'"),
                    _ => format!("{kind} indices must be integers or slices, not {name}"),
                };
                return Err(Raise::type_error(text));
            }
        };
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let place = if place < 0 { place.saturating_add(length) } else { place };
        usize::try_from(place)
            .ok()
            .filter(|_| place < length)
            .ok_or_else(|| Raise::new(Class::Lookup, format!("{kind} index out of range")))
    };
    match value {
        Value::Dict(dict) => {
            hashable(index)?;
            dict.get(index).cloned().ok_or_else(|| Raise::key_error(index))
        }
        Value::List(items) => Ok(items[at(items.len(), "list")?].clone()),
        Value::Tuple(items) => Ok(items[at(items.len(), "tuple")?].clone()),
        Value::Str(text) => {
            let place = at(text.chars().count(), "string")?;
            Ok(Value::Str(text.chars().skip(place).take(1).collect()))
        }
        _ => Err(Raise::type_error(format!("'{}' object is not subscriptable", value.type_name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::syntax::{assignments, parse};
    use super::*;

    struct Echo;

    impl Caller for Echo {
        fn find(&self, object: &str, method: &str) -> Result<(), Raise> {
            if (object, method) == ("o", "f") { Ok(()) } else { Err(unknown(object)) }
        }

        fn call(
            &mut self,
            _: &str,
            _: &str,
            arguments: Vec<Value>,
            keywords: Vec<(String, Value)>,
        ) -> Result<Value, Raise> {
            let named = keywords.into_iter().map(|(name, value)| (Value::from(name), value)).collect();
            Ok(Value::Tuple(vec![Value::List(arguments), Value::Dict(named)]))
        }
    }

    fn run(text: &str) -> String {
        match parse(text).and_then(|expression| evaluate(expression, &mut Echo)) {
            Ok(value) => value.repr(),
            Err(raise) => raise.text,
        }
    }

    #[test]
    fn expressions_have_pythons_values() {
        for (text, expected) in [
            ("o.f(1, 'a', x=[1.5, -2], y={'k': None})", "([1, 'a'], {'x': [1.5, -2], 'y': {'k': None}})"),
            ("o.f( o . f ( ) [ 0 ] , )", "([[]], {})"),
            ("  (1)", "1"),
            ("(1,)", "(1,)"),
            ("1, 2", "(1, 2)"),
            ("[]", "[]"),
            ("{1, 1.0, 2}", "{1, 2}"),
            ("'a' \"b\" r'\\n'", "'ab\\\\n'"),
            (r"'\x41\u00e9\101\q\''", "\"AéA\\\\q'\""),
            ("'''two\nlines'''", "'two\\nlines'"),
            ("u'x' f'y{{}}'", "'xy{}'"),
            ("1_000 + 0x10 - 2 * 3 ** 2", "998"),
            ("-2 ** 2", "-4"),
            ("7 / 2", "3.5"),
            (".5e1", "5.0"),
            ("not []", "True"),
            ("{'a': [10, 20]}['a'][-1]", "20"),
            ("99999999999999999999", "99999999999999999999"),
            ("o.f(\n  x = 1, # one\n)", "([], {'x': 1})"),
        ] {
            assert_eq!(run(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_have_pythons_words() {
        for (text, expected) in [
            ("g(1)", "name 'g' is not defined"),
            ("o.f(x=true)", "name 'true' is not defined"),
            ("a.b.c()", "name 'a' is not defined"),
            ("o.f(1", "'(' was never closed (<string>, line 1)"),
            ("o.f(1))", "unmatched ')' (<string>, line 1)"),
            ("o.f([1)", "closing parenthesis ')' does not match opening parenthesis '[' (<string>, line 1)"),
            ("o.f('a)", "unterminated string literal (detected at line 1) (<string>, line 1)"),
            ("o.f(x=1, 2)", "positional argument follows keyword argument (<string>, line 1)"),
            ("o.f(x=1, x=2)", "keyword argument repeated: x (<string>, line 1)"),
            (
                "o.f(x=012)",
                "leading zeros in decimal integer literals are not permitted; use an 0o prefix for octal integers (<string>, line 1)",
            ),
            ("1 2", "invalid syntax (<string>, line 1)"),
            ("", "invalid syntax (<string>, line 1)"),
            ("'a'[3]", "string index out of range"),
            ("5[0]", "'int' object is not subscriptable"),
            ("{[]: 1}", "unhashable type: 'list'"),
        ] {
            assert_eq!(run(text), expected, "{text}");
        }
        assert!(run(&"[".repeat(5000)).contains("too many nested"));
        assert!(run(&format!("{}1", "-".repeat(5000))).contains("too many nested"));
        assert_eq!(run(&format!("1{}", "+1".repeat(1000))), "1001");
        for many in ["+1", "*1", "[0]", ".x", "()"] {
            assert!(run(&format!("a{}", many.repeat(30_000))).contains("too many nested"), "{many}");
        }
        let calls = format!("[{}]", vec!["f(a.b[0])"; 5000].join(","));
        assert_eq!(super::super::calls(&calls).unwrap().len(), 5000);
    }

    #[test]
    fn a_module_of_constants_is_read() {
        let text = "# a comment\nA = 'x'\n\nB = {\n  'k': 1,\n}\nC=[1,\n2]\n";
        let found = assignments(text).unwrap();
        let values: Vec<(String, String)> = found
            .into_iter()
            .map(|(name, value)| (name, evaluate(value, &mut Echo).unwrap().repr()))
            .collect();
        let expected = [("A", "'x'"), ("B", "{'k': 1}"), ("C", "[1, 2]")];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(assignments("A = \nimport x").unwrap_err().text.contains("invalid syntax"));
    }
}
