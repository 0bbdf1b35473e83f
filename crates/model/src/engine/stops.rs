use std::sync::Arc;

use turnwise_text::{ReasoningTags, StopStringMatcher};

use super::NativeEngine;

impl NativeEngine {
    /// Ignores stop strings inside reasoning ([`StopStringMatcher::past_reasoning`]). By default,
    /// stop strings apply everywhere, as stop tokens always do.
    pub fn past_reasoning(mut self, tags: Option<Arc<ReasoningTags>>) -> Self {
        self.reasoning = tags;
        self
    }

    pub(super) fn matcher(&self, prompt: &[u32]) -> StopStringMatcher {
        match (&self.reasoning, &self.tokenizer) {
            (Some(tags), Some(tokenizer)) => {
                StopStringMatcher::past_reasoning(Arc::clone(tags), tokenizer, prompt)
            }
            _ => StopStringMatcher::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Completion, FinishReason, SampleRequest, Sampler as _, SamplingParams};
    use turnwise_text::{Tokenizer, TokenizerConfig};

    use super::super::EngineConfig;
    use super::super::tests::{config, params, prompt, random, request};
    use super::*;

    fn answer(engine: &mut NativeEngine, asked: SampleRequest) -> Completion {
        engine.submit(asked).unwrap();
        let done = engine.poll().unwrap();
        assert_eq!(done.len(), 1);
        done.into_iter().next().unwrap()
    }

    #[test]
    fn a_stop_string_counts_behind_the_reasoning() {
        // Ids are bytes, then special tokens of several characters.
        let special_tokens: Vec<String> = (256..301).map(|id| format!("<{id}>")).collect();
        let tokens = TokenizerConfig { special_tokens, ..TokenizerConfig::default() };
        let tokenizer = Arc::new(Tokenizer::train(std::iter::empty(), &tokens).unwrap());
        let (parameters, sizes) = (random(config(), 5), EngineConfig { max_num_seqs: 1, max_model_len: 120 });
        let engine = |tags: Option<ReasoningTags>| {
            let tokenizer = Some(Arc::clone(&tokenizer));
            let engine = NativeEngine::new(Arc::new(parameters.clone()), 1, sizes, tokenizer).unwrap();
            engine.past_reasoning(tags.map(Arc::new))
        };
        // Stops do not change the tokens drawn.
        let (mut asked, end) = (prompt(1, 30, 0), 260);
        asked.push(end);
        let free = answer(&mut engine(None), request(0, 0, &asked, params(1.0, 80)));
        let text = |id: u32| String::from_utf8(tokenizer.token_bytes(id).to_vec()).ok();
        let places = |id: u32| free.tokens.iter().enumerate().filter(move |(_, token)| **token == id);
        // Rejects white space, and characters that are part of another token's text.
        let is_apart = |id: u32| {
            text(id).is_some_and(|text| text.trim() == text && (id >= 256 || !"<0123456789>".contains(&text)))
        };
        // The stop string occurs before and after the token that closes the reasoning.
        let (stop, close) = free
            .tokens
            .iter()
            .flat_map(|&stop| free.tokens.iter().map(move |&close| (stop, close)))
            .find(|&(stop, close)| {
                let first = |id| places(id).next().map_or(0, |(at, _)| at);
                let last = places(stop).next_back().map_or(0, |(at, _)| at);
                is_apart(stop) && is_apart(close) && first(stop) < first(close) && first(close) < last
            })
            .unwrap();
        let closed = places(close).next().unwrap().0;
        let behind = places(stop).map(|(at, _)| at).find(|&at| at > closed).unwrap();
        let tags = |opening: u32| ReasoningTags {
            open: "no such tag".into(),
            close: text(close).unwrap(),
            opening: text(opening).unwrap(),
        };
        let stopping = || SamplingParams { stop_strings: vec![text(stop).unwrap()], ..params(1.0, 80) };
        let length = |tags: Option<ReasoningTags>| {
            let done = answer(&mut engine(tags), request(0, 0, &asked, stopping()));
            assert_eq!(done.finish, FinishReason::Stop);
            assert_eq!(done.tokens, free.tokens[..done.tokens.len()]);
            done.tokens.len()
        };
        let first = places(stop).next().unwrap().0;
        assert_eq!(length(None), first + 1);
        assert_eq!(length(Some(tags(end))), behind + 1);
        assert_eq!(length(Some(tags(261))), first + 1, "the prompt opens nothing");
        let params = SamplingParams { stop_tokens: vec![stop], ..params(1.0, 80) };
        let done = answer(&mut engine(Some(tags(end))), request(0, 0, &asked, params));
        assert_eq!(done.tokens.len(), first + 1);
    }
}
