use std::sync::Arc;

use super::CudaError;
use super::driver::Driver;
use super::memory::{Buffer, Part};
use crate::ModelConfig;
use crate::ops::rope::RopeTable;

/// Cosines and sines, `[positions, cosines | sines]`, up to the longest sequence so far.
pub(crate) struct Angles {
    table: RopeTable<f32>,
    buffer: Buffer<f32>,
    width: usize,
}

impl Angles {
    pub(crate) fn new(driver: &Arc<dyn Driver>, config: &ModelConfig) -> Self {
        let table = RopeTable::new(config.rotary());
        Self { table, buffer: Buffer::empty(driver), width: config.head_dim }
    }

    pub(crate) fn up_to(&mut self, positions: usize) -> Result<Part<f32>, CudaError> {
        if self.buffer.len() < positions * self.width {
            self.table.extend_to(positions.next_power_of_two());
            self.buffer.put(self.table.values())?;
        }
        Ok(self.buffer.all())
    }

    pub(crate) fn all(&self) -> Part<f32> {
        self.buffer.all()
    }
}
