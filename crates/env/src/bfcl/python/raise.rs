//! Exceptions of Python, of which the text is shown.

use super::value::Value;

/// The class of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `AttributeError`
    Attribute,
    /// An exception that nothing catches by its class.
    Other,
    /// `KeyError` or `IndexError`
    Lookup,
    /// `NameError`
    Name,
    /// `OverflowError`
    Overflow,
    /// `SyntaxError`
    Syntax,
    /// `TypeError`
    Type,
    /// `ValueError`
    Value,
    /// `ZeroDivisionError`
    ZeroDivision,
}

/// An exception that was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    /// Its class.
    pub class: Class,
    /// Its text, as `str(exception)` has it.
    pub text: String,
}

impl Raise {
    /// An exception of a class.
    pub fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    /// A `TypeError`.
    pub fn type_error(text: impl Into<String>) -> Self {
        Self::new(Class::Type, text)
    }

    /// A `ValueError`.
    pub fn value_error(text: impl Into<String>) -> Self {
        Self::new(Class::Value, text)
    }

    /// The `KeyError` of a missing key.
    pub fn key_error(key: &Value) -> Self {
        Self::new(Class::Lookup, key.repr())
    }

    /// The `AttributeError` of a value without this attribute.
    pub fn no_attribute(value: &Value, attribute: &str) -> Self {
        let text = format!("'{}' object has no attribute '{attribute}'", value.type_name());
        Self::new(Class::Attribute, text)
    }

    /// The error of a structure that contains itself.
    pub fn recursion() -> Self {
        Self::new(Class::Other, "maximum recursion depth exceeded")
    }
}
