//! Forward and backward passes over micro-batches.

use std::any::Any;
use std::ops::Range;

use turnwise_core::LearnError;

use super::Network;
use crate::ModelConfig;
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;

/// The divergence of one row's distribution from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// The target of the first distribution.
    pub(crate) first: usize,
    /// The other.
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
/// A device has weights and gradients of its own, which the learner binds before it runs; what is passed
/// of them here is looked at by the CPU alone.
pub(crate) trait Passes: Any + Send {
    /// Empty buffers for the reference policy's passes beside these.
    fn beside(&self, config: &ModelConfig) -> Box<dyn Passes>;

    /// Makes the reference policy's passes ready to run beside these.
    fn bind_reference(&self, _reference: &mut dyn Passes) {}

    /// Returns the length of the gradient that backward passes add to; 0 if a device keeps its own.
    fn gradient_len(&self, network: Network<'_, f32>) -> usize;

    /// Runs a micro-batch forward; one [`RowStatistics`] a target.
    fn forward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        temperature: f64,
    ) -> Result<&[RowStatistics<f32>], LearnError>;

    /// The layers and the final norm alone.
    fn forward_layers(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Statistics of every target of the last forward pass.
    fn statistics(&self) -> &[RowStatistics<f32>];

    /// Means over ranges of targets of the normed rows.
    fn means(&mut self, ranges: &[Range<usize>], hidden: usize) -> Result<Vec<Vec<f32>>, LearnError>;

    /// Starts a backward pass over the micro-batch of the last forward pass.
    fn begin_backward(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError>;

    /// Takes in the derivatives of every target, which are zero outside the sequences that are `wanted`.
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

    /// Takes in the derivatives of divergences: their values, and those derivatives.
    fn backward_divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        numbers: (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;

    /// Takes the summed derivatives of the pictures' features. Devices do not support pictures.
    fn take_picture_gradient(&mut self) -> Vec<f32> {
        Vec::new()
    }

    /// Runs back through the layers for the sequences that are `wanted`; once after each forward pass.
    fn backward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [f32],
    ) -> Result<(), LearnError>;
}
