//! The start check: one request to every server, held against the learner's own scoring pass.

use turnwise_core::{LearnError, Purpose, SamplingParams, Seed, TokenScores, TokenSequence, TurnSpan};
use turnwise_train::TrainError;
use turnwise_train::config::ServerKind;

use super::adapters::Published;
use super::dialect::Answer;
use super::error::EngineError;
use super::fleet::{Ask, Fleet};
use crate::thread::RequestThread;

/// Temperature of the request: log-probabilities before it and after it differ.
const TEMPERATURE: f32 = 0.7;

/// Tokens that are sampled.
const TOKENS: usize = 32;

/// Mean distance of log-probabilities, in nats, up to which two programs compute the same model: a 16-bit server is some
/// hundredths off.
const SAME: f64 = 0.1;

/// Scores a sequence at a temperature.
pub(crate) type Score<'a> = dyn FnMut(&[TokenSequence], f64) -> Result<Vec<TokenScores>, LearnError> + 'a;

/// The request: the same of every server, so that its numbers tell them apart.
pub(crate) fn probe(prompt: Vec<u32>, max_context: usize) -> Ask {
    let prompt: Vec<u32> = prompt.into_iter().take((max_context / 2).max(1)).collect();
    Ask {
        id: "turnwise-check".into(),
        session: "turnwise-check".into(),
        max_tokens: TOKENS.min(max_context - prompt.len()).max(1),
        prompt,
        params: SamplingParams { temperature: TEMPERATURE, ..SamplingParams::default() },
        seed: Seed::derive(0, Purpose::Rollout, &[]),
    }
}

/// Refuses servers whose log-probabilities are not those of the distribution that they sample from, or that serve another
/// model. Returns notes for the user.
pub(crate) fn check(
    thread: &RequestThread,
    fleet: &std::sync::Arc<Fleet>,
    adapter: &std::sync::Arc<Published>,
    ask: Ask,
    score: &mut Score<'_>,
) -> Result<Vec<String>, TrainError> {
    let mut notes = Vec::new();
    let ask = std::sync::Arc::new(ask);
    for server in 0..fleet.servers.len() {
        let once = || {
            let (fleet, adapter, ask) = (fleet.clone(), adapter.clone(), ask.clone());
            let answer = thread.wait(async move { fleet.ask_once(server, &adapter, &ask).await })?;
            answer.map_err(|reason| EngineError::Server { server, reason })
        };
        let answer = once()?;
        let difference = compare(server, fleet.kind, &ask, &answer, score)?;
        notes.push(format!(
            "inference server {server}: log-probabilities of {} tokens differ from the learner's by {:.1e} on average, {:.1e} \
             at most",
            answer.tokens.len(),
            difference.mean,
            difference.most
        ));
        if once()?.tokens != answer.tokens {
            notes.push(format!(
                "inference server {server} answers the same request with the same seed in another way: a run cannot be \
                 repeated to the token"
            ));
        }
    }
    Ok(notes)
}

/// Distance of log-probabilities in nats.
#[derive(Clone, Copy, Debug)]
struct Difference {
    mean: f64,
    most: f64,
}

fn compare(
    server: usize,
    kind: ServerKind,
    ask: &Ask,
    answer: &Answer,
    score: &mut Score<'_>,
) -> Result<Difference, TrainError> {
    let start = ask.prompt.len();
    let tokens: Vec<u32> = ask.prompt.iter().chain(&answer.tokens).copied().collect();
    let spans = vec![TurnSpan { turn: 0, start, end: tokens.len() }];
    let sequence = [TokenSequence { tokens, spans }];
    let mut from = |temperature: f32| -> Result<Difference, TrainError> {
        let scores = score(&sequence, f64::from(temperature))?;
        let pairs = scores.iter().flat_map(|scores| &scores.logprobs).zip(&answer.logprobs);
        let distances: Vec<f64> = pairs.map(|(own, theirs)| f64::from((own - theirs).abs())).collect();
        let mean = distances.iter().sum::<f64>() / distances.len().max(1) as f64;
        Ok(Difference { mean, most: distances.iter().copied().fold(0.0, f64::max) })
    };
    let (sampled, raw) = (from(TEMPERATURE)?, from(1.0)?);
    let fail = |reason: String| Err(EngineError::Server { server, reason }.into());
    if raw.mean < sampled.mean && raw.mean < SAME {
        return fail(match kind {
            ServerKind::Vllm => format!(
                "gives log-probabilities before the temperature ({:.2} nats off those of what it samples from); start vLLM \
                 with --logprobs-mode processed_logprobs",
                sampled.mean
            ),
            ServerKind::Sglang => format!(
                "gives log-probabilities before the temperature ({:.2} nats off those of what it samples from); start SGLang \
                 without its setting that returns the original ones (SGLANG_RETURN_ORIGINAL_LOGPROB)",
                sampled.mean
            ),
        });
    }
    if sampled.mean > SAME {
        return fail(format!(
            "computes another model than the learner: log-probabilities differ by {:.2} nats on average; it must serve \
             policy.model, in a number format of at least 16 bits",
            sampled.mean
        ));
    }
    Ok(sampled)
}
