//! Responses after prompts that hide the goal, the history or both.

use turnwise_core::{
    Batch, ChatMessage, ContextMask, Conversation, MessageCall, Part, PerTurn, TokenSequence, ToolCall,
    Trajectory, Turn, TurnSpan,
};
use turnwise_env::prompt::{PromptKind, PromptView};
use turnwise_text::TextError;

use crate::config::Layout;
use crate::rollout::prompting::Prompter;

/// Masked-context sequences of outlier turns, `[trajectory][outlier turn]` in batch order, each with
/// its turn.
pub type MaskedTurns = Vec<Vec<(usize, TokenSequence)>>;

/// Creates masked prompts.
pub struct MaskedPrompts<'a> {
    /// Encodes prompts.
    pub prompter: Prompter<'a>,
    /// The run's layout.
    pub layout: Layout,
    /// Earlier turns in a windowed prompt.
    pub history: usize,
    /// Hidden part of the context.
    pub mask: ContextMask,
}

fn after(prompt: Vec<u32>, turn: usize, response: &[u32]) -> TokenSequence {
    let (start, mut tokens) = (prompt.len(), prompt);
    tokens.extend_from_slice(response);
    let span = TurnSpan { turn, start, end: tokens.len() };
    TokenSequence { tokens, spans: vec![span] }
}

impl MaskedPrompts<'_> {
    /// Returns a turn's response after its masked prompt. The prompt has the windowed form in both
    /// layouts, because only this form can omit the goal or the history. The history of a
    /// concatenated sequence is everything since the last summary.
    ///
    /// An agent's request keeps its system messages, newest messages and tools. The request's goal
    /// is the messages before the first assistant message, and its history is the messages between
    /// the goal and the newest messages.
    ///
    /// # Errors
    /// Fails like [`Prompter::start_seeing`].
    pub fn masked(&self, trajectory: &Trajectory, turn: usize) -> Result<TokenSequence, TextError> {
        let data = &trajectory.turns[turn];
        if data.agent.is_some() {
            let asked = masked_request(trajectory, turn, self.mask);
            return Ok(after(self.prompter.request(&asked, None)?, turn, &data.response_ids));
        }
        let window = match self.layout {
            Layout::Windowed => self.history,
            Layout::Concatenated => {
                let before = &trajectory.turns[..turn];
                turn - before.iter().rposition(Turn::is_compaction).unwrap_or(0)
            }
        };
        let history: Vec<(String, String)> = trajectory.turns[turn - window.min(turn)..turn]
            .iter()
            .map(|turn| (turn.observation.clone(), turn.action.clone()))
            .collect();
        let view = PromptView {
            goal: &trajectory.task.goal,
            history: &history,
            window,
            observation: &data.observation,
            admissible: &data.admissible,
            step: trajectory.turns[..turn].iter().filter(|turn| !turn.is_compaction()).count(),
        };
        let text = self.prompter.template.render(&view, PromptKind::Masked(self.mask));
        // The current observation belongs to neither goal nor history.
        let image = data.parts.iter().find_map(Part::image);
        let prompt = self.prompter.start_seeing(&text, image, &trajectory.tools)?;
        Ok(after(prompt, turn, &data.response_ids))
    }

    /// Returns the masked sequence of each outlier turn, `[trajectory][turn]` in batch order.
    /// Leaves out empty prompts and sequences that do not fit the model.
    ///
    /// # Errors
    /// Returns the first error of [`MaskedPrompts::masked`] in batch order.
    pub fn of_batch(
        &self,
        batch: &Batch,
        outliers: &PerTurn<bool>,
        max_model_len: usize,
    ) -> Result<MaskedTurns, TextError> {
        let masks = outliers.rows();
        batch
            .trajectories()
            .zip(masks)
            .map(|(trajectory, mask)| {
                (0..trajectory.turns.len())
                    .filter(|&turn| mask[turn] && !trajectory.turns[turn].response_ids.is_empty())
                    .map(|turn| Ok((turn, self.masked(trajectory, turn)?)))
                    .filter(|masked| {
                        masked.as_ref().map_or(true, |(_, masked): &(usize, TokenSequence)| {
                            masked.spans[0].start > 0 && masked.tokens.len() <= max_model_len
                        })
                    })
                    .collect()
            })
            .collect()
    }
}

fn masked_request(trajectory: &Trajectory, turn: usize, mask: ContextMask) -> Conversation {
    let mut messages = messages_until(trajectory, turn);
    let system = messages.iter().take_while(|message| message.role == "system").count();
    let assistant = |message: &ChatMessage| message.role == "assistant";
    if let (Some(first), Some(last)) =
        (messages.iter().position(assistant), messages.iter().rposition(assistant))
    {
        match mask {
            ContextMask::GoalAndHistory => drop(messages.drain(system..=last)),
            ContextMask::Goal => drop(messages.drain(system..first)),
            ContextMask::History => drop(messages.drain(first..=last)),
        }
    }
    let agent = trajectory.turns[turn].agent.as_ref();
    let tools = agent.and_then(|agent| agent.tools.as_ref()).unwrap_or(&trajectory.tools);
    Conversation { messages, tools: tools.clone(), ..Conversation::default() }
}

/// Returns the messages up to a turn. If an agent's turn continues earlier turns, their messages
/// come first.
fn messages_until(trajectory: &Trajectory, turn: usize) -> Vec<ChatMessage> {
    let continues = |turn: usize| trajectory.turns[turn].agent.as_ref().and_then(|agent| agent.continues);
    // Files may have cyclic turns.
    let chain: Vec<usize> =
        std::iter::successors(Some(turn), |&turn| continues(turn).filter(|&earlier| earlier < turn))
            .collect();
    let mut messages = Vec::new();
    for (place, &index) in chain.iter().enumerate().rev() {
        let data = &trajectory.turns[index];
        messages.extend(data.parts.iter().filter_map(message));
        if data.parts.is_empty() {
            messages.push(ChatMessage::new("user", data.observation.as_str()));
        }
        if place > 0 {
            messages.push(reply(data));
        }
    }
    messages
}

fn message(part: &Part) -> Option<ChatMessage> {
    Some(match part {
        Part::Text { text } => ChatMessage::new("user", text.as_str()),
        Part::Message { role, text } => ChatMessage::new(role.as_str(), text.as_str()),
        Part::ToolResult { call_id, text } => {
            ChatMessage { call_id: Some(call_id.clone()), ..ChatMessage::new("tool", text.as_str()) }
        }
        Part::Image(_) => return None,
    })
}

fn reply(turn: &Turn) -> ChatMessage {
    let call = |call: &ToolCall| MessageCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.to_string(),
    };
    let words = if turn.calls.is_empty() { turn.action.as_str() } else { "" };
    ChatMessage { calls: turn.calls.iter().map(call).collect(), ..ChatMessage::new("assistant", words) }
}
