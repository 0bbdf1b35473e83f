use std::any::Any;
use std::ops::Range;

use turnwise_core::LearnError;

use super::Network;
use crate::ModelConfig;
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;

/// A KL divergence between the next-token distributions at two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// Index of the target token that the first distribution predicts.
    pub(crate) first: usize,
    pub(crate) second: Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// Target token of the same pass; gradients flow through its distribution.
    Own(usize),
    /// Target token of the same pass, whose distribution is a constant.
    Detached(usize),
    /// Target token of the reference policy's pass.
    Reference(usize),
}

impl Second {
    pub(crate) fn target(self) -> usize {
        match self {
            Self::Own(target) | Self::Detached(target) | Self::Reference(target) => target,
        }
    }

    pub(crate) fn is_reference(self) -> bool {
        matches!(self, Self::Reference(_))
    }
}

/// Forward and backward passes of one lane, with their buffers.
///
/// On a device, passes use the weights and gradients that the learner has bound, not the arguments.
pub(crate) trait Passes: Any + Send {
    /// Creates buffers for the reference policy's passes.
    fn beside(&self, config: &ModelConfig) -> Box<dyn Passes>;

    fn bind_reference(&self, _reference: &mut dyn Passes) {}

    /// Returns the length of the gradient buffer; 0 if gradients stay on the device.
    fn gradient_len(&self, network: Network<'_, f32>) -> usize;

    /// Runs a micro-batch and returns one [`RowStatistics`] per target.
    fn forward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        temperature: f64,
    ) -> Result<&[RowStatistics<f32>], LearnError>;

    /// Runs a micro-batch through the layers and the final norm, without the output layer.
    fn forward_layers(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Returns the last forward pass's statistics, one per target.
    fn statistics(&self) -> &[RowStatistics<f32>];

    /// Returns the mean final hidden state over each range of targets.
    fn means(&mut self, ranges: &[Range<usize>], hidden: usize) -> Result<Vec<Vec<f32>>, LearnError>;

    fn begin_backward(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Backpropagates through the output layer or value head. `derivatives` has the loss's
    /// gradients with respect to each target's log-prob and entropy, or to its value. Gradients
    /// must be zero outside the `wanted` sequences.
    fn backward_outputs(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[f32; 2]],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Returns KL divergences in nats. Call this after the forward pass of `reference`.
    fn divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
    ) -> Result<Vec<f32>, LearnError>;

    /// Adds the gradients of KL divergences, given the divergences and the loss's gradients with
    /// respect to them.
    fn backward_divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        numbers: (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Takes the image features' gradients out of the buffers. Returns an empty list on devices,
    /// which do not support images.
    fn take_picture_gradient(&mut self) -> Vec<f32> {
        Vec::new()
    }

    /// Backpropagates through the layers for the `wanted` sequences. Call this at most once per
    /// sequence and forward pass, because it overwrites stored values.
    fn backward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;
}
