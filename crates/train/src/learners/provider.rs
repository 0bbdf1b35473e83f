//! A run's models as the provider of credit inputs.

use turnwise_core::{Batch, PerToken, PerTurn, TokenSequence, TurnSpan};
use turnwise_credit::{Provider, ScoreRequest};
use turnwise_text::Tokenizer;

use crate::TrainError;
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::{self, RunDecomposer};
use crate::learners::policy::PolicyLearner;
use crate::record::observer::{Event, Observer};

/// Provides credit inputs for one step from the critic, decomposer and policy of a run.
pub(crate) struct ModelProvider<'a> {
    /// Gives values.
    pub(crate) critic: Option<&'a mut RunCritic>,
    /// Gives credits.
    pub(crate) decomposer: Option<&'a mut RunDecomposer>,
    /// Gives hidden states and scores.
    pub(crate) policy: &'a mut dyn PolicyLearner,
    /// Text to ids.
    pub(crate) tokenizer: &'a Tokenizer,
    /// Called for a judge that does not answer.
    pub(crate) observer: &'a mut dyn Observer,
    /// The step.
    pub(crate) step: u64,
}

/// Error for a part that a checked config never needs.
fn missing(what: &str) -> TrainError {
    TrainError::Config { origin: "credit".into(), reason: format!("needs {what}, and the run has none") }
}

impl Provider for ModelProvider<'_> {
    type Error = TrainError;

    fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, TrainError> {
        self.critic.as_mut().ok_or_else(|| missing("a critic"))?.values(batch)
    }

    fn credits(&mut self, batch: &Batch) -> Result<PerTurn<f64>, TrainError> {
        let decomposer = self.decomposer.as_mut().ok_or_else(|| missing("a decomposer"))?;
        let mut warn = |text| self.observer.event(Event::Note(text));
        decomposer.credits(batch, self.step, self.policy, self.tokenizer, &mut warn)
    }

    fn hidden_states(&mut self, batch: &Batch, most_tokens: usize) -> Result<PerTurn<Vec<f32>>, TrainError> {
        decomposer::hidden_states(batch, most_tokens, self.policy, self.tokenizer)
    }

    fn scores(&mut self, batch: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, TrainError> {
        let longest = self.policy.max_context();
        let found: Vec<Option<TokenSequence>> =
            requests.iter().map(|request| scored_sequence(batch, request, self.tokenizer, longest)).collect();
        let sequences: Vec<TokenSequence> = found.iter().flatten().cloned().collect();
        let mut scores = self.policy.logprobs(&sequences)?.into_iter();
        Ok(found
            .iter()
            .map(|sequence| sequence.as_ref().and_then(|_| scores.next()).unwrap_or_default())
            .collect())
    }
}

/// Returns the prompt of a turn, exactly as it was sampled from, and a text instead of the response. `None` if
/// the turn has no tokens, the text has none, or both are longer than the model's context.
fn scored_sequence(
    batch: &Batch,
    request: &ScoreRequest,
    tokenizer: &Tokenizer,
    longest: usize,
) -> Option<TokenSequence> {
    let trajectory = batch.groups.get(request.group)?.trajectories.get(request.trajectory)?;
    let (sequence, span) = trajectory.sequences.iter().find_map(|sequence| {
        Some((sequence, sequence.spans.iter().find(|span| span.turn == request.turn)?))
    })?;
    let mut tokens = sequence.tokens[..span.start].to_vec();
    tokens.extend(tokenizer.encode(&request.text));
    let span = TurnSpan { turn: request.turn, start: span.start, end: tokens.len() };
    (!span.is_empty() && tokens.len() <= longest).then(|| TokenSequence { tokens, spans: vec![span] })
}
