//! SFT before RL, on demonstrations or your own conversations ([`conversations`]).

pub mod conversations;
pub(crate) mod warm_start;

use turnwise_core::{
    FinishReason, Observation, Part, Purpose, Seed, TokenSequence, ToolCall, TurnKind, TurnSpan,
};
use turnwise_env::demonstration::Demonstration;
use turnwise_env::prompt::{Compacted, PromptKind, PromptView};
use turnwise_model::vision::FIRST_PICTURE_TOKEN;
use turnwise_text::TextError;

use crate::config::Layout;
use crate::rollout::observations::Results;
use crate::rollout::prompting::Prompter;

/// A demonstration or conversation as a token sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SftSequence {
    /// Token ids. The spans cover all tokens except the first and those of pictures.
    pub tokens: TokenSequence,
    /// For each token of the spans, whether it is part of an imitated action.
    pub action: Vec<bool>,
    /// For each token of the spans, whether it contributes to the loss. Invalid actions inserted
    /// into a demonstration do not contribute.
    pub kept: Vec<bool>,
}

#[derive(Default)]
struct Builder {
    tokens: Vec<u32>,
    action: Vec<bool>,
    kept: Vec<bool>,
}

impl Builder {
    fn push(&mut self, ids: Vec<u32>, action: bool, kept: bool) {
        self.action.extend(ids.iter().map(|_| action));
        self.kept.extend(ids.iter().map(|_| kept));
        self.tokens.extend(ids);
    }

    fn finish(mut self, max_model_len: usize) -> Option<SftSequence> {
        self.tokens.truncate(max_model_len);
        self.action.truncate(max_model_len);
        self.kept.truncate(max_model_len);
        // A prompt that fills the context leaves no response.
        if !self.action.iter().skip(1).any(|&action| action) {
            return None;
        }
        // Models do not predict picture tokens.
        let is_text = |&position: &usize| self.tokens[position] < FIRST_PICTURE_TOKEN;
        let predicted: Vec<usize> = (1..self.tokens.len()).filter(is_text).collect();
        let runs = predicted.chunk_by(|before, after| before + 1 == *after);
        let spans = runs.map(|run| TurnSpan { turn: 0, start: run[0], end: run[0] + run.len() }).collect();
        let of = |flags: &[bool]| predicted.iter().map(|&position| flags[position]).collect();
        Some(SftSequence {
            action: of(&self.action),
            kept: of(&self.kept),
            tokens: TokenSequence { tokens: self.tokens, spans },
        })
    }
}

/// Summaries in demonstrations, as in rollouts ([`crate::rollout::compaction`]).
#[derive(Clone, Copy)]
pub struct DemonstratedSummaries<'a> {
    /// Maximum tokens of an action's prompt.
    pub after: usize,
    /// Returns the summary to show in an episode before a turn.
    pub summary: &'a dyn Fn(&Demonstration, usize) -> String,
}

