use std::path::Path;

use anyhow::{Context as _, bail};
use turnwise_credit::{CreditConfig, Pipeline};
use turnwise_methods::credit_with;
use turnwise_settings::assignment;

use crate::registries::methods;

pub(in crate::commands) fn config(
    preset: &str,
    verl_agent: bool,
    overrides: &[String],
) -> anyhow::Result<CreditConfig> {
    let mut config = methods().credit(preset)?;
    if verl_agent {
        let Some(switched) = config.verl_agent() else {
            bail!(
                "--verl-agent: that framework's switches are known for grpo, rloo, gigpo and hgpo, not `{preset}`"
            );
        };
        config = switched;
    }
    // Lets overrides name the settings of methods from other crates.
    methods().credit.spell_out(&mut config)?;
    for text in overrides {
        config = overridden(&config, text).with_context(|| format!("--set {text}"))?;
    }
    Ok(config)
}

fn overridden(config: &CreditConfig, text: &str) -> anyhow::Result<CreditConfig> {
    let (path, value) = assignment(text)?;
    if value.as_float().is_some_and(|number| !number.is_finite()) {
        bail!("must be a finite number");
    }
    Ok(credit_with(config, path, serde_json::to_value(value)?)?)
}

pub(in crate::commands) fn notes(preset: &str, pipeline: &Pipeline, encoder: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    if matches!(preset, "dapo" | "aem-dapo" | "salt-dapo" | "gigpo-dynamic" | "stapo-dynamic") {
        notes.push(format!(
            "{preset}: choosing groups is part of sampling; here every group of the file is used"
        ));
    }
    if pipeline.required_inputs().embeddings {
        notes.push(if encoder.as_os_str().is_empty() {
            "observations are matched by hashed character n-grams".into()
        } else {
            format!("observations are matched by the encoder {}", encoder.display())
        });
    }
    notes
}

#[cfg(test)]
mod tests {
    use turnwise_credit::TurnField;
    use turnwise_methods::Methods;

    use super::*;
    use turnwise_core::Preset;
    use turnwise_credit::EstimatorConfig;

    fn with(preset: &str, overrides: &[&str]) -> anyhow::Result<CreditConfig> {
        config(preset, false, &overrides.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn overrides_reach_every_part() {
        let gigpo = with("gigpo", &["estimator.omega=0.5", "estimator.anchor.matching=similarity"]).unwrap();
        let EstimatorConfig::Gigpo(estimator) = &gigpo.estimator else { panic!("{gigpo:?}") };
        assert_eq!(estimator.omega, 0.5);
        let by_kind = with("aem-grpo", &["aem.lambda=2"]).unwrap();
        assert_eq!(by_kind, with("aem-grpo", &["refinements.0.lambda=2"]).unwrap());
        assert!(with("gigpo", &["outliers.lambda=3"]).unwrap().outliers.is_some());
        assert_eq!(with("grpo", &["estimator={kind=\"rloo\"}"]).unwrap(), with("rloo", &[]).unwrap());
    }

    #[test]
    fn wrong_overrides_say_what_there_is() {
        let message = |preset: &str, text: &str| format!("{:#}", with(preset, &[text]).unwrap_err());
        assert!(message("gigpo", "estimator.omgea=1").contains("Did you mean `omega`"));
        assert!(message("gigpo", "estimator.omega").contains("key.sub=value"));
        assert!(message("gigpo", "estimator.omega=much").contains("much"));
        assert!(message("gigpo", "estimator.omega.x=1").contains("has no `x`"));
        assert!(message("gigpo", "aem.lambda=1").contains("there is no `aem`"));
        assert!(message("aem-grpo", "refinements.1.lambda=1").contains("list of 1"));
        assert!(format!("{:#}", with("gipgo", &[]).unwrap_err()).contains("did you mean `gigpo`"));
        assert!(config("hgpo", true, &[]).is_ok() && config("ppo", true, &[]).is_err());
    }

    #[test]
    fn what_matches_observations_is_named() {
        let salt = with("salt-grpo", &["salt.matching=embedding"]).unwrap();
        let pipeline = Pipeline::from_config(&salt).unwrap();
        let of = |encoder: &str| notes("salt-grpo", &pipeline, Path::new(encoder));
        assert_eq!(of(""), ["observations are matched by hashed character n-grams"]);
        assert_eq!(of("e5"), ["observations are matched by the encoder e5"]);
    }

    #[test]
    fn every_preset_says_what_it_needs() {
        for Preset { name, .. } in Methods::builtin().presets() {
            let needs = Pipeline::from_config(&with(name, &[]).unwrap()).unwrap().fields();
            let entropy = needs.iter().any(|(_, field)| *field == TurnField::Entropies);
            let expected = name.starts_with("aem") || name.starts_with("stapo") || *name == "empg";
            assert_eq!(entropy, expected, "{name}: {needs:?}");
        }
    }
}
