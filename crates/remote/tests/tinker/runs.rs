//! Tests of whole runs on the double: training, checkpoints, resume, adapters, and early
//! rejections.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{
    Learner as _, SampleRequest, Sampler as _, SamplingParams, Seed, TokenBatch, TokenSequence, TurnSpan,
};
use turnwise_model::{LearnerConfig, NativeLearner};
use turnwise_policy::Policy;
use turnwise_train::Registries;
use turnwise_train::config::{Config, ConfigSource, load};
use turnwise_train::record::directory::RunStatus;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::run::source::PolicySource as _;
use turnwise_train::{EvaluationPoint, Event, NoopObserver, Observer, Run, RunBuilder, RunEnd, TrainError};

use crate::double::{Fault, Traits};
use crate::setting::{SOURCE, Setting};

fn run_of(config: Config) -> RunBuilder {
    Run::builder(config).policies(Arc::new(SOURCE))
}

/// Notes of a run.
#[derive(Default)]
struct Watch {
    notes: Vec<String>,
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Note(note) = event {
            self.notes.push(note);
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<std::ops::ControlFlow<()>, String> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

/// Trains to the end, or stops after some steps.
fn train(mut run: Run, stop_after: Option<usize>) -> Result<RunEnd, TrainError> {
    let stop = AtomicBool::new(false);
    let mut watch = Stopping { left: stop_after, stop: &stop };
    run.train(&mut watch, &stop)
}

struct Stopping<'a> {
    left: Option<usize>,
    stop: &'a AtomicBool,
}

impl Observer for Stopping<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let (Event::Step { .. }, Some(left)) = (event, &mut self.left) {
            *left -= 1;
            self.stop.store(*left == 0, Ordering::SeqCst);
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<std::ops::ControlFlow<()>, String> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

fn start(config: Config, root: &Path) -> (Run, Vec<String>) {
    let mut watch = Watch::default();
    let run = run_of(config).directory(root).start(&mut watch).unwrap();
    (run, watch.notes)
}

#[test]
fn a_run_trains_stops_and_resumes_with_the_same_numbers() {
    let setting = Setting::new(Traits::JAX);
    // Enough of a warm start for actions of both kinds, valid and not, which is what there is to learn from.
    let more = [
        "sft.steps=40",
        "sft.demonstrations=20",
        "sft.batch_tokens=200",
        "sft.learning_rate=3e-2",
        "sft.warmup=0",
        "sft.checkpoint_every=0",
        "credit.estimator={kind=\"grpo\", invalid_penalty_target=\"return\"}",
        "objective.kl.coef=0.02",
        "train.num_minibatches=2",
    ];
    let config = setting.config(None, &more).unwrap();
    let (whole, halves) = (setting.path("whole"), setting.path("halves"));
    let (run, notes) = start(config.clone(), &whole);
    assert!(notes[0].contains("reduction seq-mean-batch-mean"), "{notes:?}");
    assert!(notes[1].contains("betas, epsilon and weight decay are taken"), "{notes:?}");
    assert_eq!(train(run, None).unwrap(), RunEnd::Finished);
    let lines = read_metrics(&whole.join("metrics.jsonl")).unwrap();
    for line in &lines {
        assert!(line.metrics.0.values().all(|value| value.is_finite()));
        if let Some(mismatch) = line.metrics.get("rollout/mismatch_kl") {
            assert!(mismatch < 1e-6, "the service samples what it scores: {mismatch}");
        }
    }
    let largest = |tag: &str| lines.iter().filter_map(|line| line.metrics.get(tag)).fold(0.0, f64::max);
    assert!(largest("loss/grad_norm") > 0.0 && largest("loss/reference_kl") > 0.0, "{:?}", lines.last());
    let end = setting.load(&whole.join("checkpoints/step-000003"));
    assert!(!end.is_identity());

    // The warm start counts as steps too: stopped inside reinforcement learning, and resumed.
    let (run, _) = start(config, &halves);
    assert_eq!(train(run, Some(42)).unwrap(), RunEnd::Interrupted);
    let run = run_of(load(&ConfigSource::of_run(&halves)).unwrap())
        .directory(&halves)
        .resume(&mut NoopObserver)
        .unwrap();
    assert_eq!(train(run, None).unwrap(), RunEnd::Finished);
    let resumed = setting.load(&halves.join("checkpoints/step-000003"));
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&resumed.data), bits(&end.data));
    assert_eq!(setting.double.lock().models.len(), 0, "the service has its room back");
}

