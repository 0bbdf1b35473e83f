//! Compares servers' log-probs with the learner's, at the start and after weight updates.

use std::sync::Arc;

use turnwise_core::{LearnError, Purpose, SamplingParams, Seed, TokenScores, TokenSequence, TurnSpan};
use turnwise_model::vision::{Image, VisionConfig};
use turnwise_train::TrainError;
use turnwise_train::config::ServerKind;

use super::dialect::GenerateResponse;
use super::error::EngineError;
use super::pictures::PromptPictures;
use super::server_pool::{PendingRequest, ServerPool};
use super::versions::Published;
use crate::thread::RequestThread;

/// Temperature of check requests. It is not 1, so that temperature scaling changes the log-probs.
const TEMPERATURE: f32 = 0.7;

const TOKENS: usize = 32;

/// Maximum mean difference in nats between two implementations' log-probs. Servers that compute in
/// 16 bits differ by a few hundredths.
const SAME: f64 = 0.1;

pub(crate) type Score<'a> = dyn FnMut(&[&TokenSequence], f64) -> Result<Vec<TokenScores>, LearnError> + 'a;

/// Returns the request that all checks send. The text is cut so that text and image together fill
/// at most half of the context.
pub(crate) fn probe(
    text: Vec<u32>,
    picture: Vec<u32>,
    vision: Option<&VisionConfig>,
    max_model_len: usize,
) -> Result<PendingRequest, EngineError> {
    let most = (max_model_len / 2).saturating_sub(picture.len()).max(1);
    let prompt: Vec<u32> = text.into_iter().take(most).chain(picture).collect();
    Ok(PendingRequest {
        id: "turnwise-check".into(),
        session: "turnwise-check".into(),
        max_tokens: TOKENS.min(max_model_len.saturating_sub(prompt.len())).max(1),
        pictures: PromptPictures::of(&prompt, vision).map_err(EngineError::Backend)?,
        prompt,
        params: SamplingParams { temperature: TEMPERATURE, ..SamplingParams::default() },
        seed: Seed::derive(0, Purpose::Rollout, &[]),
    })
}

pub(crate) fn picture(vision: &VisionConfig) -> Image {
    let (height, width) = (3 * vision.factor(), 4 * vision.factor());
    let level = |y: usize, x: usize, c: usize| ((37 * y + 11 * x + 50 * c + 7 * ((x * y) % 23)) % 256) as u8;
    let rows = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| level(y, x, c))));
    Image { width, height, rgb: rows.collect() }
}

/// Maximum mean difference of the log-probs after a weight update: a multiple of the initial
/// difference, plus a constant in nats.
const AS_AT_THE_START: (f64, f64) = (4.0, 1e-3);

pub(crate) struct Checks {
    request: Arc<PendingRequest>,
    servers: Vec<Known>,
}

struct Known {
    start: f64,
    last: Option<Seen>,
}

struct Seen {
    tokens: Vec<u32>,
    theirs: Vec<f32>,
    own: Vec<f32>,
}

impl Seen {
    fn of(
        request: &PendingRequest,
        response: GenerateResponse,
        score: &mut Score<'_>,
    ) -> Result<Self, TrainError> {
        let own = own(request, &response, TEMPERATURE, score)?;
        Ok(Self { tokens: response.tokens, theirs: response.logprobs, own })
    }

    fn difference(&self) -> Difference {
        Difference::between(&self.own, &self.theirs)
    }
}

impl Checks {
    /// Rejects servers whose model differs from the learner's, or that sample from one distribution
    /// but report log-probs of another. Returns notes for the user.
    pub(crate) fn at_the_start(
        thread: &RequestThread,
        pool: &Arc<ServerPool>,
        version: &Arc<Published>,
        request: PendingRequest,
        score: &mut Score<'_>,
    ) -> Result<(Self, Vec<String>), TrainError> {
        let (mut checks, mut notes) = (Self { request: Arc::new(request), servers: Vec::new() }, Vec::new());
        for server in 0..pool.servers.len() {
            let refused = |reason| EngineError::Server { server, reason };
            let once = || checks.generate(thread, pool, version, server)?.map_err(refused);
            let response = once()?;
            let raw = Difference::between(&own(&checks.request, &response, 1.0, score)?, &response.logprobs);
            let seen = Seen::of(&checks.request, response, score)?;
            let difference = seen.difference();
            check_temperature(pool.dialect.kind(), difference, raw).map_err(refused)?;
            check_model(difference).map_err(refused)?;
            notes.push(format!(
                "inference server {server}: log-probabilities of {} tokens differ from the learner's by {:.1e} on average, \
                 {:.1e} at most",
                seen.tokens.len(),
                difference.mean,
                difference.most
            ));
            if once()?.tokens != seen.tokens {
                notes.push(format!(
                    "inference server {server} answers the same request with the same seed in another way: a run cannot \
                     be repeated to the token"
                ));
            }
            checks.servers.push(Known { start: difference.mean, last: Some(seen) });
        }
        Ok((checks, notes))
    }

