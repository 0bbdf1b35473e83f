use std::any::Any;
use std::ops::Range;

use turnwise_core::{LearnError, SampleError, SamplingParams};

use super::engine::{Engine, PROMPT_ROWS};
use super::learner::CudaPasses;
use crate::ModelConfig;
use crate::backend::{Choice, Decoding, Divergence, Network, Passes, Row};
use crate::ops::loss_head::RowStatistics;
use crate::packing::{Packing, runs};

impl Passes for CudaPasses {
    fn beside(&self, _: &ModelConfig) -> Box<dyn Passes> {
        Box::new(Self::new(true))
    }

    fn bind_reference(&self, reference: &mut dyn Passes) {
        let reference: &mut dyn Any = reference;
        if let Some(reference) = reference.downcast_mut() {
            Self::bind_reference(self, reference);
        }
    }

    fn gradient_len(&self, _: Network<'_, f32>) -> usize {
        0
    }

    fn forward(
        &mut self,
        network: Network<'_, f32>,
        packing: &Packing,
        temperature: f64,
    ) -> Result<&[RowStatistics<f32>], LearnError> {
        Ok(Self::forward(self, packing, temperature, network.dropout)?)
    }

    fn forward_layers(&mut self, network: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError> {
        Ok(Self::forward_layers(self, packing, network.dropout)?)
    }

    fn statistics(&self) -> &[RowStatistics<f32>] {
        Self::statistics(self)
    }

    fn means(&mut self, ranges: &[Range<usize>], _: usize) -> Result<Vec<Vec<f32>>, LearnError> {
        Ok(Self::means(self, ranges)?)
    }

    fn begin_backward(&mut self, _: Network<'_, f32>, packing: &Packing) -> Result<(), LearnError> {
        Ok(Self::begin_backward(self, packing)?)
    }

    fn backward_outputs(
        &mut self,
        _: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[f32; 2]],
        _: &mut [f32],
    ) -> Result<(), LearnError> {
        for run in runs(wanted) {
            let derivatives = &derivatives[packing.targets_of(&run)];
            Self::backward_outputs(self, packing, &run, derivatives)?;
        }
        Ok(())
    }

    fn divergences(
        &mut self,
        _: Network<'_, f32>,
        terms: &[Divergence],
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
    ) -> Result<Vec<f32>, LearnError> {
        Ok(Self::divergences(self, terms, reference.and_then(on_device))?)
    }

    fn backward_divergences(
        &mut self,
        _: Network<'_, f32>,
        terms: &[Divergence],
        numbers: (&[f32], &[f32]),
        reference: Option<(Network<'_, f32>, &dyn Passes)>,
        _: &mut [f32],
    ) -> Result<(), LearnError> {
        Ok(Self::backward_divergences(self, terms, numbers, reference.and_then(on_device))?)
    }

    fn backward_layers(
        &mut self,
        _: Network<'_, f32>,
        packing: &Packing,
        wanted: &[bool],
        _: &mut [f32],
    ) -> Result<(), LearnError> {
        for run in runs(wanted) {
            Self::backward_layers(self, packing, &run)?;
        }
        Ok(())
    }
}

fn on_device<'a>((_, passes): (Network<'_, f32>, &'a dyn Passes)) -> Option<&'a CudaPasses> {
    let passes: &dyn Any = passes;
    passes.downcast_ref()
}

#[derive(Debug)]
pub(crate) struct DeviceDecoding {
    pub(crate) engine: Engine,
    pub(crate) version: u64,
}

impl Decoding for DeviceDecoding {
    fn version(&self) -> u64 {
        self.version
    }

    fn vocabulary(&self) -> usize {
        self.engine.vocabulary()
    }

    fn prompt_rows(&self) -> usize {
        PROMPT_ROWS
    }

    fn copy(&mut self, from: usize, to: usize, positions: Range<usize>) -> Result<(), SampleError> {
        Ok(self.engine.copy(from, to, positions)?)
    }

    fn step(&mut self, rows: &[Row]) -> Result<(), SampleError> {
        Ok(self.engine.step(rows)?)
    }

    fn choose(&mut self, draws: &[(&SamplingParams, f64)]) -> Result<Vec<Option<Choice>>, SampleError> {
        Ok(self.engine.choose(draws)?)
    }
}
