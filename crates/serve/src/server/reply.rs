//! Sends responses to clients.

use tokio::sync::mpsc;

use crate::openai::{ApiError, ChatChunk, ChatResponse, TextResponse};

#[derive(Debug)]
pub(super) enum Part<W, C> {
    Whole(Result<W, ApiError>),
    Chunk(C),
    End,
}

/// Maximum number of unread chunks per client. Without a limit, clients that do not read would
/// exhaust memory.
const UNREAD: usize = 16_384;

/// Sends a response to the client, either as a whole or, if the request has `stream`, in chunks. If
/// it is dropped before the response is complete, the client gets an error.
///
/// Sending never blocks. Up to 16,384 unread chunks are kept in memory; a client that falls further
/// behind counts as disconnected.
#[derive(Debug)]
pub struct Reply<W, C> {
    to: mpsc::Sender<Part<W, C>>,
}

/// Sends the response to a chat request.
pub type ChatReply = Reply<ChatResponse, ChatChunk>;

/// Sends a text completion. Chunks have the same format as whole responses.
pub type TextReply = Reply<TextResponse, TextResponse>;

impl<W, C> Reply<W, C> {
    pub(super) fn channel() -> (Self, mpsc::Receiver<Part<W, C>>) {
        // One place is reserved for the end.
        let (to, from) = mpsc::channel(UNREAD + 1);
        (Self { to }, from)
    }

    /// Sends the whole response, or the error that ends it.
    pub fn finish(self, answer: Result<W, ApiError>) {
        // Fails if the client has disconnected.
        let _ = self.to.try_send(Part::Whole(answer));
    }

    /// Sends a chunk. Returns false if the client has disconnected or is too far behind, or if the
    /// deadline has passed.
    pub fn chunk(&self, chunk: C) -> bool {
        self.to.capacity() > 1 && self.to.try_send(Part::Chunk(chunk)).is_ok()
    }

    /// Ends a streamed answer.
    pub fn end(self) {
        let _ = self.to.try_send(Part::End);
    }

    /// Returns true if the client has disconnected or the request's deadline has passed.
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_too_far_behind_counts_as_gone_and_still_gets_the_end() {
        let (reply, mut parts) = Reply::<(), usize>::channel();
        let sent = (0..2 * UNREAD).take_while(|&chunk| reply.chunk(chunk)).count();
        assert_eq!(sent, UNREAD);
        // Reading a chunk makes room again.
        assert!(matches!(parts.try_recv(), Ok(Part::Chunk(0))));
        assert!(reply.chunk(UNREAD) && !reply.chunk(UNREAD + 1));
        reply.end();
        let mut last = None;
        while let Ok(part) = parts.try_recv() {
            last = Some(part);
        }
        assert!(matches!(last, Some(Part::End)));
    }
}
