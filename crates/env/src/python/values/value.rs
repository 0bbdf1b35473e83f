//! Python values.

use std::fmt;

use num_bigint::BigInt;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A Python value. `==` compares as in Python: `1 == 1.0 == True`, and dictionaries and sets are
/// equal in any order of their entries.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// `None`
    #[default]
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer that fits in 64 bits.
    Int(i64),
    /// An integer too large for [`Value::Int`].
    Big(BigInt),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A set in insertion order.
    Set(Vec<Value>),
    /// A dictionary.
    Dict(Dict),
    /// A number of a type that is not listed above, such as `decimal.Decimal`, kept as text.
    Opaque {
        /// Type name.
        class: &'static str,
        /// `repr(value)`
        repr: String,
    },
}

/// An insertion-ordered dictionary with linear search, because dictionaries here are small.
#[derive(Clone, Debug, Default)]
pub struct Dict(Vec<(Value, Value)>);

impl Dict {
    /// Creates an empty dictionary.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Creates a dictionary from distinct keys.
    pub(crate) fn of_distinct(entries: Vec<(Value, Value)>) -> Self {
        Self(entries)
    }

    /// Returns a key's value.
    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Returns a mutable reference to a key's value.
    pub fn get_mut(&mut self, key: &Value) -> Option<&mut Value> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Returns a string key's value.
    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// Returns true if the key exists.
    pub fn contains(&self, key: &Value) -> bool {
        self.get(key).is_some()
    }

    /// Sets a value; new keys are appended.
    pub fn insert(&mut self, key: impl Into<Value>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.get_mut(&key) {
            Some(old) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &Value) -> Option<Value> {
        let place = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(place).1)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the dictionary has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Iterates over the keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Iterates over the values in order.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl IntoIterator for Dict {
    type Item = (Value, Value);
    type IntoIter = std::vec::IntoIter<(Value, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(Value, Value)> for Dict {
    fn from_iter<T: IntoIterator<Item = (Value, Value)>>(pairs: T) -> Self {
        let mut dict = Self::default();
        for (key, value) in pairs {
            dict.insert(key, value);
        }
        dict
    }
}

impl Value {
    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }

    /// Returns the dictionary if the value is one.
    pub(crate) fn as_dict(&self) -> Option<&Dict> {
        if let Self::Dict(dict) = self { Some(dict) } else { None }
    }

    /// Returns a list's items.
    pub(crate) fn as_list(&self) -> Option<&[Value]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// `type(value).__name__`
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Big(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Set(_) => "set",
            Self::Dict(_) => "dict",
            Self::Opaque { class, .. } => class,
        }
    }

    /// `bool(value)`
    pub fn is_true(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(items) | Self::Tuple(items) | Self::Set(items) => !items.is_empty(),
            Self::Dict(dict) => !dict.is_empty(),
            Self::Big(_) | Self::Opaque { .. } => true,
        }
    }

    /// Returns true if values and types are equal at all nesting levels, so that `1` differs from
    /// `1.0`. The order of dictionary entries does not matter.
    pub(crate) fn is_identical(&self, other: &Self) -> bool {
        let all = |left: &[Value], right: &[Value]| {
            left.len() == right.len() && left.iter().zip(right).all(|(one, other)| one.is_identical(other))
        };
        match (self, other) {
            (Self::Float(one), Self::Float(other)) => one.to_bits() == other.to_bits(),
            (Self::List(one), Self::List(other)) | (Self::Tuple(one), Self::Tuple(other)) => all(one, other),
            (Self::Dict(one), Self::Dict(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .all(|(key, value)| other.get(key).is_some_and(|other| value.is_identical(other)))
            }
            _ => self.type_name() == other.type_name() && self == other,
        }
    }
}

enum Number<'a> {
    Int(i64),
    Big(&'a BigInt),
    Float(f64),
}

fn number(value: &Value) -> Option<Number<'_>> {
    Some(match value {
        Value::Bool(value) => Number::Int(i64::from(*value)),
        Value::Int(value) => Number::Int(*value),
        Value::Big(value) => Number::Big(value),
        Value::Float(value) => Number::Float(*value),
        _ => return None,
    })
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Str(one), Self::Str(other))
            | (Self::Opaque { repr: one, .. }, Self::Opaque { repr: other, .. }) => one == other,
            (Self::None, Self::None) => true,
            (Self::List(one), Self::List(other)) | (Self::Tuple(one), Self::Tuple(other)) => one == other,
            (Self::Set(one), Self::Set(other)) => {
                one.len() == other.len() && one.iter().all(|item| other.contains(item))
            }
            (Self::Dict(one), Self::Dict(other)) => {
                one.len() == other.len()
                    && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| value == other))
            }
            _ => match (number(self), number(other)) {
                (Some(Number::Int(one)), Some(Number::Int(other))) => one == other,
                (Some(Number::Big(one)), Some(Number::Big(other))) => one == other,
                (Some(Number::Float(one)), Some(Number::Float(other))) => one == other,
                (Some(Number::Int(one)), Some(Number::Float(other)))
                | (Some(Number::Float(other)), Some(Number::Int(one))) => {
                    // Exact: the float is an integer of this size.
                    other.fract() == 0.0 && other.abs() < 9.3e18 && other as i128 == i128::from(one)
                }
                _ => false,
            },
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        i64::try_from(value).map_or_else(|_| Self::Big(value.into()), Self::Int)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Dict> for Value {
    fn from(dict: Dict) -> Self {
        Self::Dict(dict)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::List(items)
    }
}

