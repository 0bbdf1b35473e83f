use super::vector::LINE;

/// Four-byte numbers, aligned so that no vector load crosses a cache line.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    data: Vec<T>,
    start: usize,
}

impl<T: Copy + Default> Aligned<T> {
    pub(super) fn zeros(len: usize) -> Self {
        let data = vec![T::default(); len + LINE];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Self { data, start }
    }

    pub(super) fn get(&self) -> &[T] {
        &self.data[self.start..][..self.data.len() - LINE]
    }

    pub(super) fn get_mut(&mut self) -> &mut [T] {
        let len = self.data.len() - LINE;
        &mut self.data[self.start..][..len]
    }
}
