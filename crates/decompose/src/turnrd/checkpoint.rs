//! Checkpoints.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{TurnRd, TurnRdConfig};
use turnwise_model::files::{TensorFile, TensorSlice, save_tensors, write_atomically};
use turnwise_model::{ModelError, OptimizerState};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "turnrd.safetensors";
const HEADER: &str = "turnrd";

#[derive(Serialize, Deserialize)]
struct Header {
    config: TurnRdConfig,
    input_dim: usize,
    step: u64,
}

impl TurnRd {
    /// Writes `turnrd.safetensors` and `config.json`, a readable copy of the settings.
    /// `turnrd.safetensors` holds the weights and AdamW's moments (`exp_avg.*`, `exp_avg_sq.*`),
    /// with the config, input width and step count in its header. This file is written atomically
    /// and is the only one that [`TurnRd::load`] reads.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), ModelError> {
        turnwise_files::create_folders(folder).map_err(ModelError::io(folder))?;
        let path = folder.join(WEIGHTS);
        let mut tensors = Vec::new();
        let OptimizerState { step, first, second } = &self.optimizer;
        for (prefix, values) in [("", &self.weights), ("exp_avg.", first), ("exp_avg_sq.", second)] {
            for tensor in &self.tensors.layout.tensors {
                let values = &values[tensor.range.clone()];
                tensors.push(TensorSlice {
                    name: format!("{prefix}{}", tensor.name),
                    shape: &tensor.shape,
                    values,
                });
            }
        }
        let entry = Header { config: self.config.clone(), input_dim: self.input_dim, step: *step };
        let entry = serde_json::to_string(&entry).map_err(|error| ModelError::file(&path, error))?;
        // Header order is not fixed, so one entry makes equal networks equal files.
        save_tensors(&path, &tensors, [(HEADER.to_owned(), entry)])?;
        let mut readable =
            serde_json::to_value(&self.config).map_err(|error| ModelError::file(&path, error))?;
        if let Some(entries) = readable.as_object_mut() {
            entries.insert("input_dim".into(), self.input_dim.into());
        }
        let text = serde_json::to_string_pretty(&readable).map_err(|error| ModelError::file(&path, error))?;
        write_atomically(&folder.join(CONFIG), text.as_bytes())
    }

    /// Restores exactly what [`TurnRd::save`] wrote.
    ///
    /// # Errors
    /// The error names the file and the tensor or key.
    pub fn load(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join(WEIGHTS);
        let file = TensorFile::read(&path)?;
        let entry = file.header(HEADER);
        let reason = format!("the header has no `{HEADER}`: not a TurnRD checkpoint");
        let entry = entry.ok_or_else(|| ModelError::file(&path, reason))?;
        let Header { config, input_dim, step } = serde_json::from_str(entry)
            .map_err(|error| ModelError::file(&path, format!("header, `{HEADER}`: {error}")))?;
        let mut model = Self::zeros(config, input_dim)?;
        model.optimizer.step = step;
        let Self { tensors, weights, optimizer, .. } = &mut model;
        for (prefix, values) in
            [("", weights), ("exp_avg.", &mut optimizer.first), ("exp_avg_sq.", &mut optimizer.second)]
        {
            for tensor in &tensors.layout.tensors {
                let name = format!("{prefix}{}", tensor.name);
                file.copy(&name, &tensor.shape, &mut values[tensor.range.clone()])?;
            }
        }
        Ok(model)
    }
}
