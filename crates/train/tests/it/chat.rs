//! A policy with a chat template: its prompts and training tokens in both layouts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Completion, FinishReason, Purpose, RequestId, SampleError, SampleRequest, Sampler, Seed, Trajectory,
};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::{ModelConfig, Parameters, save_model};
use turnwise_policy::Policy;
use turnwise_text::chat::{ChatTemplate, Message, RenderOptions};
use turnwise_text::{StopStringMatcher, Tokenizer, TokenizerConfig};
use turnwise_train::Registries;
use turnwise_train::config::{Layout, PolicyLearnerConfig, ServersConfig, TinkerConfig};
use turnwise_train::rollout::prompting::Prompter;
use turnwise_train::rollout::{EnvRunner, Job, Rollout, engines};
use turnwise_train::setup::{self, World};
use turnwise_train::{Config, NoopObserver, sft};

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const REASONING: &str = include_str!("../../../text/tests/golden/chat/templates/reasoning.jinja");

fn tokenizer(template: &str) -> Tokenizer {
    let config = TokenizerConfig {
        phrases: vec!["You are in the middle of a room.".into(), "go to".into()],
        max_pieces: 60,
        special_tokens: ["<|im_start|>", "<|im_end|>", "<think>", "</think>"].map(String::from).to_vec(),
        ..TokenizerConfig::default()
    };
    let words =
        ["You arrive at shelf 1. On the shelf 1, you see a mug 1.\nuser\nassistant\nNothing happens."];
    let tokenizer = Tokenizer::train(words.into_iter(), &config).unwrap();
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    tokenizer.with_chat(ChatTemplate::from_source(template).unwrap(), vec![end])
}

fn model_folder(folder: &Path, template: &str) {
    let tokenizer = tokenizer(template);
    let scratch = turnwise_train::config::ScratchConfig {
        hidden_size: 16,
        layers: 1,
        heads: 2,
        key_value_heads: 1,
        intermediate_size: 32,
        ..turnwise_train::config::ScratchConfig::default()
    };
    let model: ModelConfig = scratch.model_config(tokenizer.vocab_size(), 1024);
    let weights = Parameters::init(model, Seed::derive(1, Purpose::Init, &[])).unwrap();
    save_model(&weights, folder).unwrap();
    tokenizer.save_folder(folder).unwrap();
}

struct Script<'a> {
    tokenizer: &'a Tokenizer,
    replies: &'a [&'a str],
    next: RequestId,
    waiting: Vec<RequestId>,
}

