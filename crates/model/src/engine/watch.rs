use turnwise_core::{RequestId, SampleError, SampleRequest, Sampler as _};

use super::NativeEngine;
use super::slot::Active;
use crate::backend::{Choice, Decoding};

/// A sampled token of a request submitted with [`NativeEngine::submit_watched`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Request id.
    pub request: RequestId,
    /// Token id.
    pub token: u32,
    /// Log-prob, as in [`turnwise_core::Completion::logprobs`].
    pub logprob: f32,
    /// Most probable tokens with their log-probs, best first.
    pub alternatives: Vec<(u32, f32)>,
    /// Number of prompt tokens whose keys and values came from the cache.
    pub cached: usize,
}

impl Sampled {
    /// Creates the report of a sampled token. `place` is the index of the token's row among the
    /// rows with logits.
    pub(super) fn of(
        backend: &dyn Decoding,
        active: &Active,
        place: usize,
        choice: &Choice,
        alternatives: usize,
    ) -> Self {
        Self {
            request: active.request,
            token: choice.token,
            logprob: choice.logprob,
            alternatives: backend.best(place, &active.params, choice, alternatives),
            cached: active.cached,
        }
    }
}

impl NativeEngine {
    /// Submits a request and streams its tokens through [`NativeEngine::take_sampled`], each with
    /// the `alternatives` most probable tokens at its position.
    ///
    /// # Errors
    /// Fails like [`turnwise_core::Sampler::submit`], and if `alternatives` is above 0 on a device,
    /// because devices do not report alternatives.
    pub fn submit_watched(
        &mut self,
        request: SampleRequest,
        alternatives: usize,
    ) -> Result<RequestId, SampleError> {
        if alternatives > 0 && !self.backend.knows_best() {
            let reason = "a device does not report the alternatives of a token: request 0 of them".to_owned();
            return Err(SampleError::Request { request: self.next_request, reason });
        }
        let id = self.submit(request)?;
        // A request for 0 tokens is already done.
        if self.queue.back().is_some_and(|queued| queued.request == id) {
            self.watched.insert(id, alternatives);
        }
        Ok(id)
    }

    /// Returns watched requests' tokens since the last call, in order.
    pub fn take_sampled(&mut self) -> Vec<Sampled> {
        std::mem::take(&mut self.sampled)
    }

    /// Cancels a request, which then yields no completion; its keys and values stay cached. Returns
    /// false if the request is finished or unknown.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.watched.remove(&request);
        if let Some(place) = self.queue.iter().position(|queued| queued.request == request) {
            self.queue.remove(place);
            return true;
        }
        let is_its = |active: &Active| active.request == request;
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.active.as_ref().is_some_and(is_its)) else {
            return false;
        };
        slot.active = None;
        self.clock += 1;
        slot.used = self.clock;
        if slot.ended {
            slot.end();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use turnwise_core::Completion;

    use super::super::tests::{config, params, prompt, random, request};
    use super::super::{EngineConfig, NativeEngine};
    use super::*;

    fn engine(slots: usize) -> NativeEngine {
        let sizes = EngineConfig { max_num_seqs: slots, max_model_len: 120 };
        NativeEngine::new(Arc::new(random(config(), 5)), 1, sizes, None).unwrap()
    }

    fn run(engine: &mut NativeEngine) -> (Vec<Completion>, Vec<Sampled>) {
        let (mut done, mut sampled) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            done.extend(engine.poll_until(Instant::now()).unwrap());
            sampled.extend(engine.take_sampled());
        }
        (done, sampled)
    }

    #[test]
    fn tokens_of_watched_requests_are_reported_as_they_come() {
        let mut engine = engine(2);
        let text = prompt(1, 40, 0);
        let watched = engine.submit_watched(request(0, 0, &text, params(0.7, 9)), 3).unwrap();
        let other = engine.submit(request(1, 0, &text, params(0.7, 9))).unwrap();
        assert!(engine.poll_until(Instant::now()).unwrap().is_empty());
        let first = engine.take_sampled();
        assert_eq!(first.len(), 1, "one step gives one token");
        let (done, rest) = run(&mut engine);
        let find = |id| done.iter().find(|done: &&Completion| done.request == id).unwrap();
        let all: Vec<&Sampled> = first.iter().chain(&rest).collect();
        assert!(all.iter().all(|sampled| sampled.request == watched), "{other} is not watched");
        let tokens: Vec<u32> = all.iter().map(|sampled| sampled.token).collect();
        let logprobs: Vec<f32> = all.iter().map(|sampled| sampled.logprob).collect();
        assert_eq!((&tokens, &logprobs), (&find(watched).tokens, &find(watched).logprobs));
        for sampled in all {
            let best = &sampled.alternatives;
            assert!(best.len() == 3 && best.is_sorted_by(|a, b| a.1 >= b.1), "{best:?}");
            let own = best.iter().find(|(token, _)| *token == sampled.token);
            assert!(own.map_or(sampled.logprob <= best[2].1, |(_, own)| *own == sampled.logprob));
        }
        assert!(engine.watched.is_empty());
    }

    #[test]
    fn alternatives_are_the_whole_distribution_where_all_are_asked_for() {
        let mut engine = engine(1);
        for temperature in [0.0, 0.5, 1.0] {
            engine.submit_watched(request(0, 0, &prompt(2, 9, 0), params(temperature, 2)), 301).unwrap();
            for sampled in run(&mut engine).1 {
                let total: f64 =
                    sampled.alternatives.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
                assert!((total - 1.0).abs() < 1e-4, "{temperature}: {total}");
            }
        }
    }

    #[test]
    fn a_cancelled_request_frees_its_slot_and_leaves_its_prefix() {
        let mut engine = engine(1);
        let text = prompt(3, 60, 0);
        let first = engine.submit_watched(request(0, 0, &text, params(1.0, 50)), 0).unwrap();
        let second = engine.submit_watched(request(1, 0, &text, params(1.0, 4)), 0).unwrap();
        let third = engine.submit_watched(request(2, 0, &text, params(1.0, 4)), 0).unwrap();
        engine.poll_until(Instant::now()).unwrap();
        engine.end_session(0);
        assert!(engine.cancel(first) && engine.cancel(third), "one in work and one that waits");
        assert!(!engine.cancel(first) && !engine.cancel(99));
        engine.take_sampled();
        let (done, sampled) = run(&mut engine);
        assert_eq!(done.iter().map(|done| done.request).collect::<Vec<_>>(), [second]);
        assert_eq!(sampled.len(), 4);
        assert_eq!(sampled[0].cached, 59, "all of the prompt but its last token");
        let mut alone = self::engine(1);
        alone.submit(request(1, 0, &text, params(1.0, 4))).unwrap();
        assert_eq!(run(&mut alone).0[0].tokens, done[0].tokens);
        assert!(engine.watched.is_empty());
    }
}
