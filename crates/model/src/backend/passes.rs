//! Forward and backward passes over micro-batches.

use std::any::Any;
use std::ops::Range;

use turnwise_core::LearnError;

use super::Network;
use crate::ModelConfig;
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;

/// Forward pass of a KL divergence between the next-token distributions at two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// Target at which the first distribution is taken.
    pub(crate) first: usize,
    /// The second distribution.
    pub(crate) second: Second,
}

/// The second distribution of a divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// A target of the same pass; gradients flow through it.
    Own(usize),
    /// A target of the same pass, treated as a constant.
    Detached(usize),
    /// A target of the reference policy's forward pass.
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
/// On a device, the learner binds weights and gradients beforehand. The weights and gradients
/// passed here are then ignored.
pub(crate) trait Passes: Any + Send {
    /// Creates empty buffers for the reference policy's passes.
    fn beside(&self, config: &ModelConfig) -> Box<dyn Passes>;

    /// Prepares the reference policy's passes to run on the same device.
    fn bind_reference(&self, _reference: &mut dyn Passes) {}

    /// Returns the length of the gradient buffer for backward passes; 0 if gradients stay on the
    /// device.
    fn gradient_len(&self, network: Network<'_, f32>) -> usize;

    /// Runs a forward pass over a micro-batch and returns one [`RowStatistics`] per target.
    fn forward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        temperature: f64,
    ) -> Result<&[RowStatistics<f32>], LearnError>;

    /// Runs the layers and the final norm only.
    fn forward_layers(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Returns the statistics of each target of the last forward pass.
    fn statistics(&self) -> &[RowStatistics<f32>];

    /// Returns the mean final hidden states over ranges of targets.
    fn means(&mut self, ranges: &[Range<usize>], hidden: usize) -> Result<Vec<Vec<f32>>, LearnError>;

    /// Starts a backward pass for the last forward pass.
    fn begin_backward(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Adds the loss gradients with respect to each target's statistics. They must be zero outside
    /// the `wanted` sequences.
    fn backward_outputs(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[f32; 2]],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Returns the KL divergences, in nats. `reference` is the reference policy after its forward
    /// pass.
    fn divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
    ) -> Result<Vec<f32>, LearnError>;

    /// Adds the gradients of KL divergences. `numbers` holds the divergences and the loss gradients
    /// with respect to them.
    fn backward_divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        numbers: (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Returns and clears the accumulated gradients of the image features. Not supported on
    /// devices.
    fn take_picture_gradient(&mut self) -> Vec<f32> {
        Vec::new()
    }

    /// Backpropagates through the layers for the `wanted` sequences. Call once per forward pass.
    fn backward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;
}
