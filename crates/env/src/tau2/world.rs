//! The environment kind `tau2`.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_settings::Problem;

use super::checkout::Checkout;
use super::domain::Tau2Domain;
use super::expert::{Adviser, demonstrate};
use super::replay::replay;
use super::set::{DEFAULT_MAX_ERRORS, DEFAULT_MAX_TURNS, Tau2Options, Tau2Tasks};
use super::user::{ModelUser, OpenChat, Scripted, SharedUser, Tau2User, Tau2UserKind};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The environment kind `tau2`.
///
/// The built-in kind offers only the scripted user. A program can add users simulated by language
/// models:
///
/// ```
/// use std::sync::Arc;
///
/// use turnwise_env::registry::Registry;
/// use turnwise_env::tau2::Tau2Kind;
///
/// let kind = Tau2Kind::default().with_chat(Arc::new(|user| {
///     let model = user.model.clone();
///     Ok(Arc::new(move |messages| Ok(format!("{model} has read {} messages", messages.len()))))
/// }));
/// assert!(Registry::builtin().with(kind).kind("tau2").is_ok());
/// ```
#[derive(Clone, Default)]
pub struct Tau2Kind {
    chat: Option<OpenChat>,
}

impl Tau2Kind {
    /// Enables `user.kind = "model"`; `open` creates the language model.
    #[must_use]
    pub fn with_chat(self, open: OpenChat) -> Self {
        Self { chat: Some(open) }
    }

    fn user(&self, settings: &Tau2User, guidelines: &str) -> Result<SharedUser, EnvError> {
        if settings.kind == Tau2UserKind::Scripted {
            return Ok(Arc::new(Scripted));
        }
        let open = self.chat.as_ref().ok_or_else(|| {
            EnvError::Other(
                "[env] user.kind = \"model\" cannot be opened by this program: it has been handed no language models \
                 (Tau2Kind::with_chat)"
                    .to_owned(),
            )
        })?;
        Ok(Arc::new(ModelUser::new(open(settings)?, guidelines.to_owned())))
    }
}

/// Settings of the environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tau2Settings {
    /// Folder of a tau2-bench checkout. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Domain.
    pub domain: Tau2Domain,
    /// Whether the first observation starts with the policy.
    pub policy: bool,
    /// Whether the agent must communicate a task's required texts. In tau2-bench, an LLM judge
    /// checks these texts for most tasks.
    pub information: bool,
    /// Simulated user; unused in `telecom`.
    pub user: Tau2User,
    /// Number of failed calls at which an episode ends unsolved.
    #[schemars(range(min = 1, max = 1000))]
    pub max_errors: usize,
    /// Expert for demonstrations.
    pub expert: Tau2Expert,
}

/// Settings of the expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tau2Expert {
    /// Fraction of demonstrations in which the expert omits the last call that changes the
    /// database, so that after SFT the policy still makes mistakes that RL can correct.
    #[schemars(range(min = 0.0, max = 0.99))]
    pub hasty_prob: f64,
}

impl Default for Tau2Settings {
    fn default() -> Self {
        Self {
            data: None,
            domain: Tau2Domain::default(),
            policy: true,
            information: true,
            user: Tau2User::default(),
            max_errors: DEFAULT_MAX_ERRORS,
            expert: Tau2Expert::default(),
        }
    }
}

/// An open tau2 environment.
#[derive(Clone, Debug)]
pub struct Tau2World {
    set: Tau2Tasks,
    expert: Tau2Expert,
}

const CHECKOUT: &str = "a checkout of tau2-bench (git clone https://github.com/sierra-research/tau2-bench)";

impl WorldKind for Tau2Kind {
    type Settings = Tau2Settings;

    fn name(&self) -> &'static str {
        "tau2"
    }

    fn summary(&self) -> &'static str {
        "customer service of tau2-bench: a user, a policy, a database, tools"
    }

    fn rules(&self, settings: &Tau2Settings) -> Vec<Problem> {
        let user = &settings.user;
        let reason = match user.kind {
            Tau2UserKind::Model if settings.domain.is_solo() => {
                "is \"model\", but the domain has no user; remove it"
            }
            Tau2UserKind::Model if user.model.is_empty() => {
                "needs user.model, the model's name at the service"
            }
            _ => return Vec::new(),
        };
        vec![Problem::new("user.kind", reason)]
    }

    fn has_progress(&self) -> bool {
        false
    }

    fn open(
        &self,
        settings: &Tau2Settings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let data = settings.data.as_ref().ok_or_else(|| {
            EnvError::Other(format!("[env] data is not set; name the folder of {CHECKOUT}"))
        })?;
        let kept = Tau2Options {
            policy: settings.policy,
            information: settings.information,
            max_errors: settings.max_errors,
        };
        let checkout = Checkout::read(data, settings.domain)?;
        let user = self.user(&settings.user, &checkout.guidelines)?;
        let set = Tau2Tasks::new(checkout, kept, user).with_max_turns(options.max_turns);
        Ok(Box::new(Tau2World { set, expert: settings.expert }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tau2", include_str!("../../templates/tau2.toml")),
            ("tau2-solo", include_str!("../../templates/tau2-solo.toml")),
        ]
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_TURNS,
            splits: &["test"],
            template: "tau2",
            react_template: None,
        }
    }

    fn play_help(&self) -> &'static str {
        "  get_order_details({\"order_id\": \"#W1\"}) calls a tool; any other words go to the user"
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        if request.dump.is_some() {
            return Err(EnvError::Other("recordings of tau2 cannot be written, only replayed".into()));
        }
        let data = request.needed_data(CHECKOUT)?;
        replay(request.name, request.recording, data)
    }
}

impl World for Tau2World {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert.hasty_prob).map(Some)
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(Adviser::new(self.set.task(&task.id)?, self.set.is_solo()))))
    }
}
