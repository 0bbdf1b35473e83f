use std::ops::Range;
use std::sync::Arc;

use crate::vision::Encoded;
use crate::weights::lora::{Adapter, Dropout};
use crate::{Parameters, Real, Weights};

/// The weights that a forward or backward pass uses. If there is an adapter, the pass's `gradient`
/// buffer holds only the adapter's gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network<'a, T> {
    pub(crate) parameters: &'a Parameters<T>,
    pub(crate) adapter: Option<&'a Adapter<T>>,
    /// Dropout of the adapter's inputs; set only in training passes.
    pub(crate) dropout: Option<Dropout>,
    pub(crate) pictures: Option<&'a Encoded<T>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ValueHead<'a, T> {
    /// The value head's `[hidden]` weights, then its bias.
    pub(crate) weights: &'a [T],
    /// Range of the value head in the gradient buffer.
    pub(crate) range: Range<usize>,
}

impl<'a, T: Real> Network<'a, T> {
    /// Returns the length of the gradient buffer.
    pub(crate) fn trained(&self) -> usize {
        self.adapter.map_or(self.parameters.layout.len, |adapter| adapter.layout.len)
    }

    /// Returns a tensor's gradient, or `None` if the tensor is frozen.
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
