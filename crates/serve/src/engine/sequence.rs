//! Converts sampled tokens to pieces of a response.

use std::sync::{Arc, Mutex, PoisonError};

use turnwise_core::{FinishReason, Seed};
use turnwise_model::engine::Sampled;
use turnwise_text::Tokenizer;

use super::answer::Answer;
use super::visible::Visible;
use super::worker::Sink;
use crate::openai::{ApiError, MessageCall, TokenLogprob, TopLogprob};

/// A piece of a response. A response that is not streamed has only one piece.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) count: usize,
    pub(super) token_ids: Vec<u32>,
    pub(super) logprobs: Vec<TokenLogprob>,
    pub(super) calls: Vec<MessageCall>,
    /// Why the response ended; only in the last piece.
    pub(super) finish: Option<&'static str>,
    pub(super) cached: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) stream: bool,
    pub(super) logprobs: bool,
    pub(super) token_ids: bool,
}

pub(super) struct Sequence<A> {
    pub(super) index: usize,
    pub(super) answer: Arc<Mutex<A>>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) visible: Visible,
    pub(super) wanted: Wanted,
    /// Tokens that end a response and are not part of its text.
    pub(super) end_tokens: Arc<[u32]>,
    /// False to return only the first tool call.
    pub(super) parallel_calls: bool,
    pub(super) ids: Seed,
    pub(super) piece: Piece,
}

impl<A: Answer> Sequence<A> {
    fn send(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).add(self.index, piece);
    }

    fn logprob(&self, sampled: &Sampled) -> TokenLogprob {
        let text = |token: u32| {
            let bytes = self.tokenizer.token_bytes(token);
            (String::from_utf8_lossy(bytes).into_owned(), Some(bytes.to_vec()))
        };
        let alternative = |&(token, logprob): &(u32, f32)| {
            let (token, bytes) = text(token);
            TopLogprob { token, logprob, bytes }
        };
        let (token, bytes) = text(sampled.token);
        let top_logprobs = sampled.alternatives.iter().map(alternative).collect();
        TokenLogprob { token, logprob: sampled.logprob, bytes, top_logprobs }
    }
}

impl<A: Answer> Sink for Sequence<A> {
    fn token(&mut self, sampled: Sampled) {
        self.piece.count += 1;
        self.piece.cached = sampled.cached;
        if self.wanted.token_ids {
            self.piece.token_ids.push(sampled.token);
        }
        if self.wanted.logprobs {
            let logprob = self.logprob(&sampled);
            self.piece.logprobs.push(logprob);
        }
        if !self.end_tokens.contains(&sampled.token) {
            let text = self.visible.push(&self.tokenizer, sampled.token);
            self.piece.text.push_str(&text);
        }
        // Ids and log-probs are sent with their text.
        if self.wanted.stream && !self.piece.text.is_empty() {
            self.send();
        }
    }

    fn done(mut self: Box<Self>, finish: FinishReason) {
        let rest = self.visible.finish();
        self.piece.text.push_str(&rest.text);
        let most = if self.parallel_calls { usize::MAX } else { 1 };
        let mut ids = self.ids.rng();
        let calls = rest.calls.into_iter().take(most).map(|call| {
            let id = format!("call_{:016x}", ids.bits());
            MessageCall::new(id, call.name, call.arguments.to_string())
        });
        self.piece.calls = calls.collect();
        self.piece.finish = Some(match finish {
            _ if !self.piece.calls.is_empty() => "tool_calls",
            FinishReason::Stop => "stop",
            FinishReason::Length | FinishReason::Context => "length",
        });
        self.send();
    }

    fn fail(self: Box<Self>, error: ApiError) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).fail(error);
    }

    fn is_closed(&self) -> bool {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).is_closed()
    }
}
