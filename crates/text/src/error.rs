//! Errors from tokenizers and chat templates.

use thiserror::Error;

/// Error from creating, reading, writing or using a tokenizer or chat template. Messages name the
/// file, if there is one, and the fix.
#[derive(Debug, Error)]
pub enum TextError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: String,
        /// Error from the operating system.
        source: std::io::Error,
    },
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
    /// A prompt cannot show its picture.
    #[error("prompt.pictures: {0}")]
    Picture(String),
    /// The tokenizer rejected its input.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}
