//! Arbitrary-precision numbers.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use super::raise::{Class, Raise};
use super::value::Value;

/// Maximum bits of an integer. Larger integers are not needed, because Python refuses to print
/// them.
const MOST_BITS: u64 = 1 << 20;

pub(super) enum Number {
    Int(BigInt),
    Small(i64),
    Float(f64),
}

impl Number {
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Small(i64::from(*value)),
            Value::Int(value) => Self::Small(*value),
            Value::Big(value) => Self::Int(value.clone()),
            Value::Float(value) => Self::Float(*value),
            _ => return None,
        })
    }

    pub(super) fn float(&self) -> Result<f64, Raise> {
        match self {
            Self::Small(value) => Ok(*value as f64),
            Self::Float(value) => Ok(*value),
            Self::Int(value) => float_of_big(value),
        }
    }

    /// Returns the integer, or 0 for a float.
    pub(super) fn big(self) -> BigInt {
        match self {
            Self::Small(value) => value.into(),
            Self::Int(value) => value,
            Self::Float(_) => BigInt::default(),
        }
    }
}

pub(super) fn float_of_big(value: &BigInt) -> Result<f64, Raise> {
    // Parsing decimal text rounds correctly.
    let float =
        if value.bits() > 1100 { f64::INFINITY } else { value.to_string().parse().unwrap_or(f64::NAN) };
    if float.is_finite() {
        Ok(float)
    } else {
        Err(Raise::new(Class::Overflow, "int too large to convert to float"))
    }
}

pub(super) fn integer(value: BigInt) -> Value {
    i64::try_from(&value).map_or(Value::Big(value), Value::Int)
}

/// `base ** exponent`
///
/// # Errors
/// Returns a `TypeError` if an operand is not a number, and an `OverflowError` or
/// `ZeroDivisionError` in the same cases as Python.
pub fn power(base: &Value, exponent: &Value) -> Result<Value, Raise> {
    let (Some(left), Some(right)) = (Number::of(base), Number::of(exponent)) else {
        let (left, right) = (base.type_name(), exponent.type_name());
        return Err(Raise::type_error(format!(
            "unsupported operand type(s) for ** or pow(): '{left}' and '{right}'"
        )));
    };
    if let (Number::Small(_) | Number::Int(_), Number::Small(times @ 0..)) = (&left, &right) {
        let (left, times) = (left.big(), *times);
        let grows = left.bits() > 1;
        if grows && left.bits().saturating_sub(1).saturating_mul(times.unsigned_abs()) > MOST_BITS {
            return Err(too_long());
        }
        let even = times % 2 == 0;
        // For 0, 1 and -1 only the exponent's parity matters.
        let times = if grows { times } else { times.min(2 - i64::from(!even)) };
        return Ok(integer(left.pow(u32::try_from(times).unwrap_or(0))));
    }
    let (left, right) = (left.float()?, right.float()?);
    if left == 0.0 && right < 0.0 {
        return Err(Raise::new(Class::ZeroDivision, "0.0 cannot be raised to a negative power"));
    }
    if left < 0.0 && left.is_finite() && right.is_finite() && right.fract() != 0.0 {
        return Ok(complex_power(left, right));
    }
    let result = left.powf(right);
    if result.is_infinite() && left.is_finite() && right.is_finite() {
        return Err(Raise::new(Class::Overflow, "(34, 'Numerical result out of range')"));
    }
    Ok(Value::Float(result))
}

fn too_long() -> Raise {
    Raise::value_error("Exceeds the limit (4300 digits) for integer string conversion")
}

