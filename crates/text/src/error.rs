//! Errors of tokenizers and chat templates.

use thiserror::Error;

/// A tokenizer or chat template that cannot be made, read, written or used. Every message names the file,
/// if there is one, and what to change.
#[derive(Debug, Error)]
pub enum TextError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The fault and, if known, how to fix it.
        reason: String,
    },
    /// A chat template, or what it was given, cannot be used.
    #[error("chat: {0}")]
    Chat(String),
    /// A prompt cannot show its picture.
    #[error("prompt.pictures: {0}")]
    Picture(String),
    /// The tokenizer rejected.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}
