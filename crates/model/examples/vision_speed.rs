//! Speed of a model that reads pictures: seconds of forward, and of forward and backward, over a
//! batch with one picture per sequence.
//!
//! ```text
//! cargo run --release -p turnwise-model --example vision_speed -- \
//!     model=FOLDER pictures=8 sequences=8 side=252 text=6 repeats=5 lanes=2
//! ```
//!
//! Sequences share `pictures` distinct pictures of `side` pixels. Their text is trained with a
//! likelihood loss. Prints one line of JSON; `benches/peer/vision.py` runs PyTorch beside it on the
//! same folder.

mod arguments;

use std::path::Path;
use std::time::Instant;

use turnwise_core::{
    Learner, Objective, ObjectiveError, TokenBatch, TokenGradients, TokenSequence, TokenStatistics, TurnSpan,
};
use turnwise_model::vision::Image;
use turnwise_model::{LearnerConfig, NativeLearner, load_model};

use arguments::Arguments;

/// The program's allocator. The system's returns the buffers of each pass to the kernel, which
/// clears them again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Likelihood;

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        let sum: f64 = tokens.logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
        let d_logprobs = vec![-1.0; tokens.logprobs.len()];
        Ok(TokenGradients { loss: -sum, d_logprobs, ..TokenGradients::default() })
    }
}

/// Returns picture `index` of `vision.py`.
fn picture(index: usize, side: usize) -> Image {
    let level = |y: usize, x: usize, c: usize| ((37 * y + 11 * x + 50 * c + 61 * index) % 256) as u8;
    let rows = (0..side).flat_map(|y| (0..side).flat_map(move |x| (0..3).map(move |c| level(y, x, c))));
    Image { width: side, height: side, rgb: rows.collect() }
}

#[expect(clippy::print_stdout, reason = "an example that reports")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::read();
    let get = |name: &str, default: usize| arguments.number(name, default);
    let folder = arguments.text("model").ok_or("model=FOLDER is missing")?;
    let parameters = load_model(Path::new(folder))?;
    let (pictures, side, text) = (get("pictures", 8)?, get("side", 252)?, get("text", 6)?);
    let (sequences, repeats) = (get("sequences", pictures)?, get("repeats", 5)?);
    let vision = parameters.config.vision.clone().ok_or("this model does not read pictures")?;
    let shown: Vec<_> = (0..pictures)
        .map(|index| vision.pictures.add(&picture(index, side), &vision))
        .collect::<Result<_, _>>()?;
    let batch: Vec<TokenSequence> = (0..sequences)
        .map(|index| {
            let mut tokens = vec![vision.tokens.start];
            tokens.extend(shown[index % pictures].ids());
            tokens.push(vision.tokens.end);
            let start = tokens.len() + 1;
            tokens.extend((0..text as u32).map(|position| (position + index as u32) % 50));
            let end = tokens.len();
            TokenSequence { tokens, spans: vec![TurnSpan { turn: 0, start, end }] }
        })
        .collect();
    let settings = LearnerConfig { lanes: get("lanes", 2)?, ..LearnerConfig::default() };
    let mut learner = NativeLearner::new(parameters, settings)?;
    let (mut forward, mut training, mut sum) = (Vec::new(), Vec::new(), 0.0);
    // The first run warms up.
    for _ in 0..=repeats {
        learner.clear_gradient();
        let start = Instant::now();
        let found = learner.logprobs(&TokenBatch::of(&batch).sequences)?;
        forward.push(start.elapsed().as_secs_f64());
        sum = found.iter().flatten().map(|&logprob| f64::from(logprob)).sum();
        let start = Instant::now();
        learner.forward_backward(&TokenBatch::of(&batch), &Likelihood)?;
        training.push(start.elapsed().as_secs_f64());
    }
    let norm = learner.gradient().iter().map(|&d| f64::from(d) * f64::from(d)).sum::<f64>().sqrt();
    let tokens = shown.first().map_or(0, |picture| picture.ids().len());
    println!(
        "{{\"forward_s\": {:?}, \"training_s\": {:?}, \"logprobs\": {sum}, \"gradient\": {norm}, \"picture_tokens\": {tokens}}}",
        &forward[1..],
        &training[1..],
    );
    Ok(())
}
