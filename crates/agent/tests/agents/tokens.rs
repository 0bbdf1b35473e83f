//! Tests of an agent's requests: how their tokens join, what a trajectory keeps of them, and
//! rewards for earlier turns.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_agent::world::observation;
use turnwise_core::{
    Action, Batch, ChatMessage, Completion, ContextMask, Continued, Conversation, EnvError, Environment,
    FinishReason, Group, MessageCall, Observation, Purpose, RequestId, SampleError, SampleRequest, Sampler,
    Seed, Step, Task, TaskSet, Tool, Trajectory, TurnReward,
};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::chat::{ChatFormat, ChatSettings, ChatTemplate};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::Layout;
use turnwise_train::rollout::prompting::Prompter;
use turnwise_train::rollout::{EnvRunner, Job, Rollout};
use turnwise_train::setup::World;
use turnwise_train::step::masked_contexts::MaskedPrompts;
use turnwise_train::step::training_set::{SetInputs, paired};
use turnwise_train::{Config, Registries};

use super::model::TEMPLATE as PLAIN;

const HERMES: &str = include_str!("../../../text/tests/golden/calls/hermes.jinja");
const ADD: &str =
    r#"{"name": "add", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}"#;

/// An environment that makes these requests in order.
struct Agent {
    requests: Vec<Conversation>,
    next: usize,
    replies: Vec<Action>,
}

impl Agent {
    fn observation(&mut self) -> Observation {
        let asked = self.requests[self.next].clone();
        self.next += 1;
        observation(asked)
    }
}

impl Environment for Agent {
    fn reset(&mut self, _: &Task, _: Seed) -> Result<Observation, EnvError> {
        Ok(self.observation())
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.replies.push(action.clone());
        let Action::Reply(_) = action else { return Err(EnvError::Other("no reply".into())) };
        if self.next < self.requests.len() {
            return Ok(Step { observation: self.observation(), understood: true, ..Step::default() });
        }
        let given = |turn, reward| TurnReward { turn, reward, rule: format!("rule {turn}") };
        let rewards = vec![given(0, 0.5), given(self.next - 1, 1.0)];
        let text = self.replies.iter().map(|reply| format!("{reply:?}")).collect::<Vec<_>>().join("\n");
        let observation = Observation::new(text);
        Ok(Step {
            observation,
            terminated: true,
            success: true,
            understood: true,
            rewards,
            ..Step::default()
        })
    }
}

struct Agents(Vec<Conversation>);

impl TaskSet for Agents {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn splits(&self) -> Vec<String> {
        Vec::new()
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(Vec::new())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Agent { requests: self.0.clone(), next: 0, replies: Vec::new() }))
    }

    fn is_instant(&self) -> bool {
        true
    }
}

/// Samples these replies in order, and records the requests.
struct Replies<'a>(&'a Tokenizer, Vec<&'a str>, Vec<SampleRequest>, bool);

impl Sampler for Replies<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.2.push(request);
        self.3 = true;
        Ok(self.2.len() as RequestId)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        if !std::mem::take(&mut self.3) {
            return Ok(Vec::new());
        }
        let tokens = self.0.encode(self.1.remove(0));
        let (logprobs, entropies) = (vec![-1.0; tokens.len()], vec![1.0; tokens.len()]);
        let (request, finish) = (self.2.len() as RequestId, FinishReason::Stop);
        Ok(vec![Completion { request, tokens, logprobs, entropies, finish, weights_version: 0 }])
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

fn tokenizer(template: &str) -> Tokenizer {
    let special = ["<|im_start|>", "<|im_end|>"].map(String::from).to_vec();
    let config = TokenizerConfig { special_tokens: special, ..TokenizerConfig::default() };
    let tokenizer = Tokenizer::train(std::iter::empty(), &config).unwrap();
    let end = vec![tokenizer.token_id("<|im_end|>").unwrap()];
    tokenizer.with_chat(ChatTemplate::from_source(template).unwrap(), end)
}

fn runner(requests: Vec<Conversation>, tokenizer: Tokenizer, chat: Option<ChatFormat>) -> EnvRunner {
    let template = PromptTemplate::named("tools").unwrap();
    let parser = ActionParser::new(template.rules().clone(), false);
    let (world, tokenizer) = (World::of_tasks(Arc::new(Agents(requests))), Arc::new(tokenizer));
    EnvRunner { world, template, parser, tokenizer, chat, pictures: None }
}

