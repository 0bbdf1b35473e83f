//! Responses after prompts that hide the goal, the history or both.

use turnwise_core::{Batch, ContextMask, PerTurn, TokenSequence, Trajectory, Turn, TurnSpan};
use turnwise_env::prompt::{PromptKind, PromptView};
use turnwise_text::TextError;

use crate::config::Layout;
use crate::rollout::prompting::Prompter;

/// Writer of masked prompts.
pub struct MaskedPrompts<'a> {
    /// The run's prompts as tokens.
    pub prompter: Prompter<'a>,
    /// The run's layout.
    pub layout: Layout,
    /// Earlier turns that a windowed prompt shows.
    pub history: usize,
    /// Part of the context that is hidden.
    pub mask: ContextMask,
}

impl MaskedPrompts<'_> {
    /// Returns the response of one turn after the prompt with the masked part hidden.
    ///
    /// In a concatenated sequence the history is everything before the turn, so a mask that hides the
    /// goal alone shows all of it, from the latest summary on; the prompt has the windowed form, which alone can leave parts out. A policy of
    /// the concatenated layout has never seen that form ([`crate::config::Config::warnings`]).
    ///
    /// # Errors
    /// Fails like [`Prompter::start`] for the masked prompt.
    pub fn masked(&self, trajectory: &Trajectory, turn: usize) -> Result<TokenSequence, TextError> {
        let data = &trajectory.turns[turn];
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
        let mut tokens = self.prompter.start(&text, &trajectory.tools)?;
        let start = tokens.len();
        tokens.extend_from_slice(&data.response_ids);
        let span = TurnSpan { turn, start, end: tokens.len() };
        Ok(TokenSequence { tokens, spans: vec![span] })
    }

    /// Returns the masked sequence of each outlier turn with tokens, `[trajectory][turn]` in batch
    /// order. Turns whose masked prompt is empty or does not fit the model are left out.
    ///
    /// # Errors
    /// Returns the first of [`MaskedPrompts::masked`] in batch order.
    pub fn of_batch(
        &self,
        batch: &Batch,
        outliers: &PerTurn<bool>,
        max_context: usize,
    ) -> Result<Vec<Vec<(usize, TokenSequence)>>, TextError> {
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
                            masked.spans[0].start > 0 && masked.tokens.len() <= max_context
                        })
                    })
                    .collect()
            })
            .collect()
    }
}