/// Returns a demonstration's sequences. The layout `concatenated` gives one sequence, plus one per
/// summary; `windowed` gives one sequence per imitated turn.
///
/// # Errors
/// Fails like [`Prompter::start_seeing`] and, for a concatenated sequence, [`Prompter::between`].
pub fn sequences(
    demonstration: &Demonstration,
    prompter: Prompter<'_>,
    layout: Layout,
    history: usize,
    max_model_len: usize,
    summaries: Option<DemonstratedSummaries<'_>>,
) -> Result<Vec<SftSequence>, TextError> {
    let (template, tools) = (prompter.template, demonstration.tools.as_slice());
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut whole = Builder::default();
    let mut finished = Vec::new();
    for (index, turn) in demonstration.turns.iter().enumerate() {
        let view = PromptView {
            goal: &demonstration.task.goal,
            history: &pairs,
            window: history,
            observation: &turn.observation,
            admissible: &turn.admissible,
            step: index,
        };
        match layout {
            Layout::Concatenated => {
                let prompt = if index == 0 {
                    prompter.start(&template.render_concatenated_first(&view), tools)?
                } else {
                    let calls =
                        prompter.demonstrated_calls(&demonstration.turns[index - 1].action, index - 1);
                    let seen = result_of(&calls, &turn.observation);
                    let last = (whole.tokens.last().copied(), FinishReason::Stop);
                    let results = Results::of(&seen, &calls);
                    let prompt = prompter.between(&view, tools, &results, last)?;
                    match summaries {
                        Some(summaries) if whole.tokens.len() + prompt.len() > summaries.after => {
                            let kind = TurnKind::Compaction;
                            let request = prompter.between_responses(&view, tools, &results, last, kind)?;
                            let summary = (summaries.summary)(demonstration, index);
                            whole.push(request, false, true);
                            whole.push(prompter.demonstrated_summary(&summary), true, true);
                            finished.extend(std::mem::take(&mut whole).finish(max_model_len));
                            let first_observation = &demonstration.turns[0].observation;
                            let compacted = Compacted { first_observation, summary: &summary };
                            prompter.compacted(&view, &compacted, "", tools)?
                        }
                        _ => prompt,
                    }
                };
                let first = whole.tokens.is_empty();
                whole.push(prompt, false, true);
                whole.push(prompter.demonstrated(&turn.action, tools, first), turn.imitate, turn.imitate);
            }
            Layout::Windowed if turn.imitate => {
                let mut window = Builder::default();
                let text = template.render(&view, PromptKind::Full);
                window.push(prompter.start_seeing(&text, turn.image.as_ref(), tools)?, false, true);
                window.push(prompter.demonstrated(&turn.action, tools, true), true, true);
                finished.extend(window.finish(max_model_len));
            }
            Layout::Windowed => {}
        }
        pairs.push((turn.observation.clone(), turn.action.clone()));
    }
    finished.extend(whole.finish(max_model_len));
    Ok(finished)
}

fn result_of(calls: &[ToolCall], text: &str) -> Observation {
    let mut seen = Observation::new(text);
    if let [call] = calls {
        seen.parts = vec![Part::ToolResult { call_id: call.id.clone(), text: text.to_owned() }];
    }
    seen
}

/// The sequences of each update. The sequences are shuffled in each pass, and an update takes
/// sequences up to a maximum number of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    batches: Vec<Vec<usize>>,
}

impl BatchPlan {
    /// Plans `steps` updates over sequences of these lengths.
    pub fn new(lengths: &[usize], batch_tokens: usize, steps: u64, run_seed: u64) -> Self {
        let mut batches = Vec::new();
        let mut batch = Vec::new();
        let mut tokens = 0;
        let mut pass = 0;
        while (batches.len() as u64) < steps && !lengths.is_empty() {
            let mut order: Vec<usize> = (0..lengths.len()).collect();
            Seed::derive(run_seed, Purpose::Shuffle, &[u64::MAX, pass]).rng().shuffle(&mut order);
            for index in order {
                if !batch.is_empty() && tokens + lengths[index] > batch_tokens {
                    batches.push(std::mem::take(&mut batch));
                    tokens = 0;
                    if batches.len() as u64 == steps {
                        break;
                    }
                }
                batch.push(index);
                tokens += lengths[index];
            }
            pass += 1;
        }
        Self { batches }
    }

    /// Plans `epochs` passes. The last update may be smaller.
    pub(crate) fn of_epochs(lengths: &[usize], batch_tokens: usize, epochs: u64, run_seed: u64) -> Self {
        // An upper bound: each update has at least one sequence.
        let all = Self::new(lengths, batch_tokens, lengths.len() as u64 * epochs, run_seed);
        let mut left = lengths.len() * epochs as usize;
        let mut batches = Vec::new();
        for mut batch in all.batches {
            batch.truncate(left);
            left -= batch.len();
            if !batch.is_empty() {
                batches.push(batch);
            }
        }
        Self { batches }
    }

