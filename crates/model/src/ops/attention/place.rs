use std::ops::Range;

use super::{Heads, Real};
use crate::ops::grow;

/// Rows whose queries are computed, and the earlier rows that these queries attend to.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) rows: Range<usize>,
    /// Earlier rows that all queries attend to, in order.
    pub(crate) path: &'a [Range<usize>],
}

impl Place<'_> {
    pub(super) fn before(&self) -> usize {
        self.path.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Keys and values that queries attend to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyValues<'a, T> {
    data: &'a [T],
    pub(in crate::ops) stride: usize,
    /// Number of leading columns of a `qkv` row that `data` lacks.
    skipped: usize,
    /// Number of rows attended to that precede the first query's row.
    pub(in crate::ops) before: usize,
    pub(in crate::ops) length: usize,
}

impl<'a, T> KeyValues<'a, T> {
    pub(in crate::ops) fn column(&self, offset: usize) -> &'a [T] {
        &self.data[offset - self.skipped..]
    }
}

pub(crate) struct Derivatives<'a, T> {
    /// Gradients of `[queries | keys | values]` in the queries' own rows.
    pub(in crate::ops) own: &'a mut [T],
    /// Gradients of `[keys | values]` in all rows attended to; `None` if none of these rows
    /// precedes the queries' rows.
    pub(in crate::ops) gathered: Option<&'a mut [T]>,
}

impl<T> Derivatives<'_, T> {
    /// Returns the key and value gradients, starting at column `offset` of a `qkv` row, and the
    /// distance between rows.
    pub(in crate::ops) fn column(&mut self, heads: Heads, offset: usize) -> (&mut [T], usize) {
        match &mut self.gathered {
            Some(gathered) => (&mut gathered[offset - heads.query_width()..], heads.gathered()),
            None => (&mut self.own[offset..], heads.row()),
        }
    }
}

impl<T: Real> KeyValues<'_, T> {
    pub(super) fn f32s(&self) -> Option<KeyValues<'_, f32>> {
        let Self { data, stride, skipped, before, length } = *self;
        Some(KeyValues { data: T::f32s(data)?, stride, skipped, before, length })
    }
}

impl<T: Real> Derivatives<'_, T> {
    pub(super) fn f32s(&mut self) -> Option<Derivatives<'_, f32>> {
        let own = T::f32s_mut(self.own)?;
        let gathered = match &mut self.gathered {
            Some(gathered) => Some(T::f32s_mut(gathered)?),
            None => None,
        };
        Some(Derivatives { own, gathered })
    }
}

/// Returns a place's keys and values. If the place has a path, the rows are not contiguous and are
/// first copied into `gathered`, `2 x key/value heads x width` numbers per row.
pub(super) fn key_values<'a, T: Real>(
    heads: Heads,
    place: &Place<'_>,
    qkv: &'a [T],
    gathered: &'a mut Vec<T>,
) -> KeyValues<'a, T> {
    let (row, before) = (heads.row(), place.before());
    let length = before + place.rows.len();
    if before == 0 {
        let data = &qkv[place.rows.start * row..place.rows.end * row];
        return KeyValues { data, stride: row, skipped: 0, before, length };
    }
    let (skipped, stride) = (heads.query_width(), heads.gathered());
    grow(gathered, length * stride);
    let rows = place.path.iter().cloned().flatten().chain(place.rows.clone());
    for (to, from) in gathered.chunks_exact_mut(stride).zip(rows) {
        to.copy_from_slice(&qkv[from * row + skipped..(from + 1) * row]);
    }
    KeyValues { data: gathered, stride, skipped, before, length }
}
