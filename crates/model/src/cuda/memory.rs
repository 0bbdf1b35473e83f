use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::CudaError;
use super::driver::{Address, Driver};

pub(crate) type Bf16 = half::bf16;

/// An element type without padding or pointers, for which all bit patterns are valid.
pub(crate) trait Plain: Pod + Default + Send + Sync {}

impl<T: Pod + Default + Send + Sync> Plain for T {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Tile {
    pub(crate) query_row: i32,
    pub(crate) queries: i32,
    pub(crate) key_row: i32,
    pub(crate) position: i32,
}

/// Device memory for `len` elements, freed on drop.
pub(crate) struct Buffer<T> {
    driver: Arc<dyn Driver>,
    at: Address,
    len: usize,
    kind: PhantomData<T>,
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Buffer").field("at", &self.at).field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Plain> Buffer<T> {
    pub(crate) fn empty(driver: &Arc<dyn Driver>) -> Self {
        Self { driver: Arc::clone(driver), at: 0, len: 0, kind: PhantomData }
    }

    pub(crate) fn new(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, CudaError> {
        let at = if len == 0 { 0 } else { driver.allocate(len * size_of::<T>())? };
        Ok(Self { driver: Arc::clone(driver), at, len, kind: PhantomData })
    }

    pub(crate) fn zeros(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, CudaError> {
        let buffer = Self::new(driver, len)?;
        buffer.all().clear(&**driver)?;
        Ok(buffer)
    }

    pub(crate) fn of(driver: &Arc<dyn Driver>, values: &[T]) -> Result<Self, CudaError> {
        let buffer = Self::new(driver, values.len())?;
        buffer.all().upload(&**driver, values)?;
        Ok(buffer)
    }

    pub(crate) fn duplicate(&self, driver: &Arc<dyn Driver>) -> Result<Self, CudaError> {
        let copy = Self::new(driver, self.len)?;
        self.all().copy_to(&**driver, copy.all())?;
        Ok(copy)
    }

    /// Grows the buffer to at least `len` elements; growing discards the contents.
    pub(crate) fn grow(&mut self, len: usize) -> Result<(), CudaError> {
        if self.len < len {
            *self = Self::empty(&self.driver);
            *self = Self::new(&self.driver, len)?;
        }
        Ok(())
    }

    pub(crate) fn put(&mut self, values: &[T]) -> Result<Part<T>, CudaError> {
        self.grow(values.len())?;
        let part = self.part(0..values.len());
        part.upload(&*self.driver, values)?;
        Ok(part)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn all(&self) -> Part<T> {
        self.part(0..self.len)
    }

    pub(crate) fn part(&self, range: Range<usize>) -> Part<T> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let at = self.at + (range.start * size_of::<T>()) as u64;
        Part { at, len: range.len(), kind: PhantomData }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.at != 0 {
            self.driver.free(self.at);
        }
    }
}

/// Address of elements in a buffer. Like a raw pointer, a `Part` does not keep the [`Buffer`]
/// alive.
pub(crate) struct Part<T> {
    pub(crate) at: Address,
    pub(crate) len: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Part<T> {}

impl<T: Plain> Part<T> {
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let at = self.at + (range.start * size_of::<T>()) as u64;
        Self { at, len: range.len(), kind: PhantomData }
    }

    pub(crate) fn upload(self, driver: &dyn Driver, values: &[T]) -> Result<(), CudaError> {
        assert_eq!(values.len(), self.len);
        if values.is_empty() { Ok(()) } else { driver.upload(self.at, bytemuck::cast_slice(values)) }
    }

    pub(crate) fn download(self, driver: &dyn Driver) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::default(); self.len];
        if self.len > 0 {
            driver.download(self.at, bytemuck::cast_slice_mut(&mut values))?;
        }
        Ok(values)
    }

    pub(crate) fn clear(self, driver: &dyn Driver) -> Result<(), CudaError> {
        if self.len == 0 { Ok(()) } else { driver.clear(self.at, self.len * size_of::<T>()) }
    }

    pub(crate) fn copy_to(self, driver: &dyn Driver, to: Self) -> Result<(), CudaError> {
        assert_eq!(self.len, to.len);
        if self.len == 0 { Ok(()) } else { driver.copy(self.at, to.at, self.len * size_of::<T>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bfloat16_is_the_nearest_one() {
        for (value, bits) in [(1.0f32, 0x3f80), (-2.5, 0xc020), (0.0, 0), (f32::INFINITY, 0x7f80)] {
            assert_eq!(Bf16::from_f32(value).to_bits(), bits);
        }
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3f80_8000)).to_bits(), 0x3f80);
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3f81_8000)).to_bits(), 0x3f82);
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3f80_8001)).to_bits(), 0x3f81);
        assert_eq!(Bf16::from_f32(f32::MAX).to_bits(), 0x7f80);
        assert!(Bf16::from_f32(f32::NAN).to_f32().is_nan());
    }
}
