use std::sync::Arc;

use super::lora::Adapter;
use crate::{ModelConfig, ModelError, Parameters, TensorInfo};

/// Weights of a policy or critic. Clones are cheap, and several adapters can share one base.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The decoder's weights; frozen if there is an adapter.
    pub base: Arc<Parameters<f32>>,
    /// Adapter on the base.
    pub adapter: Option<Arc<Adapter<f32>>>,
}

impl Weights {
    /// Returns a base model with an adapter.
    ///
    /// # Errors
    /// Fails if the adapter was made for another architecture.
    pub fn adapted(base: Arc<Parameters<f32>>, adapter: Adapter<f32>) -> Result<Self, ModelError> {
        adapter.check_base(&base.config)?;
        Ok(Self { base, adapter: Some(Arc::new(adapter)) })
    }

    /// Returns the architecture.
    pub fn config(&self) -> &ModelConfig {
        &self.base.config
    }

    /// Returns only the base model.
    pub fn without_adapter(&self) -> Self {
        Self { base: Arc::clone(&self.base), adapter: None }
    }

    /// Returns a model in which each adapted `W` is replaced by `W + s B A`. Without an adapter,
    /// copies nothing.
    ///
    /// # Errors
    /// Fails if the adapter was made for another architecture.
    pub fn merged(&self) -> Result<Arc<Parameters<f32>>, ModelError> {
        let Some(adapter) = &self.adapter else { return Ok(Arc::clone(&self.base)) };
        let mut merged = (*self.base).clone();
        adapter.merge_into(&mut merged)?;
        Ok(Arc::new(merged))
    }

    /// Returns the trained parameters: the adapter's if there is one, else all.
    pub fn trained(&self) -> &[f32] {
        self.adapter.as_ref().map_or(&self.base.data, |adapter| &adapter.data)
    }

    /// Returns the trained tensors, which are also the layout of gradients and optimizer states.
    pub fn trained_tensors(&self) -> &[TensorInfo] {
        self.adapter.as_ref().map_or(&self.base.layout.tensors, |adapter| &adapter.layout.tensors)
    }

    /// Returns true for a critic.
    pub(crate) fn has_value_head(&self) -> bool {
        match &self.adapter {
            Some(adapter) => adapter.layout.value.is_some(),
            None => self.base.layout.value.is_some(),
        }
    }
}

impl From<Parameters<f32>> for Weights {
    fn from(parameters: Parameters<f32>) -> Self {
        Arc::new(parameters).into()
    }
}

impl From<Arc<Parameters<f32>>> for Weights {
    fn from(base: Arc<Parameters<f32>>) -> Self {
        Self { base, adapter: None }
    }
}
