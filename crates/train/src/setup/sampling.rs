//! Sampling parameters that are saved in model folders for other programs.

use std::path::Path;

use serde::Deserialize;
use turnwise_text::GenerationSampling;

use crate::TrainError;
use crate::config::{Config, RolloutConfig};

pub(crate) fn sampling(config: &Config) -> GenerationSampling {
    let RolloutConfig { temperature, top_k, top_p, .. } = config.rollout;
    GenerationSampling { temperature, top_k, top_p }
}

/// Reads only a run's sampling parameters, because other settings may name unknown environments and
/// methods.
pub(crate) fn sampling_of_run(root: &Path) -> Result<GenerationSampling, TrainError> {
    let path = root.join("config.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| TrainError::io(&path, error))?;
    let file: File = toml::from_str(&text).map_err(|error| TrainError::file(&path, error.to_string()))?;
    let Rollout { temperature, top_k, top_p } = file.rollout;
    Ok(GenerationSampling { temperature, top_k, top_p })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    rollout: Rollout,
}

#[derive(Deserialize)]
#[serde(default)]
struct Rollout {
    temperature: f32,
    top_k: usize,
    top_p: f32,
}

impl Default for Rollout {
    fn default() -> Self {
        let RolloutConfig { temperature, top_k, top_p, .. } = RolloutConfig::default();
        Self { temperature, top_k, top_p }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampling_of_a_run_is_read_from_its_config_alone() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            std::fs::write(folder.path().join("config.toml"), text).unwrap();
            sampling_of_run(folder.path())
        };
        let whole = GenerationSampling { temperature: 0.7, top_k: 20, top_p: 0.9 };
        let text =
            "[env]\nkind = \"elsewhere\"\n[rollout]\ntemperature = 0.7\ntop_k = 20\ntop_p = 0.9\nlanes = 2\n";
        assert_eq!(of(text).unwrap(), whole);
        assert_eq!(of("").unwrap(), GenerationSampling::default());
        let some = of("[rollout]\ntemperature = 2\n").unwrap();
        assert_eq!(some, GenerationSampling { temperature: 2.0, ..GenerationSampling::default() });
        let error = of("rollout = 1").unwrap_err().to_string();
        assert!(error.contains("config.toml"), "{error}");
    }
}