impl Sampler for Script<'_> {
    fn submit(&mut self, _request: SampleRequest) -> Result<RequestId, SampleError> {
        self.next += 1;
        self.waiting.push(self.next);
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let (tokenizer, replies) = (self.tokenizer, self.replies);
        let completion = |request: RequestId| {
            let text = replies[(request as usize - 1) % replies.len()];
            let tokens = tokenizer.encode(text);
            let ended = text.ends_with("<|im_end|>");
            Completion {
                request,
                logprobs: vec![-1.0; tokens.len()],
                entropies: vec![1.0; tokens.len()],
                tokens,
                finish: if ended { FinishReason::Stop } else { FinishReason::Length },
                weights_version: 0,
            }
        };
        Ok(self.waiting.drain(..).map(completion).collect())
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

fn play(config: &Config, tokenizer: &Tokenizer, replies: &[&str], preamble: &str) -> Trajectory {
    let registries = Registries::builtin();
    let world = World::new(&config.env, &registries, &config.splits(), &mut |_| ()).unwrap();
    let runner = EnvRunner::new(config, &registries, world, Arc::new(tokenizer.clone()), None).unwrap();
    let stop = AtomicBool::new(false);
    let mut config = Config { seed: 0, ..config.clone() };
    (config.env.max_turns, config.rollout.max_model_len) = (0, 4096);
    config.rollout.max_num_seqs = 1;
    let rollout = Rollout { temperature: 1.0, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let task = runner.world.task_set().tasks("train").unwrap()[0].clone();
    let job = Job { preamble: preamble.to_owned(), ..Job::new(task, 0, 0) };
    let mut script = Script { tokenizer, replies, next: 0, waiting: Vec::new() };
    let played = runner.play(&rollout, &[job], std::slice::from_mut(&mut script), |_| {}).unwrap().unwrap();
    played.trajectories.into_iter().next().unwrap()
}

fn rendered(template: &str, trajectory: &Trajectory, replies: &[&str]) -> String {
    let mut messages = Vec::new();
    for (index, turn) in trajectory.turns.iter().enumerate() {
        messages.push(Message::user(&format!("{}\n>", turn.observation)));
        messages.push(Message::assistant(replies[index % replies.len()].trim_end_matches("<|im_end|>")));
    }
    let text = ChatTemplate::from_source(template).unwrap().render(&messages, &RenderOptions::default());
    text.unwrap()
}

#[test]
fn a_concatenated_sequence_is_the_conversation_token_by_token() {
    let tokenizer = tokenizer(CHATML);
    let config =
        common::config(None, &["prompt.layout=concatenated", "prompt.template=alfworld-compact"]).unwrap();
    let replies = ["go to shelf 1<|im_end|>", "look", "inventory\n extra<|im_end|>"];
    let trajectory = play(&config, &tokenizer, &replies, "");
    assert_eq!(trajectory.turns.len(), 4);
    let actions: Vec<&str> = trajectory.turns.iter().map(|turn| turn.action.as_str()).collect();
    assert_eq!(actions, ["go to shelf 1", "look", "inventory", "go to shelf 1"]);
    assert_eq!(trajectory.turns[0].response, "go to shelf 1", "the end of a reply is no text of it");
    let [sequence] = trajectory.sequences.as_slice() else { panic!("one sequence") };
    let whole = rendered(CHATML, &trajectory, &replies);
    let expected = tokenizer.encode(whole.strip_suffix('\n').unwrap());
    assert_eq!(sequence.tokens, expected, "{}", tokenizer.decode(&sequence.tokens));
    for (turn, span) in trajectory.turns.iter().zip(&sequence.spans) {
        assert_eq!(sequence.tokens[span.start..span.end], turn.response_ids);
    }
    let other =
        rendered(CHATML, &trajectory, &["go to shelf 1<|im_end|>", "looks", "inventory\n extra<|im_end|>"]);
    assert_ne!(sequence.tokens, tokenizer.encode(other.strip_suffix('\n').unwrap()));
}

#[test]
fn a_windowed_prompt_is_a_conversation_of_its_own() {
    let tokenizer = tokenizer(CHATML);
    let config = common::config(None, &["prompt.layout=windowed", "prompt.system=Act."]).unwrap();
    let trajectory = play(&config, &tokenizer, &["look<|im_end|>"], "What was learnt.\n");
    assert_eq!(trajectory.sequences.len(), 4);
    for sequence in &trajectory.sequences {
        let text = tokenizer.decode(&sequence.tokens);
        let head = "<|im_start|>system\nAct.<|im_end|>\n<|im_start|>user\nWhat was learnt.\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.ends_with("\n><|im_end|>\n<|im_start|>assistant\nlook<|im_end|>"), "{text}");
        assert_eq!(text.matches("<|im_start|>").count(), 3);
    }
}

#[test]
fn a_preamble_goes_where_the_text_of_a_prompt_begins() {
    for (chat, layout) in [("auto", "windowed"), ("auto", "concatenated"), ("off", "windowed")] {
        let tokenizer = tokenizer(CHATML);
        let mut more = vec![format!("prompt.layout={layout}"), format!("prompt.chat={chat}")];
        more.extend((chat == "auto").then(|| "prompt.system=Act.".to_owned()));
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let config = common::config(None, &more).unwrap();
        let replies = ["look<|im_end|>"];
        let plain = play(&config, &tokenizer, &replies, "");
        let known = play(&config, &tokenizer, &replies, "What was learnt.\n");
        let (template, chat) = (
            setup::template(&config, &Registries::builtin()).unwrap(),
            setup::chat(&config, &Registries::builtin(), &tokenizer).unwrap(),
        );
        let prompter =
            Prompter { template: &template, tokenizer: &tokenizer, chat: chat.as_ref(), pictures: None };
        let opening = prompter.opening(&[]).unwrap();
        assert!(!plain.sequences.is_empty());
        for (plain, known) in plain.sequences.iter().zip(&known.sequences) {
            assert!(plain.tokens.starts_with(&opening), "{chat:?} {layout}");
            let mut tokens = plain.tokens.clone();
            tokens.splice(opening.len()..opening.len(), tokenizer.encode("What was learnt.\n"));
            assert_eq!(tokenizer.decode(&tokens), tokenizer.decode(&known.tokens), "{layout}");
            assert_ne!(tokens, plain.tokens);
        }
    }
}

#[test]
fn reasoning_is_kept_where_the_sequence_is_one_and_never_shown_where_it_is_not() {
    let tokenizer = tokenizer(REASONING);
    let replies = ["<think>\nWhere?\n</think>\n\n<action>look</action><|im_end|>"];
    let play = |layout: &str| {
        let more = ["prompt.template=alfworld", layout, "prompt.thinking=on"];
        play(&common::config(None, &more).unwrap(), &tokenizer, &replies, "")
    };
    let concatenated = play("prompt.layout=concatenated");
    assert!(concatenated.turns.iter().all(|turn| turn.valid && turn.action == "look"));
    assert_eq!(tokenizer.decode(&concatenated.sequences[0].tokens).matches("Where?").count(), 4);
    let windowed = play("prompt.layout=windowed");
    for sequence in &windowed.sequences {
        assert_eq!(tokenizer.decode(&sequence.tokens).matches("Where?").count(), 1, "its own only");
    }
    // With thinking off, the template writes an empty thought before each reply.
    let off = ["prompt.template=alfworld", "prompt.layout=concatenated", "prompt.thinking=off"];
    let trajectory = self::play(&common::config(None, &off).unwrap(), &tokenizer, &replies, "");
    let text = tokenizer.decode(&trajectory.sequences[0].tokens);
    assert_eq!(
        text.matches("<|im_start|>assistant\n<think>\n\n</think>\n\n<think>\nWhere?").count(),
        4,
        "{text}"
    );
}

#[test]
fn what_the_template_opens_belongs_to_the_action() {
    let opening = REASONING.replacen(
        "'<|im_start|>assistant\\n' }}\n    {%- if enable",
        "'<|im_start|>assistant\\n<think>\\n' }}\n    {%- if enable",
        1,
    );
    assert_ne!(opening, REASONING);
    let tokenizer = tokenizer(&opening);
    let config = common::config(None, &["prompt.template=alfworld", "prompt.layout=windowed"]).unwrap();
    let trajectory = play(&config, &tokenizer, &["Where?\n</think>\n<action>look</action><|im_end|>"], "");
    assert!(
        trajectory.turns.iter().all(|turn| turn.valid && turn.action == "look"),
        "{:?}",
        trajectory.turns[0]
    );
}

#[test]
fn settings_that_cannot_be_met_are_refused() {
    let refused = |tokenizer: &Tokenizer, more: &[&str]| {
        let config = match common::config(None, more) {
            Ok(config) => config,
            Err(error) => return error.to_string(),
        };
        setup::chat(&config, &Registries::builtin(), tokenizer).unwrap_err().to_string()
    };
    let plain = Tokenizer::train(["a"].into_iter(), &TokenizerConfig::default()).unwrap();
    assert!(refused(&plain, &["prompt.chat=on"]).contains("prompt.chat"));
    assert!(refused(&plain, &["prompt.system=x"]).contains("prompt.system"));
    assert!(
        refused(&tokenizer(CHATML), &["prompt.chat=off", "prompt.thinking=on"]).contains("prompt.thinking")
    );
    assert!(refused(&tokenizer(CHATML), &["prompt.thinking=off"]).contains("no such switch"));
    let single = tokenizer("{% for message in messages %}{{ message.content }}\n{% endfor %}");
    let error = refused(&single, &["prompt.layout=concatenated"]);
    assert!(error.contains("prompt.layout") && error.contains("windowed"), "{error}");
    let windowed = common::config(None, &["prompt.layout=windowed"]).unwrap();
    assert!(setup::chat(&windowed, &Registries::builtin(), &single).unwrap().is_some());
    let off = common::config(None, &["prompt.chat=off"]).unwrap();
    assert!(setup::chat(&off, &Registries::builtin(), &tokenizer(CHATML)).unwrap().is_none());
    assert!(
        setup::chat(&common::config(None, &[]).unwrap(), &Registries::builtin(), &plain).unwrap().is_none()
    );
}

#[test]
fn samplers_that_would_stop_in_the_reasoning_are_refused() {
    let refused = |source: &str, more: &[&str], elsewhere: &dyn Fn(&mut Config)| {
        let mut config = common::config(None, &[&["prompt.layout=windowed"][..], more].concat()).unwrap();
        elsewhere(&mut config);
        setup::chat(&config, &Registries::builtin(), &tokenizer(source)).err().map(|error| error.to_string())
    };
    let opening = opening_thought();
    assert_eq!(refused(&opening, &[], &|_| ()), None, "the engine of this process passes over it");
    assert_eq!(refused(REASONING, &["prompt.thinking=on"], &|_| ()), None);
    let servers = |config: &mut Config| config.rollout.engine = Some(ServersConfig::default());
    let service = |config: &mut Config| {
        config.policy.learner = PolicyLearnerConfig::Tinker(TinkerConfig::default());
    };
    for elsewhere in [&servers as &dyn Fn(&mut Config), &service] {
        for (source, more) in [(opening.as_str(), &[] as &[&str]), (REASONING, &["prompt.thinking=on"])] {
            let error = refused(source, more, elsewhere).unwrap();
            assert!(
                error.contains("prompt.template") && error.contains(r#"ends a response at "\n""#),
                "{error}"
            );
        }
        for (source, more) in [
            (opening.as_str(), "prompt.template=alfworld"),
            (REASONING, "prompt.thinking=off"),
            (REASONING, "prompt.thinking=auto"),
            (CHATML, "prompt.thinking=auto"),
        ] {
            assert_eq!(refused(source, &[more], elsewhere), None, "{more}");
        }
    }
    let anywhere = |config: &mut Config| {
        servers(config);
        config.prompt.template = "search-r1".into();
    };
    assert_eq!(refused(&opening, &[], &anywhere), None);
}

#[test]
fn demonstrations_are_replies_that_end() {
    let tokenizer = tokenizer(CHATML);
    let config = common::config(None, &["prompt.layout=concatenated"]).unwrap();
    let world = World::new(&config.env, &Registries::builtin(), &config.splits(), &mut |_| ()).unwrap();
    let template = setup::template(&config, &Registries::builtin()).unwrap();
    let chat = setup::chat(&config, &Registries::builtin(), &tokenizer).unwrap();
    let prompter =
        Prompter { template: &template, tokenizer: &tokenizer, chat: chat.as_ref(), pictures: None };
    let mut longer = config.clone();
    longer.env.max_turns = 50;
    let world =
        World::new(&longer.env, &Registries::builtin(), &longer.splits(), &mut |_| ()).unwrap_or(world);
    let episodes =
        world.demonstrations(&longer, &template, 4, &mut |_| ControlFlow::Continue(())).unwrap().episodes;
    let close = tokenizer.token_id("<|im_end|>").unwrap();
    for episode in &episodes {
        for layout in [Layout::Concatenated, Layout::Windowed] {
            for sequence in sft::sequences(episode, prompter, layout, 1, 4096, None).unwrap() {
                let tokens = &sequence.tokens.tokens;
                assert_eq!(tokens.last(), Some(&close));
                assert_eq!(sequence.action.last(), Some(&true), "the end of a reply is learnt");
                let text = tokenizer.decode(tokens);
                assert_eq!(tokens, &tokenizer.encode(&text), "tokens of the whole");
            }
        }
    }
    assert!(!episodes.is_empty());
}

#[test]
fn a_chat_model_trains_in_both_layouts_and_its_checkpoints_are_chat_models() {
    for layout in ["prompt.layout=concatenated", "prompt.layout=windowed"] {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        model_folder(&model, CHATML);
        let policy = format!("policy.model={}", model.display());
        let more = [layout, policy.as_str(), "rollout.max_model_len=1024", "train.steps=1"];
        common::train(common::config(None, &more).unwrap(), layout);
    }
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    model_folder(&model, CHATML);
    let policy = format!("policy.model={}", model.display());
    let more = [policy.as_str(), "rollout.max_model_len=1024", "train.steps=1", "sft.steps=1"];
    let root = folder.path().join("run");
    let config = common::config(None, &more).unwrap();
    let mut run = turnwise_train::Run::builder(config).directory(&root).start(&mut NoopObserver).unwrap();
    run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap();
    let saved = Policy::load(&root).unwrap().tokenizer;
    let original = tokenizer(CHATML);
    assert_eq!(saved.end_tokens(), original.end_tokens());
    assert_eq!(saved.chat_template().unwrap().source(), CHATML);
    assert_eq!(saved.to_json().unwrap(), original.to_json().unwrap());
}

fn opening_thought() -> String {
    let thinking =
        CHATML.replace("<|im_start|>assistant\n{% endif", "<|im_start|>assistant\n<think>\n{% endif");
    assert_ne!(thinking, CHATML);
    thinking
}

fn sampled<'a>(config: &Config, prompter: Prompter<'_>, ids: &'a [u32]) -> &'a [u32] {
    let Prompter { template, tokenizer, chat, .. } = prompter;
    let params = engines::sampling_params(config, prompter, 1.0);
    let prompt = prompter.start("Act.", &[]).unwrap();
    let mut matcher = match setup::reasoning(template, chat) {
        Some(tags) => StopStringMatcher::past_reasoning(Arc::new(tags), tokenizer, &prompt),
        None => StopStringMatcher::default(),
    };
    let end = ids
        .iter()
        .position(|id| matcher.push(tokenizer, *id, &params.stop_strings) || params.stop_tokens.contains(id));
    &ids[..=end.unwrap()]
}

#[test]
fn a_demonstrated_reply_is_read_as_its_action() {
    for source in [CHATML, &opening_thought()] {
        let tokenizer = tokenizer(source);
        let config = common::config(None, &["prompt.layout=windowed"]).unwrap();
        let chat = setup::chat(&config, &Registries::builtin(), &tokenizer).unwrap();
        for (name, action) in [
            ("plain", "go north"),
            ("tools", r#"{"name": "go", "arguments": {"to": "north"}}"#),
            ("alfworld", "go to shelf 1"),
            ("alfworld-compact", "go to shelf 1"),
            ("alfworld-react", "go to shelf 1"),
            ("alfworld-verl-agent", "go to shelf 1"),
            ("ezpoints", "5"),
            ("search", "<search>steel</search>"),
            ("search-verl-agent", "<answer>steel</answer>"),
            ("webshop", "search[steel]"),
        ] {
            let template = PromptTemplate::named(name).unwrap();
            let prompter =
                Prompter { template: &template, tokenizer: &tokenizer, chat: chat.as_ref(), pictures: None };
            let parser = ActionParser::new(template.rules().clone(), false);
            let expected = parser.parse(&template.response(action), &[]);
            assert!(expected.valid, "{name}: {expected:?}");
            let ids = prompter.demonstrated(action, &[], true);
            assert_eq!(ids.last(), tokenizer.token_id("<|im_end|>").as_ref(), "{name}");
            let reply = prompter.response(&ids);
            let found = parser.parse(&prompter.whole(&reply, true), &[]);
            assert_eq!(found, expected, "{name} {reply:?}");
            let kept = sampled(&config, prompter, &ids);
            let reply = prompter.response(kept);
            let found = parser.parse(&prompter.whole(&reply, true), &[]);
            assert_eq!(found, expected, "{name} {reply:?}");
            assert_eq!(kept.len(), ids.len(), "{name}");
        }
        let template = PromptTemplate::named("search-r1").unwrap();
        let prompter =
            Prompter { template: &template, tokenizer: &tokenizer, chat: chat.as_ref(), pictures: None };
        let opening = chat.as_ref().unwrap().opening();
        assert_eq!(prompter.whole("on", true), format!("{opening}on"));
        assert_eq!(prompter.whole("on", false), "on");
    }
}
