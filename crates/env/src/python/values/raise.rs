//! Python exceptions and their messages.

use super::value::Value;

/// Exception class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `AttributeError`
    Attribute,
    /// Any other exception class; the environments never catch these exceptions.
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

/// A raised exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    /// Exception class.
    pub class: Class,
    /// `str(exception)`
    pub text: String,
}

impl Raise {
    /// Creates an exception.
    pub fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    /// Creates a `TypeError`.
    pub(crate) fn type_error(text: impl Into<String>) -> Self {
        Self::new(Class::Type, text)
    }

    /// Creates a `ValueError`.
    pub fn value_error(text: impl Into<String>) -> Self {
        Self::new(Class::Value, text)
    }

    /// Creates the `KeyError` of a missing key.
    pub(crate) fn key_error(key: &Value) -> Self {
        Self::new(Class::Lookup, key.repr())
    }

    /// Creates the `AttributeError` of a missing attribute.
    pub(crate) fn no_attribute(value: &Value, attribute: &str) -> Self {
        let text = format!("'{}' object has no attribute '{attribute}'", value.type_name());
        Self::new(Class::Attribute, text)
    }

    /// Creates the error that Python raises for a value that contains itself.
    pub fn recursion() -> Self {
        Self::new(Class::Other, "maximum recursion depth exceeded")
    }
}
