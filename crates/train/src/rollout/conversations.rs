//! Converts agents' requests to tokens, and responses to replies. A request that continues an
//! earlier turn extends the tokens of that turn.

use std::borrow::Cow;

use turnwise_core::{
    Action, AgentTurn, ChatMessage, Conversation, FinishReason, MessageCall, Reply, TokenSequence, Tool,
    ToolCall, TurnSpan,
};
use turnwise_env::parse::{ParsedAction, Style};
use turnwise_env::prompt::tool_list;
use turnwise_text::TextError;
use turnwise_text::chat::{self, Answered, Call, ChatFormat, Message};

use crate::config::Layout;

use super::prompting::{Prompter, template_tools};

pub(super) fn tokens_until(sequences: &[TokenSequence], turn: usize) -> Option<&[u32]> {
    sequences.iter().find_map(|sequence| {
        let span = sequence.spans.iter().find(|span| span.turn == turn)?;
        Some(&sequence.tokens[..span.end])
    })
}

/// Adds a response to the sequence that it continues, or starts a new sequence with it. A sequence
/// that branches off an earlier turn contains that turn's tokens but not its span, so each turn is
/// trained on only once.
pub(super) fn add_response(
    sequences: &mut Vec<TokenSequence>,
    (tokens, span): (Vec<u32>, TurnSpan),
    asked: &Conversation,
    layout: Layout,
) {
    let before = asked.continues.map(|earlier| earlier.turn);
    let goes_on = |sequence: &&mut TokenSequence| {
        let last = sequence.spans.last().map(|span| span.turn);
        layout == Layout::Concatenated && last.is_some() && last == before
    };
    match sequences.iter_mut().find(goes_on) {
        Some(sequence) => {
            sequence.tokens = tokens;
            sequence.spans.push(span);
        }
        None => sequences.push(TokenSequence { tokens, spans: vec![span] }),
    }
}

pub(super) fn calls_of(action: &Action) -> Vec<ToolCall> {
    let read = |call: &MessageCall| {
        let arguments =
            serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into());
        ToolCall { id: call.id.clone(), name: call.name.clone(), arguments }
    };
    match action {
        Action::Reply(reply) => reply.calls.iter().map(read).collect(),
        action => action.call().cloned().into_iter().collect(),
    }
}

pub(super) fn agent_turn(asked: &Conversation, tools: &[Tool]) -> AgentTurn {
    AgentTurn {
        name: asked.agent.clone(),
        messages: asked.messages.len(),
        continues: asked.continues.map(|earlier| earlier.turn),
        rewards: Vec::new(),
        tools: (asked.tools != tools).then(|| asked.tools.clone()),
    }
}

