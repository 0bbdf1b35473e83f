//! Memory-mapped vectors and exact search.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::path::Path;

use pulp::Arch;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Encoding, kernel};
use crate::RetrievalError;
use crate::bytes::Bytes;
use crate::manifest::Manifest;

pub(super) const MANIFEST: &str = "turnwise-vectors.json";
pub(super) const FORMAT: u32 = 1;
pub(super) const VECTORS: &str = "vectors.bin";

/// Number of vector elements in a block. A block and its products fit in the CPU cache.
const BLOCK: usize = 1 << 15;
/// Number of blocks in each thread's unit of work.
const PIECE: usize = 16;

/// A vector's data type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Two bytes with an eleven-bit significand, which changes scores of L2-normalized vectors by
    /// less than 0.001.
    #[default]
    F16,
    /// Four bytes.
    F32,
}

impl Precision {
    /// Returns the bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) vectors: u32,
    pub(super) dimensions: u32,
    pub(super) precision: Precision,
    pub(super) passages: String,
    pub(super) encoder: String,
    /// `None` in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) encoding: Option<Encoding>,
}

/// Read-only vectors, shared between threads.
pub struct VectorStore {
    bytes: Bytes,
    description: Description,
}

impl std::fmt::Debug for VectorStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("VectorStore").field("description", &self.description).finish_non_exhaustive()
    }
}

/// A vector with its score. Candidates are ordered so that a heap pops the worst one first.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    score: f32,
    position: u32,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.position.cmp(&other.position))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn offer(heap: &mut BinaryHeap<Candidate>, candidate: Candidate, limit: usize) {
    if heap.len() < limit {
        heap.push(candidate);
    } else if let Some(mut worst) = heap.peek_mut()
        && candidate < *worst
    {
        *worst = candidate;
    }
}

impl VectorStore {
    /// Memory-maps a folder's vectors.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if files are missing, truncated or of an unknown format.
    pub fn open(folder: &Path) -> Result<Self, RetrievalError> {
        let description: Description = Manifest::read(folder, MANIFEST, FORMAT, "vectors")?.description;
        let path = folder.join(VECTORS);
        let bytes = Bytes::map(&path).map_err(|error| RetrievalError::file(&path, &error))?;
        let row = u64::from(description.dimensions) * description.precision.bytes() as u64;
        let expected = u64::from(description.vectors) * row;
        if bytes.len() as u64 != expected || description.dimensions == 0 {
            let reason = format!("it has {} bytes and should have {expected}", bytes.len());
            return Err(RetrievalError::damaged(&path, &reason));
        }
        Ok(Self { bytes, description })
    }

    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.description.vectors as usize
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the vectors' dimension.
    pub fn dimensions(&self) -> usize {
        self.description.dimensions as usize
    }

    /// Returns the passages' fingerprint.
    pub fn passages(&self) -> &str {
        &self.description.passages
    }

    /// Returns the encoder's fingerprint.
    pub fn encoder(&self) -> &str {
        &self.description.encoder
    }

    /// Returns the stored encoding settings, if any.
    pub fn encoding(&self) -> Option<&Encoding> {
        self.description.encoding.as_ref()
    }

    pub(super) fn read(&self, arch: Arch, start: usize, end: usize, to: &mut Vec<f32>) {
        let row = self.dimensions() * self.description.precision.bytes();
        let bytes = &self.bytes[start * row..end * row];
        to.resize((end - start) * self.dimensions(), 0.0);
        match self.description.precision {
            Precision::F16 => kernel::widen_all(arch, bytes, to),
            Precision::F32 => {
                for (to, bytes) in to.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *to = f32::from_le_bytes(*bytes);
                }
            }
        }
    }

    #[cfg(feature = "hnsw")]
    pub(super) fn product(&self, arch: Arch, position: u32, query: &[f32], row: &mut Vec<f32>) -> f32 {
        self.read(arch, position as usize, position as usize + 1, row);
        let mut product = [0.0];
        kernel::dots(arch, row, query, &mut product);
        product[0]
    }

    /// Returns, for each query of `[queries, dimensions]`, the `limit` vectors with the largest
    /// inner products, best first. The vectors are divided among threads, and each vector is read
    /// once for all queries.
    pub fn search(&self, queries: &[f32], limit: usize) -> Vec<Vec<(u32, f32)>> {
        let width = self.dimensions();
        let count = queries.len() / width;
        if limit == 0 || self.is_empty() {
            return vec![Vec::new(); count];
        }
        let arch = Arch::new();
        let rows = (BLOCK / width).max(1);
        let piece = rows * PIECE;
        // Merged incrementally to save memory; candidates are totally ordered, so merge order does
        // not matter.
        let best = (0..self.len().div_ceil(piece))
            .into_par_iter()
            .map_init(
                || (Vec::new(), Vec::new()),
                |(block, scores): &mut (Vec<f32>, Vec<f32>), index| {
                    let mut heaps = vec![BinaryHeap::with_capacity(limit.min(piece) + 1); count];
                    let end = ((index + 1) * piece).min(self.len());
                    let mut start = index * piece;
                    while start < end {
                        let next = (start + rows).min(end);
                        self.read(arch, start, next, block);
                        scores.resize(next - start, 0.0);
                        for (query, heap) in queries.chunks_exact(width).zip(&mut heaps) {
                            kernel::dots(arch, block, query, scores);
                            for (position, &score) in (start as u32..).zip(scores.iter()) {
                                offer(heap, Candidate { score, position }, limit);
                            }
                        }
                        start = next;
                    }
                    heaps
                },
            )
            .reduce(
                || vec![BinaryHeap::new(); count],
                |mut best, heaps: Vec<BinaryHeap<Candidate>>| {
                    for (best, heap) in best.iter_mut().zip(heaps) {
                        for candidate in heap {
                            offer(best, candidate, limit);
                        }
                    }
                    best
                },
            );
        let list = |heap: BinaryHeap<Candidate>| {
            heap.into_sorted_vec().into_iter().map(|found| (found.position, found.score)).collect()
        };
        best.into_iter().map(list).collect()
    }
}
