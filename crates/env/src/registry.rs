//! The registry of environment kinds.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Schema, json};
use toml::{Table, Value};
use turnwise_core::{EnvError, Environment};
use turnwise_settings::{Problem, SettingsError, problems, schema_of, suggest};

use crate::dataset::{Dataset, EnvironmentKind};
use crate::replay::ReplayReport;
use crate::world::{EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};
use crate::{alfworld, bfcl, coding, ezpoints, process, search, sokoban, swe, tau2, webshop};

const TEMPLATES: [(&str, &str); 4] = [
    ("plain", include_str!("../templates/plain.toml")),
    ("tools", include_str!("../templates/tools.toml")),
    ("tools-llama", include_str!("../templates/tools-llama.toml")),
    ("tools-python", include_str!("../templates/tools-python.toml")),
];

/// Environment kinds in the crate `turnwise-remote` (cargo feature `remote`).
const REMOTE: [&str; 3] = ["openenv", "mcp", "appworld"];

/// The environment kinds by name.
///
/// `==` compares only the names of the kinds and their order.
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<Arc<dyn Kind>>,
}

impl Registry {
    /// Returns the built-in environments.
    pub fn builtin() -> Self {
        Self::empty()
            .with(alfworld::AlfworldKind)
            .with(webshop::WebshopKind)
            .with(sokoban::SokobanKind)
            .with(ezpoints::EzPointsKind)
            .with(search::SearchKind::default())
            .with(bfcl::BfclKind)
            .with(coding::CodingKind)
            .with(tau2::Tau2Kind::default())
            .with(swe::SweKind::default())
            .with(process::ProcessKind)
    }

    /// Returns an empty registry.
    pub fn empty() -> Self {
        Self { kinds: Vec::new() }
    }

    /// Adds an environment kind; it replaces a kind that has the same name.
    #[must_use]
    pub fn with<K: WorldKind>(mut self, kind: K) -> Self {
        let kind: Arc<dyn Kind> = Arc::new(Typed(kind));
        match self.kinds.iter_mut().find(|known| known.name() == kind.name()) {
            Some(known) => *known = kind,
            None => self.kinds.push(kind),
        }
        self
    }

    /// Adds a custom environment as an `env.kind` ([`crate::dataset`]).
    ///
    /// The fields of `S` are the keys of `[env]` that the environment reads; use
    /// [`NoSettings`](crate::dataset::NoSettings) if it has none.
    #[must_use]
    pub fn with_environment<S, E>(
        self,
        name: &str,
        open: impl Fn(&S) -> Result<Dataset<E>, EnvError> + Send + Sync + 'static,
    ) -> Self
    where
        S: Serialize + DeserializeOwned + JsonSchema + Default + 'static,
        E: Environment,
    {
        self.with(EnvironmentKind::new(name, open))
    }

    /// Returns the kinds in the order added.
    pub fn kinds(&self) -> impl Iterator<Item = &dyn Kind> {
        self.kinds.iter().map(|kind| &**kind)
    }

    /// Returns a kind by name.
    ///
    /// # Errors
    /// Fails if the kind is unknown; the error suggests the nearest name.
    pub fn kind(&self, name: &str) -> Result<&dyn Kind, SettingsError> {
        self.kinds().find(|kind| kind.name() == name).ok_or_else(|| {
            let feature = REMOTE.contains(&name).then_some("remote").or((name == "agent").then_some("serve"));
            if let Some(feature) = feature {
                let reason = format!(
                    "the world `{name}` needs a program with the feature: cargo build --release --features {feature}"
                );
                return SettingsError(vec![Problem::new("kind", reason)]);
            }
            let known: Vec<&str> = self.kinds().map(Kind::name).collect();
            let meant =
                suggest(name, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let reason = format!("there is no world `{name}`{meant} (there are {})", known.join(", "));
            SettingsError(vec![Problem::new("kind", reason)])
        })
    }

    /// Returns the JSON Schema of `[env]`, with one alternative per kind and the properties
    /// `common` to all.
    pub fn schema(&self, common: &serde_json::Map<String, Schema>) -> Schema {
        let alternatives = self.kinds().map(|kind| {
            let mut schema = kind.schema();
            let mut properties = common.clone();
            properties.insert("kind".into(), json!({"const": kind.name(), "description": kind.summary()}));
            if let Some(Schema::Object(own)) = schema.get_mut("properties") {
                properties.append(own);
            }
            schema["properties"] = Schema::Object(properties);
            schema["additionalProperties"] = Schema::Bool(false);
            schema["required"] = json!(["kind"]);
            schema
        });
        json!({ "oneOf": alternatives.collect::<Vec<_>>() })
    }

    /// Returns an embedded prompt template's source.
    pub fn template(&self, name: &str) -> Option<&str> {
        self.templates().find(|(known, _)| *known == name).map(|(_, source)| source)
    }

    /// Returns the embedded prompt templates' names and sources.
    pub fn templates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kinds().flat_map(|kind| kind.templates().iter().copied()).chain(TEMPLATES)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.kinds().map(Kind::name)).finish()
    }
}

