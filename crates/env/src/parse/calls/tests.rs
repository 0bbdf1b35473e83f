use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use turnwise_core::Action;

use super::super::{ActionParser, ParsedAction, ReasoningDemand, Style};
use super::*;

const FORMATS: [CallFormat; 3] = [CallFormat::Hermes, CallFormat::Llama, CallFormat::Python];

fn rules(calls: CallFormat) -> ResponseRules {
    ResponseRules {
        action_tags: ["<tool_call>", "</tool_call>"].map(String::from),
        calls,
        ..ResponseRules::new(Style::Call)
    }
}

fn parse(rules: ResponseRules, response: &str) -> ParsedAction {
    ActionParser::new(rules, false).parse(response, &[])
}

fn written(format: CallFormat, calls: &[ToolCall]) -> String {
    let text = format.write(&rules(format), calls);
    if format == CallFormat::Hermes { format!("<tool_call>\n{text}\n</tool_call>") } else { text }
}

#[test]
fn calls_are_read_and_written() {
    let response = "<think>so</think>\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a [b] c\"}}\n</tool_call>";
    let parsed = parse(rules(CallFormat::Hermes), response);
    assert!(parsed.valid, "{parsed:?}");
    assert_eq!(parsed.action, r#"search({"query":"a [b] c"})"#);
    assert_eq!(calls_of_words(&parsed.action), parsed.calls);
    assert_eq!(
        CallFormat::Hermes.write(&rules(CallFormat::Hermes), &parsed.calls),
        r#"{"name": "search", "arguments": {"query": "a [b] c"}}"#
    );
    let actions = parsed.into_actions("call_3");
    let [Action::Call(call)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((call.id.as_str(), call.name.as_str()), ("call_3", "search"));
    assert_eq!(calls_of_words("look around"), []);
    assert_eq!(calls_of_words("f({})\nlook around"), []);
}

#[test]
fn several_calls_are_several_actions_with_ids_of_their_own() {
    for (format, response) in [
        (
            CallFormat::Hermes,
            "First.\n<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {\"n\": 1}}</tool_call>",
        ),
        (
            CallFormat::Llama,
            "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"n\": 1}}",
        ),
        (
            CallFormat::Llama,
            "<|python_tag|>[{\"name\": \"f\"}, {\"name\": \"g\", \"arguments\": {\"n\": 1}}]",
        ),
        (CallFormat::Python, "[f(), g(n=1)]"),
    ] {
        let parsed = parse(rules(format), response);
        assert_eq!((parsed.action.as_str(), parsed.reason), ("f({})\ng({\"n\":1})", None), "{format:?}");
        let ids: Vec<String> =
            parsed.into_actions("call_2").iter().map(|action| action.call().unwrap().id.clone()).collect();
        assert_eq!(ids, ["call_2", "call_2_1"]);
    }
}

#[test]
fn arguments_have_several_forms() {
    let read = |block: &str| json::call(serde_json::from_str(block).unwrap()).unwrap().arguments;
    for block in
        [r#"{"name": "f"}"#, r#"{"name": "f", "arguments": null}"#, r#"{"name": "f", "arguments": "{}"}"#]
    {
        assert_eq!(read(block), json!({}), "{block}");
    }
    assert_eq!(read(r#"{"name": "f", "arguments": "words"}"#), "words");
    assert_eq!(read(r#"{"name": "f", "parameters": [1]}"#), json!([1]));
}

#[test]
fn a_malformed_call_is_an_action_with_an_error_text() {
    use CallFormat::{Hermes, Llama, Python};
    for (format, response, action, reason) in [
        (Hermes, "<tool_call>look</tool_call>", "look", "not JSON"),
        (Hermes, "<tool_call>[1]</tool_call>", "[1]", "not a JSON object"),
        (Hermes, "<tool_call>{\"arguments\": {}}</tool_call>", "{\"arguments\": {}}", "no `name`"),
        (Hermes, "<tool_call>{\"name\": \" \"}</tool_call>", "{\"name\": \" \"}", "empty `name`"),
        (Hermes, "<tool_call>{\"name\": \"f\"} x</tool_call>", "{\"name\": \"f\"} x", "not JSON"),
        (Hermes, "<tool_call> </tool_call>", "", "is empty"),
        (Hermes, "<tool_call>{\"name\": \"f\"}", "<tool_call>{\"name\": \"f\"}", "not closed"),
        (Hermes, "</tool_call> f", "</tool_call> f", "not opened"),
        (Hermes, "{\"name\": \"f\"}", "{\"name\": \"f\"}", "no call"),
        (
            Hermes,
            "<think>I <tool_call>{\"name\": \"f\"}</tool_call>",
            "call>{\"name\": \"f\"}</tool_call>",
            "not closed",
        ),
        (Llama, "{\"name\": \"f\"", "{\"name\": \"f\"", "not JSON"),
        (Llama, "{\"name\": \"f\"} then", "{\"name\": \"f\"} then", "after a call"),
        (Llama, "Let me see.", "Let me see.", "no call"),
        (Python, "[f(1)]", "[f(1)]", "has no name"),
        (Python, "[f(a=1]", "[f(a=1]", "not closed"),
        (Python, "[f(a=x)]", "[f(a=x)]", "not a literal"),
    ] {
        let parsed = parse(rules(format), response);
        assert!(!parsed.valid && parsed.calls.is_empty(), "{response}");
        assert_eq!(parsed.action, action, "{response}");
        assert!(parsed.reason.unwrap().contains(reason), "{response}: {parsed:?}");
        let expected = format!("That is no call that can be read: {}.", parsed.reason.unwrap());
        assert_eq!(parsed.into_actions("c"), [Action::Malformed { text: action.into(), error: expected }]);
    }
}

#[test]
fn a_template_may_take_words_for_an_answer() {
    for format in FORMATS {
        let rules = ResponseRules { text_answer: true, ..rules(format) };
        let long = "It is in the second drawer of the desk by the window.";
        let parsed = parse(rules.clone(), &format!("<think>so</think>\n{long}\n"));
        assert_eq!((parsed.action.as_str(), parsed.valid), (long, true));
        assert_eq!(parsed.into_actions("c"), [Action::from(long)]);
        assert!(!parse(rules, "<think>so</think> ").valid, "nothing is no answer");
    }
}

#[test]
fn reasoning_and_admissible_calls_are_asked_as_with_words() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>";
    let required = ResponseRules { reasoning: ReasoningDemand::Required, ..rules(CallFormat::Hermes) };
    let parsed = parse(required, call);
    assert!(!parsed.valid && parsed.calls.is_empty() && parsed.reason.unwrap().contains("reasoning"));
    let parser = ActionParser::new(rules(CallFormat::Hermes), true);
    let valid = |response: &str, admissible: &str| parser.parse(response, &[admissible.to_owned()]).valid;
    assert!(valid(call, "f(<n>)") && valid(call, r#"f({"n":1})"#));
    assert!(!valid(call, "g(<n>)") && !valid(call, r#"f({"n":2})"#));
    let twice = format!("{call}{call}");
    assert!(
        valid(&twice, "f(<n>)") && !valid(&format!("{call}{}", call.replace("\"f\"", "\"g\"")), "f(<n>)")
    );
}

#[derive(serde::Deserialize)]
struct Case {
    text: String,
    calls: Option<Vec<ToolCallOnly>>,
}

#[derive(serde::Deserialize, PartialEq, Debug)]
struct ToolCallOnly {
    name: String,
    arguments: Value,
}

#[test]
fn calls_are_those_that_python_reads() {
    let source = include_str!("../../../tests/golden/calls/calls.json");
    let golden: BTreeMap<String, Vec<Case>> = serde_json::from_str(source).unwrap();
    let mut malformed = 0;
    for (format, name) in FORMATS.into_iter().zip(["hermes", "llama", "python"]) {
        assert!(golden[name].len() > 150, "{name}");
        for Case { text, calls } in &golden[name] {
            let read = format.read(&rules(format), text);
            malformed += usize::from(calls.is_none());
            match calls {
                None => assert!(read.is_err(), "{name}: {text}: {read:?}"),
                Some(calls) => {
                    let read = read.unwrap_or_else(|reason| panic!("{name}: {text}: {reason}"));
                    let read: Vec<ToolCallOnly> = read
                        .into_iter()
                        .map(|ToolCall { name, arguments, .. }| ToolCallOnly { name, arguments })
                        .collect();
                    assert_eq!(&read, calls, "{name}: {text}");
                }
            }
        }
    }
    assert!(malformed > 100, "{malformed}");
    assert_ne!(python::read("[f(a=1)]"), python::read("[f(a=2)]"), "the comparison notices a digit");
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such number", |value| value.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn call() -> impl Strategy<Value = ToolCall> {
    ("[a-z_][a-z0-9_.]{0,8}", prop::collection::btree_map("[a-z_][a-z0-9_]{0,6}", value(), 0..4)).prop_map(
        |(name, arguments)| ToolCall {
            id: String::new(),
            name,
            arguments: Value::Object(Map::from_iter(arguments)),
        },
    )
}

fn signs() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<tool_call>"),
        Just("</tool_call>"),
        Just("<think>"),
        Just("</think>"),
        Just("{\"name\": \"f\""),
        Just("\"parameters\": "),
        Just("["),
        Just("]"),
        Just("f("),
        Just("g(a="),
        Just(")"),
        Just("{"),
        Just("}"),
        Just("'"),
        Just("\""),
        Just("'''"),
        Just("\\"),
        Just("\\x"),
        Just("\\u00"),
        Just("1e999"),
        Just("-"),
        Just(","),
        Just(":"),
        Just("é"),
        Just("🦙"),
        Just("<|python_tag|>"),
        Just("\n"),
        Just(";"),
        Just("None"),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_without_a_panic(text in prop_oneof![any::<String>(), signs()]) {
        for format in FORMATS {
            for text_answer in [false, true] {
                let rules = ResponseRules { text_answer, ..rules(format) };
                let parsed = parse(rules, &text);
                prop_assert_eq!(parsed.valid, parsed.error.is_none());
                prop_assert!(!parsed.into_actions("c").is_empty());
            }
        }
    }

    #[test]
    fn calls_that_were_written_are_read(calls in prop::collection::vec(call(), 1..4)) {
        for format in FORMATS {
            let text = written(format, &calls);
            let read = format.read(&rules(format), &text);
            prop_assert_eq!(read.as_ref(), Ok(&calls), "{:?} {}", format, text);
        }
    }
}

#[test]
fn values_as_deep_as_an_answer_is_long_overflow_no_stack() {
    for (open, close) in [("[", "]"), ("(", ")"), ("{'a': ", "}")] {
        let text = format!("[f(a={}{})]", open.repeat(100_000), close.repeat(100_000));
        assert!(python::read(&text).unwrap_err().contains("too deep"), "{open}");
    }
    let text = format!("{{\"name\": \"f\", \"parameters\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(llama::read(&text).is_err());
    assert!(
        hermes::read(&rules(CallFormat::Hermes).action_tags, &format!("<tool_call>{text}</tool_call>"))
            .is_err()
    );
}
