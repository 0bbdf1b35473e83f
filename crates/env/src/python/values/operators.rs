//! Python's operators and built-in functions, with its errors.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use super::numbers::{Number, integer};
use super::raise::{Class, Raise};
use super::value::Value;

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Order {
    fn symbol(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterEqual => ordering.is_ge(),
        }
    }
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Raise {
    Raise::type_error(format!(
        "unsupported operand type(s) for {operator}: '{}' and '{}'",
        left.type_name(),
        right.type_name()
    ))
}

fn arithmetic(
    left: &Value,
    right: &Value,
    small: fn(i64, i64) -> Option<i64>,
    big: fn(BigInt, BigInt) -> BigInt,
    float: fn(f64, f64) -> f64,
) -> Option<Result<Value, Raise>> {
    let (left, right) = (Number::of(left)?, Number::of(right)?);
    if let (Number::Small(left), Number::Small(right)) = (&left, &right)
        && let Some(value) = small(*left, *right)
    {
        return Some(Ok(Value::Int(value)));
    }
    Some(if matches!(left, Number::Float(_)) || matches!(right, Number::Float(_)) {
        left.float().and_then(|left| Ok(Value::Float(float(left, right.float()?))))
    } else {
        Ok(integer(big(left.big(), right.big())))
    })
}

/// `left + right`
///
/// # Errors
/// Returns a `TypeError` if Python does not support `+` for the operand types.
pub fn add(left: &Value, right: &Value) -> Result<Value, Raise> {
    add_by("+", left, right)
}

/// Returns the result of `left += right` for numbers and strings, as a new value.
///
/// # Errors
/// Returns a `TypeError` if Python does not support `+=` for the operand types.
pub fn add_in_place(left: &Value, right: &Value) -> Result<Value, Raise> {
    add_by("+=", left, right)
}

fn add_by(operator: &str, left: &Value, right: &Value) -> Result<Value, Raise> {
    match (left, right) {
        (Value::Str(left), Value::Str(right)) => Ok(Value::Str(format!("{left}{right}"))),
        (Value::List(left), Value::List(right)) => Ok(Value::List([left.as_slice(), right].concat())),
        (Value::Tuple(left), Value::Tuple(right)) => Ok(Value::Tuple([left.as_slice(), right].concat())),
        (Value::Str(_) | Value::List(_) | Value::Tuple(_), _) => {
            let (left, right) = (left.type_name(), right.type_name());
            Err(Raise::type_error(format!("can only concatenate {left} (not \"{right}\") to {left}")))
        }
        _ => arithmetic(left, right, i64::checked_add, |l, r| l + r, |l, r| l + r)
            .unwrap_or_else(|| Err(unsupported(operator, left, right))),
    }
}

/// `left - right`
///
/// # Errors
/// Returns a `TypeError` unless both operands are numbers or both are sets.
pub fn subtract(left: &Value, right: &Value) -> Result<Value, Raise> {
    subtract_by("-", left, right)
}

/// Returns the result of `left -= right` for numbers, as a new value.
///
/// # Errors
/// Returns a `TypeError` unless both operands are numbers or both are sets.
pub fn subtract_in_place(left: &Value, right: &Value) -> Result<Value, Raise> {
    subtract_by("-=", left, right)
}

fn subtract_by(operator: &str, left: &Value, right: &Value) -> Result<Value, Raise> {
    if let (Value::Set(left), Value::Set(right)) = (left, right) {
        return Ok(Value::Set(left.iter().filter(|item| !right.contains(item)).cloned().collect()));
    }
    arithmetic(left, right, i64::checked_sub, |l, r| l - r, |l, r| l - r)
        .unwrap_or_else(|| Err(unsupported(operator, left, right)))
}

/// `left * right`
///
/// # Errors
/// Returns a `TypeError` if Python does not support the operand types, and a `MemoryError` if a
/// repeated sequence would be too long.
pub fn multiply(left: &Value, right: &Value) -> Result<Value, Raise> {
    let is_sequence = |value: &Value| matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_));
    if let Some(product) = arithmetic(left, right, i64::checked_mul, |l, r| l * r, |l, r| l * r) {
        return product;
    }
    match (left, right) {
        (sequence, count) | (count, sequence) if is_sequence(sequence) => repeat(sequence, count),
        _ => Err(unsupported("*", left, right)),
    }
}

fn repeat(sequence: &Value, count: &Value) -> Result<Value, Raise> {
    let times = match count {
        Value::Int(count) => usize::try_from(*count).unwrap_or(0),
        Value::Bool(count) => usize::from(*count),
        Value::Big(count) if count.sign() == Sign::Minus => 0,
        Value::Big(_) => usize::MAX,
        _ => {
            let name = count.type_name();
            return Err(Raise::type_error(format!("can't multiply sequence by non-int of type '{name}'")));
        }
    };
    let size = match sequence {
        Value::Str(text) => text.len(),
        Value::List(items) | Value::Tuple(items) => items.len(),
        _ => 0,
    };
    if size.saturating_mul(times) > 1 << 20 {
        return Err(Raise::new(Class::Other, ""));
    }
    Ok(match sequence {
        Value::Str(text) => Value::Str(text.repeat(times)),
        Value::Tuple(items) => Value::Tuple(vec![items.as_slice(); times].concat()),
        Value::List(items) => Value::List(vec![items.as_slice(); times].concat()),
        _ => Value::None,
    })
}

