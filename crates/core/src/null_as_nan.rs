//! Reads JSON `null` as NaN, because JSON has no NaN.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Deserializes a map, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// Fails on values other than numbers and nulls.
pub fn map<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let read = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    Ok(read.into_iter().map(|(name, number)| (name, number.unwrap_or(f64::NAN))).collect())
}

/// Deserializes a list, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// Fails on values other than numbers and nulls.
pub fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let read = Vec::<Option<f32>>::deserialize(from)?;
    Ok(read.into_iter().map(|number| number.unwrap_or(f32::NAN)).collect())
}
