//! Answers of `/v1/completions`.

use std::collections::BTreeMap;

use super::answer::{Answer, Progress};
use super::sequence::Piece;
use crate::TextReply;
use crate::openai::{SamplingFields, TextChoice, TextLogprobs, TextResponse, TokenLogprob, unix_time};

pub(super) struct TextAnswer {
    progress: Progress<TextResponse, TextResponse>,
    head: TextResponse,
    choices: Vec<Option<TextChoice>>,
    offsets: Vec<usize>,
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
            head: TextResponse { id, object, created: unix_time(), model, choices: Vec::new(), usage: None },
            progress: Progress::new(reply, sampling, prompts),
            choices: vec![None; count],
            offsets: vec![0; count],
        }
    }

    fn logprobs(&mut self, index: usize, tokens: Vec<TokenLogprob>) -> Option<TextLogprobs> {
        if !self.progress.sampling.logprobs || tokens.is_empty() {
            return self.progress.sampling.logprobs.then(TextLogprobs::default);
        }
        let mut found = TextLogprobs::default();
        let mut top = Vec::new();
        for entry in tokens {
            let mut best = BTreeMap::new();
            for alternative in entry.top_logprobs {
                // Partial characters may have equal texts; the most probable is kept.
                best.entry(alternative.token).or_insert(alternative.logprob);
            }
            top.push(best);
            found.text_offset.push(self.offsets[index]);
            self.offsets[index] += entry.token.chars().count();
            found.tokens.push(entry.token);
            found.token_logprobs.push(entry.logprob);
        }
        found.top_logprobs = (self.progress.sampling.top_logprobs > 0).then_some(top);
        Some(found)
    }

    fn end(&mut self) {
        let usage = self.progress.usage();
        let Some(reply) = self.progress.reply.take() else { return };
        let mut answer = TextResponse { usage: Some(usage), ..self.head.clone() };
        if self.progress.sampling.stream {
            if self.progress.sampling.include_usage {
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
    type Whole = TextResponse;
    type Chunk = TextResponse;

    fn progress(&mut self) -> &mut Progress<TextResponse, TextResponse> {
        &mut self.progress
    }

    fn add(&mut self, index: usize, piece: Piece) {
        let first = self.progress.count(index, &piece);
        let finish = piece.finish;
        let logprobs = self.logprobs(index, piece.logprobs);
        let Progress { sampling, prompts, reply, .. } = &self.progress;
        let ids = sampling.return_token_ids;
        let choice = TextChoice {
            index,
            text: piece.text,
            logprobs,
            finish_reason: finish.map(str::to_owned),
            token_ids: ids.then_some(piece.token_ids),
            prompt_token_ids: (ids && first).then(|| prompts[index / sampling.n].clone()),
        };
        if !sampling.stream {
            self.choices[index] = Some(choice);
        } else if let Some(reply) = reply {
            reply.chunk(TextResponse { choices: vec![choice], ..self.head.clone() });
        }
        if finish.is_some() && self.progress.is_done() {
            self.end();
        }
    }
}
