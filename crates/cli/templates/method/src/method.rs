//! The credit method `NAME`: replace it with your own.
//!
//! It gives later turns more of the advantage: `A'_t = (1 + kappa (t / (T - 1) - 1/2)) A_t` for
//! turn `t` of `T`.

use serde::{Deserialize, Serialize};
use turnwise_cli::core::{PerTurn, Preset};
use turnwise_cli::credit::{CreditError, CreditInputs, Explanation, Refinement};

/// Name of the method in configs, the value of `kind`.
pub(crate) const KIND: &str = "NAME";

/// `--preset NAME`: GRPO's advantages, refined by this method.
pub(crate) const PRESET: Preset = Preset::on("grpo", KIND, "[[credit.refinements]]\nkind = \"NAME\"\n");

/// Settings, `{ kind = "NAME", kappa = 0.5 }`. A run writes all of them into its config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// How much more the last turn gets than the first; 0 changes nothing.
    pub(crate) kappa: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { kappa: 0.5 }
    }
}

/// The method with its settings.
pub(crate) struct Method(Settings);

impl Method {
    /// Checks the settings.
    ///
    /// # Errors
    /// Fails if a setting is out of range.
    pub(crate) fn new(settings: Settings) -> Result<Self, CreditError> {
        if (0.0..=2.0).contains(&settings.kappa) {
            return Ok(Self(settings));
        }
        let reason = format!("kappa is {}; it must be from 0 to 2", settings.kappa);
        Err(CreditError::Setting { method: KIND, reason })
    }
}

impl Refinement for Method {
    fn name(&self) -> &'static str {
        KIND
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let weights = PerTurn::from_fn(inputs.batch, |group, trajectory, turn| {
            let turns = inputs.batch.groups[group].trajectories[trajectory].turns.len();
            let place = if turns > 1 { turn as f64 / (turns - 1) as f64 } else { 0.5 };
            1.0 + self.0.kappa * (place - 0.5)
        });
        // What `turnwise view` and `credit --explain` show of every turn.
        for (group, weights) in weights.groups().enumerate() {
            explanation.facts(group, weights, |_, _, &weight| vec![("weight", weight)]);
        }
        for (advantage, weight) in advantages.values_mut().zip(weights.values()) {
            *advantage *= weight;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use turnwise_cli::core::{Batch, Group, Task, Trajectory, Turn};
    use turnwise_cli::credit::Pipeline;

    use super::*;

    #[test]
    fn later_turns_get_more() {
        let episode = |reward: f64| {
            let turn = |reward| Turn { reward, ..Turn::default() };
            Trajectory::new(Task::new("t", "k", "g"), vec![turn(0.0), turn(0.0), turn(reward)])
        };
        let batch = Batch { groups: vec![Group { trajectories: vec![episode(1.0), episode(0.0)] }] };
        let of = |kappa: f64| {
            let config = serde_json::json!({ "refinements": [{ "kind": KIND, "kappa": kappa }] });
            let config = serde_json::from_value(config).unwrap();
            let methods = crate::registries().methods;
            Pipeline::with_registry(&config, &methods.credit).unwrap().run(&batch).unwrap()
        };
        let (grpo, refined) = (of(0.0), of(0.5));
        let first = grpo[(0, 0, 0)];
        assert!(first > 0.0 && grpo[(0, 0, 2)] == first);
        assert_eq!([0, 1, 2].map(|turn| refined[(0, 0, turn)] / first), [0.75, 1.0, 1.25]);
    }

    #[test]
    fn wrong_settings_are_named() {
        let error = Method::new(Settings { kappa: -1.0 }).map(drop).unwrap_err().to_string();
        assert!(error.contains("kappa is -1"), "{error}");
    }
}
