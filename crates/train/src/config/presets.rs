//! Presets: methods and full configs.

use turnwise_settings::{Problem, SettingsError, suggest};

use super::layers::Layer;
use crate::config::Methods;

/// Full configs in the program: name and TOML text.
const CONFIGS: [(&str, &str); 1] = [("quickstart", include_str!("../../../../configs/quickstart.toml"))];

/// The settings that make a method: how turns are credited, what the loss is and which data it wants.
pub(super) const METHOD_KEYS: [&str; 6] =
    ["credit", "objective", "decomposer", "rollout.selection", "rollout.compact_filter", "rollout.overlong"];

/// Returns the names of all built-in presets.
pub fn presets() -> impl Iterator<Item = &'static str> {
    names(&Methods::builtin()).into_iter()
}

/// Returns the names of full configs and of these methods' presets.
fn names(methods: &Methods) -> Vec<&'static str> {
    CONFIGS.iter().map(|(name, _)| *name).chain(methods.presets().map(|preset| preset.name)).collect()
}

/// The settings of a preset.
pub(super) enum Preset {
    /// A full config.
    Whole(Layer),
    /// A method: its settings under [`METHOD_KEYS`], and the number of updates per step if it sets
    /// one.
    Method(Layer),
}

impl Preset {
    /// Finds a preset by name among full configs and these methods; `origin` is where the name is
    /// set.
    pub(super) fn named(name: &str, origin: Option<&str>, methods: &Methods) -> Result<Self, SettingsError> {
        if let Some((_, text)) = CONFIGS.iter().find(|(known, _)| *known == name) {
            return Ok(Self::Whole(Layer::file(text, &format!("preset {name}"))?));
        }
        let fail = |reason: String| {
            let value = Some(format!("{name:?}"));
            SettingsError(vec![Problem {
                origin: origin.map(str::to_owned),
                value,
                ..Problem::new("preset", reason)
            }])
        };
        if let Some(table) = methods.preset(name) {
            return Ok(Self::Method(Layer::code(table.map_err(&fail)?, &format!("preset {name}"))));
        }
        let known = names(methods);
        let nearest = suggest(name, &known)
            .map_or_else(|| ".".to_owned(), |nearest| format!(". Did you mean {nearest:?}?"));
        Err(fail(format!("unknown preset{nearest} There are: {}", known.join(", "))))
    }

    /// Returns true for a full config.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    pub(super) fn into_layer(self) -> Layer {
        match self {
            Self::Whole(layer) | Self::Method(layer) => layer,
        }
    }
}