/// `left / right`
///
/// # Errors
/// Returns a `TypeError` if an operand is not a number, and a `ZeroDivisionError` if `right` is 0.
pub fn divide(left: &Value, right: &Value) -> Result<Value, Raise> {
    let (Some(one), Some(other)) = (Number::of(left), Number::of(right)) else {
        return Err(unsupported("/", left, right));
    };
    let is_float = matches!(one, Number::Float(_)) || matches!(other, Number::Float(_));
    let (one, other) = (one.float()?, other.float()?);
    if other == 0.0 {
        let text = if is_float { "float division by zero" } else { "division by zero" };
        return Err(Raise::new(Class::ZeroDivision, text));
    }
    Ok(Value::Float(one / other))
}

/// `left % right` for floats.
pub fn remainder(left: f64, right: f64) -> f64 {
    let rest = left % right;
    if rest != 0.0 && (rest < 0.0) != (right < 0.0) { rest + right } else { rest }
}

/// `-value`
///
/// # Errors
/// Returns a `TypeError` unless the value is a number.
pub fn negate(value: &Value) -> Result<Value, Raise> {
    match value {
        Value::Int(number) => {
            Ok(number.checked_neg().map_or_else(|| integer(-BigInt::from(*number)), Value::Int))
        }
        Value::Bool(value) => Ok(Value::Int(-i64::from(*value))),
        Value::Big(value) => Ok(integer(-value.clone())),
        Value::Float(value) => Ok(Value::Float(-value)),
        _ => Err(Raise::type_error(format!("bad operand type for unary -: '{}'", value.type_name()))),
    }
}

/// `abs(value)`
///
/// # Errors
/// Returns a `TypeError` unless the value is a number.
pub fn abs(value: &Value) -> Result<Value, Raise> {
    match value {
        Value::Float(value) => Ok(Value::Float(value.abs())),
        Value::Int(number) if *number >= 0 => Ok(value.clone()),
        Value::Big(number) if number.sign() != Sign::Minus => Ok(value.clone()),
        Value::Bool(value) => Ok(Value::Int(i64::from(*value))),
        Value::Int(_) | Value::Big(_) => negate(value),
        _ => Err(Raise::type_error(format!("bad operand type for abs(): '{}'", value.type_name()))),
    }
}

/// `left ORDER right`
///
/// # Errors
/// Returns a `TypeError` if Python does not compare values of these types.
pub fn compare(order: Order, left: &Value, right: &Value) -> Result<bool, Raise> {
    let refused = || {
        Raise::type_error(format!(
            "'{}' not supported between instances of '{}' and '{}'",
            order.symbol(),
            left.type_name(),
            right.type_name()
        ))
    };
    match (left, right) {
        (Value::Str(left), Value::Str(right)) => Ok(order.holds(left.cmp(right))),
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
            match left.iter().zip(right).find(|(left, right)| left != right) {
                Some((left, right)) => compare(order, left, right),
                None => Ok(order.holds(left.len().cmp(&right.len()))),
            }
        }
        _ => {
            let (Some(left), Some(right)) = (Number::of(left), Number::of(right)) else {
                return Err(refused());
            };
            let ordering = match (left, right) {
                (Number::Small(left), Number::Small(right)) => Some(left.cmp(&right)),
                (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
                (Number::Float(left), right) => left.partial_cmp(&nearest(&right)),
                (left, Number::Float(right)) => nearest(&left).partial_cmp(&right),
                (left, right) => Some(left.big().cmp(&right.big())),
            };
            Ok(ordering.is_some_and(|ordering| order.holds(ordering)))
        }
    }
}

fn nearest(number: &Number) -> f64 {
    let sign = if matches!(number, Number::Int(value) if value.sign() == Sign::Minus) { -1.0 } else { 1.0 };
    number.float().unwrap_or(sign * f64::INFINITY)
}

/// `left < right`
///
/// # Errors
/// Returns a `TypeError` if Python does not compare values of these types.
pub fn is_less(left: &Value, right: &Value) -> Result<bool, Raise> {
    compare(Order::Less, left, right)
}

/// `item in container`
///
/// # Errors
/// Returns a `TypeError` if Python does not support `in` for these types.
pub fn contains(container: &Value, item: &Value) -> Result<bool, Raise> {
    match container {
        Value::Str(text) => {
            let Value::Str(part) = item else {
                let name = item.type_name();
                return Err(Raise::type_error(format!(
                    "'in <string>' requires string as left operand, not {name}"
                )));
            };
            Ok(text.contains(part.as_str()))
        }
        Value::List(items) | Value::Tuple(items) => Ok(items.contains(item)),
        Value::Set(items) => hashable(item).map(|()| items.contains(item)),
        Value::Dict(dict) => hashable(item).map(|()| dict.contains(item)),
        _ => {
            let name = container.type_name();
            Err(Raise::type_error(format!("argument of type '{name}' is not iterable")))
        }
    }
}

