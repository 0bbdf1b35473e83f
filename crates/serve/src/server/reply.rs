//! Responses to clients.

use tokio::sync::mpsc;

use crate::openai::{ApiError, ChatChunk, ChatResponse, TextResponse};

#[derive(Debug)]
pub(super) enum Part<W, C> {
    Whole(Result<W, ApiError>),
    Chunk(C),
    End,
}

/// Maximum unread chunks per client, to bound memory.
const UNREAD: usize = 16_384;

/// Channel for a response, sent whole or, if the request has `stream` set, in chunks. If the
/// channel is dropped before the response is complete, the client gets an error.
///
/// Sending never blocks; a client with more than 16,384 unread chunks counts as disconnected.
#[derive(Debug)]
pub struct Reply<W, C> {
    to: mpsc::Sender<Part<W, C>>,
}

/// Reply to a chat request.
pub type ChatReply = Reply<ChatResponse, ChatChunk>;

/// Reply to a text request. Chunks of a text response have the same type as a whole response.
pub type TextReply = Reply<TextResponse, TextResponse>;

impl<W, C> Reply<W, C> {
    pub(super) fn channel() -> (Self, mpsc::Receiver<Part<W, C>>) {
        let (to, from) = mpsc::channel(UNREAD + 1);
        (Self { to }, from)
    }

    /// Sends the whole response, or an error.
    pub fn finish(self, answer: Result<W, ApiError>) {
        // Fails if the client disconnected.
        let _ = self.to.try_send(Part::Whole(answer));
    }

    /// Sends a chunk. Returns false if the client disconnected or fell too far behind, or if the
    /// deadline has passed.
    pub fn chunk(&self, chunk: C) -> bool {
        self.to.capacity() > 1 && self.to.try_send(Part::Chunk(chunk)).is_ok()
    }

    /// Ends a stream.
    pub fn end(self) {
        let _ = self.to.try_send(Part::End);
    }

    /// Returns true if the client disconnected or the deadline passed.
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
