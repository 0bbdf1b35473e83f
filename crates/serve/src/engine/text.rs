//! Answers of `/v1/completions`.

use std::collections::BTreeMap;

use super::sequence::{Answer, Piece};
use crate::TextReply;
use crate::openai::{
    ApiError, SamplingFields, TextChoice, TextLogprobs, TextResponse, TokenLogprob, Usage, unix_time,
};

/// The answer to a text request.
pub(super) struct TextAnswer {
    /// `None` once it is answered.
    reply: Option<TextReply>,
    head: TextResponse,
    sampling: SamplingFields,
    prompts: Vec<Vec<u32>>,
    choices: Vec<Option<TextChoice>>,
    /// Characters of each response's tokens so far.
    offsets: Vec<usize>,
    begun: Vec<bool>,
    left: usize,
    completion_tokens: usize,
    cached: Vec<Option<usize>>,
}

impl TextAnswer {
    pub(super) fn new(
        reply: TextReply,
        id: String,
        model: String,
        sampling: SamplingFields,
        prompts: Vec<Vec<u32>>,
    ) -> Self {
        let count = prompts.len() * sampling.n;
        let object = "text_completion".to_owned();
        Self {
            reply: Some(reply),
            head: TextResponse { id, object, created: unix_time(), model, choices: Vec::new(), usage: None },
            cached: vec![None; prompts.len()],
            sampling,
            prompts,
            choices: vec![None; count],
            offsets: vec![0; count],
            begun: vec![false; count],
            left: count,
            completion_tokens: 0,
        }
    }

    /// Returns log-probs in the form of text completions.
    fn logprobs(&mut self, index: usize, tokens: Vec<TokenLogprob>) -> Option<TextLogprobs> {
        if !self.sampling.logprobs || tokens.is_empty() {
            return self.sampling.logprobs.then(TextLogprobs::default);
        }
        let mut found = TextLogprobs::default();
        let mut top = Vec::new();
        for entry in tokens {
            let mut best = BTreeMap::new();
            for alternative in entry.top_logprobs {
                // Parts of characters may look alike: the best of them stays.
                best.entry(alternative.token).or_insert(alternative.logprob);
            }
            top.push(best);
            found.text_offset.push(self.offsets[index]);
            self.offsets[index] += entry.token.chars().count();
            found.tokens.push(entry.token);
            found.token_logprobs.push(entry.logprob);
        }
        found.top_logprobs = (self.sampling.top_logprobs > 0).then_some(top);
        Some(found)
    }

    fn end(&mut self) {
        let prompt = self.prompts.iter().map(Vec::len).sum();
        let cached = self.cached.iter().flatten().sum();
        let usage = Usage::new(prompt, self.completion_tokens, cached);
        let Some(reply) = self.reply.take() else { return };
        let mut answer = TextResponse { usage: Some(usage), ..self.head.clone() };
        if self.sampling.stream {
            if self.sampling.include_usage {
                reply.chunk(answer);
            }
            reply.end();
        } else {
            answer.choices = std::mem::take(&mut self.choices).into_iter().flatten().collect();
            reply.finish(Ok(answer));
        }
    }
}

impl Answer for TextAnswer {
    fn add(&mut self, index: usize, piece: Piece) {
        self.completion_tokens += piece.count;
        let prompt = index / self.sampling.n;
        if piece.count > 0 && index.is_multiple_of(self.sampling.n) {
            self.cached[prompt].get_or_insert(piece.cached);
        }
        let finish = piece.finish;
        let first = !std::mem::replace(&mut self.begun[index], true);
        let ids = self.sampling.return_token_ids;
        let choice = TextChoice {
            index,
            text: piece.text,
            logprobs: self.logprobs(index, piece.logprobs),
            finish_reason: finish.map(str::to_owned),
            token_ids: ids.then_some(piece.token_ids),
            prompt_token_ids: (ids && first).then(|| self.prompts[prompt].clone()),
        };
        if !self.sampling.stream {
            self.choices[index] = Some(choice);
        } else if let Some(reply) = &self.reply {
            reply.chunk(TextResponse { choices: vec![choice], ..self.head.clone() });
        }
        if finish.is_some() {
            self.left -= 1;
            if self.left == 0 {
                self.end();
            }
        }
    }

    fn fail(&mut self, error: ApiError) {
        if let Some(reply) = self.reply.take() {
            reply.finish(Err(error));
        }
    }

    fn is_closed(&self) -> bool {
        self.reply.as_ref().is_none_or(TextReply::is_closed)
    }
}
