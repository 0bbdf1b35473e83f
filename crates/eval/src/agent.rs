//! How an evaluation prompts the policy: as trained, ReAct or Reflexion.

use serde::{Deserialize, Serialize};
use turnwise_env::parse::Style;
use turnwise_train::TrainError;
use turnwise_train::config::{Config, Layout, Registries};
use turnwise_train::setup;

/// A way of prompting.
///
/// * `plain`: the config's prompts.
/// * `react` (Yao et al. 2023): the model writes a thought and an action each turn and sees the
///   whole history with its thoughts. The prompt has one worked example of our own. Unlike the
///   paper, every turn has one action, with or without a thought.
/// * `reflexion` (Shinn et al. 2023): `react`, but unsolved tasks are tried again. Before each new
///   trial, the model reads the failed one and notes what went wrong and what to do instead. The
///   next prompt begins with the last three notes. The environment decides whether a trial failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// The config's own prompts.
    #[default]
    Plain,
    /// A thought and an action each turn.
    React,
    /// ReAct, with a reflection and another trial after each failure.
    Reflexion,
}

impl Agent {
    /// Sets the agent's prompts. ReAct and Reflexion use the environment's ReAct template (or the
    /// config's, if it is one), in the layout that keeps thoughts.
    ///
    /// # Errors
    /// Fails like [`setup::template`]. If `prompt.template` is not a ReAct template, also fails if
    /// `env.kind` is unknown or has no ReAct template. Never fails for [`Agent::Plain`].
    pub fn configure(self, config: &mut Config, registries: &Registries) -> Result<(), TrainError> {
        if self == Self::Plain {
            return Ok(());
        }
        if setup::template(config, registries)?.rules().style != Style::Label {
            let kind = registries.environments.kind(&config.env.kind)?;
            let template = kind.eval_defaults().react_template.ok_or_else(|| TrainError::Config {
                origin: "prompt.template".into(),
                reason: format!(
                    "the world `{}` has no template for ReAct; name one of your own whose response.style is \"label\"",
                    kind.name()
                ),
            })?;
            config.prompt.template = template.to_owned();
        }
        config.prompt.layout = Layout::Concatenated;
        Ok(())
    }
}
