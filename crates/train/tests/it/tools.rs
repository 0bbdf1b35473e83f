//! An environment with tools.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Action, Completion, EnvError, Environment, FinishReason, Observation, Part, Purpose, RequestId,
    SampleError, SampleRequest, Sampler, Seed, Step, StopReason, Task, TaskLimits, TaskSet, Tool, Trajectory,
};
use turnwise_env::demonstration::{Demonstration, DemonstrationTurn};
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::chat::{ChatFormat, ChatSettings, ChatTemplate, Message, RenderOptions};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::Layout;
use turnwise_train::rollout::prompting::Prompter;
use turnwise_train::rollout::{Job, Rollout};
use turnwise_train::sft;

use crate::common;

const HERMES: &str = include_str!("../../../text/tests/golden/calls/hermes.jinja");
const LLAMA: &str = include_str!("../../../text/tests/golden/calls/llama.jinja");
const ADD: &str = r#"{"name": "add", "description": "Adds n.", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}"#;

struct Adder {
    sum: i64,
    tools: Vec<Tool>,
}

impl Environment for Adder {
    fn reset(&mut self, _: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.sum = 0;
        Ok(Observation::new("The sum is 0."))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let seen = |text: String| Observation::new(text).with_state_key("adding");
        Ok(match action {
            Action::Call(call) => {
                let n = call.arguments["n"].as_i64().unwrap();
                self.sum += n;
                let terminated = self.sum >= 10;
                let observation = seen(format!("sum {}", self.sum));
                Step {
                    observation,
                    reward: n as f64,
                    terminated,
                    success: terminated,
                    understood: true,
                    ..Step::default()
                }
            }
            Action::Malformed { error, .. } => Step { observation: seen(error.clone()), ..Step::default() },
            Action::Text { .. } | Action::Reply(_) => {
                Step { observation: seen(format!("words: {}", action.text())), ..Step::default() }
            }
        })
    }

    fn tools(&self) -> &[Tool] {
        &self.tools
    }
}

struct Adders;

impl TaskSet for Adders {
    fn name(&self) -> &'static str {
        "adder"
    }

    fn splits(&self) -> Vec<String> {
        Vec::new()
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(Vec::new())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Adder { sum: 0, tools: vec![Tool::from_json(ADD).unwrap()] }))
    }

    fn is_instant(&self) -> bool {
        true
    }
}

struct Replies<'a>(&'a Tokenizer, Vec<&'a str>, Option<RequestId>);

