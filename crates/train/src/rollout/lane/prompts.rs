//! Prompts of later turns, summaries, and recorded tokens.

use turnwise_core::{
    Completion, FinishReason, Sampler, StopReason, TokenSequence, Trajectory, Turn, TurnKind, TurnSpan,
};
use turnwise_env::prompt::{Compacted, PromptKind};
use turnwise_text::TextError;

use super::{Lane, Live};
use crate::TrainError;
use crate::config::Layout;
use crate::rollout::conversations::{add_response, tokens_until};
use crate::rollout::observations::Results;
use crate::rollout::prompting::view;

impl<S: Sampler> Lane<'_, S> {
    pub(super) fn next_prompt(&self, live: &mut Live, finish: FinishReason) -> Result<Vec<u32>, TextError> {
        let context = self.context;
        if let Some(asked) = &mut live.observation.conversation {
            let turn = asked.continues.map(|continued| continued.turn);
            let before = turn.and_then(|turn| tokens_until(&live.trajectory.sequences, turn));
            if before.is_some() {
                if let Ok(prompt) = self.prompter().request(asked, before) {
                    return Ok(prompt);
                }
                // The template may still render all messages from the start.
                asked.continues = None;
            }
            return self.prompter().request(asked, None);
        }
        let task = &live.trajectory.task;
        let turn = live.trajectory.actions();
        let words = live.observation.text();
        let seen = (&*words, live.observation.admissible.as_slice());
        match context.layout {
            Layout::Windowed => {
                let view = view(task, seen, &live.history, turn, context.history);
                let preamble = &self.jobs[live.job].preamble;
                let text = context.template.render(&view, PromptKind::Full);
                let (image, tools) = (live.observation.image(), &live.trajectory.tools);
                self.prompter().start_seeing(&format!("{preamble}{text}"), image, tools)
            }
            Layout::Concatenated => self.grown(live, finish, TurnKind::Action),
        }
    }

    fn grown(&self, live: &Live, finish: FinishReason, kind: TurnKind) -> Result<Vec<u32>, TextError> {
        let trajectory = &live.trajectory;
        let mut tokens =
            trajectory.sequences.last().map(|sequence| sequence.tokens.clone()).unwrap_or_default();
        let words = live.observation.text();
        let seen = (&*words, live.observation.admissible.as_slice());
        let view = view(&trajectory.task, seen, &[], trajectory.actions(), 0);
        let calls = trajectory.turns.last().map_or(&[][..], |turn| &turn.calls);
        let results = Results::of(&live.observation, calls);
        let last = (tokens.last().copied(), finish);
        tokens.extend(self.prompter().between_responses(&view, &trajectory.tools, &results, last, kind)?);
        Ok(tokens)
    }

    /// Returns `prompt`, or the prompt for a summary ([`super::super::compaction`]) if `prompt` is
    /// too long.
    pub(super) fn or_compaction(
        &self,
        live: &mut Live,
        prompt: Vec<u32>,
        finish: FinishReason,
    ) -> Result<Vec<u32>, TextError> {
        let context = self.context;
        let grows = context.layout == Layout::Concatenated && live.observation.conversation.is_none();
        if !grows || context.compaction.is_none_or(|compaction| prompt.len() <= compaction.after) {
            return Ok(prompt);
        }
        live.asks = TurnKind::Compaction;
        self.grown(live, finish, TurnKind::Compaction)
    }

    pub(super) fn summarized(
        &mut self,
        mut live: Live,
        completion: Completion,
    ) -> Result<Option<Trajectory>, TrainError> {
        let prompter = self.prompter();
        let response = prompter.response(&completion.tokens);
        let summary = prompter.summary(&prompter.whole(&response, false));
        record_tokens(&mut live, &completion, Layout::Concatenated);
        let Live { job, trajectory, observation, .. } = &mut live;
        let words = observation.text();
        let seen = (&*words, observation.admissible.as_slice());
        let view = view(&trajectory.task, seen, &[], trajectory.actions(), 0);
        let first = trajectory.turns.first().map_or("", |turn| turn.observation.as_str());
        let compacted = Compacted { first_observation: first, summary: &summary };
        let prompt = prompter.compacted(&view, &compacted, &self.jobs[*job].preamble, &trajectory.tools);
        let turn = Turn {
            kind: TurnKind::Compaction,
            observation: self.context.template.render_summarize(&view, true).trim().to_owned(),
            state_key: Some(observation.state_key.clone().unwrap_or_else(|| words.to_string())),
            response,
            valid: completion.finish == FinishReason::Stop && !summary.is_empty(),
            action: summary,
            progress: trajectory.turns.last().and_then(|turn| turn.progress),
            response_ids: completion.tokens,
            old_logprobs: completion.logprobs,
            entropies: completion.entropies,
            weights_version: completion.weights_version,
            ..Turn::default()
        };
        trajectory.turns.push(turn);
        live.asks = TurnKind::Action;
        match prompt {
            Ok(prompt) => live.prompt = prompt,
            Err(error) => return Ok(Some(self.end(live, StopReason::SampleError(error.to_string())))),
        }
        self.ask(live)
    }
}

/// Records the tokens exactly as sampled; the text is never tokenized again, because that could
/// give other tokens.
pub(super) fn record_tokens(live: &mut Live, completion: &Completion, layout: Layout) {
    let (turn, begins) = (live.trajectory.turns.len(), live.begins_sequence());
    let mut tokens = std::mem::take(&mut live.prompt);
    let start = tokens.len();
    tokens.extend(&completion.tokens);
    let span = TurnSpan { turn, start, end: tokens.len() };
    if let Some(asked) = live.observation.conversation.as_deref() {
        return add_response(&mut live.trajectory.sequences, (tokens, span), asked, layout);
    }
    match (layout, live.trajectory.sequences.last_mut()) {
        (Layout::Concatenated, Some(sequence)) if !begins => {
            sequence.tokens = tokens;
            sequence.spans.push(span);
        }
        _ => live.trajectory.sequences.push(TokenSequence { tokens, spans: vec![span] }),
    }
}
