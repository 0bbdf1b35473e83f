//! The search environment: configs, slow or dead retrievers, anchor states.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and may say what it measured"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use turnwise_core::{
    Completion, FinishReason, Group, Purpose, RequestId, SampleError, SampleRequest, Sampler, StopReason,
    TaskSet as _, Trajectory,
};
use turnwise_credit::anchor::{AnchorConfig, Anchors, Matching};
use turnwise_env::search::{Question, SearchOptions, SearchSet};
use turnwise_retrieval::{Hit, Passage, RetrievalError, Retriever};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::Layout;
use turnwise_train::rollout::{Job, Rollout, is_faulty};

use crate::common::{self, train_folder};

#[test]
fn every_config_of_search_trains_for_two_steps() {
    let few = [
        "env.generator.people=200",
        "env.generator.towns=30",
        "env.generator.works=40",
        "env.generator.events=30",
        "env.generator.train=20",
        "env.generator.valid=0",
        "env.generator.test=8",
        "sft.demonstrations=40",
        // A tiny tokenizer needs several times as many tokens as a real model.
        "rollout.max_model_len=8192",
    ];
    assert_eq!(train_folder("search", "search", &few), ["grpo", "small", "so-grpo", "so-ppo", "stapo"]);
}

/// Rejects queries with a word, and returns passages that differ only by query.
#[derive(Default)]
struct Slow {
    takes: Duration,
    refused: Option<&'static str>,
    calls: AtomicUsize,
    queries: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Retriever for Slow {
    fn search(&self, queries: &[&str], _: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.queries.fetch_add(queries.len(), Ordering::Relaxed);
        let under_way = self.under_way.fetch_add(queries.len(), Ordering::SeqCst) + queries.len();
        self.most.fetch_max(under_way, Ordering::SeqCst);
        std::thread::sleep(self.takes);
        self.under_way.fetch_sub(queries.len(), Ordering::SeqCst);
        if self.refused.is_some_and(|word| queries.iter().any(|query| query.contains(word))) {
            return Err(RetrievalError::Unreachable {
                server: "s".into(),
                reason: "connection refused".into(),
            });
        }
        let hit = |query: &&str| {
            let text = "This is the passage about the town, its river and its theatre. ".repeat(4);
            let contents = format!("\"Town\"\n{text}{query}");
            vec![Hit { passage: Arc::new(Passage { id: String::new(), contents }), score: 1.0 }]
        };
        Ok(queries.iter().map(hit).collect())
    }
}

/// Searches twice for random words from the request's seed, then answers.
struct Searcher<'a> {
    tokenizer: &'a Tokenizer,
    words: &'a [&'a str],
    takes: Duration,
    busy: Arc<Mutex<Duration>>,
    next: RequestId,
    waiting: Vec<(RequestId, SampleRequest)>,
}