fn play(
    tokenizer: &Tokenizer,
    layout: Layout,
    requests: Vec<Conversation>,
    replies: Vec<&str>,
) -> (Trajectory, Vec<SampleRequest>) {
    let chat = ChatFormat::new(tokenizer, ChatSettings::default()).unwrap();
    let mut runner = runner(requests, tokenizer.clone(), Some(chat));
    let mut rules = runner.template.rules().clone();
    rules.text_answer = true;
    runner.parser = ActionParser::new(rules, false);
    let (mut config, stop) = (Config { seed: 7, ..Config::default() }, AtomicBool::new(false));
    (config.prompt.layout, config.env.max_turns, config.rollout.max_model_len) = (layout, 0, 8192);
    config.rollout.max_num_seqs = 1;
    let rollout = Rollout::new(&config, Purpose::Rollout, &stop);
    let job = Job::new(Task::new("t", "k", "g"), 0, 0);
    let mut samplers = [Replies(tokenizer, replies, Vec::new(), false)];
    let played =
        runner.play(&rollout, &[job], &mut samplers, |_| {}).unwrap().unwrap().trajectories.remove(0);
    let [Replies(_, _, requests, _)] = samplers;
    (played, requests)
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::new("user", text)
}

fn assistant(text: &str) -> ChatMessage {
    ChatMessage::new("assistant", text)
}

fn request(messages: Vec<ChatMessage>, continues: Option<(usize, usize)>) -> Conversation {
    let continues = continues.map(|(turn, messages)| Continued { turn, messages });
    Conversation { messages, continues, agent: "solver".into(), ..Conversation::default() }
}

#[test]
fn prompts_go_on_from_sampled_tokens_and_branches_begin_sequences() {
    let tokenizer = tokenizer(PLAIN);
    let requests = vec![
        Conversation { max_tokens: Some(5), stop: vec!["END".into()], ..request(vec![user("a")], None) },
        request(vec![user("a"), assistant("b"), user("c")], Some((0, 2))),
        // Another conversation, and a branch of the first.
        request(vec![ChatMessage::new("system", "s"), user("x")], None),
        request(vec![user("a"), assistant("b"), user("other")], Some((0, 2))),
        request(vec![user("a"), assistant("b"), user("c"), assistant("d"), user("e")], Some((1, 4))),
    ];
    // The first reply ends at a stop string, without the template's end token: the tokens remain as
    // sampled.
    let replies = vec!["b END", "d<|im_end|>", "y<|im_end|>", "z<|im_end|>", "f<|im_end|>"];
    let (played, asked) = play(&tokenizer, Layout::Concatenated, requests.clone(), replies.clone());
    assert!(played.success, "{:?}", played.stop);
    let texts: Vec<String> =
        played.sequences.iter().map(|sequence| tokenizer.decode(&sequence.tokens)).collect();
    let head = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb END<|im_end|>\n<|im_start|>user\n";
    assert_eq!(
        texts,
        [
            format!(
                "{head}c<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\nf<|im_end|>"
            ),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|im_end|>".into(),
            format!("{head}other<|im_end|>\n<|im_start|>assistant\nz<|im_end|>"),
        ]
    );
    // Each turn is trained once, on the tokens that were sampled after exactly this prompt.
    let spans: Vec<Vec<usize>> = played
        .sequences
        .iter()
        .map(|sequence| sequence.spans.iter().map(|span| span.turn).collect())
        .collect();
    assert_eq!(spans, [vec![0, 1, 4], vec![2], vec![3]]);
    for sequence in &played.sequences {
        sequence.check().unwrap();
        for span in &sequence.spans {
            assert_eq!(sequence.tokens[..span.start], asked[span.turn].prompt);
            assert_eq!(sequence.tokens[span.start..span.end], played.turns[span.turn].response_ids);
        }
    }
    assert_eq!((asked[0].params.max_tokens, asked[1].params.max_tokens), (5, 512));
    assert_eq!(asked[0].params.stop_strings, ["END"]);
    // The agent gets the text before the stop string.
    assert!(
        played.final_observation.starts_with("Reply(Reply { content: \"b\", "),
        "{}",
        played.final_observation
    );
    let kept: Vec<Option<usize>> =
        played.turns.iter().map(|turn| turn.agent.as_ref().unwrap().continues).collect();
    assert_eq!(kept, [None, Some(0), None, Some(0), Some(1)]);
    // Rewards of earlier turns have their rules.
    let rewards: Vec<f64> = played.turns.iter().map(|turn| turn.reward).collect();
    assert_eq!(rewards, [0.5, 0.0, 0.0, 0.0, 1.0]);
    let agent = played.turns[0].agent.as_ref().unwrap();
    assert_eq!(
        (agent.name.as_str(), agent.rewards.as_slice()),
        ("solver", [("rule 0".to_owned(), 0.5)].as_slice())
    );
    assert!(played.turns.iter().all(|turn| turn.valid));
    // The windowed layout has one sequence per turn, with the same tokens before each response.
    let (windowed, again) = play(&tokenizer, Layout::Windowed, requests, replies);
    assert_eq!(windowed.sequences.len(), 5);
    let prompts =
        |asked: &[SampleRequest]| asked.iter().map(|asked| asked.prompt.clone()).collect::<Vec<_>>();
    assert_eq!(prompts(&asked), prompts(&again));
}

