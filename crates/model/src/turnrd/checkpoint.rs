//! Checkpoints: one safetensors file that is whole or absent, with a readable config beside it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::{TurnRd, TurnRdConfig};
use crate::files::{self, bytes_of, floats_of, wrong};
use crate::{ModelError, OptimizerState};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "turnrd.safetensors";
const HEADER: &str = "turnrd";

/// What the file says of itself besides its tensors.
#[derive(Serialize, Deserialize)]
struct Header {
    config: TurnRdConfig,
    input_dim: usize,
    step: u64,
}

impl TurnRd {
    /// Writes `turnrd.safetensors` (weights, AdamW's moments as `exp_avg.*` and `exp_avg_sq.*`, and config,
    /// input width and step count in its header) and then `config.json`, for people and other programs,
    /// into `folder`, which is made if need be.
    ///
    /// All that [`TurnRd::load`] reads is in the one file, which is renamed into place when it is
    /// whole, so that a kill leaves the old checkpoint or the new one and never a mixture.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, folder: &Path) -> Result<(), ModelError> {
        fs::create_dir_all(folder).map_err(files::failed(folder))?;
        let path = folder.join(WEIGHTS);
        let mut tensors = Vec::new();
        let OptimizerState { step, first, second } = &self.optimizer;
        for (prefix, values) in [("", &self.weights), ("exp_avg.", first), ("exp_avg_sq.", second)] {
            for tensor in &self.places.layout.tensors {
                let bytes = bytes_of(&values[tensor.range.clone()]);
                let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)
                    .map_err(|error| wrong(&path, error))?;
                tensors.push((format!("{prefix}{}", tensor.name), view));
            }
        }
        let entry = Header { config: self.config.clone(), input_dim: self.input_dim, step: *step };
        let entry = serde_json::to_string(&entry).map_err(|error| wrong(&path, error))?;
        // One entry only: the header's order is not fixed, and equal networks are to be equal files.
        let header: HashMap<String, String> = [(HEADER.to_owned(), entry)].into();
        files::write_tensors(&path, tensors, header)?;
        let mut readable = serde_json::to_value(&self.config).map_err(|error| wrong(&path, error))?;
        if let Some(entries) = readable.as_object_mut() {
            entries.insert("input_dim".into(), self.input_dim.into());
        }
        let text = serde_json::to_string_pretty(&readable).map_err(|error| wrong(&path, error))?;
        files::write_aside(&folder.join(CONFIG), text.as_bytes())
    }

    /// Reads what [`TurnRd::save`] wrote, to the bit.
    ///
    /// # Errors
    /// Name the file and the tensor or key.
    pub fn load(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join(WEIGHTS);
        let bytes = files::read(&path)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| wrong(&path, error))?;
        let entry = header.metadata().as_ref().and_then(|entries| entries.get(HEADER));
        let entry = entry
            .ok_or_else(|| wrong(&path, format!("the header has no `{HEADER}`: not a TurnRD checkpoint")))?;
        let Header { config, input_dim, step } = serde_json::from_str(entry)
            .map_err(|error| wrong(&path, format!("header, `{HEADER}`: {error}")))?;
        let mut model = Self::zeros(config, input_dim)?;
        model.optimizer.step = step;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(&path, error))?;
        let views: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
        let Self { places, weights, optimizer, .. } = &mut model;
        for (prefix, values) in
            [("", weights), ("exp_avg.", &mut optimizer.first), ("exp_avg_sq.", &mut optimizer.second)]
        {
            for tensor in &places.layout.tensors {
                let name = format!("{prefix}{}", tensor.name);
                let to = &mut values[tensor.range.clone()];
                floats_of(&path, &name, views.get(&name), &tensor.shape, to)?;
            }
        }
        Ok(model)
    }
}
