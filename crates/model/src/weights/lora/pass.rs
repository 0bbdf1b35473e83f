use std::ops::Range;

use super::{Adapter, Branch, Dropout};
use crate::Real;
use crate::ops::bf16::Kernel;
use crate::ops::dispatch::add_assign;
use crate::ops::grow;
use crate::ops::linear::{Accumulate, View, ViewMut, matmul_in};
use crate::packing::Packing;

#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<T> {
    /// `x A^T` of all parts, `[rows, parts rank]`.
    low: Vec<T>,
    d_low: Vec<T>,
    /// One module's input after dropout, `[rows, inputs]`.
    dropped: Vec<T>,
    d_dropped: Vec<T>,
}

#[derive(Clone)]
pub(crate) struct BranchPass<'a, T> {
    pub(crate) bf16: Option<Kernel>,
    pub(crate) adapter: &'a Adapter<T>,
    pub(crate) branch: &'a Branch,
    pub(crate) layer: usize,
    pub(crate) dropout: Option<Dropout>,
    pub(crate) packing: &'a Packing,
    pub(crate) rows: Range<usize>,
}

impl<T: Real> BranchPass<'_, T> {
    /// Adds `s dropout(x) A^T B^T` to `y`. `x` is `[rows, inputs]`, `y` is `[rows, outputs]`.
    pub(crate) fn forward(&self, x: &[T], y: &mut [T], scratch: &mut Scratch<T>) {
        let Branch { parts, inputs, outputs, .. } = self.branch;
        if parts.is_empty() {
            return;
        }
        let (rows, rank) = (x.len() / inputs, self.adapter.config.rank);
        let width = parts.len() * rank;
        self.fill_low(x, scratch);
        let scale = T::from_f64(self.adapter.config.scale());
        for (index, part) in parts.iter().enumerate() {
            let low = View::strided(&scratch.low[index * rank..], rows, rank, width);
            let b = View::new(&self.adapter.data[part.b.clone()], part.columns.len(), rank);
            let to = ViewMut::strided(&mut y[part.columns.start..], rows, part.columns.len(), *outputs);
            matmul_in(self.bf16, to, low, b.t(), Accumulate::Add, scale);
        }
    }

    /// Adds the gradient of `x` to `d_x`, and the adapter's gradient to `gradient`.
    pub(crate) fn backward(
        &self,
        x: &[T],
        d_y: &[T],
        d_x: &mut [T],
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let Branch { a, parts, inputs, outputs } = self.branch;
        if parts.is_empty() {
            return;
        }
        let (inputs, data) = (*inputs, &self.adapter.data);
        let (rows, rank) = (x.len() / inputs, self.adapter.config.rank);
        let width = parts.len() * rank;
        self.fill_low(x, scratch);
        let scale = T::from_f64(self.adapter.config.scale());
        grow(&mut scratch.d_low, rows * width);
        for (index, part) in parts.iter().enumerate() {
            let columns = part.columns.len();
            let d_y = View::strided(&d_y[part.columns.start..], rows, columns, *outputs);
            let low = View::strided(&scratch.low[index * rank..], rows, rank, width);
            let d_b = ViewMut::new(&mut gradient[part.b.clone()], columns, rank);
            matmul_in(self.bf16, d_b, d_y.t(), low, Accumulate::Add, scale);
            let b = View::new(&data[part.b.clone()], columns, rank);
            let d_low = ViewMut::strided(&mut scratch.d_low[index * rank..], rows, rank, width);
            matmul_in(self.bf16, d_low, d_y, b, Accumulate::Set, scale);
        }
        let Scratch { d_low, dropped, d_dropped, .. } = scratch;
        let Some(dropout) = self.dropout else {
            let d_low = View::new(d_low, rows, width);
            let d_a = ViewMut::new(&mut gradient[a.clone()], width, inputs);
            matmul_in(self.bf16, d_a, d_low.t(), View::new(x, rows, inputs), Accumulate::Add, T::ONE);
            let to = ViewMut::new(d_x, rows, inputs);
            matmul_in(
                self.bf16,
                to,
                d_low,
                View::new(&data[a.clone()], width, inputs),
                Accumulate::Add,
                T::ONE,
            );
            return;
        };
        for (index, part) in parts.iter().enumerate() {
            let d_low = View::strided(&d_low[index * rank..], rows, rank, width);
            self.drop_entries(dropout, index, x, dropped);
            let d_a = ViewMut::new(&mut gradient[part.a.clone()], rank, inputs);
            matmul_in(self.bf16, d_a, d_low.t(), View::new(dropped, rows, inputs), Accumulate::Add, T::ONE);
            // Dropped entries have a zero gradient; the others are scaled as in forward.
            grow(d_dropped, rows * inputs);
            let weight = View::new(&data[part.a.clone()], rank, inputs);
            matmul_in(
                self.bf16,
                ViewMut::new(d_dropped, rows, inputs),
                d_low,
                weight,
                Accumulate::Set,
                T::ONE,
            );
            self.drop_entries(dropout, index, &d_dropped[..rows * inputs], dropped);
            add_assign(d_x, &dropped[..rows * inputs]);
        }
    }

    fn fill_low(&self, x: &[T], scratch: &mut Scratch<T>) {
        let Branch { a, parts, inputs, .. } = self.branch;
        let (rows, rank) = (x.len() / inputs, self.adapter.config.rank);
        let width = parts.len() * rank;
        let data = &self.adapter.data;
        grow(&mut scratch.low, rows * width);
        let Some(dropout) = self.dropout else {
            let low = ViewMut::new(&mut scratch.low, rows, width);
            let a = View::new(&data[a.clone()], width, *inputs);
            return matmul_in(self.bf16, low, View::new(x, rows, *inputs), a.t(), Accumulate::Set, T::ONE);
        };
        for (index, part) in parts.iter().enumerate() {
            self.drop_entries(dropout, index, x, &mut scratch.dropped);
            let low = ViewMut::strided(&mut scratch.low[index * rank..], rows, rank, width);
            let a = View::new(&data[part.a.clone()], rank, *inputs);
            matmul_in(
                self.bf16,
                low,
                View::new(&scratch.dropped, rows, *inputs),
                a.t(),
                Accumulate::Set,
                T::ONE,
            );
        }
    }

    fn drop_entries(&self, dropout: Dropout, part: usize, x: &[T], to: &mut Vec<T>) {
        let width = self.branch.inputs;
        grow(to, x.len());
        let module = self.branch.parts[part].module as u64;
        let rows = x.chunks_exact(width).zip(to.chunks_exact_mut(width));
        for ([identity, position], (x, to)) in self.packing.coordinates(self.rows.clone()).zip(rows) {
            dropout.apply([identity, self.layer as u64, module, position], x, to);
        }
    }
}
