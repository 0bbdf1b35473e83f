use serde_json::json;
use turnwise_core::{Part, Trajectory};

use super::*;
use crate::{Dump, Format, ReadOptions, read, read_conversations};

const WEATHER: &str = r#"{"messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "content": null, "reasoning_content": "Which city?", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"to\": \"Oslo\", \"at\": 1}"}},
        {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "c2", "content": "noon"},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "It rains."}],
 "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
 "reward": 1.0, "group": "oslo"}"#;

fn dump(name: &str, text: &str) -> Result<Dump, DumpError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    read(&path, &ReadOptions::default())
}

fn only(dump: &Dump) -> &Trajectory {
    let [trajectory] = dump.batches[0].batch.groups[0].trajectories.as_slice() else { panic!("{dump:?}") };
    trajectory
}

fn line(change: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(WEATHER).unwrap();
    change(&mut value);
    value.to_string()
}

#[test]
fn an_assistant_message_is_a_turn_with_its_calls_and_their_results() {
    let dump = dump("a.jsonl", &line(|_| {})).unwrap();
    assert_eq!(dump.format, Format::Messages);
    let trajectory = only(&dump);
    let [first, second] = trajectory.turns.as_slice() else { panic!("{trajectory:?}") };
    assert_eq!(first.observation, "Be brief.\nWeather?");
    let message = |role: &str, text: &str| Part::Message { role: role.into(), text: text.into() };
    assert_eq!(first.parts, [message("system", "Be brief."), message("user", "Weather?")]);
    assert_eq!(first.action, "weather({\"at\":1,\"to\":\"Oslo\"})\nclock({})");
    let calls: Vec<(&str, &str)> =
        first.calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect();
    assert_eq!(calls, [("c1", "weather"), ("c2", "clock")]);
    assert_eq!(first.calls[0].arguments, json!({"to": "Oslo", "at": 1}));
    let result = |id: &str, text: &str| Part::ToolResult { call_id: id.into(), text: text.into() };
    assert_eq!(second.parts, [result("c2", "noon"), result("c1", "rain")]);
    assert_eq!((second.observation.as_str(), second.action.as_str()), ("noon\nrain", "It rains."));
    assert_eq!((first.reward, second.reward), (0.0, 1.0));
    assert_eq!((trajectory.task.goal.as_str(), trajectory.tools[0].name()), ("Weather?", "weather"));
    assert_eq!(dump.batches[0].origins[0][0].group, json!("oslo"));
}

