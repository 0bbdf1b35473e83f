//! A lane's passes on the CPU or on a device, with one interface.
#![cfg_attr(not(feature = "cuda"), expect(clippy::unnecessary_wraps, reason = "only a device can fail"))]

use std::ops::Range;

use turnwise_core::LearnError;

use crate::ModelConfig;
use crate::decoder::Workspace;
use crate::head::{Divergence, ReferenceRows};
use crate::ops::bf16::Kernel;
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;
use crate::weights::Network;

/// Buffers, and forward and backward passes, of one lane.
///
/// A device ignores the weights and gradients passed here and uses its own, which the learner binds
/// beforehand.
pub(crate) enum LanePasses {
    Host(Box<Workspace<f32>>),
    #[cfg(feature = "cuda")]
    Cuda(Box<crate::cuda::CudaPasses>),
}

impl LanePasses {
    pub(crate) fn beside(&self, config: &ModelConfig, bf16: Option<Kernel>) -> Self {
        match self {
            Self::Host(_) => Self::Host(Box::new(Workspace::forward_only(config).with_bf16(bf16))),
            #[cfg(feature = "cuda")]
            // Only the last layer's values are needed later.
            Self::Cuda(_) => Self::Cuda(Box::new(crate::cuda::CudaPasses::new(true))),
        }
    }

    pub(crate) fn bind_reference(&self, reference: &mut Self) {
        match (self, reference) {
            #[cfg(feature = "cuda")]
            (Self::Cuda(passes), Self::Cuda(reference)) => passes.bind_reference(reference),
            _ => {}
        }
    }

    pub(crate) fn forward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        temperature: f64,
    ) -> Result<&[RowStatistics<f32>], LearnError> {
        match self {
            Self::Host(workspace) => Ok(workspace.forward(network, packing, temperature)),
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => Ok(passes.forward(packing, temperature, network.dropout)?),
        }
    }

    pub(crate) fn forward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
    ) -> Result<(), LearnError> {
        match self {
            Self::Host(workspace) => workspace.forward_layers(network, packing),
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => passes.forward_layers(packing, network.dropout)?,
        }
        Ok(())
    }

    pub(crate) fn statistics(&self) -> &[RowStatistics<f32>] {
        match self {
            Self::Host(workspace) => &workspace.head.statistics,
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => passes.statistics(),
        }
    }

    pub(crate) fn means(
        &mut self,
        ranges: &[Range<usize>],
        hidden: usize,
    ) -> Result<Vec<Vec<f32>>, LearnError> {
        match self {
            Self::Host(workspace) => {
                Ok(ranges.iter().map(|range| workspace.head.mean(range, hidden)).collect())
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => Ok(passes.means(ranges)?),
        }
    }

    pub(crate) fn begin_backward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
    ) -> Result<(), LearnError> {
        match self {
            Self::Host(workspace) => workspace.begin_backward(network, packing),
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => passes.begin_backward(packing)?,
        }
        Ok(())
    }

    pub(crate) fn backward_outputs(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[f32; 2]],
        gradient: &mut [f32],
    ) -> Result<(), LearnError> {
        match self {
            Self::Host(workspace) => {
                workspace.backward_outputs(network, packing, wanted, derivatives, gradient);
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => {
                for run in crate::packing::runs(wanted) {
                    let derivatives = &derivatives[packing.targets_of(&run)];
                    passes.backward_outputs(packing, &run, derivatives)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        reference: Option<(Network<'_, f32>, &Self)>,
    ) -> Result<Vec<f32>, LearnError> {
        match self {
            Self::Host(workspace) => {
                Ok(workspace.head.divergences(network.parameters, terms, reference.and_then(host_rows)))
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => Ok(passes.divergences(terms, reference.and_then(device_passes))?),
        }
    }

    pub(crate) fn backward_divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        (values, slopes): (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &Self)>,
        gradient: &mut [f32],
    ) -> Result<(), LearnError> {
        match self {
            Self::Host(workspace) => {
                let rows = reference.and_then(host_rows);
                workspace.head.backward_divergences(network, terms, values, slopes, rows, gradient);
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => {
                passes.backward_divergences(terms, (values, slopes), reference.and_then(device_passes))?;
            }
        }
        Ok(())
    }

    /// Takes the summed derivatives of the pictures' features. Devices do not support pictures.
    pub(crate) fn take_picture_gradient(&mut self) -> Vec<f32> {
        match self {
            Self::Host(workspace) => workspace.take_picture_gradient(),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => Vec::new(),
        }
    }

    /// Runs backward through the layers for the `wanted` sequences. Call it once per forward pass.
    pub(crate) fn backward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [f32],
    ) -> Result<(), LearnError> {
        match self {
            Self::Host(workspace) => workspace.backward_layers(network, packing, wanted, gradient),
            #[cfg(feature = "cuda")]
            Self::Cuda(passes) => {
                for run in crate::packing::runs(wanted) {
                    passes.backward_layers(packing, &run)?;
                }
            }
        }
        Ok(())
    }
}

fn host_rows<'a>((network, passes): (Network<'a, f32>, &'a LanePasses)) -> Option<ReferenceRows<'a, f32>> {
    match passes {
        LanePasses::Host(workspace) => {
            Some(ReferenceRows { parameters: network.parameters, head: &workspace.head })
        }
        #[cfg(feature = "cuda")]
        LanePasses::Cuda(_) => None,
    }
}

#[cfg(feature = "cuda")]
fn device_passes<'a>((_, passes): (Network<'_, f32>, &'a LanePasses)) -> Option<&'a crate::cuda::CudaPasses> {
    match passes {
        LanePasses::Host(_) => None,
        LanePasses::Cuda(passes) => Some(passes),
    }
}
