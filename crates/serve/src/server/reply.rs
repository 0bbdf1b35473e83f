//! Sends answers to clients.

use tokio::sync::mpsc;

use crate::openai::{ApiError, ChatChunk, ChatResponse, TextResponse};

/// A part of an answer.
#[derive(Debug)]
pub(super) enum Part<W, C> {
    /// The whole answer, or its error.
    Whole(Result<W, ApiError>),
    /// A chunk.
    Chunk(C),
    /// No more chunks.
    End,
}

/// Sends an answer to the client: as a whole, or in chunks if the request has `stream`. If it is dropped without an
/// end, the client gets an error.
///
/// Sending never blocks. Chunks that a slow client has not read yet are kept in memory.
#[derive(Debug)]
pub struct Reply<W, C> {
    to: mpsc::UnboundedSender<Part<W, C>>,
}

/// Sends the answer of a chat.
pub type ChatReply = Reply<ChatResponse, ChatChunk>;

/// Sends a text completion. Chunks have the form of the whole.
pub type TextReply = Reply<TextResponse, TextResponse>;

impl<W, C> Reply<W, C> {
    pub(super) fn channel() -> (Self, mpsc::UnboundedReceiver<Part<W, C>>) {
        let (to, from) = mpsc::unbounded_channel();
        (Self { to }, from)
    }

    /// Sends the whole answer, or the error that ends it.
    pub fn finish(self, answer: Result<W, ApiError>) {
        // Fails if the client is gone.
        let _ = self.to.send(Part::Whole(answer));
    }

    /// Sends a chunk; returns false if the client is gone or the deadline is over.
    pub fn chunk(&self, chunk: C) -> bool {
        self.to.send(Part::Chunk(chunk)).is_ok()
    }

    /// Ends an answer in chunks.
    pub fn end(self) {
        let _ = self.to.send(Part::End);
    }

    /// Returns true if the client is gone or the request's deadline is over.
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}
