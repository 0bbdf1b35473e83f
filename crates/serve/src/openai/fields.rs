//! Reads JSON fields one by one, so that errors name the field and no field is silently ignored.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ApiError;

#[derive(Debug)]
pub(super) struct Fields {
    /// Path to the fields, such as `messages[2].`; empty for the request's own fields.
    path: String,
    left: BTreeMap<String, Box<RawValue>>,
}

impl Fields {
    pub(super) fn of_body(body: &[u8]) -> Result<Self, ApiError> {
        let left = serde_json::from_slice(body)
            .map_err(|error| ApiError::new(400, format!("the body is not a JSON object: {error}")))?;
        Ok(Self { path: String::new(), left })
    }

    pub(super) fn of_part(path: String, part: &RawValue) -> Result<Self, ApiError> {
        match serde_json::from_str(part.get()) {
            Ok(left) => Ok(Self { path: format!("{path}."), left }),
            Err(error) => {
                let message = format!("`{path}` is not an object: {error}");
                Err(ApiError::field(path, message))
            }
        }
    }

    pub(super) fn place(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    /// Removes a field and returns its value; `None` if it is missing or `null`.
    pub(super) fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.left.remove(key) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|error| {
            let place = self.place(key);
            // Readers would take positions in the field for positions in the body.
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            let message = format!("`{place}`: {reason}");
            ApiError::field(place, message)
        })
    }

    pub(super) fn need<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, ApiError> {
        let place = self.place(key);
        self.take(key)?.ok_or_else(|| {
            let message = format!("`{place}` is missing");
            ApiError::field(place, message)
        })
    }

    pub(super) fn ranged(&mut self, key: &str, low: f64, high: f64) -> Result<Option<f64>, ApiError> {
        let value: Option<f64> = self.take(key)?;
        if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
            let place = self.place(key);
            let message = format!("`{place}` = {value}: give a number from {low} to {high}");
            return Err(ApiError::field(place, message));
        }
        Ok(value)
    }

    pub(super) fn counted(&mut self, key: &str, low: usize, high: usize) -> Result<Option<usize>, ApiError> {
        let value: Option<usize> = self.take(key)?;
        if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
            let place = self.place(key);
            let most = if high == usize::MAX { "or more".to_owned() } else { format!("to {high}") };
            let message = format!("`{place}` = {value}: give a whole number from {low} {most}");
            return Err(ApiError::field(place, message));
        }
        Ok(value)
    }

    pub(super) fn drop_without_effect(&mut self, key: &str) {
        self.left.remove(key);
    }

    /// Removes a field if its value has no effect, such as a penalty of 0. Rejects any other value.
    pub(super) fn drop_if_neutral(&mut self, key: &str, neutral: &[Value]) -> Result<(), ApiError> {
        let Some(value) = self.take::<Value>(key)? else { return Ok(()) };
        let same = |other: &Value| match (value.as_f64(), other.as_f64()) {
            (Some(value), Some(other)) => value == other,
            _ => value == *other,
        };
        if neutral.iter().any(same) {
            return Ok(());
        }
        let place = self.place(key);
        let message = format!("`{place}` is not supported; leave it out");
        Err(ApiError::unsupported(place, message))
    }

    /// Rejects remaining fields, unless `null`.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        match self.left.iter().find(|(_, raw)| raw.get() != "null") {
            None => Ok(()),
            Some((key, _)) => {
                let place = self.place(key);
                let message = format!("`{place}` is not supported; leave it out");
                Err(ApiError::unsupported(place, message))
            }
        }
    }
}
