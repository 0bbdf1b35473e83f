//! Floats that begin on a cache line.

use super::vector::LINE;

/// Floats that begin on a cache line, so that no vector load of whole lines crosses one.
#[derive(Debug)]
pub(super) struct Aligned {
    data: Vec<f32>,
    start: usize,
}

impl Aligned {
    pub(super) fn zeros(len: usize) -> Self {
        let data = vec![0.0; len + LINE];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Self { data, start }
    }

    pub(super) fn get(&self) -> &[f32] {
        &self.data[self.start..][..self.data.len() - LINE]
    }

    pub(super) fn get_mut(&mut self) -> &mut [f32] {
        let len = self.data.len() - LINE;
        &mut self.data[self.start..][..len]
    }
}