/// An agent replaces its history by a summary: the request for it is a turn, and the next request begins a second sequence.
#[test]
fn a_summary_that_an_agent_asks_for_is_a_turn_with_credit() {
    let tokenizer = tokenizer(PLAIN);
    let summarize = vec![user("a"), assistant("b"), user("summarize")];
    let requests = vec![
        request(vec![user("a")], None),
        request(summarize, Some((0, 2))),
        request(vec![user("a\nSummary: s"), user("c")], None),
    ];
    let replies = vec!["b<|im_end|>", "s<|im_end|>", "d<|im_end|>"];
    let (played, asked) = play(&tokenizer, Layout::Concatenated, requests, replies);
    assert!(played.success, "{:?}", played.stop);
    let spans: Vec<Vec<usize>> = played
        .sequences
        .iter()
        .map(|sequence| sequence.spans.iter().map(|span| span.turn).collect())
        .collect();
    assert_eq!(spans, [vec![0, 1], vec![2]]);
    for (sequence, span) in
        played.sequences.iter().flat_map(|one| one.spans.iter().map(move |span| (one, span)))
    {
        assert_eq!(sequence.tokens[..span.start], asked[span.turn].prompt);
        assert_eq!(sequence.tokens[span.start..span.end], played.turns[span.turn].response_ids);
    }
    // The other trajectory of its group failed: the summary gets the same credit as the other
    // turns.
    let mut failed = played.clone();
    failed.turns.iter_mut().for_each(|turn| turn.reward = 0.0);
    let batch = Batch { groups: vec![Group { trajectories: vec![played, failed] }] };
    let advantages = Registries::builtin().pipeline(&Config::default()).unwrap().run(&batch).unwrap();
    let rows: Vec<Vec<f64>> = advantages.rows().map(<[f64]>::to_vec).collect();
    assert!(rows[0].len() == 3 && rows[0].iter().all(|&advantage| advantage > 0.0), "{rows:?}");
    assert!(rows[1].iter().all(|&advantage| advantage < 0.0), "{rows:?}");
    // Both sequences are trained with it.
    let inputs = SetInputs {
        advantages: &advantages,
        tokens: None,
        values: None,
        masked: &[],
        skip_zero: true,
        skip_equal_groups: true,
        filter: None,
    };
    let set = paired(&batch, &inputs);
    assert_eq!(set.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert!(set.iter().flatten().all(|sequence| sequence.has_gradient));
}

#[test]
fn calls_are_replies_with_ids_and_their_results_are_the_templates() {
    for (template, shown) in [(HERMES, true), (PLAIN, false)] {
        let tokenizer = tokenizer(template);
        let call = MessageCall { id: "call_0_0".into(), name: "add".into(), arguments: "{\"n\":1}".into() };
        let made = ChatMessage { calls: vec![call], ..assistant("") };
        let result = ChatMessage { call_id: Some("call_0_0".into()), ..ChatMessage::new("tool", "sum 1") };
        let with_tools =
            |asked: Conversation| Conversation { tools: vec![Tool::from_json(ADD).unwrap()], ..asked };
        let requests = vec![
            with_tools(request(vec![user("a")], None)),
            with_tools(request(vec![user("a"), made.clone(), result.clone()], Some((0, 2)))),
            // The same history, edited, is rendered from its messages.
            with_tools(request(vec![user("A"), made, result], None)),
        ];
        let replies = vec![
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 1}}\n</tool_call><|im_end|>",
            "one<|im_end|>",
            "<tool_call>{</tool_call><|im_end|>",
        ];
        let (played, _) = play(&tokenizer, Layout::Concatenated, requests, replies);
        assert!(played.success, "{:?}", played.stop);
        let texts: Vec<String> =
            played.sequences.iter().map(|sequence| tokenizer.decode(&sequence.tokens)).collect();
        let result = if shown {
            "<tool_response>\nsum 1\n</tool_response>"
        } else {
            "<|im_start|>user\nsum 1<|im_end|>"
        };
        for text in &texts {
            assert!(text.contains(result) && text.contains("\"name\": \"add\""), "{text}");
        }
        assert_eq!(played.turns[0].calls[0].id, "call_0_0");
        assert_eq!(played.turns[0].action, "add({\"n\":1})");
        // An invalid call is returned to the agent as text, and counts as invalid.
        let valid: Vec<bool> = played.turns.iter().map(|turn| turn.valid).collect();
        assert_eq!(valid, [true, true, false]);
        assert!(
            played.final_observation.contains("content: \"<tool_call>{</tool_call>\""),
            "{}",
            played.final_observation
        );
    }
}

