//! What the processes of one data-parallel run say to each other.

use std::fmt::Debug;
use std::ops::Range;

use crate::CollectiveError;

/// The processes of one run, of which this is one: they call the same operations in the same order.
///
/// Every process (rank) has the whole batch and makes the same decisions from it; what is shared out is
/// the heavy work, and it is shared out by lanes: of `n` lanes in all, rank `r` of `w` has those of
/// [`Collective::share`]. An operation returns on no rank before all ranks have called it, except that
/// a rank which only sends may go on. It fails on every rank, within a bounded time, when one of them is
/// gone.
///
/// Buffers here are in host memory. A learner on accelerators uses these operations to find its peers
/// (by broadcasting an identifier, say) and then sums its gradients by means of its own.
pub trait Collective: Send + Sync + Debug {
    /// Which process this is, from 0. Rank 0 writes the run directory.
    fn rank(&self) -> usize;

    /// How many there are.
    fn world_size(&self) -> usize;

    /// Which of the processes of its machine this is, from 0: the accelerator it uses.
    fn local_rank(&self) -> usize {
        self.rank()
    }

    /// Leaves the sum over all parts of all ranks in the first part of every rank; the others are then
    /// of no use. Parts have one length on all ranks.
    ///
    /// On every rank the same bits come out, whatever the timing. An implementation in host memory adds
    /// the parts one after the other in order of ranks and, of one rank, in the order given, so that the
    /// bits do not depend on how many ranks the parts are spread over either.
    fn all_reduce(&self, parts: &mut [&mut [f32]]) -> Result<(), CollectiveError>;

    /// What every rank gave, in order of ranks.
    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError>;

    /// What rank 0 gave; what others give is not looked at.
    fn broadcast(&self, bytes: &[u8]) -> Result<Vec<u8>, CollectiveError>;

    /// Waits until all ranks are here.
    fn barrier(&self) -> Result<(), CollectiveError> {
        self.all_gather(&[]).map(|_| ())
    }

    /// Whether any rank says yes.
    fn any(&self, yes: bool) -> Result<bool, CollectiveError> {
        Ok(self.all_gather(&[u8::from(yes)])?.iter().any(|answer| answer.first() == Some(&1)))
    }

    /// The lanes of this rank, of `lanes` in all.
    fn share(&self, lanes: usize) -> Range<usize> {
        let cut = |rank: usize| rank * lanes / self.world_size();
        cut(self.rank())..cut(self.rank() + 1)
    }
}
