//! Shared weights of a decoder and its optional adapter.

use std::ops::Range;
use std::sync::Arc;

use crate::lora::{Adapter, Dropout};
use crate::vision::Encoded;
use crate::{ModelConfig, ModelError, Parameters, Real, TensorInfo};

/// Weights of a policy or critic, shared by samplers, evaluations and references.
///
/// Clones are cheap, and several adapters may share one base.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// All weights of the decoder; frozen if there is an adapter.
    pub base: Arc<Parameters<f32>>,
    /// Adapter that is added to the base.
    pub adapter: Option<Arc<Adapter<f32>>>,
}

impl Weights {
    /// Returns a base with an adapter.
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

    /// Returns the base without its adapter.
    pub fn without_adapter(&self) -> Self {
        Self { base: Arc::clone(&self.base), adapter: None }
    }

    /// Returns a model with the adapter merged into it: `W + s B A` for each adapted `W`. Without
    /// an adapter, nothing is copied.
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

    /// Returns the trained tensors: the layout of gradients, moments and optimizer states.
    pub fn trained_tensors(&self) -> &[TensorInfo] {
        self.adapter.as_ref().map_or(&self.base.layout.tensors, |adapter| &adapter.layout.tensors)
    }

    /// Returns true for a critic's weights.
    pub fn has_value_head(&self) -> bool {
        Network::from(self).value().is_some()
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

/// Weights of one pass.
///
/// With an adapter, `gradient` buffers have the adapter's layout and the base gets no gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network<'a, T> {
    pub(crate) parameters: &'a Parameters<T>,
    pub(crate) adapter: Option<&'a Adapter<T>>,
    /// Dropout of an adapter; only in training passes.
    pub(crate) dropout: Option<Dropout>,
    pub(crate) pictures: Option<&'a Encoded<T>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ValueHead<'a, T> {
    /// `[hidden]` weights and one bias.
    pub(crate) weights: &'a [T],
    pub(crate) range: Range<usize>,
}

impl<'a, T: Real> Network<'a, T> {
    pub(crate) fn trained(&self) -> usize {
        self.adapter.map_or(self.parameters.layout.len, |adapter| adapter.layout.len)
    }

    /// Returns the gradient of a tensor of the base; `None` if it is frozen.
    pub(crate) fn gradient_of<'g>(&self, range: &Range<usize>, gradient: &'g mut [T]) -> Option<&'g mut [T]> {
        if self.adapter.is_some() { None } else { gradient.get_mut(range.clone()) }
    }

    pub(crate) fn value(&self) -> Option<ValueHead<'a, T>> {
        let (range, data) = match self.adapter {
            Some(adapter) => (adapter.layout.value.clone()?, &adapter.data),
            None => (self.parameters.layout.value.clone()?, &self.parameters.data),
        };
        Some(ValueHead { weights: &data[range.clone()], range })
    }
}

impl<'a, T> From<&'a Parameters<T>> for Network<'a, T> {
    fn from(parameters: &'a Parameters<T>) -> Self {
        Self { parameters, adapter: None, dropout: None, pictures: None }
    }
}

impl<'a> From<&'a Weights> for Network<'a, f32> {
    fn from(weights: &'a Weights) -> Self {
        Self { parameters: &weights.base, adapter: weights.adapter.as_deref(), dropout: None, pictures: None }
    }
}

impl<'a> From<&'a Arc<Parameters<f32>>> for Network<'a, f32> {
    fn from(parameters: &'a Arc<Parameters<f32>>) -> Self {
        Self::from(&**parameters)
    }
}
