//! Stub for targets other than x86-64, which have no bf16 products.

use super::linear::{Accumulate, View, ViewMut};
use crate::ComputePath;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {}

impl Kernel {
    pub(crate) fn best() -> Option<Self> {
        None
    }

    pub(crate) fn path(self) -> ComputePath {
        match self {}
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as where it can be called")]
pub(crate) fn product(
    kernel: Kernel,
    _: ViewMut<'_, f32>,
    _: View<'_, f32>,
    _: View<'_, f32>,
    _: Accumulate,
    _: f32,
) {
    match kernel {}
}

#[derive(Debug)]
pub(crate) struct PackedRight(Kernel);

impl PackedRight {
    pub(crate) fn bytes(_: usize, _: usize) -> usize {
        0
    }

    pub(crate) fn new(_: &[f32], _: usize) -> Self {
        unreachable!("this CPU multiplies no bf16")
    }

    pub(crate) fn add_product(&self, kernel: Kernel, _: (&[f32], usize), _: (&mut [f32], usize)) {
        match kernel {}
    }
}

pub(crate) mod attention {
    use super::Kernel;
    use crate::ops::attention::{Derivatives, Heads, KeyValues, Output};

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Scratch;

    pub(crate) fn forward(
        kernel: Kernel,
        _: Heads,
        _: &[f32],
        _: KeyValues<'_, f32>,
        _: &mut [f32],
        _: &mut [f32],
        _: &mut Scratch,
    ) {
        match kernel {}
    }

    #[expect(clippy::needless_pass_by_value, reason = "as where it can be called")]
    pub(crate) fn backward(
        kernel: Kernel,
        _: Heads,
        _: &[f32],
        _: KeyValues<'_, f32>,
        _: &Output<'_, f32>,
        _: Derivatives<'_, f32>,
        _: &mut Scratch,
    ) {
        match kernel {}
    }
}

#[cfg(test)]
pub(crate) fn kernels() -> Vec<Kernel> {
    Vec::new()
}
