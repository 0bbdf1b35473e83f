//! Compares the speed of the server with its bare engine: requests and tokens per second at several
//! numbers of clients.
//!
//! ```text
//! cargo run --release -p turnwise-serve --example serve_speed -- MODEL clients=1,8,64 prompt=128 new=64 requests=4
//! ```
//!
//! Each client sends its requests one after the other over HTTP, with prompts of random tokens. The
//! bare engine gets the same load on the same number of threads. Each measurement prints one line
//! of JSON. Clients and server share the machine.
#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use turnwise_core::{Purpose, SampleRequest, Sampler as _, SamplingParams, Seed};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Compute, Device};
use turnwise_policy::Policy;
use turnwise_serve::engine::{EngineServer, EngineSettings, ServedModel};
use turnwise_serve::{Limits, Server};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    /// Requests per client.
    requests: usize,
    prompt: usize,
    new: usize,
    vocabulary: usize,
    stream: bool,
}

impl Load {
    fn prompt(&self, client: usize, request: usize) -> Vec<u32> {
        let mut rng = Seed::derive(1, Purpose::World, &[client as u64, request as u64]).rng();
        (0..self.prompt).map(|_| rng.below(self.vocabulary) as u32).collect()
    }
}

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let model = words.next().ok_or("give the folder of a model")?;
    let (mut clients, mut load) = (
        vec![1, 8, 64],
        Load { clients: 1, requests: 4, prompt: 128, new: 64, vocabulary: 0, stream: false },
    );
    for word in words {
        let (key, value) = word.split_once('=').ok_or("give KEY=VALUE")?;
        match key {
            "clients" => clients = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "requests" => load.requests = value.parse()?,
            "prompt" => load.prompt = value.parse()?,
            "new" => load.new = value.parse()?,
            "stream" => load.stream = value == "1",
            _ => return Err(format!("no such key: {key}").into()),
        }
    }
    let policy = Policy::load(Path::new(&model))?;
    load.vocabulary = policy.tokenizer.vocab_size();
    let weights = SharedWeights::of(&policy.weights, 0, Device::Cpu, Compute::F32)?;
    drop(policy);
    let settings =
        EngineSettings { max_model_len: Some(load.prompt + load.new + 1), ..EngineSettings::default() };
    let lanes = settings.lanes;
    for &clients in &clients {
        let load = Load { clients, ..load };
        report("engine", load, lanes, || engine(&weights, lanes, settings.max_num_seqs, load))?;
    }
    drop(weights);
    let models = vec![ServedModel { name: "model".to_owned(), path: model.into() }];
    let engine = Arc::new(EngineServer::open(models, settings)?);
    let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), engine, Limits::default())?;
    let url = format!("{}/completions", server.base_url());
    for &clients in &clients {
        let load = Load { clients, ..load };
        report("server", load, lanes, || requests(&url, load))?;
    }
    Ok(())
}

/// Measures `run`, which returns the number of sampled tokens.
fn report(what: &str, load: Load, lanes: usize, run: impl Fn() -> Outcome<usize>) -> Outcome<()> {
    let begun = Instant::now();
    let tokens = run()?;
    let seconds = begun.elapsed().as_secs_f64();
    let count = load.clients * load.requests;
    println!(
        "{}",
        json!({
            "what": what, "clients": load.clients, "threads": lanes, "prompt": load.prompt, "new": load.new,
            "stream": load.stream, "requests": count, "seconds": round(seconds),
            "requests_per_s": round(count as f64 / seconds), "tokens_per_s": round(tokens as f64 / seconds),
        })
    );
    Ok(())
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Runs the load on engines without a server. Each client sends its next request after the last
/// reply.
fn engine(weights: &SharedWeights, lanes: usize, slots: usize, load: Load) -> Outcome<usize> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..lanes)
            .map(|lane| {
                scope.spawn(move || -> Outcome<usize> {
                    let max_model_len = load.prompt + load.new + 1;
                    let sizes = EngineConfig { max_num_seqs: slots.div_ceil(lanes), max_model_len };
                    let mut engine = NativeEngine::with_shared(weights, sizes, None)?;
                    let submit = |engine: &mut NativeEngine, client: usize, request: usize| {
                        let params = SamplingParams { max_tokens: load.new, ..SamplingParams::default() };
                        let seed = Seed::derive(2, Purpose::Rollout, &[client as u64, request as u64]);
                        let (session, prompt) =
                            ((client * load.requests + request) as u64, load.prompt(client, request));
                        engine.submit(SampleRequest { session, prompt, params, seed })
                    };
                    let mut clients = std::collections::BTreeMap::new();
                    for client in (lane..load.clients).step_by(lanes) {
                        clients.insert(submit(&mut engine, client, 0)?, (client, 0));
                    }
                    let mut tokens = 0;
                    while !clients.is_empty() {
                        for done in engine.poll()? {
                            tokens += done.tokens.len();
                            let (client, request) =
                                clients.remove(&done.request).ok_or("an unknown request")?;
                            engine.end_session((client * load.requests + request) as u64);
                            if request + 1 < load.requests {
                                let id = submit(&mut engine, client, request + 1)?;
                                clients.insert(id, (client, request + 1));
                            }
                        }
                    }
                    Ok(tokens)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    })
}

/// Sends the load over HTTP.
fn requests(url: &str, load: Load) -> Outcome<usize> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.clients)
            .map(|client| {
                scope.spawn(move || -> Outcome<usize> {
                    let agent = ureq::Agent::new_with_defaults();
                    let mut tokens = 0;
                    for request in 0..load.requests {
                        let mut body = json!({
                            "model": "model", "prompt": load.prompt(client, request), "max_tokens": load.new,
                        });
                        if load.stream {
                            body["stream"] = true.into();
                            body["stream_options"] = json!({ "include_usage": true });
                        }
                        let body = body.to_string();
                        let mut answer =
                            agent.post(url).header("Content-Type", "application/json").send(&body)?;
                        let text = answer.body_mut().read_to_string()?;
                        let last = if load.stream {
                            let events: Vec<&str> = text.split_terminator("\n\n").collect();
                            let usage = events.get(events.len().saturating_sub(2)).ok_or("no usage")?;
                            usage.trim_start_matches("data: ")
                        } else {
                            &text
                        };
                        let answer: Value = serde_json::from_str(last)?;
                        let count = answer["usage"]["completion_tokens"].as_u64().ok_or("no usage")?;
                        tokens += count as usize;
                    }
                    Ok(tokens)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    })
}
