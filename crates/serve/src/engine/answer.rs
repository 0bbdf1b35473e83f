//! Code shared by chat and text responses.

use super::sequence::Piece;
use crate::openai::{ApiError, SamplingFields, Usage};
use crate::server::Reply;

pub(super) trait Answer: Send {
    type Whole: Send;
    type Chunk: Send;

    fn progress(&mut self) -> &mut Progress<Self::Whole, Self::Chunk>;

    fn add(&mut self, index: usize, piece: Piece);

    fn fail(&mut self, error: ApiError) {
        if let Some(reply) = self.progress().reply.take() {
            reply.finish(Err(error));
        }
    }

    fn is_closed(&mut self) -> bool {
        self.progress().reply.as_ref().is_none_or(Reply::is_closed)
    }
}

pub(super) struct Progress<W, C> {
    /// Channel for the response; `None` once the whole response or an error has been sent.
    pub(super) reply: Option<Reply<W, C>>,
    pub(super) sampling: SamplingFields,
    pub(super) prompts: Vec<Vec<u32>>,
    begun: Vec<bool>,
    /// Choices still being sampled.
    left: usize,
    completion_tokens: usize,
    cached: Vec<Option<usize>>,
}

impl<W, C> Progress<W, C> {
    pub(super) fn new(reply: Reply<W, C>, sampling: SamplingFields, prompts: Vec<Vec<u32>>) -> Self {
        let left = prompts.len() * sampling.n;
        Self {
            reply: Some(reply),
            begun: vec![false; left],
            left,
            completion_tokens: 0,
            cached: vec![None; prompts.len()],
            sampling,
            prompts,
        }
    }

    pub(super) fn count(&mut self, index: usize, piece: &Piece) -> bool {
        self.completion_tokens += piece.count;
        if piece.count > 0 && index.is_multiple_of(self.sampling.n) {
            self.cached[index / self.sampling.n].get_or_insert(piece.cached);
        }
        self.left -= usize::from(piece.finish.is_some());
        !std::mem::replace(&mut self.begun[index], true)
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    pub(super) fn usage(&self) -> Usage {
        let prompt = self.prompts.iter().map(Vec::len).sum();
        let cached = self.cached.iter().flatten().sum();
        Usage::new(prompt, self.completion_tokens, cached)
    }
}
