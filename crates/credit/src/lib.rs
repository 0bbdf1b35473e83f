//! Credit assignment: estimators give one advantage per turn, refinements change them.
//!
//! Numbers in, numbers out: no tensors, no I/O. All statistics are computed in f64.

mod error;

pub use error::CreditError;

use turnwise_core::Batch;

/// One advantage per turn: `[group][trajectory][turn]`, in the order of the batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnAdvantages(pub Vec<Vec<Vec<f64>>>);

/// A batch in, one advantage per turn out.
pub trait Estimator: Send + Sync {
    /// The advantages of every turn of the batch.
    fn advantages(&self, batch: &Batch) -> Result<TurnAdvantages, CreditError>;
}

/// Advantages in, advantages out.
pub trait Refinement: Send + Sync {
    /// Changes the advantages in place.
    fn refine(&self, batch: &Batch, advantages: &mut TurnAdvantages) -> Result<(), CreditError>;
}
