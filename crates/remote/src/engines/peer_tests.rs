//! Compares a vLLM server's greedy responses to pictures with the native engine's. Needs
//! `TURNWISE_VLLM_URL`, a freshly started server with the vision model in `TURNWISE_VLLM_MODEL`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwise_core::{Purpose, SampleRequest, Sampler as _, SamplingParams, Seed, TokenSequence, TurnSpan};
use turnwise_model::engine::{EngineConfig, NativeEngine};
use turnwise_model::vision::Image;
use turnwise_model::{LearnerConfig, NativeLearner};
use turnwise_policy::Policy;
use turnwise_train::config::ServersConfig;

use super::pictures::PromptPictures;
use super::server_pool::{PendingRequest, ServerPool};
use super::versions::Published;
use crate::thread::RequestThread;

const PROMPTS: [&[[usize; 2]]; 5] =
    [&[[252, 252]], &[[96, 96]], &[[28, 300]], &[[84, 112], [112, 112]], &[[301, 203], [50, 60], [50, 60]]];

const TOKENS: usize = 48;

fn picture([height, width]: [usize; 2], number: u64) -> Image {
    let mut draws = Seed::derive(number, Purpose::Init, &[]).rng();
    let blocks: Vec<[u8; 3]> = (0..64).map(|_| std::array::from_fn(|_| draws.bits() as u8)).collect();
    let block = |y: usize, x: usize| blocks[8 * (y * 8 / height) + x * 8 / width];
    let places = (0..height * width).map(|index| (index / width, index % width));
    let rgb = places.flat_map(|(y, x)| block(y, x)).collect();
    Image { width, height, rgb }
}

#[test]
fn greedy_responses_to_pictures_equal_those_of_the_native_engine() {
    let set = |name: &str| std::env::var(name).ok();
    let (Some(url), Some(model)) = (set("TURNWISE_VLLM_URL"), set("TURNWISE_VLLM_MODEL")) else {
        eprintln!(
            "skipped: set TURNWISE_VLLM_URL to a vLLM, and TURNWISE_VLLM_MODEL to its Qwen2.5-VL folder"
        );
        return;
    };
    let Policy { weights, tokenizer, .. } = Policy::load(Path::new(&model)).unwrap();
    let vision = weights.config().vision.clone().unwrap();
    let sizes = EngineConfig { max_num_seqs: 1, max_model_len: 1024 };
    let base = Arc::clone(&weights.base);
    let mut engine = NativeEngine::new(base, 0, sizes, Some(Arc::clone(&tokenizer))).unwrap();
    let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
    let servers = ServersConfig { urls: vec![url], timeout_s: 300.0, ..ServersConfig::default() };
    let pool = Arc::new(ServerPool::new(&servers, tokenizer.vocab_size()).unwrap());
    let published = Arc::new(Published {
        name: "default".to_owned(),
        adapter: false,
        version: 0,
        folder: PathBuf::new(),
        server_path: String::new(),
    });
    let thread = RequestThread::start().unwrap();
    let (mut worst, mut apart_by_pictures) = (0.0f32, 0.0f32);
    for (number, sizes) in (1..).zip(PROMPTS) {
        let prompt = |first: u64| {
            let mut prompt = tokenizer.encode("You see");
            for (index, &size) in (first..).zip(sizes) {
                let shown = vision.pictures.add(&picture(size, index), &vision).unwrap();
                prompt.push(vision.tokens.start);
                prompt.extend(shown.ids());
                prompt.push(vision.tokens.end);
                prompt.extend(tokenizer.encode(" and then"));
            }
            prompt
        };
        let (shown, others) = (prompt(10 * number), prompt(1000 + 10 * number));
        let params = SamplingParams { temperature: 0.0, max_tokens: TOKENS, ..SamplingParams::default() };
        let seed = Seed::derive(0, Purpose::Rollout, &[]);
        let request = SampleRequest { session: 0, prompt: shown.clone(), params: params.clone(), seed };
        engine.submit(request).unwrap();
        let own = engine.poll().unwrap().remove(0);
        let pending = PendingRequest {
            id: format!("peer-{number}"),
            session: "peer".into(),
            prompt: shown.clone(),
            pictures: PromptPictures::of(&shown, Some(&vision)).unwrap(),
            params,
            max_tokens: TOKENS,
            seed,
        };
        let (pool, published) = (Arc::clone(&pool), Arc::clone(&published));
        let found =
            thread.wait(async move { pool.generate_once(0, &published, &pending).await }).unwrap().unwrap();
        assert_eq!(found.tokens, own.tokens, "prompt {number}");
        let mut score = |prompt: &[u32]| {
            let tokens = [prompt, &found.tokens].concat();
            let spans = vec![TurnSpan { turn: 0, start: prompt.len(), end: tokens.len() }];
            learner.score(&[&TokenSequence { tokens, spans }], 1.0).unwrap().remove(0).logprobs
        };
        // At temperature 0, the server returns log-probs of temperature 1.
        for (theirs, own) in found.logprobs.iter().zip(score(&shown)) {
            worst = worst.max((theirs - own).abs());
        }
        for (theirs, own) in found.logprobs.iter().zip(score(&others)) {
            apart_by_pictures = apart_by_pictures.max((theirs - own).abs());
        }
    }
    eprintln!("largest difference {worst:.1e}; {apart_by_pictures:.1e} from other pictures");
    assert!(worst < 1e-3 && apart_by_pictures > 0.1, "{worst} {apart_by_pictures}");
}
