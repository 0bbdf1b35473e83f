//! Floats that begin on a cache line.

/// Floats that begin on a cache line, so that no vector load of whole lines crosses one.
#[derive(Debug)]
pub(super) struct Aligned {
    data: Vec<f32>,
    start: usize,
}

impl Aligned {
    pub(super) fn zeros(len: usize) -> Self {
        let data = vec![0.0; len + 16];
        let start = data.as_ptr().align_offset(64).min(16);
        Self { data, start }
    }

    pub(super) fn get(&self) -> &[f32] {
        &self.data[self.start..]
    }

    pub(super) fn get_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..]
    }
}