impl PartialEq for Registry {
    fn eq(&self, other: &Self) -> bool {
        self.kinds().map(Kind::name).eq(other.kinds().map(Kind::name))
    }
}

/// A type-erased [`WorldKind`], with settings as a TOML table.
pub trait Kind: Send + Sync {
    /// See [`WorldKind::name`].
    fn name(&self) -> &str;
    /// See [`WorldKind::summary`].
    fn summary(&self) -> &str;
    /// Returns the settings' JSON Schema.
    fn schema(&self) -> Schema;
    /// See [`WorldKind::credit_keys`].
    fn credit_keys(&self) -> &[&str];
    /// See [`WorldKind::has_progress`].
    fn has_progress(&self) -> bool;
    /// See [`WorldKind::has_conversations`].
    fn has_conversations(&self) -> bool;
    /// Validates settings and fills in defaults.
    ///
    /// # Errors
    /// Fails if a key or value is invalid.
    fn resolve(&self, settings: &Table) -> Result<Table, SettingsError>;
    /// See [`WorldKind::open`].
    ///
    /// # Errors
    /// Fails if the settings are invalid or the data cannot be read.
    fn open(&self, settings: &Table, options: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError>;
    /// See [`WorldKind::templates`].
    fn templates(&self) -> &[(&str, &str)];
    /// See [`WorldKind::eval_defaults`].
    fn eval_defaults(&self) -> EvalDefaults<'_>;
    /// See [`WorldKind::play_settings`].
    ///
    /// # Errors
    /// Fails if TOML cannot represent the settings.
    fn play_settings(&self, seed: u64, whole: bool) -> Result<Table, SettingsError>;
    /// See [`WorldKind::play_help`].
    fn play_help(&self) -> &str;
    /// See [`WorldKind::write_files`].
    ///
    /// # Errors
    /// Fails if the settings are invalid, if the kind cannot write its environment as files, or if
    /// writing fails.
    fn write_files(&self, settings: &Table, folder: &Path) -> Result<usize, EnvError>;

    /// See [`WorldKind::play_arguments`].
    fn play_arguments(&self, folder: &Path) -> Vec<String>;
    /// See [`WorldKind::replay`].
    ///
    /// # Errors
    /// Fails if the kind does not support replays or the recording cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError>;
}

struct Typed<K>(K);

impl<K: WorldKind> Typed<K> {
    fn read(&self, settings: &Table) -> Result<K::Settings, SettingsError> {
        let value = Value::Table(settings.clone());
        SettingsError::of(problems(&schema_of::<K::Settings>(), &value))?;
        // Only strings with a custom parser can still fail.
        let read: K::Settings =
            value.try_into().map_err(|error: toml::de::Error| failed(error.to_string().trim()))?;
        SettingsError::of(self.0.rules(&read))?;
        Ok(read)
    }

    fn settings(&self, settings: &Table) -> Result<K::Settings, EnvError> {
        self.read(settings).map_err(|error| EnvError::Other(format!("[env] {error}")))
    }
}

fn failed(reason: &str) -> SettingsError {
    SettingsError(vec![Problem::new("", reason.replace('\n', " "))])
}

fn table(settings: &impl serde::Serialize) -> Result<Table, SettingsError> {
    Table::try_from(settings).map_err(|error| failed(&error.to_string()))
}

impl<K: WorldKind> Kind for Typed<K> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn schema(&self) -> Schema {
        schema_of::<K::Settings>()
    }

    fn credit_keys(&self) -> &[&str] {
        self.0.credit_keys()
    }

    fn has_progress(&self) -> bool {
        self.0.has_progress()
    }

    fn has_conversations(&self) -> bool {
        self.0.has_conversations()
    }

    fn resolve(&self, settings: &Table) -> Result<Table, SettingsError> {
        table(&self.read(settings)?)
    }

    fn open(&self, settings: &Table, options: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
        self.0.open(&self.settings(settings)?, options)
    }

    fn templates(&self) -> &[(&str, &str)] {
        self.0.templates()
    }

