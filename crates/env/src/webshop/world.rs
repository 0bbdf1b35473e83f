use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Observation, Task, TaskSet};

use super::demonstrations::demonstrate;
use super::generator::{DEFAULT_PRODUCTS, GeneratorConfig};
use super::goal::GoalKind;
use super::official::Size;
use super::page::{ObservationMode, StateKey};
use super::replay::replay;
use super::reward::{Matching, Reward};
use super::{DEFAULT_MAX_STEPS, Expert, Splits, WebshopOptions, WebshopSet};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

const PLAYED_PRODUCTS: u32 = 2000;

/// The environment kind `webshop`.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebshopKind;

/// Settings of WebShop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebshopSettings {
    /// Folder with the official files. Default: generated products.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Folder for the files of a large shop, which are built on first use. Default: `turnwise-shop`
    /// inside `data` for the full official catalogue; generated products are kept in memory by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built: Option<PathBuf>,
    /// Which official catalogue to use. Default: the small catalogue if its files exist, else the
    /// full one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// How the instructions were written.
    pub goals: GoalKind,
    /// Maximum number of goals per product. Default: one goal per combination of option values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub goals_per_product: Option<usize>,
    /// Seed for prices, price limits and the order of goals.
    pub goal_seed: u64,
    /// Rule that divides goals into splits.
    pub goal_splits: Splits,
    /// How option values are compared.
    pub matching: Matching,
    /// Reward for a purchase.
    pub reward: Reward,
    /// Text format of pages.
    pub observation: ObservationMode,
    /// Whether product pages have a button for attributes.
    pub show_attributes: bool,
    /// What credit methods (GiGPO, HGPO, SALT, STAPO) compare to find equal states.
    pub state_key: StateKey,
    /// Settings of the generated products; ignored if `data` is set.
    pub generator: WebshopCatalogue,
    /// Demonstration expert.
    pub expert: WebshopExpert,
}

impl Default for WebshopSettings {
    fn default() -> Self {
        let WebshopOptions {
            size,
            goals,
            goals_per_product,
            seed,
            splits,
            matching,
            reward,
            observation,
            show_attributes,
            state_key,
            ..
        } = WebshopOptions::default();
        Self {
            data: None,
            built: None,
            size,
            goals,
            goals_per_product,
            goal_seed: seed,
            goal_splits: splits,
            matching,
            reward,
            observation,
            show_attributes,
            state_key,
            generator: WebshopCatalogue::default(),
            expert: WebshopExpert::default(),
        }
    }
}

impl WebshopSettings {
    /// Returns the task set's options.
    pub fn options(&self) -> WebshopOptions {
        WebshopOptions {
            size: self.size,
            goals: self.goals,
            goals_per_product: self.goals_per_product,
            seed: self.goal_seed,
            splits: self.goal_splits,
            matching: self.matching,
            reward: self.reward,
            observation: self.observation,
            show_attributes: self.show_attributes,
            state_key: self.state_key,
        }
    }
}

/// Generated products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebshopCatalogue {
    /// Number of products.
    #[schemars(range(min = 1, max = 10000000))]
    pub products: u32,
    /// Random seed.
    pub seed: u64,
}

impl Default for WebshopCatalogue {
    fn default() -> Self {
        Self { products: DEFAULT_PRODUCTS, seed: 0 }
    }
}

/// Demonstration expert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebshopExpert {
    /// Probability that the expert skips a requested option, drawn for each option. SFT imitates
    /// the resulting failures.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub option_drop_prob: f64,
}

/// WebShop environment with its goals.
#[derive(Clone, Debug)]
pub struct WebshopWorld {
    set: WebshopSet,
    expert: WebshopExpert,
}

impl WebshopWorld {
    /// Returns the task set.
    pub fn set(&self) -> &WebshopSet {
        &self.set
    }
}

const TEMPLATES: [(&str, &str); 5] = [
    ("webshop", include_str!("../../templates/webshop.toml")),
    ("webshop-compact", include_str!("../../templates/webshop-compact.toml")),
    ("webshop-react", include_str!("../../templates/webshop-react.toml")),
    ("webshop-stapo", include_str!("../../templates/webshop-stapo.toml")),
    ("webshop-verl-agent", include_str!("../../templates/webshop-verl-agent.toml")),
];

impl WorldKind for WebshopKind {
    type Settings = WebshopSettings;

    fn name(&self) -> &'static str {
        "webshop"
    }

    fn summary(&self) -> &'static str {
        "buying what an instruction describes, in a shop of searchable pages"
    }

    fn credit_keys(&self) -> &'static [&'static str] {
        &["state_key"]
    }

    fn open(
        &self,
        settings: &WebshopSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let WebshopCatalogue { products, seed } = settings.generator;
        let generator = GeneratorConfig { seed, products };
        // Checked here because the command line may set `data`.
        if settings.size.is_some() && settings.data.is_none() {
            return Err(EnvError::Other(
                "env.size chooses one of the official catalogues, and none is read: name their folder with env.data, or the \
                 number of generated products with env.generator.products"
                    .into(),
            ));
        }
        let set = match (&settings.data, &settings.built) {
            (Some(folder), built) => WebshopSet::open(folder, built.as_deref(), &settings.options())?,
            (None, Some(built)) => WebshopSet::generated_in(built, generator, &settings.options())?,
            (None, None) => WebshopSet::generated(generator, &settings.options())?,
        };
        set.notes().into_iter().for_each(&mut *options.note);
        let set = set.with_max_steps(options.max_turns);
        Ok(Box::new(WebshopWorld { set, expert: settings.expert.clone() }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_STEPS,
            splits: &["test"],
            template: "webshop",
            react_template: Some("webshop-react"),
        }
    }

    fn play_settings(&self, seed: u64, _: bool) -> WebshopSettings {
        WebshopSettings {
            goals_per_product: Some(1),
            generator: WebshopCatalogue { products: PLAYED_PRODUCTS, seed },
            ..WebshopSettings::default()
        }
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let data = request.needed_data("the folder of the official files")?;
        let ReplayRequest { name, recording, unanswered, dump, .. } = request;
        if dump.is_some() {
            return Err(EnvError::Other("recordings of webshop cannot be written, only replayed".into()));
        }
        let set = WebshopSet::open(data, None, &WebshopOptions::default())?;
        let report = replay(name, recording, &set, unanswered)?;
        let counts = format!(
            "{} sessions, {} steps, {} differences ({} scores not compared: their type factor needs a language model)",
            report.sessions,
            report.steps,
            report.differences.len(),
            report.scores_not_compared
        );
        Ok(ReplayReport { counts, unit: "session", differences: report.differences })
    }
}

impl World for WebshopWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert.option_drop_prob).map(Some)
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        self.set.phrases()
    }

    fn split_numbers(&self) -> bool {
        true
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(ExpertAdvisor(Expert::new(&task.goal).with_max_steps(self.set.max_steps())))))
    }
}

struct ExpertAdvisor(Expert);

impl Advisor for ExpertAdvisor {
    fn advise(&mut self, observation: &Observation) -> String {
        self.0.act(observation)
    }
}
