//! The way back of an answer.

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

/// The way back of an answer: as a whole, or in chunks if the request has `stream`. Dropped without an end it is an error
/// for the client.
///
/// Sending never blocks. What a slow client has not read yet is kept, at most the chunks of one response.
#[derive(Debug)]
pub struct Reply<W, C> {
    to: mpsc::UnboundedSender<Part<W, C>>,
}

/// The way back of a chat's answer.
pub type ChatReply = Reply<ChatResponse, ChatChunk>;

/// The way back of a text completion. Chunks have the form of the whole.
pub type TextReply = Reply<TextResponse, TextResponse>;

impl<W, C> Reply<W, C> {
    pub(super) fn channel() -> (Self, mpsc::UnboundedReceiver<Part<W, C>>) {
        let (to, from) = mpsc::unbounded_channel();
        (Self { to }, from)
    }

    /// Sends the whole answer, or the error that ends it.
    pub fn finish(self, answer: Result<W, ApiError>) {
        // Nobody waits for the answer of a client that is gone.
        let _ = self.to.send(Part::Whole(answer));
    }

    /// Sends a chunk; false if nobody waits for it any more.
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