#[test]
fn the_order_of_arguments_is_kept_for_templates() {
    let read = conversation(1, WEATHER).unwrap();
    assert_eq!(read.messages[2].calls[0].arguments, r#"{"to": "Oslo", "at": 1}"#);
    assert!(read.messages[2].to_json().contains(r#""arguments":{"to": "Oslo", "at": 1}"#));
    let openai = read.messages[2].to_openai();
    assert_eq!(openai["tool_calls"][0]["function"]["arguments"], json!(r#"{"to": "Oslo", "at": 1}"#));
    assert_eq!(openai["reasoning_content"], json!("Which city?"));
    let broken = WEATHER.replace(r#""{\"to\": \"Oslo\", \"at\": 1}""#, r#""{to: Oslo""#);
    let read = conversation(1, &broken).unwrap();
    assert_eq!(read.messages[2].calls[0].arguments_text(), "{to: Oslo");
    assert_eq!(
        conversation(1, &broken).unwrap().record().trajectory.turns[0].action,
        "weather({to: Oslo)\nclock({})"
    );
}

#[test]
fn a_trajectory_has_the_messages_that_it_was_read_from() {
    let read = conversation(1, WEATHER).unwrap();
    let again = Conversation::of(&read.clone().record().trajectory);
    let openai = |of: &Conversation| of.messages.iter().map(ChatMessage::to_openai).collect::<Vec<_>>();
    let mut expected = openai(&read);
    // Results have the tool's name, and arguments keep their order.
    expected[3]["name"] = json!("clock");
    expected[4]["name"] = json!("weather");
    expected[2]["tool_calls"][0]["function"]["arguments"] = json!(r#"{"at":1,"to":"Oslo"}"#);
    assert_eq!(openai(&again), expected);
    assert_eq!((again.rewards, again.tools), (read.rewards, read.tools));
}

#[test]
fn rewards_are_of_the_last_turn_or_of_each() {
    let rewards = |change: &dyn Fn(&mut Value)| {
        let dump = dump("a.jsonl", &line(change))?;
        Ok::<Vec<f64>, DumpError>(only(&dump).turns.iter().map(|turn| turn.reward).collect())
    };
    assert_eq!(rewards(&|value| value["reward"] = json!([0.25, 0.5])).unwrap(), [0.25, 0.5]);
    assert_eq!(rewards(&|value| value["turn_rewards"] = json!([0.25, 0.75])).unwrap(), [0.25, 0.75]);
    let of_message = |value: &mut Value| {
        value["reward"] = Value::Null;
        value["messages"][2]["reward"] = json!(-1.0);
    };
    assert_eq!(rewards(&of_message).unwrap(), [-1.0, 0.0]);
    for (change, reason) in [
        (
            (|value| value["reward"] = json!([1.0])) as fn(&mut Value),
            "`reward` has 1 entries and there are 2 assistant",
        ),
        (
            |value| value["turn_rewards"] = json!([1.0, 1.0]),
            "`reward` is 1 and the sum of `turn_rewards` is 2",
        ),
        (|value| value["messages"][1]["reward"] = json!(1.0), "`messages[1].reward` is set"),
        (|value| value["reward"] = json!("high"), "`reward` is \"high\"; it must be a number"),
    ] {
        let error = rewards(&change).unwrap_err().to_string();
        assert!(error.contains("a.jsonl: line 1: ") && error.contains(reason), "{error}");
    }
    let without = dump("a.jsonl", &line(|value| value["reward"] = Value::Null)).unwrap();
    let error = without.require_rewards().unwrap_err().to_string();
    assert!(error.contains("line 1: `reward` is missing"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_its_key() {
    for (change, reason) in [
        (
            (|value| value["messages"] = json!("hi")) as fn(&mut Value),
            "`messages` is \"hi\"; it must be a list",
        ),
        (|value| value["messages"] = json!([]), "it has no assistant message"),
        (|value| value["messages"][1] = json!(3), "`messages[1]` is 3; it must be an object"),
        (
            |value| value["messages"][1]["role"] = json!("human"),
            "`messages[1].role` is \"human\"; it must be system",
        ),
        (|value| value["messages"][1]["role"] = Value::Null, "`messages[1].role` is missing"),
        (|value| value["messages"][1]["content"] = json!(3), "`messages[1].content` is 3"),
        (
            |value| value["messages"][2]["tool_calls"][1] = json!({}),
            "`messages[2].tool_calls[1].name` is missing",
        ),
        (
            |value| value["messages"][1]["tool_calls"] = json!([{"name": "f"}]),
            "only assistant messages make calls",
        ),
        (|value| value["tools"] = json!("weather"), "`tools` is \"weather\"; it must be a list of tools"),
        (|value| value["tools"][0] = json!({"name": ""}), "`tools[0]`: a tool: `name` is empty"),
        (|value| value["group"] = json!([1]), "`group` is [1]; it must be a text or a number"),
    ] {
        let error = dump("a.jsonl", &format!("{}\n{}", line(|_| {}), line(change))).unwrap_err().to_string();
        assert!(error.contains("a.jsonl: line 2: ") && error.contains(reason), "{error}");
    }
    let error = dump("a.jsonl", &line(|_| {}).replace("1.0", "NaN")).unwrap_err().to_string();
    assert!(error.contains("`reward` is NaN"), "{error}");
}

#[test]
fn conversations_without_a_group_are_compared_by_their_beginnings() {
    let other = line(|value| {
        value["group"] = Value::Null;
        value["messages"][5]["content"] = json!("Rain.");
    });
    let same = line(|value| value["group"] = Value::Null);
    let third = line(|value| {
        value["group"] = Value::Null;
        value["messages"][0]["content"] = json!("Be kind.");
    });
    let dump = dump("a.jsonl", &[other, same, third].join("\n")).unwrap();
    let sizes: Vec<usize> =
        dump.batches[0].batch.groups.iter().map(|group| group.trajectories.len()).collect();
    assert_eq!(sizes, [2, 1]);
}

#[test]
fn lists_and_objects_over_several_lines_are_read_with_their_lines() {
    let list = format!("[\n{WEATHER},\n{WEATHER}]");
    let lines: Vec<usize> =
        dump("a.json", &list).unwrap().batches[0].origins[0].iter().map(|one| one.line).collect();
    assert_eq!(lines, [2, 13]);
    assert_eq!(only(&dump("a.json", WEATHER).unwrap()).turns.len(), 2);
    let error = dump("a.json", &list.replacen("\"tool\"", "\"tol\"", 1)).unwrap_err().to_string();
    assert!(error.contains("a.json: line 2: `messages[3].role` is \"tol\""), "{error}");
    let error = dump("a.json", &format!("{list}]")).unwrap_err().to_string();
    assert!(error.contains("a.json: line 23: trailing characters"), "{error}");
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    for text in [
        format!(r#"{{"messages": {}{}, "reward": 1}}"#, "[".repeat(100_000), "]".repeat(100_000)),
        format!(
            r#"{{"messages": [{{"role": "user", "content": {}{}}}]}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        ),
        "[".repeat(1_000_000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep.json");
        std::fs::write(&path, text).unwrap();
        let error = read_conversations(
            &path,
            &ReadOptions { format: Some(Format::Messages), ..ReadOptions::default() },
        );
        assert!(error.unwrap_err().to_string().contains("deep.json"));
    }
}

#[test]
fn sharegpt_has_other_names() {
    let text = json!({"conversations": [
        {"from": "human", "value": "Weather?"},
        {"from": "function_call", "value": "{\"name\": \"weather\", \"arguments\": {\"to\": \"Oslo\"}}"},
        {"from": "observation", "value": "rain"},
        {"from": "gpt", "value": "It rains."}],
        "system": "Be brief.", "tools": "[{\"name\": \"weather\"}]", "reward": [0, 1]})
    .to_string();
    let dump = dump("a.jsonl", &text).unwrap();
    let trajectory = only(&dump);
    assert_eq!((dump.format, trajectory.tools.len()), (Format::ShareGpt, 1));
    let [first, second] = trajectory.turns.as_slice() else { panic!("{trajectory:?}") };
    assert_eq!(
        (first.observation.as_str(), first.action.as_str()),
        ("Be brief.\nWeather?", "weather({\"to\":\"Oslo\"})")
    );
    assert_eq!(second.parts, [Part::ToolResult { call_id: first.calls[0].id.clone(), text: "rain".into() }]);
    assert_eq!((second.action.as_str(), second.reward), ("It rains.", 1.0));
    for (from, to, reason) in [
        ("\"gpt\"", "\"robot\"", "`conversations[3].from` is \"robot\"; it must be human, gpt"),
        ("\\\"name\\\": \\\"weather\\\", ", "", "`conversations[1].value` is "),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        let error = self::dump("a.jsonl", &changed).unwrap_err().to_string();
        assert!(error.contains("a.jsonl: line 1: ") && error.contains(reason), "{error}");
    }
}