#[test]
fn the_downloaded_adapter_is_the_policy_of_the_service() {
    let setting = Setting::new(Traits::JSON);
    let config = setting.config(None, &["train.steps=2"]).unwrap();
    let mut policy = setting.policy(&config).unwrap();
    let tokens = setting.sequences();
    let loss = Registries::builtin().loss(&config).unwrap();
    let batch = crate::setting::objective_batch(
        &tokens,
        &policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap(),
    );
    let minibatch = loss.for_minibatch(batch, &[]).unwrap();
    policy.forward_backward(&TokenBatch::of(&tokens), &minibatch).unwrap();
    policy.step(0.1).unwrap();
    let checkpoint = setting.path("checkpoint");
    std::fs::create_dir(&checkpoint).unwrap();
    policy.save(&checkpoint).unwrap();
    // Found with its base here, though the archive names a folder of the service.
    let loaded = Policy::load(&checkpoint.join("policy")).unwrap();
    let mut native = NativeLearner::new(loaded.weights, LearnerConfig::default()).unwrap();
    let (own, served) = (
        native.logprobs(&TokenBatch::of(&tokens).sequences).unwrap(),
        policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap(),
    );
    assert!(turnwise_model::testing::largest_difference(&own, &served) < 1e-5);

    // The reference policy of later steps is this one, however the policy moves on.
    policy.set_reference(&checkpoint).unwrap();
    let minibatch = loss.for_minibatch(crate::setting::objective_batch(&tokens, &own), &[]).unwrap();
    policy.forward_backward(&TokenBatch::of(&tokens), &minibatch).unwrap();
    policy.step(0.1).unwrap();
    let reference = policy.reference_logprobs(&TokenBatch::of(&tokens).sequences).unwrap();
    assert!(turnwise_model::testing::largest_difference(&reference, &served) < 1e-6);
    assert!(
        turnwise_model::testing::largest_difference(
            &policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap(),
            &served
        ) > 1e-3
    );
}

#[test]
fn responses_come_from_the_newest_weights_with_the_learners_logprobs() {
    for traits in [Traits::SUM, Traits::JSON] {
        let setting = Setting::new(traits);
        let config = setting.config(None, &[]).unwrap();
        let mut policy = setting.policy(&config).unwrap();
        let mut samplers = policy.samplers(2, 8, 24).unwrap();
        let request = |session: u64, prompt: usize, max_tokens: usize| SampleRequest {
            session,
            prompt: (0..prompt as u32).collect(),
            params: SamplingParams { max_tokens, ..SamplingParams::default() },
            seed: Seed::derive(5, turnwise_core::Purpose::Rollout, &[session]),
        };
        for sampler in &mut samplers {
            for session in 0..3 {
                sampler.submit(request(session, 6, 5)).unwrap();
            }
        }
        // Only 2 tokens have room, and then none.
        samplers[0].submit(request(9, 22, 5)).unwrap();
        samplers[0].submit(request(10, 24, 5)).unwrap();
        let error = samplers[0].submit(request(11, 25, 5)).unwrap_err().to_string();
        assert!(error.contains("25 tokens, the context 24"), "{error}");
        let mut found = Vec::new();
        for sampler in &mut samplers {
            loop {
                let some = sampler.poll().unwrap();
                if some.is_empty() {
                    break;
                }
                found.push(some);
            }
        }
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        let (limited, free): (Vec<_>, Vec<_>) =
            found.drain(..).partition(|completion| completion.finish == turnwise_core::FinishReason::Context);
        let mut lengths: Vec<usize> = limited.iter().map(|completion| completion.tokens.len()).collect();
        lengths.sort_unstable();
        assert_eq!((lengths, free.len()), (vec![0, 2], 6));
        let sequences: Vec<TokenSequence> = free
            .iter()
            .map(|completion| TokenSequence {
                tokens: (0..6).chain(completion.tokens.iter().copied()).collect(),
                spans: vec![TurnSpan { turn: 0, start: 6, end: 6 + completion.tokens.len() }],
            })
            .collect();
        let sampled: Vec<Vec<f32>> = free.iter().map(|completion| completion.logprobs.clone()).collect();
        let scored = policy.logprobs(&TokenBatch::of(&sequences).sequences).unwrap();
        assert!(turnwise_model::testing::largest_difference(&sampled, &scored) < 1e-5);
        assert!(free.iter().all(|completion| completion.weights_version == 0));
        // One session serves all lanes, and the next update makes the next.
        assert_eq!(setting.double.count("save_weights_for_sampler"), 1);
        policy.samplers(1, 8, 24).unwrap();
        assert_eq!(setting.double.count("save_weights_for_sampler"), 1);
        policy.step(0.0).unwrap();
        assert_eq!(policy.samplers(1, 8, 24).unwrap()[0].weights_version(), 1);
        assert_eq!(setting.double.count("save_weights_for_sampler"), 2);
    }
}

#[test]
fn a_prompt_that_the_service_refuses_ends_its_own_request_alone() {
    let setting = Setting::new(Traits::SUM);
    let config = setting.config(None, &[]).unwrap();
    let mut policy = setting.policy(&config).unwrap();
    let mut sampler = policy.samplers(1, 8, 24).unwrap().remove(0);
    setting.double.fail("asample", &[Fault::Status(413), Fault::Status(422)]);
    for session in 0..4 {
        let request = SampleRequest {
            session,
            prompt: (0..6).collect(),
            params: SamplingParams { max_tokens: 5, ..SamplingParams::default() },
            seed: Seed::derive(5, turnwise_core::Purpose::Rollout, &[session]),
        };
        sampler.submit(request).unwrap();
    }
    let (mut completed, mut failed) = (Vec::new(), Vec::new());
    while completed.len() + failed.len() < 4 {
        completed.extend(sampler.poll().unwrap().into_iter().map(|completion| completion.request));
        failed.extend(sampler.take_failures());
    }
    assert_eq!((completed.len(), failed.len()), (2, 2));
    assert!(failed.iter().all(|(_, reason)| reason.contains("refused asample")), "{failed:?}");
    completed.extend(failed.iter().map(|(request, _)| request));
    completed.sort_unstable();
    assert_eq!(completed, [0, 1, 2, 3]);
}

