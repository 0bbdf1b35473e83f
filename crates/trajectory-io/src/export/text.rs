//! Exports verl's rollout dump as text with template headings.

use serde_json::{Value, json};

use super::Exported;
use crate::ChatMessage;

/// Returns a sample in the format of verl's `rollout_data_dir`. If the sample's group has no name,
/// its `uid` is `sample-INDEX`.
pub(super) fn sample(one: &Exported, index: usize) -> Value {
    let (before, after) = one.conversation.split_prompt();
    let mut input = String::new();
    for message in before {
        input.push_str(&format!("{}\n{}\n", message.role, words(message)));
    }
    input.push_str("assistant\n");
    let mut output = String::new();
    for (place, message) in after.iter().enumerate() {
        if place > 0 {
            output.push_str(&format!("\n{}\n", message.role));
        }
        output.push_str(&words(message));
    }
    let group = one.group();
    let uid = if group.is_empty() { format!("sample-{index}") } else { group };
    let mut line = json!({"input": input, "output": output, "score": one.reward(), "step": one.conversation.step, "uid": uid});
    if let Some(success) = one.conversation.success {
        line["acc"] = json!(success);
    }
    line
}

fn words(message: &ChatMessage) -> String {
    let mut text = String::new();
    if let Some(reasoning) = &message.reasoning {
        text.push_str(&format!("<think>\n{reasoning}\n</think>\n\n"));
    }
    text.push_str(&message.content);
    for call in &message.calls {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&call.to_tagged());
    }
    text
}
