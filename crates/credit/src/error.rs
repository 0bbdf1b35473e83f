//! Errors from credit assignment.

use thiserror::Error;
use turnwise_core::ShapeError;

/// Why credit assignment failed.
#[derive(Debug, Error)]
pub enum CreditError {
    /// A required field is missing.
    #[error(
        "{method} needs `{field}`, which is missing in group {group}, trajectory {trajectory}, turn {turn}"
    )]
    MissingField {
        /// Config name of the method.
        method: &'static str,
        /// Field name.
        field: &'static str,
        /// Group index.
        group: usize,
        /// Trajectory index.
        trajectory: usize,
        /// Turn index.
        turn: usize,
    },
    /// An invalid setting.
    #[error("{method}: {reason}")]
    Setting {
        /// Config name of the method.
        method: &'static str,
        /// Problem and fix.
        reason: String,
    },
    /// A table of supplied inputs does not have the batch's shape.
    #[error("the supplied {what} do not fit the batch: {source}")]
    Shape {
        /// Table name.
        what: &'static str,
        /// The mismatch.
        source: ShapeError,
    },
    /// The number of supplied scores differs from the number of requested scores.
    #[error(
        "the policy must score {expected} texts or responses, and {found} scores were supplied; a file of trajectories has none: \
         train with this method, or use `turnwise benchmark score --models RUN`"
    )]
    Scores {
        /// Number of supplied scores.
        found: usize,
        /// Number of requested scores.
        expected: usize,
    },
    /// A score whose number of log-probs differs from the number of response tokens.
    #[error(
        "the score of group {group}, trajectory {trajectory}, turn {turn} has {found} log-probs, and its response has {expected} tokens"
    )]
    ScoreLength {
        /// Number of supplied log-probs.
        found: usize,
        /// Number of response tokens.
        expected: usize,
        /// Group index.
        group: usize,
        /// Trajectory index.
        trajectory: usize,
        /// Turn index.
        turn: usize,
    },
    /// An input is NaN or infinite.
    #[error("{method}: `{field}` is {value} in group {group}, trajectory {trajectory}, turn {turn}")]
    NotFinite {
        /// Config name of the method.
        method: &'static str,
        /// Field name.
        field: &'static str,
        /// Value.
        value: f64,
        /// Group index.
        group: usize,
        /// Trajectory index.
        trajectory: usize,
        /// Turn index.
        turn: usize,
    },
}
