//! `MathAPI`: arithmetic and conversions.

use super::precise::{logarithm, square_root};
use super::{Class, error};
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{
    Raise, Value, abs, add, dict, divide, float_of, hashable, is_less, iterate, length, multiply, power,
    round, subtract, sum,
};

pub(super) const METHODS: &[Method] = &[
    method("logarithm", &[required("value"), required("base"), required("precision")]),
    method("mean", &[required("numbers")]),
    method("standard_deviation", &[required("numbers")]),
    method("si_unit_conversion", &[required("value"), required("unit_in"), required("unit_out")]),
    method("imperial_si_conversion", &[required("value"), required("unit_in"), required("unit_out")]),
    method("add", &[required("a"), required("b")]),
    method("subtract", &[required("a"), required("b")]),
    method("multiply", &[required("a"), required("b")]),
    method("divide", &[required("a"), required("b")]),
    method("power", &[required("base"), required("exponent")]),
    method("square_root", &[required("number"), required("precision")]),
    method("absolute_value", &[required("number")]),
    method("round_number", &[required("number"), optional("decimal_places", Default::Int(0))]),
    method("percentage", &[required("part"), required("whole")]),
    method("min_value", &[required("numbers")]),
    method("max_value", &[required("numbers")]),
    method("sum_values", &[required("numbers")]),
];

const METRES: [(&str, f64); 6] =
    [("km", 1000.0), ("m", 1.0), ("cm", 0.01), ("mm", 0.001), ("um", 1e-6), ("nm", 1e-9)];

const FACTORS: [(&str, f64); 12] = [
    ("cm_to_in", 0.393_701),
    ("in_to_cm", 2.54),
    ("m_to_ft", 3.280_84),
    ("ft_to_m", 0.3048),
    ("m_to_yd", 1.093_61),
    ("yd_to_m", 0.9144),
    ("km_to_miles", 0.621_371),
    ("miles_to_km", 1.609_34),
    ("kg_to_lb", 2.204_62),
    ("lb_to_kg", 0.453_592),
    ("celsius_to_fahrenheit", 1.8),
    ("fahrenheit_to_celsius", 5.0 / 9.0),
];

/// Wraps a value as the method's result, and replaces a `TypeError` by an error result with this
/// text.
fn or_error(result: Result<Value, Raise>, text: &str) -> Result<Value, Raise> {
    match result {
        Ok(value) => Ok(dict([("result", value)])),
        Err(raise) if raise.class == Class::Type => Ok(error(text)),
        Err(raise) => Err(raise),
    }
}

const NUMBERS: &str = "Both inputs must be numbers";
const ELEMENTS: &str = "All elements in the list must be numbers";

pub(super) fn call(method: &str, arguments: Arguments) -> Result<Value, Raise> {
    match method {
        "logarithm" => {
            let [value, base, precision] = arguments.take();
            Ok(match logarithm(&value, &base, &precision) {
                Ok(result) => dict([("result", result)]),
                Err(raise) => error(raise.text),
            })
        }
        "square_root" => {
            let [number, precision] = arguments.take();
            square_root(&number, &precision)
        }
        "si_unit_conversion" => lengths(arguments.take()),
        "imperial_si_conversion" => imperial(arguments.take()),
        "mean" | "standard_deviation" | "min_value" | "max_value" | "sum_values" => {
            let [numbers] = arguments.take();
            over_list(method, &numbers)
        }
        "absolute_value" => {
            let [number] = arguments.take();
            or_error(abs(&number), "Input must be a number")
        }
        "round_number" => {
            let [number, digits] = arguments.take();
            or_error(round(&number, &digits), "First input must be a number, second input must be an integer")
        }
        _ => {
            let [left, right] = arguments.take();
            let by_zero = right == Value::Int(0);
            match method {
                "add" => or_error(add(&left, &right), NUMBERS),
                "subtract" => or_error(subtract(&left, &right), NUMBERS),
                "multiply" if !(is_number(&left) && is_number(&right)) => Ok(error(NUMBERS)),
                "multiply" => or_error(multiply(&left, &right), NUMBERS),
                "divide" if by_zero => Ok(error("Cannot divide by zero")),
                "divide" => or_error(divide(&left, &right), NUMBERS),
                "percentage" if by_zero => Ok(error("Whole value cannot be zero")),
                "percentage" => or_error(
                    divide(&left, &right).and_then(|part| multiply(&part, &Value::Int(100))),
                    NUMBERS,
                ),
                _ => or_error(power(&left, &right), NUMBERS),
            }
        }
    }
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_))
}

