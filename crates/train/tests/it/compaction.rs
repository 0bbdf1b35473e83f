//! Summaries are turns with tokens, log-probs and credit, and text is tokenized only once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Completion, FinishReason, Purpose, RequestId, SampleError, SampleRequest, Sampler, Trajectory, TurnKind,
};
use turnwise_env::demonstration::Demonstration;
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::Registries;
use turnwise_train::config::Layout;
use turnwise_train::rollout::{EnvRunner, Job, Rollout};
use turnwise_train::setup::{self, World};
use turnwise_train::sft::{self, DemonstratedSummaries};
use turnwise_train::{NoopObserver, Run};

use crate::{common, presets};

/// Each turn is in exactly one sequence with its sampled tokens, and a sequence ends with each
/// summary. Returns the number of summaries.
fn check_sequences(trajectory: &Trajectory) -> usize {
    let mut turns = Vec::new();
    for sequence in &trajectory.sequences {
        sequence.check().unwrap();
        for (place, span) in sequence.spans.iter().enumerate() {
            let turn = &trajectory.turns[span.turn];
            assert_eq!(sequence.tokens[span.start..span.end], turn.response_ids);
            assert_eq!(turn.old_logprobs.len(), turn.response_ids.len());
            assert!(!turn.response_ids.is_empty(), "a turn without tokens");
            let last = place + 1 == sequence.spans.len();
            assert!(!turn.is_compaction() || last, "turns after a summary are in another sequence");
            turns.push(span.turn);
        }
    }
    assert_eq!(turns, (0..trajectory.turns.len()).collect::<Vec<_>>());
    let summaries: Vec<usize> =
        (0..turns.len()).filter(|&turn| trajectory.turns[turn].is_compaction()).collect();
    assert!(trajectory.sequences.len() >= summaries.len());
    for &turn in &summaries {
        let summary = &trajectory.turns[turn];
        assert_eq!((summary.reward, summary.kind), (0.0, TurnKind::Compaction));
        assert!(turn > 0 && !trajectory.turns[turn - 1].is_compaction(), "a summary follows an action");
        if let Some(next) = trajectory.turns.get(turn + 1) {
            assert_eq!(summary.state_key(), next.state_key());
        }
    }
    summaries.len()
}

#[test]
fn every_estimator_gives_summaries_credit() {
    let presets = [
        "grpo",
        "gigpo",
        "hgpo",
        "rtmc",
        "ppo",
        "turn-ppo",
        "vineppo",
        "salt-grpo",
        "has-progressive",
        "has-attention",
        "aem-gigpo",
        "empg",
        "stapo",
        "turn-credit",
        "igpo",
    ];
    for preset in presets {
        let folder = tempfile::tempdir().unwrap();
        let more = [
            "prompt.compact_after=40",
            "prompt.max_summary_tokens=8",
            "rollout.max_model_len=512",
            if preset == "stapo" { "credit.outliers.locate=all" } else { "train.explain=true" },
        ];
        let config = presets::config(preset, &more.map(str::to_owned));
        let (lines, trajectories) = presets::trained(&config, &folder.path().join("run"), preset);
        let (mut summaries, mut credited) = (0, 0);
        for trajectory in &trajectories {
            summaries += check_sequences(trajectory);
            assert!(trajectory.actions() <= 4, "{preset}: a summary takes no turn of the environment");
            let advantages = trajectory.advantages.as_ref().unwrap();
            assert_eq!(advantages.len(), trajectory.turns.len());
            let pairs = trajectory.turns.iter().zip(advantages);
            credited += pairs.filter(|(turn, advantage)| turn.is_compaction() && **advantage != 0.0).count();
        }
        assert!(summaries >= trajectories.len(), "{preset}: {summaries} summaries");
        assert!(credited > 0, "{preset}: no summary has credit");
        for line in lines {
            let metric = |tag: &str| line.metrics.get(tag).unwrap();
            assert!(metric("rollout/compactions") >= 1.0, "{preset}");
            assert!(metric("rollout/summary_tokens/mean") > 0.0, "{preset}");
            assert!(metric("rollout/turns/mean") <= 4.0, "{preset}");
            assert_eq!(metric("rollout/overflow_rate"), 0.0, "{preset}");
        }
    }
}

#[test]
fn a_limit_that_no_first_prompt_keeps_is_rejected_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let config = common::config(None, &["prompt.compact_after=10", "prompt.max_summary_tokens=8"]).unwrap();
    let error = Run::builder(config)
        .directory(folder.path().join("run"))
        .start(&mut NoopObserver)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("prompt.compact_after") && error.contains("no first prompt is that short"),
        "{error}"
    );
}

