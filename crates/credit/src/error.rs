//! Errors from credit assignment.

use thiserror::Error;
use turnwise_core::ShapeError;

/// Error during credit assignment.
#[derive(Debug, Error)]
pub enum CreditError {
    /// A trajectory lacks a field that the method needs.
    #[error(
        "{method} needs `{field}`, which is missing in group {group}, trajectory {trajectory}, turn {turn}"
    )]
    MissingField {
        /// The method's config name.
        method: &'static str,
        /// The field.
        field: &'static str,
        /// Group index.
        group: usize,
        /// Trajectory index in the group.
        trajectory: usize,
        /// Turn index.
        turn: usize,
    },
    /// An invalid setting.
    #[error("{method}: {reason}")]
    Setting {
        /// The method's config name.
        method: &'static str,
        /// The problem and the fix.
        reason: String,
    },
    /// A supplied table does not match the shape of the batch.
    #[error("the supplied {what} do not fit the batch: {source}")]
    Shape {
        /// Name of the table.
        what: &'static str,
        /// How the table's shape differs from the batch's.
        source: ShapeError,
    },
    /// The number of supplied scores differs from the number requested.
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
    /// A score does not have exactly one log-prob per response token.
    #[error(
        "the score of group {group}, trajectory {trajectory}, turn {turn} has {found} log-probs, and its response has {expected} tokens"
    )]
    ScoreLength {
        /// Number of supplied log-probs.
        found: usize,
        /// Number of tokens.
        expected: usize,
        /// Group index.
        group: usize,
        /// Trajectory index in the group.
        trajectory: usize,
        /// Turn index.
        turn: usize,
    },
    /// An input is NaN or infinite.
    #[error("{method}: `{field}` is {value} in group {group}, trajectory {trajectory}, turn {turn}")]
    NotFinite {
        /// The method's config name.
        method: &'static str,
        /// The field.
        field: &'static str,
        /// The number.
        value: f64,
        /// Group index.
        group: usize,
        /// Trajectory index in the group.
        trajectory: usize,
        /// Turn index.
        turn: usize,
    },
}
