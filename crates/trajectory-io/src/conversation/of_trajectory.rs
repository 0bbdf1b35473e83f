//! Converts trajectories to messages.

use turnwise_core::{Part, Reasoning, Trajectory, Turn};

use super::{CLOSE, ChatCall, ChatMessage, Conversation, OPEN};
use crate::chat;

impl Conversation {
    /// Converts a trajectory. The conversation gets the environment's own rewards. A request for a
    /// summary ([`turnwise_core::TurnKind::Compaction`]) becomes a user message, and the summary an
    /// assistant message.
    pub fn of(trajectory: &Trajectory) -> Self {
        let mut messages = Vec::new();
        let mut before: Option<&Turn> = None;
        for (index, turn) in trajectory.turns.iter().enumerate() {
            if turn.is_compaction() && before.is_some_and(|before| !before.calls.is_empty()) {
                // Results that come after a summary must still follow their calls.
                let next = trajectory.turns.get(index + 1);
                let (parts, text) = next.map_or((&[][..], ""), |next| (&next.parts[..], &next.observation));
                observed(&mut messages, parts, text, before);
            }
            if turn.is_compaction() || before.is_some_and(Turn::is_compaction) {
                messages.push(ChatMessage::new("user", turn.observation.as_str()));
            } else {
                observed(&mut messages, &turn.parts, &turn.observation, before);
            }
            messages.push(said(turn));
            before = Some(turn);
        }
        if !trajectory.final_observation.is_empty() {
            observed(&mut messages, &[], &trajectory.final_observation, before);
        }
        let task = &trajectory.task;
        Self {
            line: 0,
            messages,
            tools: trajectory.tools.clone(),
            rewards: Some(trajectory.turns.iter().map(|turn| turn.reward).collect()),
            group: Some(trajectory.group.into()),
            sample: Some(trajectory.sample),
            step: trajectory.step,
            task: (task != &turnwise_core::Task::default()).then(|| task.clone()),
            success: Some(trajectory.success),
        }
    }
}

fn observed(messages: &mut Vec<ChatMessage>, parts: &[Part], text: &str, before: Option<&Turn>) {
    let calls = before.map(|turn| turn.calls.as_slice()).unwrap_or_default();
    let result = |id: &str, text: &str| {
        let name = calls.iter().find(|call| call.id == id).map(|call| call.name.clone());
        ChatMessage { call_id: Some(id.to_owned()), name, ..ChatMessage::new("tool", text) }
    };
    if parts.iter().any(|part| part.text().is_some()) {
        messages.extend(parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(ChatMessage::new("user", text.as_str())),
            Part::ToolResult { call_id, text } => Some(result(call_id, text)),
            Part::Message { role, text } => Some(ChatMessage {
                // For example a copied assistant message.
                sampled: false,
                trained: false,
                ..ChatMessage::new(role, text.as_str())
            }),
            Part::Image(_) => None,
        }));
        return;
    }
    match calls {
        [call] => messages.push(result(&call.id, text)),
        _ if text.is_empty() && before.is_some() => {}
        _ => messages.push(ChatMessage::new("user", text)),
    }
}

fn said(turn: &Turn) -> ChatMessage {
    let text = if turn.response.is_empty() && turn.calls.is_empty() { &turn.action } else { &turn.response };
    let (reasoning, answer) = match Reasoning::of_continued(text) {
        Reasoning::Closed(reasoning, answer) => (Some(reasoning.trim().to_owned()), answer.trim_start()),
        Reasoning::None(answer) => (None, answer),
        Reasoning::Unclosed(_) => (None, text.as_str()),
    };
    let mut content = answer.to_owned();
    if !turn.calls.is_empty() {
        content = without_calls(answer, &chat::words_of(&turn.calls));
    }
    let calls = turn.calls.iter().map(|call| ChatCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.to_string(),
    });
    ChatMessage {
        reasoning: reasoning.filter(|text| !text.is_empty()),
        calls: calls.collect(),
        ids: turn.response_ids.clone(),
        logprobs: turn.old_logprobs.clone(),
        ..ChatMessage::new("assistant", content)
    }
}

/// Removes the tool calls from a response. `words` is the text of these calls.
fn without_calls(answer: &str, words: &str) -> String {
    if let Some(rest) = answer.strip_suffix(words) {
        return rest.strip_suffix('\n').unwrap_or(rest).to_owned();
    }
    if !answer.contains(OPEN) {
        // Without tags, templates write only the calls (Llama's JSON).
        return String::new();
    }
    let mut content = String::new();
    let mut rest = answer;
    while let Some((before, after)) = rest.split_once(OPEN) {
        content.push_str(before);
        rest = after.split_once(CLOSE).map_or("", |(_, rest)| rest);
    }
    content.push_str(rest);
    content.trim().to_owned()
}