struct Script<'a> {
    tokenizer: &'a Tokenizer,
    responses: Vec<Vec<u32>>,
    asked: Vec<SampleRequest>,
    waiting: bool,
}

impl Sampler for Script<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.asked.push(request);
        self.waiting = true;
        Ok(self.asked.len() as RequestId)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        if !std::mem::take(&mut self.waiting) {
            return Ok(Vec::new());
        }
        let tokens = self.responses.remove(0);
        assert!(!self.tokenizer.decode(&tokens).is_empty());
        let numbers = vec![-1.0; tokens.len()];
        Ok(vec![Completion {
            request: self.asked.len() as RequestId,
            tokens,
            logprobs: numbers.clone(),
            entropies: numbers,
            finish: FinishReason::Stop,
            weights_version: 0,
        }])
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

#[test]
fn a_demonstration_has_the_tokens_of_a_rollout_that_plays_it() {
    let more = [
        "env.max_turns=30",
        "rollout.max_model_len=4096",
        "sft.invalid_action_prob=0",
        "prompt.compact_after=550",
        "prompt.max_summary_tokens=400",
    ];
    let config = common::config(None, &[&more[..], &["rollout.max_response_tokens=100"]].concat()).unwrap();
    let world = World::new(&config.env, &Registries::builtin(), &config.splits(), &mut |_| ()).unwrap();
    let episodes = world
        .demonstrations(&config, &setup::template(&config, &Registries::builtin()).unwrap(), 12, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
        .episodes;
    let tokenizer = Tokenizer::train(std::iter::empty(), &TokenizerConfig::default()).unwrap();
    let runner =
        EnvRunner::new(&config, &Registries::builtin(), world, std::sync::Arc::new(tokenizer), None).unwrap();
    let prompter = runner.prompter();
    let summarize = |episode: &Demonstration, turn: usize| runner.world.summarize(episode, turn);
    let mut summaries = 0;
    for episode in episodes.iter().filter(|episode| episode.turns.iter().all(|turn| turn.imitate)) {
        let summary = DemonstratedSummaries { after: 550, summary: &summarize };
        let taught = sft::sequences(episode, prompter, Layout::Concatenated, 0, 4096, Some(summary)).unwrap();
        let responses = taught.iter().flat_map(|sequence| {
            let words = sequence.tokens.tokens[1..].iter().zip(&sequence.action);
            let runs = words.collect::<Vec<_>>();
            let said = runs.chunk_by(|a, b| a.1 == b.1).filter(|run| *run[0].1);
            said.map(|run| run.iter().map(|(token, _)| **token).collect()).collect::<Vec<Vec<u32>>>()
        });
        let mut script = [Script {
            tokenizer: &runner.tokenizer,
            responses: responses.collect(),
            asked: Vec::new(),
            waiting: false,
        }];
        let stop = AtomicBool::new(false);
        let rollout = Rollout::new(&config, Purpose::Rollout, &stop);
        let job = Job::new(episode.task.clone(), 0, 0);
        let played =
            runner.play(&rollout, &[job], &mut script, |_| {}).unwrap().unwrap().trajectories.remove(0);
        assert!(played.success, "{:?}", played.stop);
        summaries += check_sequences(&played);
        let tokens = |at: usize| &played.sequences[at].tokens;
        assert_eq!(played.sequences.len(), taught.len());
        for (at, sequence) in taught.iter().enumerate() {
            assert_eq!(tokens(at), &sequence.tokens.tokens, "sequence {at}");
        }
        // A prompt is the sequence before the response, and summaries have their own limit. The
        // first action after a summary is taken even with a long prompt.
        let mut begins = false;
        for (turn, asked) in played.turns.iter().zip(&script[0].asked) {
            assert_eq!(asked.params.max_tokens, if turn.is_compaction() { 400 } else { 100 });
            assert!(turn.is_compaction() || begins || asked.prompt.len() <= 550);
            begins = turn.is_compaction();
        }
        if let Some(last) = played.turns.iter().rfind(|turn| turn.is_compaction()) {
            assert!(last.action.starts_with("seen "), "{}", last.action);
            let text = runner.tokenizer.decode(tokens(played.sequences.len() - 1));
            let goal = format!("Your task is to: {}", episode.task.goal.trim_end_matches('.'));
            assert!(text.contains(&format!("\nSummary: {}\n", last.action)), "{text}");
            assert!(text.contains(&goal), "{text}");
        }
    }
    assert!(summaries > 3, "{summaries}");
}