fn over_list(method: &str, numbers: &Value) -> Result<Value, Raise> {
    let what = match method {
        "mean" => "calculate mean",
        "standard_deviation" => "calculate standard deviation",
        "min_value" => "find minimum",
        "max_value" => "find maximum",
        _ => "calculate sum",
    };
    if !numbers.is_true() {
        return Ok(error(format!("Cannot {what} of an empty list")));
    }
    let result = match method {
        "mean" => mean(numbers),
        "standard_deviation" => deviation(numbers),
        "min_value" => extreme(numbers, is_less),
        "max_value" => extreme(numbers, |new, best| is_less(best, new)),
        _ => sum(numbers),
    };
    or_error(result, ELEMENTS)
}

fn mean(numbers: &Value) -> Result<Value, Raise> {
    let total = sum(numbers)?;
    divide(&total, &length(numbers)?.into())
}

fn deviation(numbers: &Value) -> Result<Value, Raise> {
    let mean = mean(numbers)?;
    let mut total = Value::Int(0);
    for number in iterate(numbers)? {
        let square = power(&subtract(&number, &mean)?, &Value::Int(2))?;
        total = add(&total, &square)?;
    }
    let variance = divide(&total, &length(numbers)?.into())?;
    Ok(Value::Float(float_of(&variance)?.sqrt()))
}

fn extreme(numbers: &Value, better: impl Fn(&Value, &Value) -> Result<bool, Raise>) -> Result<Value, Raise> {
    let mut items = iterate(numbers)?.into_iter();
    let mut best = items.next().unwrap_or_default();
    for item in items {
        // In the order of Python's `max`, which the error message shows.
        if better(&item, &best)? {
            best = item;
        }
    }
    Ok(best)
}

fn lengths([value, from, to]: [Value; 3]) -> Result<Value, Raise> {
    if !is_number(&value) {
        return Ok(error("Value must be a number"));
    }
    let unit = |name: &Value| METRES.iter().find(|(known, _)| name.as_str() == Some(known));
    let unsupported = || Ok(error(format!("Conversion from '{from}' to '{to}' is not supported")));
    hashable(&from)?;
    let Some((name, factor)) = unit(&from) else { return unsupported() };
    hashable(&to)?;
    let Some((_, divisor)) = unit(&to) else { return unsupported() };
    // The original's factors of `km` and `m` are integers.
    let factor = if matches!(*name, "km" | "m") { Value::Int(*factor as i64) } else { Value::Float(*factor) };
    let metres = multiply(&value, &factor).and_then(|metres| multiply(&metres, &Value::Float(1.0 / divisor)));
    too_large(metres)
}

fn too_large(result: Result<Value, Raise>) -> Result<Value, Raise> {
    match result {
        Ok(value) => Ok(dict([("result", value)])),
        Err(raise) if raise.class == Class::Overflow => {
            Ok(error("Conversion resulted in a value too large to represent"))
        }
        Err(raise) => Err(raise),
    }
}

fn imperial([value, from, to]: [Value; 3]) -> Result<Value, Raise> {
    if !is_number(&value) {
        return Ok(error("Value must be a number"));
    }
    if from == to {
        return Ok(dict([("result", value)]));
    }
    let key = format!("{from}_to_{to}");
    let Some((key, factor)) = FACTORS.iter().find(|(known, _)| *known == key) else {
        return Ok(error(format!("Conversion from '{from}' to '{to}' is not supported")));
    };
    let factor = Value::Float(*factor);
    too_large(match *key {
        "celsius_to_fahrenheit" => multiply(&value, &factor).and_then(|value| add(&value, &Value::Int(32))),
        "fahrenheit_to_celsius" => {
            subtract(&value, &Value::Int(32)).and_then(|value| multiply(&value, &factor))
        }
        _ => multiply(&value, &factor),
    })
}
