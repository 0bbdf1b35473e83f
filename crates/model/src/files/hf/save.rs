use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, View};
use serde_json::{Value, json};

use super::config_json::{CONFIG, config_json, generation_json};
use super::{GENERATION_CONFIG, INDEX, PROCESSOR, WEIGHTS, vision_json};
use crate::files::{self, bytes_of};
use crate::{ModelError, Parameters, TensorInfo};

/// Data type of saved weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightType {
    /// Single precision, as trained.
    #[default]
    F32,
    /// Rounded to bf16.
    Bf16,
}

impl WeightType {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
        }
    }
}

/// Options of [`save_model_as`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// Type of the weights.
    pub dtype: WeightType,
    /// Maximum bytes per weights file; larger models are sharded.
    pub shard_bytes: usize,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self { dtype: WeightType::F32, shard_bytes: 5_000_000_000 }
    }
}

/// Writes a model in `f32`, leaving out an output layer that is tied to the embedding; see
/// [`save_model_as`].
///
/// # Errors
/// Fails like [`save_model_as`].
pub fn save_model(parameters: &Parameters<f32>, folder: &Path) -> Result<(), ModelError> {
    save_model_as(parameters, folder, SaveOptions::default())
}

/// Writes `model.safetensors` (or shards and their index), `generation_config.json` and
/// `config.json` into a folder, creating it if needed.
///
/// Each file is renamed into place once it is complete, `config.json` last. Finally, weights files
/// left by an earlier model are removed.
///
/// # Errors
/// Fails if a path cannot be created, listed, written, renamed or removed; the error names the
/// path.
pub fn save_model_as(
    parameters: &Parameters<f32>,
    folder: &Path,
    options: SaveOptions,
) -> Result<(), ModelError> {
    turnwise_files::create_folders(folder).map_err(ModelError::io(folder))?;
    let shards = shards(&parameters.layout.tensors, options);
    let name = |shard: usize| match shards.len() {
        1 => WEIGHTS.to_owned(),
        count => format!("model-{:05}-of-{count:05}.safetensors", shard + 1),
    };
    let mut names: Vec<String> = (0..shards.len()).map(name).collect();
    for (tensors, name) in shards.iter().zip(&names) {
        let pieces = tensors.iter().map(|tensor| {
            let values = &parameters.data[tensor.range.clone()];
            (tensor.name.as_str(), Piece { shape: &tensor.shape, values, dtype: options.dtype })
        });
        let header = [("format".to_owned(), "pt".to_owned())].into();
        files::write_tensors_new(&files::aside(&folder.join(name)), pieces, header)?;
    }
    let mut write = |name: &str, value: &Value| {
        let path = folder.join(name);
        let mut text = serde_json::to_string_pretty(value).map_err(|error| ModelError::file(&path, error))?;
        text.push('\n');
        names.push(name.to_owned());
        files::write_new(&files::aside(&path), text.as_bytes())
    };
    if shards.len() > 1 {
        let map: BTreeMap<&str, String> = shards
            .iter()
            .enumerate()
            .flat_map(|(shard, tensors)| {
                tensors.iter().map(move |tensor| (tensor.name.as_str(), name(shard)))
            })
            .collect();
        let size = parameters.data.len() * options.dtype.bytes();
        let metadata = json!({ "total_parameters": parameters.data.len(), "total_size": size });
        write(INDEX, &json!({ "metadata": metadata, "weight_map": map }))?;
    }
    write(GENERATION_CONFIG, &generation_json(&parameters.config))?;
    if let Some(vision) = &parameters.config.vision {
        write(PROCESSOR, &vision_json::processor(vision))?;
    }
    let critic = parameters.layout.value.is_some();
    write(CONFIG, &config_json(&parameters.config, critic, options.dtype.name()))?;
    for name in &names {
        let path = folder.join(name);
        fs::rename(files::aside(&path), &path).map_err(ModelError::io(&path))?;
    }
    turnwise_files::sync_folder(folder).map_err(ModelError::io(folder))?;
    remove_others(folder, &names)
}

fn shards(tensors: &[TensorInfo], options: SaveOptions) -> Vec<Vec<&TensorInfo>> {
    let mut shards = vec![Vec::new()];
    let mut bytes = 0;
    for tensor in tensors {
        let size = tensor.range.len() * options.dtype.bytes();
        if bytes > 0 && bytes + size > options.shard_bytes {
            shards.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(shard) = shards.last_mut() {
            shard.push(tensor);
        }
    }
    shards
}

fn remove_others(folder: &Path, names: &[String]) -> Result<(), ModelError> {
    let kept: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    for entry in fs::read_dir(folder).map_err(ModelError::io(folder))? {
        let path = entry.map_err(ModelError::io(folder))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let shard = name.starts_with("model-") && name.contains("-of-") && name.ends_with(".safetensors");
        if (shard || name == WEIGHTS || name == INDEX) && !kept.contains(name) {
            fs::remove_file(&path).map_err(ModelError::io(&path))?;
        }
    }
    Ok(())
}

struct Piece<'a> {
    shape: &'a [usize],
    values: &'a [f32],
    dtype: WeightType,
}

impl View for Piece<'_> {
    fn dtype(&self) -> Dtype {
        match self.dtype {
            WeightType::F32 => Dtype::F32,
            WeightType::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.dtype {
            WeightType::F32 => Cow::Borrowed(bytes_of(self.values)),
            WeightType::Bf16 => {
                let halves = self.values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes());
                Cow::Owned(halves.collect())
            }
        }
    }

    fn data_len(&self) -> usize {
        self.values.len() * self.dtype.bytes()
    }
}
