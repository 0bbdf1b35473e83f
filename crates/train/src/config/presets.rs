//! Presets: methods and full configs.

use turnwise_settings::{Problem, SettingsError, suggest};

use super::layers::Layer;
use crate::config::Methods;

macro_rules! embedded {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../configs/", $name, ".toml")))
    };
}

const CONFIGS: [(&str, &str); 23] = [
    embedded!("quickstart"),
    embedded!("alfworld/small"),
    embedded!("ezpoints/gigpo"),
    embedded!("ezpoints/grpo"),
    embedded!("ezpoints/small"),
    embedded!("ezpoints/stapo"),
    embedded!("search/grpo"),
    embedded!("search/small"),
    embedded!("search/so-grpo"),
    embedded!("search/so-ppo"),
    embedded!("search/stapo"),
    embedded!("smollm2/ezpoints-few-shot"),
    embedded!("smollm2/ezpoints"),
    embedded!("smollm2/household"),
    embedded!("sokoban/gigpo"),
    embedded!("sokoban/grpo"),
    embedded!("sokoban/small"),
    embedded!("sokoban/stapo"),
    embedded!("webshop/gigpo"),
    embedded!("webshop/grpo"),
    embedded!("webshop/has-turnrd"),
    embedded!("webshop/small"),
    embedded!("webshop/stapo"),
];

pub(super) const METHOD_KEYS: [&str; 6] = [
    "credit",
    "objective",
    "decomposer",
    "rollout.filter_groups",
    "rollout.compact_filter",
    "rollout.overlong",
];

/// Returns the names of the presets: the full config `quickstart` and the methods.
pub fn presets() -> impl Iterator<Item = &'static str> {
    let methods = Methods::builtin().presets().map(|preset| preset.name).collect::<Vec<_>>();
    std::iter::once(CONFIGS[0].0).chain(methods)
}

/// Returns the first sentence of a full config's header, or `None` if no config has this name.
pub fn config_summary(name: &str) -> Option<String> {
    let (_, text) = CONFIGS.iter().find(|(known, _)| *known == name)?;
    let header = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let prose: Vec<&str> = header.skip_while(|line| line.starts_with("turnwise ")).collect();
    let prose = prose.join(" ");
    let end = prose.find(". ").unwrap_or_else(|| prose.trim_end_matches('.').len());
    Some(prose.get(..end)?.to_owned())
}

/// Returns the names of the full configs, which are their paths in `configs/`.
pub fn whole_configs() -> impl Iterator<Item = &'static str> {
    CONFIGS.iter().map(|(name, _)| *name)
}

pub(super) fn embedded_name(path: &std::path::Path) -> Option<&'static str> {
    CONFIGS.iter().map(|(name, _)| *name).find(|name| path.ends_with(format!("configs/{name}.toml")))
}

fn names(methods: &Methods) -> Vec<&'static str> {
    CONFIGS.iter().map(|(name, _)| *name).chain(methods.presets().map(|preset| preset.name)).collect()
}

pub(super) enum Preset {
    Whole(Layer),
    /// The settings under [`METHOD_KEYS`] and, if set, the number of updates per step.
    Method(Layer),
}

impl Preset {
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
        let rest = suggest(name, &known).map_or_else(
            || format!("There are: {}", known.join(", ")),
            |nearest| format!("Did you mean {nearest:?}? `turnwise config presets` lists all"),
        );
        Err(fail(format!("unknown preset. {rest}")))
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    pub(super) fn into_layer(self) -> Layer {
        match self {
            Self::Whole(layer) | Self::Method(layer) => layer,
        }
    }
}