#[test]
fn what_the_service_cannot_give_is_refused_before_any_work() {
    let setting = Setting::new(Traits::SUM);
    let refused = |preset: Option<&str>, more: &[&str], parts: &[&str]| {
        let error = match setting.config(preset, more) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{preset:?} {more:?} was taken"),
        };
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let credit = "needs the entropies of the sampled distributions";
    for (preset, reason) in [
        ("aem-grpo", credit),
        ("aem-dapo", credit),
        ("aem-gspo", credit),
        ("aem-gigpo", credit),
        ("empg", credit),
        ("stapo", "whole distributions after two prompts"),
        ("stapo-dynamic", "whole distributions after two prompts"),
        ("ppo", "needs a critic"),
        ("so-ppo", "needs a critic"),
        ("has-turnrd", "needs the policy's hidden states"),
        ("has-turnrd-film", "needs the policy's hidden states"),
    ] {
        refused(Some(preset), &[], &[reason]);
    }
    refused(None, &["objective.entropy_coef=0.01"], &["objective.entropy_coef", "entropies"]);
    refused(
        None,
        &["objective.kl={coef=0.1, estimator=\"full\"}"],
        &["objective.kl.estimator", "k1, k2 or k3"],
    );
    refused(None, &["rollout.temperature=0.7"], &["rollout.temperature", "is 0.7"]);
    refused(None, &["policy.lora={rank=4}"], &["policy.lora", "policy.learner.rank"]);
    refused(None, &["policy.learner.url=127.0.0.1:8000"], &["policy.learner.url", "http://"]);
    refused(None, &["policy.learner.url=http://me:secret@host"], &["policy.learner.url", "api_key_env"]);
    let judge = "decomposer={kind=\"judge\", endpoint=\"http://127.0.0.1:9\", model=\"judge\"}";
    for preset in [
        "grpo",
        "rloo",
        "gigpo",
        "gigpo-dynamic",
        "hgpo",
        "salt-grpo",
        "salt-rloo",
        "salt-dapo",
        "salt-gspo",
        "dapo",
        "gspo",
        "so-grpo",
        "has-progressive",
        "has-judge",
    ] {
        let more: &[&str] = match preset {
            "has-judge" => &[judge],
            // EZPoints has no progress.
            "has-progressive" => &["env.kind=sokoban", "prompt.template=sokoban-compact"],
            _ => &[],
        };
        let found = setting.config(Some(preset), more);
        assert!(found.is_ok(), "{preset}: {}", found.err().unwrap());
    }
    assert_eq!(setting.double.lock().log.len(), 0, "nothing was asked of the service");
}

#[test]
fn a_service_without_room_says_so_before_any_work() {
    let setting = Setting::new(Traits { room: 1, ..Traits::SUM });
    let config = setting.config(None, &["objective.kl.coef=0.02"]).unwrap();
    let root = setting.path("run");
    let error = run_of(config).directory(&root).start(&mut NoopObserver).err().unwrap().to_string();
    assert!(error.contains("Maximum number of LoRA adapters"), "{error}");
    assert!(!root.join("config.toml").exists());
    // One model is enough for a method without a reference, its warm start included.
    let config = setting.config(None, &["sft.steps=1", "sft.demonstrations=2", "train.steps=1"]).unwrap();
    let (run, _) = start(config, &root);
    let directory = run.directory().clone();
    assert_eq!(train(run, None).unwrap(), RunEnd::Finished);
    let status: turnwise_train::record::directory::Status = directory.read_json("status.json").unwrap();
    assert_eq!(status.state, RunStatus::Finished);
}

#[test]
fn a_service_that_is_not_there_or_has_another_model_is_refused_at_once() {
    let setting = Setting::new(Traits::SUM);
    let config = setting.config(None, &[]).unwrap();
    SOURCE.check(&config).unwrap();
    let other = setting.config(None, &["policy.learner.base_model=other"]).unwrap();
    let error = SOURCE.check(&other).unwrap_err().to_string();
    assert!(error.contains("policy.learner.base_model") && error.contains("the service has tiny"), "{error}");
    let gone = setting
        .config(None, &["policy.learner.url=http://127.0.0.1:9", "policy.learner.timeout_s=0.1"])
        .unwrap();
    let error = SOURCE.check(&gone).unwrap_err().to_string();
    assert!(error.contains("create_session within 0.1 s"), "{error}");
    assert_eq!(setting.double.count("create_model"), 0);
}
