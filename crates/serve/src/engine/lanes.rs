//! Engines that share a model's weights, each on its own thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_text::Tokenizer;

use super::OpenError;
use super::worker::{Job, Worker};
use crate::openai::ApiError;

/// Number of cached prompt tokens that outweigh one waiting or running sequence when a sequence's
/// lane is chosen. Recomputing this many tokens costs about as much as decoding one sequence.
const TOKENS_OF_LOAD: usize = 256;

pub(super) struct Lanes {
    lanes: Vec<Lane>,
    most: usize,
}

struct Lane {
    /// Sends jobs to the lane's thread; `None` once the thread should end.
    jobs: Option<Sender<Job>>,
    load: Arc<AtomicUsize>,
    /// Recent prompts that may still be cached.
    recent: Mutex<VecDeque<Vec<u32>>>,
    slots: usize,
    thread: Option<JoinHandle<()>>,
}

impl Lanes {
    pub(super) fn start(
        weights: &SharedWeights,
        count: usize,
        sizes: EngineConfig,
        most: usize,
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Self, OpenError> {
        let lanes: Result<Vec<Lane>, OpenError> =
            (0..count.max(1)).map(|index| Lane::start(index, weights.clone(), sizes, tokenizer)).collect();
        Ok(Self { lanes: lanes?, most })
    }

    pub(super) fn load(&self) -> usize {
        self.lanes.iter().map(|lane| lane.load.load(Ordering::Relaxed)).sum()
    }

    /// Rejects a request whose `count` sequences would exceed the queue's limit.
    pub(super) fn check_room(&self, count: usize) -> Result<(), ApiError> {
        let load = self.load();
        if load.saturating_add(count) <= self.most {
            return Ok(());
        }
        let message = format!(
            "{load} sequences wait or are in work; with the {count} of this request there would be more than {}",
            self.most
        );
        Err(ApiError::new(429, message))
    }

    /// Queues a request's sequences.
    pub(super) fn submit(&self, jobs: Vec<Job>) -> Result<(), ApiError> {
        for job in jobs {
            let cost = |lane: &Lane| {
                let load = lane.load.load(Ordering::Relaxed);
                (load * TOKENS_OF_LOAD) as i64 - lane.cached(&job.prompt) as i64
            };
            let Some(lane) = self.lanes.iter().min_by_key(|lane| cost(lane)) else { continue };
            lane.submit(job)?;
        }
        Ok(())
    }
}

impl Lane {
    fn start(
        index: usize,
        weights: SharedWeights,
        sizes: EngineConfig,
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Self, OpenError> {
        let load = Arc::new(AtomicUsize::new(0));
        let tokenizer = Arc::clone(tokenizer);
        let make = move || NativeEngine::with_shared(&weights, sizes, Some(Arc::clone(&tokenizer)));
        let worker = Worker::new(make, Arc::clone(&load))?;
        let (jobs, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("engine-{index}"))
            .spawn(move || worker.work(&receiver))
            .map_err(OpenError::Thread)?;
        let recent = Mutex::default();
        Ok(Self { jobs: Some(jobs), load, recent, slots: sizes.max_num_seqs, thread: Some(thread) })
    }

    fn cached(&self, prompt: &[u32]) -> usize {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = |other: &Vec<u32>| prompt.iter().zip(other).take_while(|(a, b)| a == b).count();
        recent.iter().map(shared).max().unwrap_or(0)
    }

    fn submit(&self, job: Job) -> Result<(), ApiError> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|other| !job.prompt.starts_with(other));
        recent.push_back(job.prompt.clone());
        if recent.len() > self.slots {
            recent.pop_front();
        }
        drop(recent);
        self.load.fetch_add(1, Ordering::Relaxed);
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent {
            return Ok(());
        }
        self.load.fetch_sub(1, Ordering::Relaxed);
        Err(ApiError::internal("the engine has stopped; start the server again"))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            lane.jobs = None;
        }
        for lane in &mut self.lanes {
            if let Some(thread) = lane.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