impl Sampler for Replies<'_> {
    fn submit(&mut self, _: SampleRequest) -> Result<RequestId, SampleError> {
        self.2 = Some(self.1.len() as RequestId);
        Ok(self.1.len() as RequestId)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let answer = |request| {
            let tokens = self.0.encode(self.1.remove(0));
            let (logprobs, entropies) = (vec![-1.0; tokens.len()], vec![1.0; tokens.len()]);
            Completion {
                request,
                tokens,
                logprobs,
                entropies,
                finish: FinishReason::Stop,
                weights_version: 0,
            }
        };
        Ok(self.2.take().map(answer).into_iter().collect())
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

fn tokenizer(template: Option<&str>) -> Tokenizer {
    let special = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"];
    let config =
        TokenizerConfig { special_tokens: special.map(String::from).to_vec(), ..TokenizerConfig::default() };
    let tokenizer = Tokenizer::train(std::iter::empty(), &config).unwrap();
    let Some(template) = template else { return tokenizer };
    let end = ["<|im_end|>", "<|eot_id|>"].map(|end| tokenizer.token_id(end).unwrap()).to_vec();
    let template = template.replace("bos_token", "''");
    tokenizer.with_chat(ChatTemplate::from_source(&template).unwrap(), end)
}

fn chat(tokenizer: &Tokenizer) -> Option<ChatFormat> {
    tokenizer.chat_template().map(|_| ChatFormat::new(tokenizer, ChatSettings::default()).unwrap())
}

fn play(tokenizer: &Tokenizer, template: &str, layout: Layout, replies: Vec<&str>) -> Trajectory {
    let runner = common::runner(Adders, template, tokenizer.clone(), chat(tokenizer));
    let (config, stop) = (common::rollout_config(layout, 8192, 1), AtomicBool::new(false));
    let rollout = Rollout::new(&config, Purpose::Rollout, &stop);
    let limits = TaskLimits { turns: Some(replies.len()), ..TaskLimits::default() };
    let job = Job::new(Task { limits, ..Task::new("t", "add", "add up to ten") }, 0, 0);
    let mut sampler = [Replies(tokenizer, replies, None)];
    runner.play(&rollout, &[job], &mut sampler, |_| {}).unwrap().unwrap().trajectories.remove(0)
}

fn text(tokenizer: &Tokenizer, played: &Trajectory) -> String {
    tokenizer.decode(&played.sequences[0].tokens)
}

#[test]
fn a_chat_template_is_given_tools_and_results_as_its_own() {
    let tokenizer = tokenizer(Some(HERMES));
    let call =
        |n: i64| format!("<tool_call>\n{{\"name\": \"add\", \"arguments\": {{\"n\": {n}}}}}\n</tool_call>");
    let replies = [
        format!("<think>\nTwo at once.\n</think>\n\n{}\n{}<|im_end|>", call(1), call(2)),
        "<tool_call>add</tool_call><|im_end|>".to_owned(),
        format!("{}<|im_end|>", call(7)),
    ];
    let played =
        play(&tokenizer, "tools", Layout::Concatenated, replies.iter().map(String::as_str).collect());
    assert_eq!((&played.stop, played.success, played.tools.len()), (&StopReason::Terminated, true, 1));
    let turns: Vec<(&str, f64, bool)> =
        played.turns.iter().map(|turn| (turn.action.as_str(), turn.reward, turn.valid)).collect();
    assert_eq!(
        turns,
        [("add({\"n\":1})\nadd({\"n\":2})", 3.0, true), ("add", 0.0, false), ("add({\"n\":7})", 7.0, true)]
    );
    let results: Vec<&Part> = played.turns[1].parts.iter().collect();
    let result = |id: &str, text: &str| Part::ToolResult { call_id: id.into(), text: text.into() };
    assert_eq!(results, [&result("call_0", "sum 1"), &result("call_0_1", "sum 3")]);
    assert_eq!(played.turns[1].observation, "sum 1\nsum 3");
    assert_eq!(played.turns[1].state_key(), "adding");
    // The sequence is the template's rendering of the conversation, including the answer to the
    // malformed call.
    let json = |text: &str| Message::from_json(text).unwrap();
    let made = |n: i64| format!(r#"{{"function": {{"name": "add", "arguments": {{"n": {n}}}}}}}"#);
    let messages = [
        Message::user("Task: add up to ten\nThe sum is 0.\n"),
        json(&format!(
            r#"{{"role": "assistant", "content": "<think>\nTwo at once.\n</think>\n\n", "tool_calls": [{}, {}]}}"#,
            made(1),
            made(2)
        )),
        json(r#"{"role": "tool", "content": "sum 1"}"#),
        json(r#"{"role": "tool", "content": "sum 3"}"#),
        Message::assistant("<tool_call>add</tool_call>"),
        Message::user("That is no call that can be read: the block of the call is not JSON.\n"),
        json(&format!(r#"{{"role": "assistant", "content": "", "tool_calls": [{}]}}"#, made(7))),
    ];
    let tool = turnwise_text::chat::Tool::from_json(played.tools[0].json()).unwrap();
    let options = RenderOptions { tools: vec![tool], ..RenderOptions::default() };
    let whole = ChatTemplate::from_source(HERMES).unwrap().render(&messages, &options).unwrap();
    // Rendering drops thoughts before a user message; a growing sequence keeps them.
    let whole = whole.replacen("<tool_call>", "<think>\nTwo at once.\n</think>\n\n<tool_call>", 1);
    assert_eq!(format!("{}\n", text(&tokenizer, &played)), whole);
}

#[test]
fn llamas_template_is_given_tools_too() {
    let tokenizer = tokenizer(Some(LLAMA));
    let replies = vec![
        r#"{"name": "add", "parameters": {"n": 4}}<|eot_id|>"#,
        r#"{"name": "add", "parameters": {"n": 3}}; {"name": "add", "parameters": {"n": 3}}<|eot_id|>"#,
    ];
    let played = play(&tokenizer, "tools-llama", Layout::Concatenated, replies);
    assert!(played.success && played.turns.len() == 2, "{:?}", played.stop);
    let text = text(&tokenizer, &played);
    assert!(text.contains("Environment: ipython") && text.contains("\"name\": \"add\""), "{text}");
    assert!(
        text.contains("<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n\"sum 4\"<|eot_id|><|start_header_id|>assistant"),
        "{text}"
    );
    let played = play(&tokenizer, "tools", Layout::Concatenated, vec!["never"]);
    let StopReason::SampleError(reason) = &played.stop else { panic!("{:?}", played.stop) };
    assert!(reason.contains("prompt.template") && reason.contains("\"tools-llama\""), "{reason}");
}

#[test]
fn elsewhere_prompts_list_the_tools() {
    const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                          {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let call = r#"<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>"#;
    let list = format!("<tools>\n{}\n</tools>\n", Tool::from_json(ADD).unwrap().json());
    let start = format!("{list}Task: add up to ten\nThe sum is 0.\n");
    for template in [None, Some(CHATML)] {
        let tokenizer = tokenizer(template);
        let played = play(&tokenizer, "tools", Layout::Concatenated, vec![call, call]);
        let text = text(&tokenizer, &played);
        assert_eq!(text.matches(&start).count(), 1, "{text}");
        assert!(text.contains("sum 1\n") && !text.contains("tool_response"), "{text}");
        let played = play(&tokenizer, "tools", Layout::Windowed, vec![call, call]);
        assert!(played.sequences.iter().all(|sequence| tokenizer.decode(&sequence.tokens).contains(&list)));
    }
    let tokenizer = tokenizer(Some(HERMES));
    let played = play(&tokenizer, "tools", Layout::Windowed, vec![call, call]);
    let texts: Vec<String> =
        played.sequences.iter().map(|sequence| tokenizer.decode(&sequence.tokens)).collect();
    assert!(
        texts.iter().all(|text| text.contains("Tools:\n{\"type\"") && !text.contains("<tools>")),
        "{texts:?}"
    );
}

#[test]
fn demonstrations_have_the_form_of_the_chat_template() {
    for (source, template, written) in [
        (
            HERMES,
            "tools",
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 4}}\n</tool_call><|im_end|>",
        ),
        (LLAMA, "tools-llama", "{\"name\": \"add\", \"parameters\": {\"n\": 4}}<|eot_id|>"),
    ] {
        let tokenizer = tokenizer(Some(source));
        let (template, chat) = (PromptTemplate::named(template).unwrap(), chat(&tokenizer));
        let prompter =
            Prompter { template: &template, tokenizer: &tokenizer, chat: chat.as_ref(), pictures: None };
        let turn = |seen: &str, action: &str| {
            DemonstrationTurn::new(Observation::new(seen), false, action, true, 0.0)
        };
        let demonstration = Demonstration {
            task: Task::new("t", "add", "add up to ten"),
            tools: vec![Tool::from_json(ADD).unwrap()],
            turns: vec![turn("The sum is 0.", "add({\"n\":4})"), turn("sum 4", "add({\"n\":6})")],
            final_observation: String::new(),
        };
        let sequence =
            sft::sequences(&demonstration, prompter, Layout::Concatenated, 0, 8192, None).unwrap().remove(0);
        let replies = vec![written, written];
        let shown = tokenizer.decode(&sequence.tokens.tokens);
        let name = if source == HERMES { "tools" } else { "tools-llama" };
        let played = text(&tokenizer, &play(&tokenizer, name, Layout::Concatenated, replies));
        assert_eq!(shown.replacen(": 6}", ": 4}", 1), played);
    }
}