/// Creates a dictionary from distinct string keys.
pub fn dict<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Dict(Dict(pairs.into_iter().map(|(key, value)| (Value::from(key), value)).collect()))
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| Value::Big(value.into()), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut dict = Dict::default();
        while let Some((key, value)) = entries.next_entry::<String, Value>()? {
            dict.insert(key, value);
        }
        Ok(Value::Dict(dict))
    }
}

/// Deserialization keeps the key order of objects.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn equality_is_pythons_and_identity_is_stricter() {
        let one = Value::Int(1);
        assert!(one == Value::Float(1.0) && one == Value::Bool(true) && one != Value::Float(1.5));
        assert!(one != Value::from("1") && Value::None != Value::Bool(false));
        assert_ne!(Value::Float(f64::NAN), Value::Float(f64::NAN));
        assert_ne!(Value::Int((1 << 53) + 1), Value::Float(9_007_199_254_740_992.0));
        assert!(read(r#"{"a": 1, "b": [2]}"#) == read(r#"{"b": [2.0], "a": true}"#));
        assert!(read(r#"{"a": 1, "b": [2]}"#).is_identical(&read(r#"{"b": [2], "a": 1}"#)));
        assert!(!read(r#"{"a": [1]}"#).is_identical(&read(r#"{"a": [1.0]}"#)));
        assert!(read("[1, 2]") != Value::Tuple(vec![one.clone(), Value::Int(2)]));
        let set = |items: [i64; 2]| Value::Set(items.map(Value::Int).to_vec());
        assert!(set([1, 2]) == set([2, 1]) && set([1, 2]) != set([1, 3]));
    }

    #[test]
    fn dictionaries_keep_their_order() {
        let Value::Dict(mut dict) = read(r#"{"z": 1, "a": 2, "m": 3}"#) else { panic!("an object") };
        dict.insert("a", 5i64);
        dict.insert(true, "t");
        assert_eq!(dict.remove(&Value::Int(1)), Some("t".into()));
        let keys: Vec<_> = dict.keys().filter_map(Value::as_str).collect();
        assert_eq!(keys, ["z", "a", "m"]);
        assert_eq!(dict.get_str("a"), Some(&Value::Int(5)));
    }
}
