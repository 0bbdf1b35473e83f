//! Sampling engines and their stop conditions.

use std::sync::Arc;

use turnwise_core::SamplingParams;
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Device, Weights};
use turnwise_text::chat::ChatFormat;
use turnwise_text::{ReasoningTags, Tokenizer};

use crate::TrainError;
use crate::config::{Config, RolloutConfig};
use crate::rollout::prompting::Prompter;
use crate::setup;

/// Returns the sampling parameters. Responses end at stop strings and EOS. Stop strings are
/// converted to tokens unless the model may reason first, because a stop token would also end the
/// reasoning.
pub fn sampling_params(config: &Config, prompter: Prompter<'_>, temperature: f32) -> SamplingParams {
    let Prompter { template, tokenizer, chat, .. } = prompter;
    let mut params = SamplingParams {
        temperature,
        top_p: config.rollout.top_p,
        top_k: config.rollout.top_k,
        max_tokens: config.rollout.max_response_tokens,
        ..SamplingParams::default()
    };
    let may_reason = chat.is_some() && setup::reasoning(template, chat).is_some();
    let as_strings = may_reason && setup::samples_here(config);
    for stop in chat.map_or(template.stop(), |_| template.stop_in_chat()) {
        match only_token(tokenizer, stop).filter(|_| !as_strings) {
            Some(token) => params.stop_tokens.push(token),
            None => params.stop_strings.push(stop.clone()),
        }
    }
    let ends = chat.map_or(tokenizer.end_tokens(), ChatFormat::stop_tokens);
    params.stop_tokens.extend(ends);
    params
}

/// Returns the token of a one-byte stop string, if no other token contains that byte. Sampling that
/// stops at this token needs no decoding.
fn only_token(tokenizer: &Tokenizer, stop: &str) -> Option<u32> {
    let &[byte] = stop.as_bytes() else { return None };
    let mut having =
        (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.token_bytes(id).contains(&byte));
    let only = having.next()?;
    having.next().is_none().then_some(only)
}

/// Returns the number of engines and the number of sequences per engine; on a GPU, there is one
/// engine for all sequences.
pub(crate) fn sampling_lanes(config: &Config) -> (usize, usize) {
    let RolloutConfig { num_workers: lanes, max_num_seqs: slots, .. } = config.rollout;
    match config.policy.device {
        Device::Cpu => (lanes, slots),
        Device::Cuda => (1, lanes * slots),
    }
}

/// Creates the engines. The engines ignore stop strings within the model's reasoning.
pub(super) fn engines(
    config: &Config,
    weights: &Weights,
    tokenizer: &Arc<Tokenizer>,
    reasoning: Option<ReasoningTags>,
) -> Result<Vec<NativeEngine>, TrainError> {
    let (lanes, slots) = sampling_lanes(config);
    let weights = &SharedWeights::of(weights, 0, config.policy.device, config.policy.compute)?;
    let sizes = EngineConfig { max_num_seqs: slots, max_model_len: config.rollout.max_model_len };
    let reasoning = reasoning.map(Arc::new);
    let engine = |_| -> Result<NativeEngine, TrainError> {
        let engine = NativeEngine::with_shared(weights, sizes, Some(Arc::clone(tokenizer)))?;
        Ok(engine.past_reasoning(reasoning.clone()))
    };
    (0..lanes).map(engine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_text::TokenizerConfig;

    #[test]
    fn a_stop_string_inside_another_token_is_no_stop_token() {
        let tokenizer = |phrases: &[&str]| {
            let phrases = phrases.iter().map(|phrase| (*phrase).to_owned()).collect();
            let config = TokenizerConfig { phrases, max_pieces: 20, ..TokenizerConfig::default() };
            Tokenizer::train(["click[x]\nclick[y]\n"].into_iter(), &config).unwrap()
        };
        assert_eq!(only_token(&tokenizer(&[]), "\n"), Some(10));
        assert_eq!(only_token(&tokenizer(&["]\n"]), "\n"), None);
        assert_eq!(only_token(&tokenizer(&["]\n"]), "]\n"), None);
    }
}
