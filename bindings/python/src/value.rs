//! Converts Python objects to JSON values and back.

use std::fmt::Write as _;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

use crate::refused;

const DEEPEST: usize = 32;

/// An object's path inside an argument, for error messages.
pub(crate) struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    name: Name<'a>,
}

enum Name<'a> {
    Root(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    pub(crate) fn root(name: &'a str) -> Self {
        Self { parent: None, name: Name::Root(name) }
    }

    fn depth(&self) -> usize {
        self.parent.map_or(0, |parent| parent.depth() + 1)
    }

    fn text(&self) -> String {
        let mut text = self.parent.map(Place::text).unwrap_or_default();
        let _ = match self.name {
            Name::Root(name) => write!(text, "{name}"),
            Name::Key(key) => write!(text, "[{key:?}]"),
            Name::Index(index) => write!(text, "[{index}]"),
        };
        text
    }
}

/// Converts a Python object to JSON: JSON types, tuples, and objects with `tolist` (NumPy and
/// PyTorch). Drops dict entries with the value None.
pub(crate) fn value(object: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<Value> {
    if place.depth() > DEEPEST {
        return Err(refused(format!("{} is nested more than {DEEPEST} times", place.text())));
    }
    if object.is_none() {
        Ok(Value::Null)
    } else if let Ok(text) = object.cast::<PyString>() {
        Ok(Value::String(text.to_cow()?.into_owned()))
    } else if let Ok(flag) = object.cast::<PyBool>() {
        Ok(Value::Bool(flag.is_true()))
    } else if let Ok(number) = object.cast::<PyFloat>() {
        let number = number.extract::<f64>()?;
        let finite = Number::from_f64(number);
        finite.map(Value::Number).ok_or_else(|| {
            refused(format!("{} is {number}; only finite numbers can be credited", place.text()))
        })
    } else if object.is_instance_of::<PyInt>() {
        integer(object, place)
    } else if let Ok(dict) = object.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, entry) in dict.iter() {
            let Ok(key) = key.extract::<String>() else {
                return Err(refused(format!("{} has the key {key}; keys are texts", place.text())));
            };
            if !entry.is_none() {
                let entry = value(&entry, &Place { parent: Some(place), name: Name::Key(&key) })?;
                map.insert(key, entry);
            }
        }
        Ok(Value::Object(map))
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let mut items = Vec::with_capacity(object.len()?);
        for (index, item) in object.try_iter()?.enumerate() {
            items.push(value(&item?, &Place { parent: Some(place), name: Name::Index(index) })?);
        }
        Ok(Value::Array(items))
    } else if object.hasattr("tolist")? {
        let plain = object.call_method0("tolist")?;
        if plain.hasattr("tolist")? {
            return Err(refused(format!("{} has no plain numbers", place.text())));
        }
        value(&plain, place)
    } else {
        let kind = object.get_type().name()?;
        Err(refused(format!(
            "{} is of type {kind}; give a number, a text, a list, a dict or an array",
            place.text()
        )))
    }
}

fn integer(object: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<Value> {
    if let Ok(number) = object.extract::<i64>() {
        return Ok(number.into());
    }
    let wide = object.extract::<u64>();
    wide.map(Value::from).map_err(|_| refused(format!("{} does not fit 64 bits", place.text())))
}
