//! Replaces one setting by its path, for example `estimator.omega`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnwise_credit::CreditConfig;
use turnwise_credit::outlier::OutlierConfig;
use turnwise_objective::{AdaptiveKl, NormalizationConfig, ObjectiveConfig, SelectiveConfig};
use turnwise_settings::suggest;

use crate::MethodError;

/// Returns credit settings with one value replaced. A path starts with `estimator`, `outliers`,
/// `refinements.N`, or the kind of a configured refinement.
///
/// # Errors
/// Fails on an invalid path or value.
pub fn credit_with(config: &CreditConfig, path: &str, value: Value) -> Result<CreditConfig, MethodError> {
    let mut whole = serde_json::to_value(config)?;
    let mut keys = split(path);
    let kinds: Vec<String> = whole["refinements"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|refinement| Some(refinement["kind"].as_str()?.to_owned()))
        .collect();
    if let Some(number) = kinds.iter().position(|kind| *kind == keys[0]) {
        keys.splice(0..1, ["refinements".to_owned(), number.to_string()]);
    }
    if keys[0] == "outliers" && config.outliers.is_none() {
        whole["outliers"] = serde_json::to_value(OutlierConfig::default())?;
    }
    if keys.len() > 1 && keys[0] == "outliers" && keys[1] == "anchor" && whole["outliers"]["anchor"].is_null()
    {
        let anchor = config.estimator.anchor().cloned().unwrap_or_default();
        whole["outliers"]["anchor"] = serde_json::to_value(anchor)?;
    }
    let mut more: Vec<&str> = kinds.iter().map(String::as_str).collect();
    more.push("outliers");
    replaced(whole, &keys, value, &more)
}

/// Returns objective settings with one value replaced. A path into `selective`, `normalization` or
/// `kl.adaptive` enables that feature.
///
/// # Errors
/// Fails on an invalid path or value.
pub fn objective_with(
    config: &ObjectiveConfig,
    path: &str,
    value: Value,
) -> Result<ObjectiveConfig, MethodError> {
    let mut whole = serde_json::to_value(config)?;
    let keys = split(path);
    let begins = |part: &[&str]| keys.len() >= part.len() && keys.iter().zip(part).all(|(a, b)| a == b);
    if begins(&["selective"]) && config.selective.is_none() {
        whole["selective"] = serde_json::to_value(SelectiveConfig::default())?;
    }
    if begins(&["normalization"]) && config.normalization.is_none() {
        whole["normalization"] = serde_json::to_value(NormalizationConfig::default())?;
    }
    if begins(&["kl", "adaptive"]) && config.kl.adaptive.is_none() {
        whole["kl"]["adaptive"] = serde_json::to_value(AdaptiveKl::default())?;
    }
    replaced(whole, &keys, value, &["dual_clip", "selective", "normalization", "terms"])
}

fn split(path: &str) -> Vec<String> {
    path.trim().split('.').map(str::to_owned).collect()
}

/// Replaces the value at the path `keys` in `whole` and parses the result. `more` lists top-level
/// keys that may be missing from `whole`.
fn replaced<C: Serialize + DeserializeOwned>(
    mut whole: Value,
    keys: &[String],
    value: Value,
    more: &[&str],
) -> Result<C, MethodError> {
    let mut entry = &mut whole;
    for (depth, key) in keys.iter().enumerate() {
        entry = match entry {
            Value::Array(items) => {
                let count = items.len();
                let item = key.parse::<usize>().ok().and_then(|index| items.get_mut(index));
                item.ok_or_else(|| MethodError::Index { key: key.clone(), count })?
            }
            Value::Object(map) => {
                let mut known: Vec<&str> = map.keys().map(String::as_str).collect();
                if depth == 0 {
                    known.extend(more.iter().copied().filter(|key| !map.contains_key(*key)));
                }
                if !known.contains(&key.as_str()) {
                    let nearest = suggest(key, &known).map(|name| format!(" Did you mean `{name}`?"));
                    let (nearest, known) = (nearest.unwrap_or_default(), known.join(", "));
                    return Err(MethodError::UnknownSwitch { key: key.clone(), known, nearest });
                }
                map.entry(key.as_str()).or_insert(Value::Null)
            }
            _ => return Err(MethodError::Value { path: keys[..depth].join("."), key: key.clone() }),
        };
    }
    *entry = value;
    Ok(serde_json::from_value(whole)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Methods;

    #[test]
    fn the_anchor_of_outliers_begins_with_the_estimators() {
        let config = Methods::builtin().credit("stapo").unwrap();
        assert_eq!(config.outliers.as_ref().unwrap().anchor, None);
        let switched = credit_with(&config, "outliers.anchor.matching", "similarity".into()).unwrap();
        let anchor = switched.outliers.unwrap().anchor.unwrap();
        assert_eq!(anchor.matching, turnwise_credit::anchor::Matching::Similarity);
        assert_eq!(anchor.threshold, config.estimator.anchor().unwrap().threshold);
        let error = credit_with(&config, "outliers.anchr", "similarity".into()).unwrap_err().to_string();
        assert!(error.contains("anchr"), "{error}");
    }

    #[test]
    fn a_switch_reaches_every_part_of_an_objective() {
        let with = |preset: &str, path: &str, value: Value| {
            objective_with(&Methods::builtin().objective(preset).unwrap(), path, value)
        };
        assert_eq!(with("grpo", "clip.low", 0.1.into()).unwrap().clip.low, 0.1);
        assert_eq!(with("grpo", "dual_clip", 3.0.into()).unwrap().dual_clip, Some(3.0));
        assert_eq!(
            with("gspo", "ratio", "turn".into()).unwrap().loss_agg_mode,
            Methods::builtin().objective("gspo").unwrap().loss_agg_mode
        );
        assert_eq!(
            with("grpo", "normalization.delta", 2.0.into()).unwrap().normalization.unwrap().delta,
            2.0
        );
        assert_eq!(with("stapo", "selective.alpha", 0.5.into()).unwrap().selective.unwrap().alpha, 0.5);
        assert_eq!(with("grpo", "kl.adaptive.target", 0.1.into()).unwrap().kl.adaptive.unwrap().target, 0.1);
        let refused = |path: &str, value: Value| with("grpo", path, value).unwrap_err().to_string();
        assert!(refused("clop.low", 0.1.into()).contains("Did you mean `clip`"));
        assert!(refused("clip.low.x", 0.1.into()).contains("`clip.low` is a value and has no `x`"));
        assert!(refused("ratio", "tokens".into()).contains("tokens"));
    }
}