fn complex_power(base: f64, exponent: f64) -> Value {
    let length = base.abs().powf(exponent);
    let phase = 0.0_f64.atan2(base) * exponent;
    let part = |value: f64| {
        let text = crate::python::float(value);
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    let (real, imaginary) = (part(length * phase.cos()), part(length * phase.sin()));
    let sign = if imaginary.starts_with('-') { "" } else { "+" };
    Value::Opaque { class: "complex", repr: format!("({real}{sign}{imaginary}j)") }
}

/// `round(number, digits)`
///
/// # Errors
/// Returns a `TypeError` unless `number` is a number and `digits` an integer.
pub fn round(number: &Value, digits: &Value) -> Result<Value, Raise> {
    let digits = match digits {
        Value::Int(digits) => *digits,
        Value::Bool(digits) => i64::from(*digits),
        Value::None => match number {
            Value::Float(value) if !value.is_finite() => {
                let text = if value.is_nan() {
                    return Err(Raise::value_error("cannot convert float NaN to integer"));
                } else {
                    "cannot convert float infinity to integer"
                };
                return Err(Raise::new(Class::Overflow, text));
            }
            Value::Float(value) => return Ok(integer(big_of_float(value.round_ties_even()))),
            _ => 0,
        },
        _ => {
            let name = digits.type_name();
            return Err(Raise::type_error(format!("'{name}' object cannot be interpreted as an integer")));
        }
    };
    match Number::of(number) {
        Some(Number::Float(value)) if !value.is_finite() || digits > 323 => Ok(Value::Float(value)),
        Some(Number::Float(value)) if digits < -308 => Ok(Value::Float(0.0 * value)),
        // Formatting rounds half to even.
        Some(Number::Float(value)) if digits >= 0 => {
            let digits = usize::try_from(digits).unwrap_or(0);
            Ok(Value::Float(format!("{value:.digits$}").parse().unwrap_or(value)))
        }
        Some(Number::Float(value)) => {
            let whole = big_of_float(value.trunc());
            let rounded = round_to_tens(&whole, digits.unsigned_abs(), value.fract() != 0.0);
            let float = float_of_big(&rounded)?;
            Ok(Value::Float(if float == 0.0 { 0.0 * value } else { float }))
        }
        Some(whole) if digits >= 0 => Ok(integer(whole.big())),
        Some(whole) => {
            let whole = whole.big();
            let too_many = digits.unsigned_abs() > whole.bits() + 1;
            Ok(integer(if too_many {
                BigInt::default()
            } else {
                round_to_tens(&whole, digits.unsigned_abs(), false)
            }))
        }
        None => {
            let name = number.type_name();
            Err(Raise::type_error(format!("type {name} doesn't define __round__ method")))
        }
    }
}

fn big_of_float(whole: f64) -> BigInt {
    // Formatting prints all integer digits of a float.
    format!("{whole:.0}").parse().unwrap_or_default()
}

fn round_to_tens(whole: &BigInt, zeros: u64, has_more: bool) -> BigInt {
    let unit = BigInt::from(10).pow(u32::try_from(zeros).unwrap_or(u32::MAX).min(400));
    let negative = whole.sign() == Sign::Minus;
    let size = BigInt::from(whole.magnitude().clone());
    let (mut quotient, rest) = (&size / &unit, &size % &unit);
    let odd = (&quotient % 2u8) != BigInt::default();
    let up = match (rest * 2u8).cmp(&unit) {
        Ordering::Greater => true,
        Ordering::Equal => odd || has_more,
        Ordering::Less => false,
    };
    if up {
        quotient += 1;
    }
    let rounded = quotient * unit;
    if negative { -rounded } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<Value, Raise>) -> String {
        match result {
            Ok(value) => value.repr(),
            Err(raise) => raise.text,
        }
    }

    #[test]
    fn powers_are_those_of_python() {
        let both = |base: Value, exponent: Value| text(power(&base, &exponent));
        assert_eq!(both(Value::Int(2), Value::Int(100)), "1267650600228229401496703205376");
        assert_eq!(both(Value::Int(-1), Value::Int(i64::MAX)), "-1");
        assert_eq!(both(Value::Int(2), Value::Int(-1)), "0.5");
        assert_eq!(both(Value::Int(-8), Value::Float(0.5)), "(1.7319121124709868e-16+2.8284271247461903j)");
        assert_eq!(both(Value::Float(10.0), Value::Int(400)), "(34, 'Numerical result out of range')");
        assert_eq!(both(Value::Int(0), Value::Int(-1)), "0.0 cannot be raised to a negative power");
        assert!(both(Value::Int(10), Value::Int(1_000_000_000)).contains("4300 digits"));
    }

    #[test]
    fn rounding_is_that_of_python() {
        let both = |number: Value, digits: i64| text(round(&number, &Value::Int(digits)));
        for (number, digits, expected) in [
            (2.675, 2, "2.67"),
            (0.5, 0, "0.0"),
            (1.5, 0, "2.0"),
            (-0.4, 0, "-0.0"),
            (1250.0, -2, "1200.0"),
            (1250.5, -2, "1300.0"),
            (-17.0, -1, "-20.0"),
        ] {
            assert_eq!(both(Value::Float(number), digits), expected, "{number} {digits}");
        }
        assert_eq!(both(Value::Int(25), -1), "20");
        assert_eq!(both(Value::Int(35), -1), "40");
        assert_eq!(both(Value::Int(35), -400), "0");
        assert_eq!(text(round(&"x".into(), &Value::Int(0))), "type str doesn't define __round__ method");
        assert_eq!(text(round(&Value::Float(2.5), &Value::None)), "2");
    }
}