    fn generate(
        &self,
        thread: &RequestThread,
        pool: &Arc<ServerPool>,
        version: &Arc<Published>,
        server: usize,
    ) -> Result<Result<GenerateResponse, String>, EngineError> {
        let (pool, version, request) = (Arc::clone(pool), Arc::clone(version), Arc::clone(&self.request));
        Ok(thread.wait(async move { pool.generate_once(server, &version, &request).await })?)
    }

    /// Rejects servers that still use old weights, even if they report the new version. Skips
    /// servers that do not reply.
    pub(crate) fn after_a_replacement(
        &mut self,
        thread: &RequestThread,
        pool: &Arc<ServerPool>,
        version: &Arc<Published>,
        score: &mut Score<'_>,
    ) -> Result<(), TrainError> {
        for server in 0..pool.servers.len() {
            let Ok(response) = self.generate(thread, pool, version, server)? else {
                self.servers[server].last = None;
                continue;
            };
            let seen = Seen::of(&self.request, response, score)?;
            let refused = |reason| EngineError::Server { server, reason };
            check_replaced(&self.servers[server], &seen).map_err(refused)?;
            check_model(seen.difference()).map_err(refused)?;
            self.servers[server].last = Some(seen);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Difference {
    mean: f64,
    most: f64,
}

impl Difference {
    fn between(one: &[f32], other: &[f32]) -> Self {
        let distances = one.iter().zip(other).map(|(one, other)| f64::from((one - other).abs()));
        let (sum, most) = distances
            .fold((0.0, 0.0), |(sum, most): (f64, f64), distance| (sum + distance, most.max(distance)));
        Self { mean: sum / one.len().max(1) as f64, most }
    }
}

fn own(
    request: &PendingRequest,
    response: &GenerateResponse,
    temperature: f32,
    score: &mut Score<'_>,
) -> Result<Vec<f32>, TrainError> {
    let start = request.prompt.len();
    let tokens: Vec<u32> = request.prompt.iter().chain(&response.tokens).copied().collect();
    let spans = vec![TurnSpan { turn: 0, start, end: tokens.len() }];
    let scores = score(&[&TokenSequence { tokens, spans }], f64::from(temperature))?;
    Ok(scores.into_iter().flat_map(|scores| scores.logprobs).collect())
}

/// Rejects log-probs that are closer to those at temperature 1 than to those of the sampled
/// distribution.
fn check_temperature(kind: ServerKind, sampled: Difference, raw: Difference) -> Result<(), String> {
    if raw.mean < sampled.mean && raw.mean < SAME {
        let fix = match kind {
            ServerKind::Vllm => "start vLLM with --logprobs-mode processed_logprobs",
            ServerKind::Sglang => {
                "start SGLang without its setting that returns the original ones (SGLANG_RETURN_ORIGINAL_LOGPROB)"
            }
        };
        return Err(format!(
            "gives log-probabilities before the temperature ({:.2} nats off those of what it samples from); {fix}",
            sampled.mean
        ));
    }
    Ok(())
}

fn check_model(sampled: Difference) -> Result<(), String> {
    if sampled.mean > SAME {
        return Err(format!(
            "computes another model than the learner: log-probabilities differ by {:.2} nats on average; it must serve \
             policy.model, in a number format of at least 16 bits",
            sampled.mean
        ));
    }
    Ok(())
}

/// Rejects old or partly replaced weights. With old weights, the response stays the same although
/// the learner's log-probs moved. With partly replaced weights, the server's log-probs differ more
/// from the learner's than at the start.
fn check_replaced(known: &Known, now: &Seen) -> Result<(), String> {
    let same = |before: &&Seen| (&before.tokens, &before.theirs) == (&now.tokens, &now.theirs);
    if let Some(before) = known.last.as_ref().filter(same) {
        // The response is bitwise equal although the learner's log-probs moved.
        let moved = Difference::between(&now.own, &before.own).mean;
        if moved > 2.0 * before.difference().mean {
            return Err(format!(
                "answers to the bit as before its weights were replaced, where the learner's log-probabilities moved \
                 by {moved:.1e} nats on average; it says that it has loaded them and has not"
            ));
        }
    }
    let ((times, nats), start, now) = (AS_AT_THE_START, known.start, now.difference().mean);
    if now > times * start + nats {
        return Err(format!(
            "has not loaded all of the weights that it says it has: its log-probabilities differ from the learner's by \
             {now:.1e} nats on average, and differed by {start:.1e} at the start. vLLM on a CPU keeps the output layer \
             of models whose embeddings are tied to it; give it an adapter there (rollout.engine.weights = \"adapter\")"
        ));
    }
    Ok(())
}
