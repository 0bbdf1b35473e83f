//! Answers of `/v1/chat/completions`.

use super::sequence::{Answer, Piece};
use crate::ChatReply;
use crate::openai::{
    ApiError, ChatChunk, ChatResponse, Choice, ChoiceLogprobs, ChunkChoice, Delta, DeltaCall,
    ResponseMessage, SamplingFields, TokenLogprob, Usage, unix_time,
};

/// The answer to a chat request.
pub(super) struct ChatAnswer {
    /// `None` once it is answered.
    reply: Option<ChatReply>,
    id: String,
    created: u64,
    model: String,
    sampling: SamplingFields,
    prompt: Vec<u32>,
    choices: Vec<Option<Choice>>,
    /// Responses whose first chunk was sent.
    begun: Vec<bool>,
    left: usize,
    completion_tokens: usize,
    cached: Option<usize>,
}

impl ChatAnswer {
    pub(super) fn new(
        reply: ChatReply,
        id: String,
        model: String,
        sampling: SamplingFields,
        prompt: Vec<u32>,
    ) -> Self {
        let left = sampling.n;
        Self {
            reply: Some(reply),
            id,
            created: unix_time(),
            model,
            sampling,
            prompt,
            choices: vec![None; left],
            begun: vec![false; left],
            left,
            completion_tokens: 0,
            cached: None,
        }
    }

    fn usage(&self) -> Usage {
        Usage::new(self.prompt.len(), self.completion_tokens, self.cached.unwrap_or(0))
    }

    fn prompt_ids(&self) -> Option<Vec<u32>> {
        self.sampling.return_token_ids.then(|| self.prompt.clone())
    }

    fn logprobs(&self, content: Vec<TokenLogprob>) -> Option<ChoiceLogprobs> {
        self.sampling.logprobs.then_some(ChoiceLogprobs { content: Some(content), refusal: None })
    }

    fn stream(&mut self, index: usize, piece: Piece) {
        let first = !std::mem::replace(&mut self.begun[index], true);
        let calls = piece.calls.into_iter().enumerate();
        let delta = Delta {
            role: first.then(|| "assistant".to_owned()),
            content: (first || !piece.text.is_empty()).then_some(piece.text),
            tool_calls: calls.map(|(index, call)| DeltaCall::whole(index, call)).collect(),
        };
        let choice = ChunkChoice {
            index,
            delta,
            logprobs: if piece.logprobs.is_empty() { None } else { self.logprobs(piece.logprobs) },
            finish_reason: piece.finish.map(str::to_owned),
            token_ids: self.sampling.return_token_ids.then_some(piece.token_ids),
        };
        let mut chunk = ChatChunk::new(&self.id, self.created, &self.model, vec![choice]);
        if first && index == 0 {
            chunk.prompt_token_ids = self.prompt_ids();
        }
        if let Some(reply) = &self.reply {
            reply.chunk(chunk);
        }
    }

    fn end(&mut self) {
        let usage = self.usage();
        let prompt_token_ids = self.prompt_ids();
        let Some(reply) = self.reply.take() else { return };
        if self.sampling.stream {
            if self.sampling.include_usage {
                let mut last = ChatChunk::new(&self.id, self.created, &self.model, Vec::new());
                last.usage = Some(usage);
                reply.chunk(last);
            }
            reply.end();
        } else {
            let choices = std::mem::take(&mut self.choices).into_iter().flatten().collect();
            let answer = ChatResponse::new(std::mem::take(&mut self.id), &self.model, choices);
            reply.finish(Ok(ChatResponse { created: self.created, usage, prompt_token_ids, ..answer }));
        }
    }
}

impl Answer for ChatAnswer {
    fn add(&mut self, index: usize, piece: Piece) {
        self.completion_tokens += piece.count;
        if index == 0 && piece.count > 0 {
            self.cached.get_or_insert(piece.cached);
        }
        let finish = piece.finish;
        if self.sampling.stream {
            self.stream(index, piece);
        } else {
            let blank = !piece.calls.is_empty() && piece.text.trim().is_empty();
            let message = ResponseMessage {
                content: (!blank).then_some(piece.text),
                tool_calls: piece.calls,
                ..ResponseMessage::text("")
            };
            let mut choice = Choice::new(index, message, finish.unwrap_or_default());
            choice.logprobs = self.logprobs(piece.logprobs);
            choice.token_ids = self.sampling.return_token_ids.then_some(piece.token_ids);
            self.choices[index] = Some(choice);
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
        self.reply.as_ref().is_none_or(ChatReply::is_closed)
    }
}
