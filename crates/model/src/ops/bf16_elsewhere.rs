//! Matrix products of bf16 exist for x86-64 only; elsewhere nothing is one.

use super::linear::{Accumulate, View, ViewMut};
use crate::ComputePath;

/// There is no kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {}

impl Kernel {
    /// None.
    pub(crate) fn best() -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(crate) fn path(self) -> ComputePath {
        match self {}
    }
}

/// Cannot be called.
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

/// Cannot be made.
#[derive(Debug)]
pub(crate) struct PackedRight(Kernel);

impl PackedRight {
    /// Nothing.
    pub(crate) fn bytes(_: usize, _: usize) -> usize {
        0
    }

    /// Never called: without a [`Kernel`] nothing is packed.
    pub(crate) fn new(_: &[f32], _: usize) -> Self {
        unreachable!("this CPU multiplies no bf16")
    }

    /// Cannot be called.
    pub(crate) fn add_product(&self, kernel: Kernel, _: (&[f32], usize), _: (&mut [f32], usize)) {
        match kernel {}
    }
}

pub(crate) mod attention {
    use super::Kernel;
    use crate::ops::attention::{Derivatives, Heads, KeyValues, Output};

    /// Nothing.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Scratch;

    /// Cannot be called.
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

    /// Cannot be called.
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

/// None.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<Kernel> {
    Vec::new()
}
