//! The `[env]` table: keys common to all environments, and keys of the chosen environment.

use serde::{Deserialize, Serialize};
use turnwise_env::registry::Registry;
use turnwise_settings::schema_of;

/// The environment and its limits; other keys belong to the environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvConfig {
    /// Registered name of the environment.
    pub kind: String,
    /// Split to train on.
    pub split: String,
    /// Maximum turns of an episode.
    pub max_turns: usize,
    /// Factor on the environment's rewards.
    pub reward_scale: f64,
    /// Keys of the environment's own settings type, such as
    /// [`turnwise_env::alfworld::AlfworldSettings`].
    #[serde(flatten)]
    pub settings: toml::Table,
}

impl Default for EnvConfig {
    fn default() -> Self {
        let CommonKeys { split, max_turns, reward_scale } = CommonKeys::default();
        Self { kind: "alfworld".into(), split, max_turns, reward_scale, settings: toml::Table::new() }
    }
}

#[derive(Serialize, schemars::JsonSchema)]
#[serde(default)]
struct CommonKeys {
    /// Split to train on.
    split: String,
    /// Maximum turns of an episode.
    #[schemars(range(min = 1, max = 100000))]
    max_turns: usize,
    /// Factor on the environment's rewards (ALFWorld gives 1 for success; verl-agent uses 10).
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0.0))]
    reward_scale: f64,
}

impl Default for CommonKeys {
    fn default() -> Self {
        Self { split: "train".into(), max_turns: 50, reward_scale: 1.0 }
    }
}

pub(crate) fn env_schema(worlds: &Registry) -> serde_json::Value {
    let common = schema_of::<CommonKeys>();
    let none = serde_json::Map::new();
    let mut schema =
        worlds.schema(common.get("properties").and_then(serde_json::Value::as_object).unwrap_or(&none));
    schema["description"] = "The world and how episodes end.".into();
    schema
}

impl schemars::JsonSchema for EnvConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EnvConfig".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        env_schema(&Registry::builtin()).try_into().unwrap_or_default()
    }
}
