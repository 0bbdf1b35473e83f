//! Exports ATIF: one step per message, with the results of its calls as observation.

use serde_json::{Map, Value, json};

use super::Exported;
use crate::{ChatCall, ChatMessage};

pub(super) fn id(one: &Exported) -> String {
    let of = &one.conversation;
    // Group names may be invalid file names.
    let plain = |letter: char| if letter.is_alphanumeric() || "-_".contains(letter) { letter } else { '-' };
    let group: String = one.group().chars().map(plain).take(60).collect();
    format!("step-{:06}-group-{group}-sample-{}", of.step, of.sample.unwrap_or(0))
}

pub(super) fn trajectory(one: &Exported) -> String {
    let of = &one.conversation;
    let steps = steps(&of.messages);
    let rest = json!({
        "session_id": format!("step-{:06}", of.step),
        "trajectory_id": id(one),
        "final_metrics": {"total_steps": steps.len()},
        "extra": one.header(),
        "steps": steps,
    });
    // As text, so schema keys keep their order.
    let tools = one.tools().map_or_else(String::new, |tools| format!(r#","tool_definitions":{tools}"#));
    let agent = format!(r#"{{"name":"turnwise","version":"{}"{tools}}}"#, env!("CARGO_PKG_VERSION"));
    let rest = rest.to_string();
    format!(r#"{{"schema_version":"ATIF-v1.7","agent":{agent},{}"#, rest.strip_prefix('{').unwrap_or(&rest))
}

fn steps(messages: &[ChatMessage]) -> Vec<Value> {
    let mut steps: Vec<Map<String, Value>> = Vec::new();
    let mut calls: Vec<String> = Vec::new();
    for message in messages {
        let in_agent = steps.last().is_some_and(|step| step["source"] == "agent");
        if message.role == "tool" && in_agent {
            let mut result = json!({"content": message.content});
            if let Some(id) = message.call_id.as_ref().filter(|id| calls.contains(id)) {
                result["source_call_id"] = json!(id);
            }
            if let Some(step) = steps.last_mut() {
                let observation = step.entry("observation").or_insert_with(|| json!({"results": []}));
                if let Some(results) = observation["results"].as_array_mut() {
                    results.push(result);
                }
            }
            continue;
        }
        let source = match message.role.as_str() {
            "assistant" => "agent",
            "system" | "developer" => "system",
            _ => "user",
        };
        let mut step = Map::new();
        step.insert("step_id".into(), json!(steps.len() + 1));
        step.insert("source".into(), json!(source));
        step.insert("message".into(), json!(message.content));
        calls = (0..message.calls.len())
            .map(|index| call_id(&message.calls[index], steps.len(), index))
            .collect();
        if source == "agent" {
            said(&mut step, message, &calls);
        }
        steps.push(step);
    }
    steps.into_iter().map(Value::Object).collect()
}

fn said(step: &mut Map<String, Value>, message: &ChatMessage, ids: &[String]) {
    if !message.sampled {
        step.insert("is_copied_context".into(), json!(true));
    }
    if let Some(reasoning) = &message.reasoning {
        step.insert("reasoning_content".into(), json!(reasoning));
    }
    if !message.calls.is_empty() {
        let calls = message.calls.iter().zip(ids).map(|(call, id)| {
            let object = serde_json::from_str::<Map<String, Value>>(&call.arguments).ok();
            let mut json = json!({"tool_call_id": id, "function_name": call.name, "arguments": object.clone().unwrap_or_default()});
            if object.is_none() {
                // ATIF's arguments must be an object.
                json["extra"] = json!({"arguments": call.arguments_text()});
            }
            json
        });
        step.insert("tool_calls".into(), calls.collect());
    }
    if !message.ids.is_empty() {
        let mut metrics =
            json!({"completion_tokens": message.ids.len(), "completion_token_ids": message.ids});
        if message.logprobs.len() == message.ids.len()
            && message.logprobs.iter().all(|number| number.is_finite())
        {
            metrics["logprobs"] = json!(message.logprobs);
        }
        step.insert("metrics".into(), metrics);
    }
}

fn call_id(call: &ChatCall, step: usize, index: usize) -> String {
    if call.id.is_empty() { format!("call_{step}_{index}") } else { call.id.clone() }
}
