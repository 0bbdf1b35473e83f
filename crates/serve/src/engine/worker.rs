//! The thread that runs an engine, accepting jobs between steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use turnwise_core::{
    FinishReason, RequestId, SampleError, SampleRequest, Sampler as _, SamplingParams, Seed,
};
use turnwise_model::ModelError;
use turnwise_model::engine::{NativeEngine, Sampled};

use crate::openai::ApiError;

pub(super) trait Sink: Send {
    fn token(&mut self, sampled: Sampled);

    fn done(self: Box<Self>, finish: FinishReason);

    /// Called instead of `done` if the job fails.
    fn fail(self: Box<Self>, error: ApiError);

    fn is_closed(&self) -> bool;
}

pub(super) struct Job {
    pub(super) prompt: Vec<u32>,
    pub(super) params: SamplingParams,
    pub(super) seed: Seed,
    pub(super) alternatives: usize,
    pub(super) sink: Box<dyn Sink>,
}

struct InWork {
    session: u64,
    sink: Box<dyn Sink>,
}

pub(super) struct Worker<M> {
    make: M,
    engine: NativeEngine,
    in_work: BTreeMap<RequestId, InWork>,
    next_session: u64,
    load: Arc<AtomicUsize>,
}

impl<M: FnMut() -> Result<NativeEngine, ModelError>> Worker<M> {
    /// Creates a worker. `make` creates the worker's engine, and a new engine after an error.
    pub(super) fn new(mut make: M, load: Arc<AtomicUsize>) -> Result<Self, ModelError> {
        let engine = make()?;
        Ok(Self { make, engine, in_work: BTreeMap::new(), next_session: 0, load })
    }

    pub(super) fn work(mut self, jobs: &Receiver<Job>) {
        loop {
            if self.in_work.is_empty() {
                match jobs.recv() {
                    Ok(job) => self.submit(job),
                    Err(_) => return,
                }
            }
            while let Ok(job) = jobs.try_recv() {
                self.submit(job);
            }
            self.drop_closed();
            // One step, so that new jobs can join the next.
            let done = self.engine.poll_until(Instant::now());
            for sampled in self.engine.take_sampled() {
                if let Some(in_work) = self.in_work.get_mut(&sampled.request) {
                    in_work.sink.token(sampled);
                }
            }
            match done {
                Ok(done) => {
                    for completion in done {
                        if let Some(sink) = self.take(completion.request) {
                            sink.done(completion.finish);
                        }
                    }
                }
                Err(error) => self.fail_all(&error),
            }
        }
    }

    fn submit(&mut self, job: Job) {
        let Job { prompt, params, seed, alternatives, sink } = job;
        if sink.is_closed() {
            self.load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let session = self.next_session;
        self.next_session += 1;
        match self.engine.submit_watched(SampleRequest { session, prompt, params, seed }, alternatives) {
            Ok(request) => {
                self.in_work.insert(request, InWork { session, sink });
            }
            Err(error) => {
                self.load.fetch_sub(1, Ordering::Relaxed);
                sink.fail(match error {
                    SampleError::Request { reason, .. } => ApiError::new(400, reason),
                    SampleError::Backend(reason) => ApiError::internal(reason),
                });
            }
        }
    }

    /// Cancels sequences of disconnected clients; their keys and values stay cached.
    fn drop_closed(&mut self) {
        let closed = self.in_work.iter().filter(|(_, in_work)| in_work.sink.is_closed());
        let closed: Vec<RequestId> = closed.map(|(&request, _)| request).collect();
        for request in closed {
            self.engine.cancel(request);
            self.take(request);
        }
    }

    fn take(&mut self, request: RequestId) -> Option<Box<dyn Sink>> {
        let InWork { session, sink } = self.in_work.remove(&request)?;
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.engine.end_session(session);
        Some(sink)
    }

    fn fail_all(&mut self, error: &SampleError) {
        for (_, in_work) in std::mem::take(&mut self.in_work) {
            self.load.fetch_sub(1, Ordering::Relaxed);
            in_work.sink.fail(ApiError::internal(error.to_string()));
        }
        // Without memory, the old engine is kept.
        if let Ok(engine) = (self.make)() {
            self.engine = engine;
        }
    }
}
