//! Built-in methods and those that other crates register, with their presets.

use serde::de::DeserializeOwned;
use toml::Table;
use turnwise_core::Preset;
use turnwise_credit::CreditConfig;
use turnwise_objective::ObjectiveConfig;
use turnwise_settings::{Problem, SettingsError, suggest};

use crate::{MethodError, merge};

/// Estimators, refinements and loss terms by name, with their presets.
///
/// The names are those in the configs of `turnwise-train`.
///
/// ```
/// use turnwise_methods::Methods;
///
/// let methods = Methods {
///     // .with_refinement("later-turns", |settings: LaterTurnsConfig| LaterTurns::new(settings))
///     credit: turnwise_credit::Registry::builtin(),
///     // .with_term("positive-lm", |settings: PositiveLm| Ok(settings))
///     objective: turnwise_objective::Registry::builtin(),
/// };
/// assert!(methods.presets().any(|preset| preset.name == "gigpo"));
/// ```
///
/// See `examples/custom_refinement.rs` and `examples/custom_objective.rs`.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    /// Estimators and refinements.
    pub credit: turnwise_credit::Registry,
    /// Loss terms.
    pub objective: turnwise_objective::Registry,
}

impl PartialEq for Methods {
    fn eq(&self, other: &Self) -> bool {
        let kinds = |methods: &Self| {
            let Self { credit, objective } = methods;
            (credit.estimators(), credit.refinements(), objective.kinds())
        };
        kinds(self) == kinds(other)
    }
}

const MOST_BASES: usize = 8;

impl Methods {
    /// Returns the built-in methods.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// Returns the presets of all methods.
    pub fn presets(&self) -> impl Iterator<Item = &Preset> {
        self.credit.presets().iter().chain(self.objective.presets())
    }

    /// Returns a preset's settings, merged over those of the presets that it extends; `None` for
    /// an unknown name.
    ///
    /// # Errors
    /// Fails if a preset extends a missing preset or itself, or if its settings are not TOML.
    pub fn preset(&self, name: &str) -> Option<Result<Table, String>> {
        self.presets().find(|preset| preset.name == name).map(|preset| self.settings(preset, 0))
    }

    fn settings(&self, preset: &Preset, depth: usize) -> Result<Table, String> {
        let Preset { name, base, settings } = preset;
        let own: Table =
            settings.parse().map_err(|error| format!("the preset `{name}` is not TOML: {error}"))?;
        let Some(base) = base else { return Ok(own) };
        if depth == MOST_BASES {
            return Err(format!("the preset `{name}` starts from itself"));
        }
        let Some(base) = self.presets().find(|known| known.name == *base) else {
            return Err(format!("the preset `{name}` starts from `{base}`, which is not there"));
        };
        let mut all = self.settings(base, depth + 1)?;
        merge(&mut all, own);
        Ok(all)
    }

    /// Returns a preset's credit settings, with defaults for keys that it does not set.
    ///
    /// # Errors
    /// Returns [`MethodError::UnknownPreset`], or an error if the preset is invalid.
    pub fn credit(&self, preset: &str) -> Result<CreditConfig, MethodError> {
        self.part(preset, "credit")
    }

    /// Returns a preset's objective settings, with defaults for keys that it does not set.
    ///
    /// # Errors
    /// Fails like [`Methods::credit`].
    pub fn objective(&self, preset: &str) -> Result<ObjectiveConfig, MethodError> {
        self.part(preset, "objective")
    }

    fn part<C: Default + DeserializeOwned>(&self, preset: &str, key: &str) -> Result<C, MethodError> {
        let Some(settings) = self.preset(preset) else {
            let known: Vec<&str> = self.presets().map(|preset| preset.name).collect();
            let hint = suggest(preset, &known).map_or_else(
                || format!(" (there are: {})", known.join(", ")),
                |name| format!("; did you mean `{name}`?"),
            );
            return Err(MethodError::UnknownPreset { name: preset.to_owned(), hint });
        };
        match settings.map_err(MethodError::Preset)?.remove(key) {
            Some(part) => part
                .try_into()
                .map_err(|error| MethodError::Preset(format!("the preset `{preset}`: {error}"))),
            None => Ok(C::default()),
        }
    }

    /// Adds other crates' estimators and refinements to a config schema. The schema lists only
    /// their names; [`Methods::spell_out`] checks their settings.
    pub fn extend_schema(&self, schema: &mut serde_json::Value) {
        let kinds = |kinds: &[&'static str]| -> Vec<serde_json::Value> {
            let choice = |kind: &&str| {
                serde_json::json!({
                    "type": "object",
                    "properties": { "kind": { "const": kind } },
                    "required": ["kind"],
                    "additionalProperties": true
                })
            };
            kinds.iter().map(choice).collect()
        };
        let credit = &mut schema["properties"]["credit"]["properties"];
        for (union, own) in
            [("/estimator", self.credit.estimators()), ("/refinements/items", self.credit.refinements())]
        {
            let choices = ["anyOf", "oneOf"].map(|name| format!("{union}/{name}"));
            for choices in choices {
                if let Some(serde_json::Value::Array(choices)) = credit.pointer_mut(&choices) {
                    choices.extend(kinds(&own));
                }
            }
        }
    }

    /// Parses the settings of other crates' methods, and adds the defaults of missing settings to
    /// the config.
    ///
    /// # Errors
    /// Fails on unknown methods and invalid settings.
    pub fn spell_out(
        &self,
        credit: &mut CreditConfig,
        objective: &mut ObjectiveConfig,
    ) -> Result<(), SettingsError> {
        let fail = |key: &str, reason: String| SettingsError(vec![Problem::new(key, reason)]);
        self.credit.spell_out(credit).map_err(|error| fail("credit", error.to_string()))?;
        self.objective.spell_out(objective).map_err(|error| fail("objective", error.to_string()))
    }
}