    fn eval_defaults(&self) -> EvalDefaults<'_> {
        self.0.eval_defaults()
    }

    fn play_settings(&self, seed: u64, whole: bool) -> Result<Table, SettingsError> {
        table(&self.0.play_settings(seed, whole))
    }

    fn play_help(&self) -> &str {
        self.0.play_help()
    }

    fn write_files(&self, settings: &Table, folder: &Path) -> Result<usize, EnvError> {
        self.0.write_files(&self.settings(settings)?, folder)
    }

    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        self.0.play_arguments(folder)
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        self.0.replay(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn settings_are_checked_and_spelled_out() {
        let registry = Registry::builtin();
        let resolve = |kind: &str, text: &str| registry.kind(kind)?.resolve(&table(text));
        let resolved = resolve("webshop", "generator.products = 5").unwrap();
        assert_eq!(resolved["generator"]["products"].as_integer(), Some(5));
        assert_eq!(resolved["expert"]["option_drop_prob"].as_float(), Some(0.0));
        assert_eq!(registry.kind("webshop").unwrap().resolve(&resolved).unwrap(), resolved);
        for (kind, text, expected) in [
            ("webshop", "generator.product = 5", "products"),
            ("webshop", "generator.products = 0", "generator.products = 0"),
            ("webshop", "generator.train = 5", "generator.train"),
            ("alfworld", "goal_seed = 5", "goal_seed"),
            ("alfworld", "expert.search_order = \"lightly\"", "expert.search_order"),
            ("webship", "", "did you mean `webshop`?"),
            ("openenv", "", "--features remote"),
            ("agent", "", "--features serve"),
        ] {
            let error = resolve(kind, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_table_of_every_kind_has_its_own_keys_and_the_common_ones() {
        let common = json!({"split": {"type": "string"}});
        let schema = Registry::builtin().schema(common.as_object().unwrap());
        let wrong = |text: &str| problems(&schema, &Value::Table(table(text))).len();
        assert_eq!(wrong("kind = \"alfworld\"\nsplit = \"train\"\ngenerator.train = 3"), 0);
        assert_eq!(wrong("kind = \"webshop\"\ngenerator.train = 3"), 1);
        assert_eq!(wrong("kind = \"webshop\"\nsplit = 3"), 1);
        assert_eq!(wrong("kind = \"chess\""), 1);
        assert_eq!(wrong("split = \"train\""), 1);
    }

    #[test]
    fn keys_for_credit_alone_are_keys() {
        let registry = Registry::builtin();
        let keys = |kind: &dyn Kind| kind.credit_keys().iter().map(ToString::to_string).collect::<Vec<_>>();
        for kind in registry.kinds() {
            for key in keys(kind) {
                assert!(kind.schema()["properties"].get(&key).is_some(), "{} has no {key}", kind.name());
            }
        }
        assert_eq!(keys(registry.kind("webshop").unwrap()), ["state_key"]);
    }

    struct Other;

    impl WorldKind for Other {
        type Settings = crate::alfworld::AlfworldSettings;

        fn name(&self) -> &'static str {
            "alfworld"
        }

        fn summary(&self) -> &'static str {
            "another"
        }

        fn open(&self, _: &Self::Settings, _: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
            Err(EnvError::Other("closed".into()))
        }

        fn templates(&self) -> &'static [(&'static str, &'static str)] {
            &[("other", "base = \"plain\"")]
        }
    }

    #[test]
    fn a_kind_of_the_same_name_takes_its_place() {
        let registry = Registry::builtin().with(Other);
        assert_eq!(registry.kinds().count(), Registry::builtin().kinds().count());
        assert_eq!(registry.kind("alfworld").unwrap().summary(), "another");
        assert!(crate::prompt::PromptTemplate::find("other", &registry).is_ok());
        let error = crate::prompt::PromptTemplate::find("alfworld", &registry).unwrap_err().to_string();
        assert!(error.contains("`other`") && error.contains("`webshop`"), "{error}");
        let error =
            registry.kind("alfworld").unwrap().write_files(&Table::new(), Path::new("x")).unwrap_err();
        assert!(matches!(error, EnvError::Unsupported(_)));
    }

    #[test]
    fn every_template_of_the_registry_can_be_read() {
        let registry = Registry::builtin();
        for (name, _) in registry.templates() {
            crate::prompt::PromptTemplate::find(name, &registry).unwrap();
        }
        for kind in registry.kinds() {
            let usual = kind.eval_defaults();
            assert!(registry.template(usual.template).is_some(), "{}", kind.name());
            assert!(usual.react_template.is_none_or(|name| registry.template(name).is_some()));
        }
    }
}
