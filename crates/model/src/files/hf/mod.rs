//! Models in Hugging Face's layout: `config.json`, `generation_config.json`, and safetensors files.

mod config_json;
mod load;
pub(crate) mod mapped;
mod save;
pub(crate) mod vision_json;

use std::path::Path;

#[cfg(test)]
pub(crate) use config_json::config_from_json;
pub use config_json::{load_config, read_config};
pub use save::{SaveOptions, WeightType, save_model, save_model_as};

use crate::{ModelError, ParameterLayout, Parameters};

const GENERATION_CONFIG: &str = "generation_config.json";
const WEIGHTS: &str = "model.safetensors";
const PROCESSOR: &str = "preprocessor_config.json";
const INDEX: &str = "model.safetensors.index.json";

/// Reads a model's `f32`, `bf16` or `f16` weights as `f32`. Needs little memory beyond the weights.
///
/// # Errors
/// Fails on an unsupported family or setting, a missing or unexpected tensor, or a wrong shape. The
/// error names the file and the key or tensor.
pub fn load_model(folder: &Path) -> Result<Parameters<f32>, ModelError> {
    let config = load_config(folder)?;
    check_room(folder, ParameterLayout::new(&config).len)?;
    let mut parameters = Parameters::zeros(config);
    load::fill(folder, &mut parameters)?;
    Ok(parameters)
}

/// Reads a critic: a decoder with a value head, as written by [`save_model`].
///
/// # Errors
/// Fails like [`load_model`], and if the files have no value head (`score.weight`, `score.bias`) or
/// have an output layer.
pub fn load_critic(folder: &Path) -> Result<Parameters<f32>, ModelError> {
    let config = load_config(folder)?;
    check_room(folder, ParameterLayout::critic(&config).len)?;
    let mut parameters = Parameters::critic(config);
    load::fill(folder, &mut parameters)?;
    Ok(parameters)
}

/// Rejects weights for which memory cannot be reserved; allocating them would abort the program.
fn check_room(folder: &Path, numbers: usize) -> Result<(), ModelError> {
    let mut room: Vec<f32> = Vec::new();
    let reserved = room.try_reserve_exact(numbers);
    std::hint::black_box(&room);
    reserved.map_err(|_| {
        let reason = format!(
            "{numbers} parameters take {:.1} GiB as f32, and the system has not so much memory; take a smaller model or a larger \
             machine",
            4.0 * numbers as f64 / f64::from(1 << 30)
        );
        ModelError::file(&folder.join("config.json"), reason)
    })
}

#[cfg(test)]
mod tests;
