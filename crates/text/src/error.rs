//! Errors from tokenizers and chat templates.

use thiserror::Error;
use turnwise_files::PathError;

/// Error from a tokenizer or chat template.
#[derive(Debug, Error)]
pub enum TextError {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    File {
        /// File path.
        path: String,
        /// Cause and, if known, fix.
        reason: String,
    },
    /// A chat template or its input is unusable.
    #[error("chat: {0}")]
    Chat(String),
    /// An image cannot be shown in a prompt.
    #[error("prompt.pictures: {0}")]
    Picture(String),
    /// The tokenizer rejected its input.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}
