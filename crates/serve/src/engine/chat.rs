//! Answers of `/v1/chat/completions`.

use super::answer::{Answer, Progress};
use super::sequence::Piece;
use crate::ChatReply;
use crate::openai::{
    ChatChunk, ChatResponse, Choice, ChoiceLogprobs, ChunkChoice, Delta, DeltaCall, ResponseMessage,
    SamplingFields, TokenLogprob, unix_time,
};

pub(super) struct ChatAnswer {
    progress: Progress<ChatResponse, ChatChunk>,
    id: String,
    created: u64,
    model: String,
    choices: Vec<Option<Choice>>,
}

impl ChatAnswer {
    pub(super) fn new(
        reply: ChatReply,
        id: String,
        model: String,
        sampling: SamplingFields,
        prompts: Vec<Vec<u32>>,
    ) -> Self {
        let choices = vec![None; sampling.n];
        let progress = Progress::new(reply, sampling, prompts);
        Self { progress, id, created: unix_time(), model, choices }
    }

    fn prompt_ids(&self) -> Option<Vec<u32>> {
        let Progress { sampling, prompts, .. } = &self.progress;
        sampling.return_token_ids.then(|| prompts.concat())
    }

    fn logprobs(&self, content: Vec<TokenLogprob>) -> Option<ChoiceLogprobs> {
        let logprobs = ChoiceLogprobs { content: Some(content), refusal: None };
        self.progress.sampling.logprobs.then_some(logprobs)
    }

    fn token_ids(&self, ids: Vec<u32>) -> Option<Vec<u32>> {
        self.progress.sampling.return_token_ids.then_some(ids)
    }

    fn stream(&self, index: usize, piece: Piece, first: bool) {
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
            token_ids: self.token_ids(piece.token_ids),
        };
        let mut chunk = ChatChunk::new(&self.id, self.created, &self.model, vec![choice]);
        if first && index == 0 {
            chunk.prompt_token_ids = self.prompt_ids();
        }
        if let Some(reply) = &self.progress.reply {
            reply.chunk(chunk);
        }
    }

    fn keep(&mut self, index: usize, piece: Piece) {
        let blank = !piece.calls.is_empty() && piece.text.trim().is_empty();
        let message = ResponseMessage {
            content: (!blank).then_some(piece.text),
            tool_calls: piece.calls,
            ..ResponseMessage::text("")
        };
        let mut choice = Choice::new(index, message, piece.finish.unwrap_or_default());
        choice.logprobs = self.logprobs(piece.logprobs);
        choice.token_ids = self.token_ids(piece.token_ids);
        self.choices[index] = Some(choice);
    }

    fn end(&mut self) {
        let usage = self.progress.usage();
        let prompt_token_ids = self.prompt_ids();
        let Some(reply) = self.progress.reply.take() else { return };
        if self.progress.sampling.stream {
            if self.progress.sampling.include_usage {
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
    type Whole = ChatResponse;
    type Chunk = ChatChunk;

    fn progress(&mut self) -> &mut Progress<ChatResponse, ChatChunk> {
        &mut self.progress
    }

    fn add(&mut self, index: usize, piece: Piece) {
        let first = self.progress.count(index, &piece);
        let ends = piece.finish.is_some();
        if self.progress.sampling.stream {
            self.stream(index, piece, first);
        } else {
            self.keep(index, piece);
        }
        if ends && self.progress.is_done() {
            self.end();
        }
    }
}