    /// Returns the indices of an update's sequences; updates are numbered from 0.
    pub fn batch(&self, step: u64) -> &[usize] {
        self.batches.get(step as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of updates.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Returns true if there are no updates.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

/// Returns the token weights of each sequence. Over the whole batch, the weights of action tokens
/// sum to 1, and those of the other tokens with a loss to `observation_weight`. The loss is
/// therefore `mean over action tokens + observation_weight * mean over the rest`.
pub fn weights(batch: &[&SftSequence], observation_weight: f64) -> Vec<Vec<f64>> {
    let tokens = || batch.iter().flat_map(|sequence| sequence.action.iter().zip(&sequence.kept));
    let actions = tokens().filter(|(action, kept)| **action && **kept).count();
    let others = tokens().filter(|(action, kept)| !**action && **kept).count();
    let action_weight = if actions > 0 { 1.0 / actions as f64 } else { 0.0 };
    let other_weight = if others > 0 { observation_weight / others as f64 } else { 0.0 };
    batch
        .iter()
        .map(|sequence| {
            let kinds = sequence.action.iter().zip(&sequence.kept);
            kinds
                .map(|(action, kept)| match (kept, action) {
                    (false, _) => 0.0,
                    (true, true) => action_weight,
                    (true, false) => other_weight,
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_comes_once_a_pass_and_batches_stay_in_size() {
        let lengths: Vec<usize> = (0..50).map(|index| 10 + index % 7).collect();
        let plan = BatchPlan::new(&lengths, 60, 30, 1);
        assert_eq!(plan.len(), 30);
        let mut seen = Vec::new();
        for step in 0..30 {
            let batch = plan.batch(step);
            assert!(!batch.is_empty());
            assert!(batch.iter().map(|&index| lengths[index]).sum::<usize>() <= 60);
            seen.extend(batch);
        }
        let mut first: Vec<usize> = seen[..50].to_vec();
        first.sort_unstable();
        assert_eq!(first, (0..50).collect::<Vec<_>>());
        assert_eq!(plan, BatchPlan::new(&lengths, 60, 30, 1));
        let epochs = BatchPlan::of_epochs(&lengths, 60, 2, 1);
        let mut twice: Vec<usize> = epochs.batches.concat();
        assert_eq!(twice[..seen.len().min(50)], seen[..50]);
        twice.sort_unstable();
        assert_eq!(twice, (0..50).flat_map(|index| [index, index]).collect::<Vec<_>>());
        // A longer plan begins like a shorter one, so a run can be extended.
        let longer = BatchPlan::new(&lengths, 60, 40, 1);
        assert_eq!(longer.batches[..30], plan.batches);
    }

    #[test]
    fn a_prompt_that_fills_the_context_is_no_sequence() {
        let built = |prompt: usize, max_model_len: usize| {
            let mut builder = Builder::default();
            builder.push(vec![1; prompt], false, true);
            builder.push(vec![2; 3], true, true);
            builder.finish(max_model_len)
        };
        assert!(built(8, 8).is_none());
        assert_eq!(built(7, 8).unwrap().action, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn an_oversized_sequence_is_its_own_batch() {
        let plan = BatchPlan::new(&[100, 100], 60, 3, 1);
        assert!((0..3).all(|step| plan.batch(step).len() == 1));
        assert!(BatchPlan::new(&[], 60, 3, 1).is_empty());
    }

    #[test]
    fn weights_are_means_over_their_kind() {
        let sequence = |action: &[bool], kept: &[bool]| SftSequence {
            tokens: TokenSequence::default(),
            action: action.to_vec(),
            kept: kept.to_vec(),
        };
        let first = sequence(&[true, false, false], &[true, true, false]);
        let second = sequence(&[true, false], &[true, true]);
        let weights = weights(&[&first, &second], 0.1);
        assert_eq!(weights, [vec![0.5, 0.05, 0.0], vec![0.5, 0.05]]);
    }
}
