//! How an evaluation prompts the policy.

use serde::{Deserialize, Serialize};
use turnwise_env::parse::Style;
use turnwise_train::TrainError;
use turnwise_train::config::{Config, Layout, Registries};
use turnwise_train::setup;

/// A way of prompting.
///
/// * `plain`: the config's prompts.
/// * `react` (Yao et al. 2023): a thought and an action each turn, the whole history, and one
///   worked example of our own. Unlike in the paper, every turn has an action, and a turn may have
///   no thought.
/// * `reflexion` (Shinn et al. 2023): `react`, with further trials of unsolved tasks. The model
///   notes what went wrong, and the next prompt begins with the last three notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// The config's own prompts.
    #[default]
    Plain,
    /// A thought and an action each turn.
    React,
    /// ReAct with reflection and a new trial after failures.
    Reflexion,
}

impl Agent {
    /// Sets the agent's prompts in `config`: the config's own ReAct template or else the
    /// environment's, and the layout that keeps thoughts.
    ///
    /// # Errors
    /// Fails like [`setup::template`], or if there is no ReAct template.
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
