//! Reads the keys of an object. Errors contain the key's path.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat;

pub(crate) struct Fields<'a> {
    /// Path such as `messages[2]`; empty for the root.
    at: String,
    keys: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    pub(crate) fn parse(text: &'a str, at: &str) -> Result<Self, String> {
        let place = || if at.is_empty() { "this".to_owned() } else { format!("`{at}`") };
        let keys: BTreeMap<String, &'a RawValue> = serde_json::from_str(text)
            .map_err(|_| format!("{} is {}; it must be an object", place(), shown(text)))?;
        let keys = keys.into_iter().filter(|(_, value)| value.get() != "null").collect();
        Ok(Self { at: at.to_owned(), keys })
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    pub(crate) fn raw(&self, key: &str) -> Option<&'a str> {
        self.keys.get(key).map(|value| value.get())
    }

    /// Returns a value; errors describe it as `what`.
    pub(crate) fn get<T: Deserialize<'a>>(&self, key: &str, what: &str) -> Result<Option<T>, String> {
        let Some(text) = self.raw(key) else { return Ok(None) };
        let wrong = |_| format!("`{}` is {}; it must be {what}", self.path(key), shown(text));
        serde_json::from_str(text).map(Some).map_err(wrong)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, String> {
        self.get(key, "a text")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, String> {
        self.get(key, "a number")
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        self.get(key, "true or false")
    }

    /// Returns the path and text of each item.
    pub(crate) fn list(
        &self,
        key: &str,
    ) -> Result<Option<impl ExactSizeIterator<Item = (String, &'a str)>>, String> {
        let Some(items) = self.get::<Vec<&'a RawValue>>(key, "a list")? else { return Ok(None) };
        let path = self.path(key);
        let named = move |(index, item): (usize, &'a RawValue)| (format!("{path}[{index}]"), item.get());
        Ok(Some(items.into_iter().enumerate().map(named)))
    }

    pub(crate) fn objects(&self, key: &str) -> Result<Option<Vec<Self>>, String> {
        let Some(items) = self.list(key)? else { return Ok(None) };
        items.map(|(path, text)| Self::parse(text, &path)).collect::<Result<_, _>>().map(Some)
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>, String> {
        self.raw(key).map(|text| Self::parse(text, &self.path(key))).transpose()
    }

    pub(crate) fn value(&self, key: &str) -> Option<Value> {
        self.raw(key).and_then(|text| serde_json::from_str(text).ok())
    }

    /// Returns a string, or joined parts; empty if missing.
    pub(crate) fn content(&self, key: &str) -> Result<String, String> {
        let Some(value) = self.value(key) else { return Ok(String::new()) };
        chat::content(&value).ok_or_else(|| {
            let given = shown(&value.to_string());
            format!("`{}` is {given}; it must be a text or a list of parts", self.path(key))
        })
    }

    pub(crate) fn missing(&self, key: &str, what: &str) -> String {
        format!("`{}` is missing; it must be {what}", self.path(key))
    }
}

pub(crate) fn shown(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= 40 {
        return text.to_owned();
    }
    text.chars().take(39).chain(['\u{2026}']).collect()
}
