//! Presets: methods by name, and whole configs.

use toml::{Table, Value};
use turnwise_credit::selection::{DynamicConfig, SelectionConfig};
use turnwise_credit::{CreditConfig, PRESETS};
use turnwise_decompose::JudgeConfig;
use turnwise_decompose::turnrd::TurnRdConfig;
use turnwise_objective::ObjectiveConfig;
use turnwise_settings::{Problem, SettingsError, suggest};

use super::layers::Layer;
use super::{Config, DecomposerConfig, OverlongSettings, TurnRdSettings};

/// The whole configs that come with the program: name and TOML text.
const CONFIGS: [(&str, &str); 1] = [("quickstart", include_str!("../../../../configs/quickstart.toml"))];

/// The settings that make a method: how turns are credited, what the loss is and which data it wants.
pub(super) const METHOD_KEYS: [&str; 5] =
    ["credit", "objective", "decomposer", "rollout.selection", "rollout.overlong"];

/// The names of all presets.
pub fn presets() -> impl Iterator<Item = &'static str> {
    CONFIGS.iter().map(|(name, _)| *name).chain(PRESETS)
}

/// The settings that a preset stands for.
pub(super) enum Preset {
    /// A whole config.
    Whole(Layer),
    /// A method: the settings under [`METHOD_KEYS`], and the updates of a step where the method says how many.
    Method(Layer),
}

impl Preset {
    /// The preset of a name; `origin` is where the name stands.
    pub(super) fn named(name: &str, origin: Option<&str>) -> Result<Self, SettingsError> {
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
        if let Some(table) = method(name).map_err(&fail)? {
            return Ok(Self::Method(Layer::code(table, &format!("preset {name}"))));
        }
        let known: Vec<&str> = presets().collect();
        let nearest =
            suggest(name, &known).map(|nearest| format!(". Did you mean {nearest:?}?")).unwrap_or_default();
        Err(fail(format!("unknown preset{nearest} There are: {}", known.join(", "))))
    }

    /// Whether it is a whole config.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    pub(super) fn into_layer(self) -> Layer {
        match self {
            Self::Whole(layer) | Self::Method(layer) => layer,
        }
    }
}

/// The settings of a method's preset, if there is one of this name.
fn method(name: &str) -> Result<Option<Table>, String> {
    if !PRESETS.contains(&name) {
        return Ok(None);
    }
    let (Some(credit), Some(objective)) = (CreditConfig::preset(name), ObjectiveConfig::preset(name)) else {
        return Ok(None);
    };
    let mut config = Config { credit, objective, ..Config::default() };
    let mut keys = vec!["credit", "objective"];
    if name.ends_with("dapo") || name == "stapo-dynamic" {
        config.rollout.selection = SelectionConfig::Dynamic(DynamicConfig::default());
        keys.push("rollout.selection");
    }
    if name.ends_with("dapo") {
        config.rollout.overlong = Some(OverlongSettings::default());
        keys.push("rollout.overlong");
    }
    let network = |film| TurnRdConfig { film, ..TurnRdConfig::default() };
    let turnrd = |film| TurnRdSettings { network: network(film), ..TurnRdSettings::default() };
    config.decomposer = match name {
        "has-judge" => DecomposerConfig::Judge(JudgeConfig::default()),
        "has-turnrd" => DecomposerConfig::Turnrd(turnrd(false)),
        "has-turnrd-film" => DecomposerConfig::Turnrd(turnrd(true)),
        _ => DecomposerConfig::None,
    };
    if config.decomposer != DecomposerConfig::None {
        keys.push("decomposer");
    }
    if name.starts_with("so-") {
        (config.train.update_epochs, config.train.num_minibatches) = (4, 2);
        keys.extend(["train.update_epochs", "train.num_minibatches"]);
    }
    let table = Table::try_from(config).map_err(|error| error.to_string())?;
    Ok(Some(only(&table, &keys)))
}

/// The named keys of a table and of its tables (`outer.inner`).
fn only(table: &Table, keys: &[&str]) -> Table {
    let mut chosen = Table::new();
    for key in keys {
        let (outer, inner) = key.split_once('.').map_or((*key, None), |(outer, inner)| (outer, Some(inner)));
        match (table.get(outer), inner) {
            (Some(value), None) => {
                chosen.insert(outer.to_owned(), value.clone());
            }
            (Some(Value::Table(nested)), Some(inner)) => {
                let to = chosen.entry(outer).or_insert_with(|| Value::Table(Table::new()));
                if let (Value::Table(to), Some(value)) = (to, nested.get(inner)) {
                    to.insert(inner.to_owned(), value.clone());
                }
            }
            _ => {}
        }
    }
    chosen
}
