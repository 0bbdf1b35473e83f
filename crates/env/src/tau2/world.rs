//! tau2-bench as a [`WorldKind`]: settings, template, expert.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};

use super::checkout::Checkout;
use super::domain::Tau2Domain;
use super::expert::{Adviser, demonstrate};
use super::replay::replay;
use super::set::{DEFAULT_MAX_ERRORS, DEFAULT_MAX_TURNS, Tau2Options, Tau2Tasks};
use super::user::Scripted;
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The kind `tau2`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tau2Kind;

/// Settings of the tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tau2Settings {
    /// Folder of a checkout of tau2-bench, which has the tasks, the data base, the policy and the tools. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Domain whose tasks are played.
    pub domain: Tau2Domain,
    /// True if the first observation begins with the policy.
    pub policy: bool,
    /// True if the information that a task names must be given. The original lets a language model judge that in most tasks.
    pub information: bool,
    /// Failed calls after which the episode ends unsolved.
    #[schemars(range(min = 1, max = 1000))]
    pub max_errors: usize,
    /// The player of demonstrations.
    pub expert: Tau2Expert,
}

/// The player of demonstrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tau2Expert {
    /// Fraction of demonstrations in which the expert is hasty: it leaves the last change out. They are imitated nevertheless,
    /// so that a policy has something to learn from rewards.
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
            max_errors: DEFAULT_MAX_ERRORS,
            expert: Tau2Expert::default(),
        }
    }
}

/// The open world.
#[derive(Clone, Debug)]
pub struct Tau2World {
    set: Tau2Tasks,
    expert: Tau2Expert,
}

/// What `data` and `--data` name.
const CHECKOUT: &str = "a checkout of tau2-bench (git clone https://github.com/sierra-research/tau2-bench)";

impl WorldKind for Tau2Kind {
    type Settings = Tau2Settings;

    fn name(&self) -> &'static str {
        "tau2"
    }

    fn summary(&self) -> &'static str {
        "customer service of tau2-bench: a user, a policy, a data base, tools"
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
        let set = Tau2Tasks::new(checkout, kept, Arc::new(Scripted)).with_max_turns(options.max_turns);
        Ok(Box::new(Tau2World { set, expert: settings.expert }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &[("tau2", include_str!("../../templates/tau2.toml"))]
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
        Ok(Some(Box::new(Adviser::new(self.set.task(&task.id)?))))
    }
}
