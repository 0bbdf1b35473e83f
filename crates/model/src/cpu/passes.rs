use std::any::Any;
use std::ops::Range;

use turnwise_core::LearnError;

use super::decoder::Workspace;
use super::head::ReferenceRows;
use crate::ModelConfig;
use crate::backend::{Divergence, Network, Passes};
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;

impl Passes for Workspace<f32> {
    fn beside(&self, config: &ModelConfig) -> Box<dyn Passes> {
        Box::new(Self::forward_only(config).with_bf16(self.head.bf16))
    }

    fn gradient_len(&self, network: Network<'_, f32>) -> usize {
        network.trained()
    }

    fn forward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        temperature: f64,
    ) -> Result<&[RowStatistics<f32>], LearnError> {
        Ok(Self::forward(self, network, packing, temperature))
    }

    fn forward_layers(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError> {
        Self::forward_layers(self, network, packing);
        Ok(())
    }

    fn statistics(&self) -> &[RowStatistics<f32>] {
        &self.head.statistics
    }

    fn means(&mut self, ranges: &[Range<usize>], hidden: usize) -> Result<Vec<Vec<f32>>, LearnError> {
        Ok(ranges.iter().map(|range| self.head.mean(range, hidden)).collect())
    }

    fn begin_backward(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError> {
        Self::begin_backward(self, network, packing);
        Ok(())
    }

    fn backward_outputs(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[f32; 2]],
        gradient: &mut [f32],
    ) -> Result<(), LearnError> {
        Self::backward_outputs(self, network, packing, wanted, derivatives, gradient);
        Ok(())
    }

    fn divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
    ) -> Result<Vec<f32>, LearnError> {
        Ok(self.head.divergences(network.parameters, terms, reference.and_then(rows)))
    }

    fn backward_divergences(
        &mut self,
        network: Network<'_, f32>,
        terms: &[Divergence],
        (values, slopes): (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
        gradient: &mut [f32],
    ) -> Result<(), LearnError> {
        let rows = reference.and_then(rows);
        self.head.backward_divergences(network, terms, values, slopes, rows, gradient);
        Ok(())
    }

    fn take_picture_gradient(&mut self) -> Vec<f32> {
        Self::take_picture_gradient(self)
    }

    fn backward_layers(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [f32],
    ) -> Result<(), LearnError> {
        Self::backward_layers(self, network, packing, wanted, gradient);
        Ok(())
    }
}

fn rows<'a>((network, passes): (Network<'a, f32>, &'a dyn Passes)) -> Option<ReferenceRows<'a, f32>> {
    let passes: &dyn Any = passes;
    let workspace: &Workspace<f32> = passes.downcast_ref()?;
    Some(ReferenceRows { parameters: network.parameters, head: &workspace.head })
}
