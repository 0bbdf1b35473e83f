//! Credit assignment: estimators give one advantage per turn, refinements change them.
//!
//! Numbers in, numbers out: no tensors, no I/O. All statistics are computed in f64.
//!
//! ```
//! use turnwise_core::Batch;
//! use turnwise_credit::{CreditConfig, Pipeline};
//!
//! let pipeline = Pipeline::from_config(&CreditConfig::default())?;
//! assert!(pipeline.run(&Batch::default())?.0.is_empty());
//! # Ok::<(), turnwise_credit::CreditError>(())
//! ```

pub mod grpo;
pub mod rloo;
pub mod scores;
pub mod statistics;

mod config;
mod error;
mod pipeline;
mod story;

pub use config::{CreditConfig, EstimatorConfig};
pub use error::CreditError;
pub use pipeline::{CreditReport, Pipeline};
pub use story::{Facts, StageStory, Stories, Story};

use turnwise_core::Batch;

/// One advantage per turn: `[group][trajectory][turn]`, in the order of the batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnAdvantages(pub Vec<Vec<Vec<f64>>>);

/// What credit is computed from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The trajectories.
    pub batch: &'a Batch,
}

impl<'a> Inputs<'a> {
    /// The batch alone.
    pub fn new(batch: &'a Batch) -> Self {
        Self { batch }
    }
}

/// A batch in, one advantage per turn out.
pub trait Estimator: Send + Sync {
    /// The method's config name.
    fn name(&self) -> &'static str;

    /// The advantages of every turn of the batch.
    fn advantages(&self, inputs: &Inputs<'_>, story: &mut Story) -> Result<TurnAdvantages, CreditError>;
}

/// Advantages in, advantages out.
pub trait Refinement: Send + Sync {
    /// The method's config name.
    fn name(&self) -> &'static str;

    /// Changes the advantages in place.
    fn refine(
        &self,
        inputs: &Inputs<'_>,
        advantages: &mut TurnAdvantages,
        story: &mut Story,
    ) -> Result<(), CreditError>;
}