impl Sampler for Searcher<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.next += 1;
        self.waiting.push((self.next, request));
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let started = Instant::now();
        std::thread::sleep(self.takes);
        let answer = |(id, request): (RequestId, SampleRequest)| {
            let searched = self.tokenizer.decode(&request.prompt).matches("</search>").count();
            let word = *request.seed.rng().choose(self.words).unwrap();
            let text = if searched < 2 {
                format!("<search> {word} </search>")
            } else {
                "<answer> river </answer>".to_owned()
            };
            let tokens = self.tokenizer.encode(&text);
            Completion {
                request: id,
                logprobs: vec![-1.0; tokens.len()],
                entropies: vec![1.0; tokens.len()],
                tokens,
                finish: FinishReason::Stop,
                weights_version: 0,
            }
        };
        let done = self.waiting.drain(..).map(answer).collect();
        *self.busy.lock().unwrap() += started.elapsed();
        Ok(done)
    }

    fn end_session(&mut self, _: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

fn play(
    retriever: &Arc<Slow>,
    samples: usize,
    words: &[&str],
    takes: Duration,
) -> (Vec<Trajectory>, Duration, Duration) {
    let text =
        ["Which river? <search> town </search> <answer> river </answer> Doc 1 information Title passage"];
    let tokenizer = Tokenizer::train(text.into_iter(), &TokenizerConfig::default()).unwrap();
    let question =
        Question { text: "Which river?".into(), golden: vec!["river".into()], ..Question::default() };
    let options = SearchOptions { instant: false, top_k: 1, ..SearchOptions::default() };
    let set = SearchSet::new([vec![question], Vec::new(), Vec::new()], Arc::clone(retriever) as _, options);
    let task = set.tasks("train").unwrap().remove(0);
    let runner = common::runner(set, "search-compact", tokenizer, None);
    let stop = AtomicBool::new(false);
    let mut config = common::rollout_config(Layout::Concatenated, 8192, samples);
    config.rollout.env_threads = 4;
    let rollout = Rollout { max_resamples: 0, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let jobs: Vec<Job> = (0..samples).map(|sample| Job::new(task.clone(), 0, sample)).collect();
    let busy = Arc::new(Mutex::new(Duration::ZERO));
    let mut samplers = [Searcher {
        tokenizer: &runner.tokenizer,
        words,
        takes,
        busy: Arc::clone(&busy),
        next: 0,
        waiting: Vec::new(),
    }];
    let started = Instant::now();
    let played = runner.play(&rollout, &jobs, &mut samplers, |_| {}).unwrap().unwrap().trajectories;
    let worked = *busy.lock().unwrap();
    (played, started.elapsed(), worked)
}

#[test]
fn a_retriever_of_300_ms_does_not_hold_the_sampler_up() {
    let retriever = Arc::new(Slow { takes: Duration::from_millis(300), ..Slow::default() });
    let (played, took, worked) = play(&retriever, 16, &["town", "river"], Duration::from_millis(20));
    assert!(played.iter().all(|trajectory| trajectory.success && trajectory.metrics["searches"] == 2.0));
    let queries = retriever.queries.load(Ordering::Relaxed);
    let calls = retriever.calls.load(Ordering::Relaxed);
    assert_eq!(queries, 32);
    println!(
        "16 trajectories, {queries} searches of 300 ms in {calls} calls: {:.2} s, the sampler idle for {:.2} s of them",
        took.as_secs_f64(),
        (took.saturating_sub(worked)).as_secs_f64()
    );
    // If the sampler waited for each search, all would take 9.6 s.
    let most = retriever.most.load(Ordering::Relaxed);
    assert!(most >= 4, "{most} of 16 trajectories searched at once");
    assert!(calls < queries, "the queries of several go out in one call");
}

#[test]
fn a_dead_server_ends_the_trajectories_that_ask_it_and_nothing_else() {
    let retriever = Arc::new(Slow { refused: Some("river"), ..Slow::default() });
    let (fine, ..) = play(&retriever, 6, &["town"], Duration::ZERO);
    assert!(fine.iter().all(|trajectory| trajectory.success));
    let (dead, ..) = play(&retriever, 6, &["river"], Duration::ZERO);
    for trajectory in &dead {
        assert!(is_faulty(trajectory), "left out of its group, and not trained on as a failure");
        let StopReason::EnvironmentError(reason) = &trajectory.stop else { panic!("{:?}", trajectory.stop) };
        assert!(reason.contains("the search failed: s: no connection: connection refused"), "{reason}");
        assert_eq!(trajectory.turns.len(), 1);
    }
}

#[test]
fn retrieved_texts_that_are_nine_tenths_alike_are_one_anchor_state() {
    let (played, ..) =
        play(&Arc::new(Slow::default()), 8, &["town", "river", "bridge", "gate"], Duration::ZERO);
    let group = Group { trajectories: played };
    let anchors = |matching, threshold| {
        Anchors::find(&group, &AnchorConfig { matching, threshold, ..AnchorConfig::default() })
    };
    let exact = anchors(Matching::Exact, 0.9);
    assert!((4..=5).contains(&exact.count), "{exact:?}");
    let similar = anchors(Matching::Similarity, 0.9);
    assert_eq!(similar.count, 2, "{similar:?}");
    assert_eq!(similar.sizes(), [8, 16]);
    assert_eq!(anchors(Matching::Similarity, 1.0), exact);
}