/// Checks that a value can be a dictionary key.
///
/// # Errors
/// Returns a `TypeError` otherwise.
pub fn hashable(value: &Value) -> Result<(), Raise> {
    match value {
        Value::List(_) | Value::Dict(_) | Value::Set(_) => {
            Err(Raise::type_error(format!("unhashable type: '{}'", value.type_name())))
        }
        Value::Tuple(items) => items.iter().try_for_each(hashable),
        _ => Ok(()),
    }
}

/// Returns the items over which `for item in value` iterates.
///
/// # Errors
/// Returns a `TypeError` unless the value is iterable.
pub fn iterate(value: &Value) -> Result<Vec<Value>, Raise> {
    match value {
        Value::List(items) | Value::Tuple(items) | Value::Set(items) => Ok(items.clone()),
        Value::Str(text) => Ok(text.chars().map(|character| Value::Str(character.to_string())).collect()),
        Value::Dict(dict) => Ok(dict.keys().cloned().collect()),
        _ => Err(Raise::type_error(format!("'{}' object is not iterable", value.type_name()))),
    }
}

/// `len(value)`
///
/// # Errors
/// Returns a `TypeError` if the value has no length.
pub fn length(value: &Value) -> Result<usize, Raise> {
    match value {
        Value::List(items) | Value::Tuple(items) | Value::Set(items) => Ok(items.len()),
        Value::Str(text) => Ok(text.chars().count()),
        Value::Dict(dict) => Ok(dict.len()),
        _ => Err(Raise::type_error(format!("object of type '{}' has no len()", value.type_name()))),
    }
}

/// Returns `sum(values)`, added from left to right starting at 0, as in Python 3.11.
///
/// # Errors
/// Returns a `TypeError` unless all items are numbers.
pub fn sum(values: &Value) -> Result<Value, Raise> {
    iterate(values)?.iter().try_fold(Value::Int(0), |total, item| add(&total, item))
}

/// Returns the text of the value on which a string method is called.
///
/// # Errors
/// Returns an `AttributeError` if the value is not a string.
pub fn str_method<'a>(value: &'a Value, method: &str) -> Result<&'a str, Raise> {
    value.as_str().ok_or_else(|| Raise::no_attribute(value, method))
}

#[cfg(test)]
mod tests {
    use super::super::value::Dict;
    use super::*;

    fn text(result: Result<Value, Raise>) -> String {
        match result {
            Ok(value) => value.repr(),
            Err(raise) => raise.text,
        }
    }

    #[test]
    fn arithmetic_has_pythons_results_and_errors() {
        let (one, half, word) = (Value::Int(1), Value::Float(0.5), Value::from("ab"));
        assert_eq!(text(add(&one, &half)), "1.5");
        assert_eq!(text(add(&Value::Int(i64::MAX), &one)), "9223372036854775808");
        assert_eq!(text(add(&word, &one)), "can only concatenate str (not \"int\") to str");
        assert_eq!(text(add_in_place(&one, &word)), "unsupported operand type(s) for +=: 'int' and 'str'");
        assert_eq!(text(multiply(&word, &half)), "can't multiply sequence by non-int of type 'float'");
        assert_eq!(text(multiply(&Value::Int(2), &word)), "'abab'");
        assert_eq!(
            text(multiply(&Value::None, &half)),
            "unsupported operand type(s) for *: 'NoneType' and 'float'"
        );
        assert_eq!(text(divide(&one, &Value::Int(0))), "division by zero");
        assert_eq!(text(divide(&one, &Value::Float(0.0))), "float division by zero");
    }

    #[test]
    fn order_and_membership_have_pythons_errors() {
        let raised = |result: Result<bool, Raise>| result.unwrap_err().text;
        assert!(compare(Order::Less, &Value::Int(1), &Value::Float(1.5)).unwrap());
        assert!(!compare(Order::Less, &Value::Float(f64::NAN), &Value::Int(1)).unwrap());
        assert_eq!(
            raised(compare(Order::LessEqual, &Value::Int(0), &"x".into())),
            "'<=' not supported between instances of 'int' and 'str'"
        );
        assert_eq!(
            raised(contains(&Value::Bool(true), &"x".into())),
            "argument of type 'bool' is not iterable"
        );
        assert_eq!(
            raised(contains(&"x".into(), &Value::None)),
            "'in <string>' requires string as left operand, not NoneType"
        );
        assert_eq!(
            raised(contains(&Value::Dict(Dict::new()), &Value::List(Vec::new()))),
            "unhashable type: 'list'"
        );
    }
}
