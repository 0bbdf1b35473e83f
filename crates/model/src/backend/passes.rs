//! Forward and backward passes over micro-batches.

use std::any::Any;
use std::ops::Range;

use turnwise_core::LearnError;

use super::Network;
use crate::ModelConfig;
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;

/// KL divergence between the distributions of two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// The target of the first distribution.
    pub(crate) first: usize,
    /// The second distribution.
    pub(crate) second: Second,
}

/// The second distribution of a divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// A target of the same pass, with a gradient.
    Own(usize),
    /// A target of the same pass as a constant.
    Detached(usize),
    /// A target of the reference policy's pass.
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

/// Buffers and forward and backward passes of one lane.
///
/// A device keeps its own weights and gradients, which the learner binds first. It ignores the weights
/// and gradients passed here.
pub(crate) trait Passes: Any + Send {
    /// Creates empty buffers for the reference policy's passes.
    fn beside(&self, config: &ModelConfig) -> Box<dyn Passes>;

    /// Prepares the reference policy's passes to run on the same device.
    fn bind_reference(&self, _reference: &mut dyn Passes) {}

    /// Returns the length of the gradient that backward passes add to; 0 if a device keeps its own.
    fn gradient_len(&self, network: Network<'_, f32>) -> usize;

    /// Runs a micro-batch forward; returns one [`RowStatistics`] per target.
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

    /// Returns means of the normed rows over ranges of targets.
    fn means(&mut self, ranges: &[Range<usize>], hidden: usize) -> Result<Vec<Vec<f32>>, LearnError>;

    /// Starts a backward pass over the micro-batch of the last forward pass.
    fn begin_backward(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Adds the derivatives of each target. They are zero outside the `wanted` sequences.
    fn backward_outputs(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[f32; 2]],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Returns the divergences, in nats. `reference` is the other policy after its own pass.
    fn divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
    ) -> Result<Vec<f32>, LearnError>;

    /// Adds the derivatives of divergences; `numbers` are the divergences and the loss's derivatives by
    /// them.
    fn backward_divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        numbers: (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Returns and clears the summed derivatives of the pictures' features. Devices do not support pictures.
    fn take_picture_gradient(&mut self) -> Vec<f32> {
        Vec::new()
    }

    /// Runs backward through the layers for the `wanted` sequences, once after each forward pass.
    fn backward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;
}
