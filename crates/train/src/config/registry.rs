//! Methods that a config may name: those of this project and those of a user's own crate, and their presets.

use toml::Table;
use turnwise_core::Preset;
use turnwise_credit::Pipeline;
use turnwise_objective::Loss;
use turnwise_settings::{Problem, SettingsError};

use crate::TrainError;
use crate::config::Config;
use crate::config::layers::merge;

/// Estimators, refinements and loss terms by name, with their presets.
///
/// A config carries the methods it was read with ([`Config::methods`], [`crate::config::load_with`]), so that a run and
/// everything that looks at its config know them; a run is resumed with [`crate::RunParts::methods`].
///
/// ```
/// use turnwise_train::Methods;
///
/// let methods = Methods {
///     // .with_refinement("igpo", |settings: IgpoConfig| Igpo::new(settings))
///     credit: turnwise_credit::Registry::builtin(),
///     // .with_term("positive-lm", |settings: PositiveLm| Ok(settings))
///     objective: turnwise_objective::Registry::builtin(),
/// };
/// assert!(methods.presets().any(|preset| preset.name == "gigpo"));
/// ```
///
/// `examples/custom_refinement.rs` and `examples/custom_objective.rs` add one each.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    /// Estimators and refinements.
    pub credit: turnwise_credit::Registry,
    /// Loss terms.
    pub objective: turnwise_objective::Registry,
}

/// Two are equal if they know the same names.
impl PartialEq for Methods {
    fn eq(&self, other: &Self) -> bool {
        let kinds = |methods: &Self| {
            let Self { credit, objective } = methods;
            (credit.estimators(), credit.refinements(), objective.kinds())
        };
        kinds(self) == kinds(other)
    }
}

/// Presets that start from each other, at most.
const MOST_BASES: usize = 8;

impl Methods {
    /// The methods of this project.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// The presets of methods.
    pub fn presets(&self) -> impl Iterator<Item = &Preset> {
        self.credit.presets().iter().chain(self.objective.presets())
    }

    /// The settings of a preset over those of the presets that it starts from; `None` where there is none of this name.
    ///
    /// # Errors
    /// A preset that starts from one that is not there or from itself, or whose settings are not TOML.
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

    /// The schema of a config with the kinds of other crates' methods among the choices; their settings are held against
    /// their own types ([`Methods::spell_out`]).
    pub(crate) fn extend_schema(&self, schema: &mut serde_json::Value) {
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

    /// Reads the settings of other crates' methods into their own types and writes every default out.
    ///
    /// # Errors
    /// A method that is not known, or settings that it refuses.
    pub(crate) fn spell_out(&self, config: &mut Config) -> Result<(), SettingsError> {
        let fail = |key: &str, reason: String| SettingsError(vec![Problem::new(key, reason)]);
        self.credit.spell_out(&mut config.credit).map_err(|error| fail("credit", error.to_string()))?;
        let objective = self.objective.spell_out(&mut config.objective);
        objective.map_err(|error| fail("objective", error.to_string()))
    }
}

impl Config {
    /// Credit as a pipeline.
    ///
    /// # Errors
    /// A method that is not known, or a setting that cannot work.
    pub fn pipeline(&self) -> Result<Pipeline, TrainError> {
        Ok(Pipeline::with_registry(&self.credit, &self.methods.credit)?)
    }

    /// The loss with its terms.
    ///
    /// # Errors
    /// A term that is not known, or a setting that cannot work.
    pub fn loss(&self) -> Result<Loss, TrainError> {
        Ok(Loss::new(&self.objective, &self.methods.objective)?)
    }
}
