//! Errors from tokenizers and chat templates.

use thiserror::Error;
use turnwise_files::PathError;

/// Error from a tokenizer or chat template. Messages name the file, if any, and say how to fix the
/// problem.
#[derive(Debug, Error)]
pub enum TextError {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// Cause and, if known, the fix.
        reason: String,
    },
    /// A chat template or its input cannot be used.
    #[error("chat: {0}")]
    Chat(String),
    /// A prompt cannot show its image.
    #[error("prompt.pictures: {0}")]
    Picture(String),
    /// The tokenizer rejected its input.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}
