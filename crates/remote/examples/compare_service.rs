//! Compares a Tinker-compatible service with the native learner: the same log-probs, and the same
//! update.
//!
//! ```sh
//! cargo run --release -p turnwise-remote --example compare_service -- URL MODEL
//! ```
//!
//! MODEL is the local folder of the service's model, with weights. Prints the figures that
//! `benches/real/tinker_service.py` reports. Exits with 1 if log-probs differ by more than 1e-3, or
//! if an update differs from the native one by more than 2 % of its length.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwise_core::{Learner as _, TokenBatch, TokenSequence, TurnSpan};
use turnwise_model::testing::largest_difference;
use turnwise_model::{Weights, load_adapter, load_model};
use turnwise_objective::{ObjectiveBatch, ObjectiveSequence};
use turnwise_remote::tinker::TinkerSource;
use turnwise_text::Tokenizer;
use turnwise_train::Registries;
use turnwise_train::config::{Config, ConfigSource, PolicyLearnerConfig, load};
use turnwise_train::learners::policy::{NativePolicy, PolicyLearner};
use turnwise_train::run::source::{NewRun, PolicySource as _};
use turnwise_train::setup::{World, template};
use turnwise_train::{EvaluationPoint, Event, Observer, Phase, RunDirectory};

/// Prompts and responses, with lengths that fit one compiled shape of a server.
const TEXTS: [(&str, &str); 4] = [
    (
        "The cards are 2 and 10. Write a sum that makes 12. The next piece of the formula is",
        " 2 and a plus sign",
    ),
    (
        "The cards are 3 and 4. Their product makes 12. The next piece of the formula is a",
        " star, then the 4",
    ),
    ("You may write one number, one sign or the equals sign. The formula so far is 7 +", " 5 ="),
    (
        "Colours of the rainbow, in their order from the outside to the inside of the bow:",
        " red, orange, yellow",
    ),
];

/// Losses, with one update each.
const LOSSES: [(&str, &[&str]); 3] = [
    ("ppo clip", &["objective.loss_agg_mode=token-mean"]),
    ("ppo clip by derivatives", &["objective.loss_agg_mode=token-mean", "policy.learner.losses=linearised"]),
    ("gspo", &["objective.ratio=sequence", "objective.loss_agg_mode=seq-mean-token-mean"]),
];

struct Print;

impl Observer for Print {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Note(note) = event {
            println!("note: {note}");
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<std::ops::ControlFlow<()>, String> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

fn config(url: &str, model: &Path, more: &[&str]) -> Result<Config, Box<dyn Error>> {
    let settings = [
        format!("policy.model=\"{}\"", model.display()),
        format!("policy.learner={{kind=\"tinker\", url=\"{url}\", rank=8}}"),
        "env.kind=ezpoints".into(),
        "prompt.template=ezpoints".into(),
        // Far above the gradients of most weights, so that a step follows the gradient and not its signs.
        "optimizer={epsilon=1e-2, clip_norm=0.0}".into(),
        "train.num_workers=1".into(),
        "eval.splits=[\"test\"]".into(),
    ];
    let overrides = settings.into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect();
    Ok(load(&ConfigSource { overrides, ..ConfigSource::default() })?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, model] = &arguments[..] else { return Err("usage: compare_service URL MODEL".into()) };
    let model = PathBuf::from(model);
    let tokenizer = Arc::new(Tokenizer::load_folder(&model)?);
    let base = Arc::new(load_model(&model)?);
    let sequences: Vec<TokenSequence> = TEXTS
        .iter()
        .map(|(prompt, response)| {
            let mut tokens = tokenizer.encode(prompt);
            let start = tokens.len();
            tokens.extend(tokenizer.encode(response));
            TokenSequence { spans: vec![TurnSpan { turn: 0, start, end: tokens.len() }], tokens }
        })
        .collect();
    let folder = std::env::temp_dir().join(format!("turnwise-compare-{}", std::process::id()));
    let mut sound = true;
    for (name, settings) in LOSSES {
        let config = config(url, &model, settings)?;
        let world = World::new(&config.env, &Registries::builtin(), &config.splits(), &mut |note| {
            println!("note: {note}");
        })?;
        let template = template(&config, &Registries::builtin())?;
        let directory = RunDirectory::planned(&folder.join("planned"))?;
        let run = NewRun {
            config: &config,
            registries: &Registries::builtin(),
            phase: Phase::Rl,
            world: Some(&world),
            template: &template,
            directory: &directory,
            ignore_memory: false,
        };
        let mut service = TinkerSource::default().start(&run, &mut Print)?.0;
        let begin = folder.join("begin");
        std::fs::create_dir_all(&begin)?;
        service.save(&begin)?;
        let adapter = load_adapter(&begin.join("policy"), &base.config)?;
        let mut own = config.clone();
        own.policy.learner = PolicyLearnerConfig::Native;
        let weights = Weights::adapted(Arc::clone(&base), adapter)?;
        let mut native = NativePolicy::new(
            &own,
            &Registries::builtin(),
            Phase::Rl,
            weights,
            Arc::clone(&tokenizer),
            None,
        )?;

        let all = TokenBatch::of(&sequences);
        let before = [service.logprobs(&all.sequences)?, native.logprobs(&all.sequences)?];
        let difference = largest_difference(&before[0], &before[1]);
        let numbers = sequences.iter().zip(&before[1]).zip([1.0, -0.7, 0.5, -1.2]);
        let of_sequence = |((sequence, old), advantage): ((&TokenSequence, &Vec<f32>), f64)| {
            ObjectiveSequence::new(sequence.spans.clone(), old.clone(), vec![advantage])
        };
        let batch = ObjectiveBatch::new(numbers.map(of_sequence).collect());
        let loss = Registries::builtin().loss(&config)?;
        let mut norms = Vec::new();
        for learner in [service.as_mut(), &mut native as &mut dyn PolicyLearner] {
            let minibatch = loss.for_minibatch(batch.clone(), &[])?;
            learner.forward_backward(&all, &minibatch)?;
            norms.push(learner.step(1e-2)?.grad_norm);
        }
        let after = [service.logprobs(&all.sequences)?, native.logprobs(&all.sequences)?];
        let moved = |index: usize| -> Vec<f32> {
            let pairs = after[index].iter().flatten().zip(before[index].iter().flatten());
            pairs.map(|(after, before)| after - before).collect()
        };
        let away = turnwise_model::testing::relative_distance(&moved(0), &moved(1));
        let largest = moved(1).iter().fold(0.0f32, |most, value| most.max(value.abs()));
        println!(
            "{name}: {} log-probabilities, largest difference {difference:.1e}; gradient norm {:.6} and {:.6}; an update \
             moves them by up to {largest:.3}, {:.2} % apart",
            before[0].iter().flatten().count(),
            norms[0],
            norms[1],
            100.0 * away
        );
        sound &= difference < 1e-3 && away < 0.02 && largest > 1e-3;
    }
    std::fs::remove_dir_all(&folder)?;
    if sound { Ok(()) } else { Err("the service and the native learner are not the same".into()) }
}