impl Prompter<'_> {
    /// Returns the tokens of a request's prompt. `before` has the tokens of the turn that the
    /// request continues.
    pub(crate) fn request(
        &self,
        asked: &Conversation,
        before: Option<&[u32]>,
    ) -> Result<Vec<u32>, TextError> {
        let chat = self.chat.ok_or_else(|| {
            TextError::Chat(
                "an agent's messages need a model with a chat template, and prompt.chat = \"auto\" or \"on\""
                    .into(),
            )
        })?;
        let shows_tools = self.shows_tools(chat, asked);
        let tools = if shows_tools {
            self.check_calls(chat)?;
            template_tools(&asked.tools)?
        } else {
            Vec::new()
        };
        if let (Some(before), Some(continued)) = (before, asked.continues) {
            let (earlier, following) = asked.messages.split_at(continued.messages);
            let reply = earlier.last().filter(|_| shows_tools);
            let calls: Vec<Call<'_>> =
                reply.map_or(&[][..], |reply| &reply.calls).iter().map(written).collect();
            let following = self.messages(chat, asked, following, shows_tools)?;
            let last = before.last().copied();
            let between = chat.next_messages(self.tokenizer, &tools, &calls, following, last)?;
            return Ok([before, &between].concat());
        }
        let own_system = asked.messages.first().is_some_and(|message| message.role == "system");
        let messages = self.messages(chat, asked, &asked.messages, shows_tools)?;
        chat.conversation(self.tokenizer, &tools, &messages, own_system)
    }

    fn shows_tools(&self, chat: &ChatFormat, asked: &Conversation) -> bool {
        self.template.rules().style == Style::Call && !asked.tools.is_empty() && chat.takes_tools()
    }

    /// Converts messages for the chat template. Tools and calls that the template does not support
    /// become text.
    fn messages(
        &self,
        chat: &ChatFormat,
        asked: &Conversation,
        messages: &[ChatMessage],
        shows_tools: bool,
    ) -> Result<Vec<Message>, TextError> {
        let whole = messages.len() == asked.messages.len();
        let mut list = (whole && !shows_tools && !asked.tools.is_empty()).then(|| tool_list(&asked.tools));
        let mut made = Vec::with_capacity(messages.len());
        for message in messages {
            let called: Vec<Call<'_>> = message.calls.iter().map(written).collect();
            let mut content = Cow::Borrowed(message.content.as_str());
            if let Some(list) = list.take_if(|_| matches!(message.role.as_str(), "system" | "user")) {
                content = Cow::Owned(if message.role == "system" {
                    format!("{content}\n\n{list}")
                } else {
                    format!("{list}\n{content}")
                });
            }
            made.push(match message.role.as_str() {
                "assistant" if !called.is_empty() && chat.takes_tools() => {
                    Message::calling(&content, &called)?
                }
                "assistant" if !called.is_empty() => {
                    let calls = called.iter().map(|call| self.call_as_words(call));
                    let words: Vec<String> = std::iter::once(content.into_owned())
                        .filter(|text| !text.is_empty())
                        .chain(calls)
                        .collect();
                    Message::assistant(&words.join("\n"))
                }
                "tool" if chat.takes_tools() => {
                    let id = message.call_id.as_deref().unwrap_or_default();
                    let all = asked.messages.iter().flat_map(|message| &message.calls);
                    let name = all.filter(|call| call.id == id).map(|call| call.name.as_str()).next_back();
                    Message::result(&Answered { id, name: name.unwrap_or_default(), text: &content })
                }
                "tool" => Message::user(&content),
                role => Message::new(role, &content),
            });
        }
        Ok(made)
    }

    fn call_as_words(&self, call: &Call<'_>) -> String {
        let [open, close] = &self.template.rules().action_tags;
        let name = serde_json::Value::from(call.name);
        format!("{open}\n{{\"name\": {name}, \"arguments\": {}}}\n{close}", call.arguments)
    }

    /// Returns the reply, and whether the response is well formed. `turn` is used to number the
    /// calls.
    pub(super) fn reply(
        &self,
        asked: &Conversation,
        parsed: &ParsedAction,
        (text, finish): (&str, FinishReason),
        turn: usize,
    ) -> (Reply, bool) {
        let reads_calls = self.template.rules().style == Style::Call && !asked.tools.is_empty();
        let calls = if reads_calls { parsed.calls.as_slice() } else { &[] };
        let open = self.template.rules().action_tags[0].as_str();
        let stopped = asked.stop.iter().filter_map(|stop| text.find(stop.as_str())).min();
        let text = &text[..stopped.unwrap_or(text.len())];
        let content = match calls {
            [] => text,
            _ => text.split_once(open).map_or("", |(before, _)| before),
        };
        let numbered = |(number, call): (usize, &ToolCall)| MessageCall {
            id: format!("call_{turn}_{number}"),
            name: call.name.clone(),
            arguments: call.arguments.to_string(),
        };
        let calls: Vec<MessageCall> = calls.iter().enumerate().map(numbered).collect();
        let valid = if reads_calls { parsed.valid } else { !text.trim().is_empty() };
        let reply =
            Reply { content: content.trim().to_owned(), calls, finish, prompt_tokens: 0, response_tokens: 0 };
        (reply, valid)
    }
}

fn written(call: &MessageCall) -> chat::Call<'_> {
    chat::Call { id: &call.id, name: &call.name, arguments: &call.arguments }
}