#[test]
fn without_a_chat_template_the_error_says_what_is_missing() {
    let tokenizer = Tokenizer::train(std::iter::empty(), &TokenizerConfig::default()).unwrap();
    let runner = runner(vec![request(vec![user("a")], None)], tokenizer.clone(), None);
    let (config, stop) = (Config::default(), AtomicBool::new(false));
    let rollout = Rollout { max_resamples: 0, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let mut samplers = [Replies(&tokenizer, Vec::new(), Vec::new(), false)];
    let job = Job::new(Task::new("t", "k", "g"), 0, 0);
    let played =
        runner.play(&rollout, &[job], &mut samplers, |_| {}).unwrap().unwrap().trajectories.remove(0);
    assert!(format!("{:?}", played.stop).contains("prompt.chat"), "{:?}", played.stop);
}

#[test]
fn a_masked_prompt_has_the_system_message_and_what_is_new() {
    let tokenizer = tokenizer(HERMES);
    let call = MessageCall { id: "call_0_0".into(), name: "add".into(), arguments: "{\"n\":1}".into() };
    let made = ChatMessage { calls: vec![call], ..assistant("") };
    let result = ChatMessage { call_id: Some("call_0_0".into()), ..ChatMessage::new("tool", "sum 1") };
    let system = ChatMessage::new("system", "rules");
    let with_tools =
        |asked: Conversation| Conversation { tools: vec![Tool::from_json(ADD).unwrap()], ..asked };
    let requests = vec![
        with_tools(request(vec![system.clone(), user("goal")], None)),
        with_tools(request(vec![system.clone(), user("goal"), made, result], Some((0, 3)))),
        // A sub-agent without tools whose history repeats a reply.
        request(vec![system, user("other"), assistant("x"), user("new")], None),
    ];
    let replies = vec![
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 1}}\n</tool_call><|im_end|>",
        "one<|im_end|>",
        "two<|im_end|>",
    ];
    let (played, _) = play(&tokenizer, Layout::Concatenated, requests, replies);
    let template = PromptTemplate::named("tools").unwrap();
    let chat = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    let prompter = Prompter { template: &template, tokenizer: &tokenizer, chat: Some(&chat), pictures: None };
    let masked = |mask, turn: usize| {
        let prompts = MaskedPrompts { prompter, layout: Layout::Concatenated, history: 2, mask };
        let sequence = prompts.masked(&played, turn).unwrap();
        let span = &sequence.spans[0];
        assert_eq!(sequence.tokens[span.start..], played.turns[turn].response_ids);
        tokenizer.decode(&sequence.tokens[..span.start])
    };
    // Shown: rules, goal, call, result, tools.
    let shown = |text: &str| {
        ["rules", "goal", "\"n\": 1}}\n</tool_call>", "sum 1", "\"add\", \"parameters\""]
            .map(|part| text.contains(part))
    };
    let first = masked(ContextMask::GoalAndHistory, 0);
    assert_eq!(shown(&first), [true, true, false, false, true], "{first}");
    assert_eq!(tokenizer.encode(&first), played.sequences[0].tokens[..played.sequences[0].spans[0].start]);
    for (mask, expected) in [
        (ContextMask::GoalAndHistory, [true, false, false, true, true]),
        (ContextMask::Goal, [true, false, true, true, true]),
        (ContextMask::History, [true, true, false, true, true]),
    ] {
        let text = masked(mask, 1);
        assert_eq!(shown(&text), expected, "{mask:?}: {text}");
    }
    // The whole prompt shows everything, so that the masks can fail.
    let sequence = &played.sequences[0];
    assert_eq!(shown(&tokenizer.decode(&sequence.tokens[..sequence.spans[1].start])), [true; 5]);
    let other = masked(ContextMask::GoalAndHistory, 2);
    assert!(other.contains("rules") && other.contains("new") && !other.contains("other"), "{other}");
    assert!(!other.contains("\"add\""), "the tools of another request: {other}");
}
