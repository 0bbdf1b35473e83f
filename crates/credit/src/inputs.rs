//! Inputs for credit assignment besides the trajectories.
//!
//! Each method declares what it needs ([`RequiredInputs`], [`ScoreRequest`]).
//! [`crate::Pipeline::supply`] requests these inputs from an [`InputProvider`], checks their shapes
//! and passes them on in [`CreditInputs`].

use turnwise_core::{Batch, PerToken, PerTurn, Purpose, Rng, Seed};

use crate::Embedder;

/// How to estimate state values, as the mean return of continuations that the policy samples from
/// each state ([`turnwise_core::Turn::state_value`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateValues {
    /// Number of continuations sampled from each state.
    pub continuations: usize,
    /// Discount factor of the return.
    pub gamma: f64,
}

impl StateValues {
    /// Combines both, using the larger number of continuations and the discount of `self`.
    fn and(self, other: Option<Self>) -> Self {
        let more = other.map_or(0, |other| other.continuations);
        Self { continuations: self.continuations.max(more), ..self }
    }
}

/// Which inputs that need a model a method requires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequiredInputs {
    /// Values of the states before each turn. The rollout estimates them with the sampling policy
    /// and stores them in the turns.
    pub state_values: Option<StateValues>,
    /// A critic's value for each response token.
    pub values: bool,
    /// Per-turn credits from an external decomposer.
    pub credits: bool,
    /// Text vectors ([`Embedder`]).
    pub embeddings: bool,
    /// The policy's hidden states for each turn, averaged over at most this many tokens: the first
    /// of the observation and the last of the response.
    pub hidden_states: Option<usize>,
    /// Log-probs of texts or responses under the policy ([`ScoreRequest`]).
    pub scores: bool,
}

impl RequiredInputs {
    /// Combines both requirements, using the larger token limit for hidden states.
    pub fn and(self, other: Self) -> Self {
        Self {
            state_values: self.state_values.map(|own| own.and(other.state_values)).or(other.state_values),
            values: self.values || other.values,
            credits: self.credits || other.credits,
            embeddings: self.embeddings || other.embeddings,
            hidden_states: self.hidden_states.max(other.hidden_states),
            scores: self.scores || other.scores,
        }
    }
}

/// A request to score tokens as if they were a turn's response, after the turn's exact prompt or an
/// extended one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreRequest {
    /// Group index.
    pub group: usize,
    /// Trajectory index in the group.
    pub trajectory: usize,
    /// Turn index.
    pub turn: usize,
    /// Text added before the sequence's first prompt, like the memory in Reflexion. If empty, the
    /// prompt is unchanged.
    pub preamble: String,
    /// Text between the prompt and the scored tokens, which is not scored.
    pub lead: String,
    /// The text to score, or `None` to score the sampled response.
    pub text: Option<String>,
}

impl ScoreRequest {
    /// Creates a request to score a text after the turn's exact prompt.
    pub fn of_text(group: usize, trajectory: usize, turn: usize, text: impl Into<String>) -> Self {
        let (preamble, lead) = (String::new(), String::new());
        Self { group, trajectory, turn, preamble, lead, text: Some(text.into()) }
    }

    /// Creates a request to score the sampled response after a prompt extended by `preamble`.
    pub fn of_response(group: usize, trajectory: usize, turn: usize, preamble: impl Into<String>) -> Self {
        Self { group, trajectory, turn, preamble: preamble.into(), lead: String::new(), text: None }
    }
}

/// Supplies a pipeline's inputs, from the training loop or from a file.
pub trait InputProvider {
    /// Error from the provider.
    type Error: From<crate::CreditError>;

    /// Returns the critic's value for each response token.
    ///
    /// # Errors
    /// Fails if there is no critic, or if its forward pass fails.
    fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, Self::Error>;

    /// Returns the decomposer's credit for each turn.
    ///
    /// # Errors
    /// Fails if there is no decomposer, or if the decomposer fails.
    fn credits(&mut self, batch: &Batch) -> Result<PerTurn<f64>, Self::Error>;

    /// Returns the policy's last hidden states for each turn, averaged over at most `most_tokens`
    /// tokens ([`RequiredInputs::hidden_states`]).
    ///
    /// # Errors
    /// Fails if the policy provides no hidden states, or if its forward pass fails.
    fn hidden_states(&mut self, batch: &Batch, most_tokens: usize) -> Result<PerTurn<Vec<f32>>, Self::Error>;

    /// Returns the policy's log-probs for each request's tokens, in nats, in the order of the
    /// requests. The list for a request is empty if the tokens do not fit the context, or if the
    /// prompt cannot be extended (an agent's own messages).
    ///
    /// # Errors
    /// Fails if the policy provides no log-probs, or if its forward pass fails.
    fn scores(&mut self, batch: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, Self::Error>;
}

/// Inputs that an [`InputProvider`] supplied for one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInputs {
    /// The critic's value for each response token.
    pub values: Option<PerToken<f64>>,
    /// The decomposer's credit for each turn.
    pub credits: Option<PerTurn<f64>>,
    /// The policy's hidden states for each turn.
    pub hidden_states: Option<PerTurn<Vec<f32>>>,
    /// Log-probs of the requested tokens, as `[stage][request][token]`; stage 0 is the estimator.
    pub scores: Vec<Vec<Vec<f32>>>,
}

static NOTHING: ModelInputs =
    ModelInputs { values: None, credits: None, hidden_states: None, scores: Vec::new() };

/// Inputs to a pipeline stage.
#[derive(Clone, Copy)]
pub struct CreditInputs<'a> {
    /// The trajectories.
    pub batch: &'a Batch,
    /// Embedder; required if states are matched by embedding.
    pub embedder: Option<&'a dyn Embedder>,
    /// Inputs from models.
    pub model_inputs: &'a ModelInputs,
    /// Seed and step of the run, for methods that use random numbers.
    coordinates: (u64, u64),
    /// Index of the current stage; 0 is the estimator.
    stage: usize,
}

impl<'a> CreditInputs<'a> {
    /// Creates inputs from a batch alone, with seed 0 and step 0.
    pub fn new(batch: &'a Batch) -> Self {
        Self { batch, embedder: None, model_inputs: &NOTHING, coordinates: (0, 0), stage: 0 }
    }

    /// Sets the run's seed and step for [`CreditInputs::rng`].
    pub fn at(self, seed: u64, step: u64) -> Self {
        Self { coordinates: (seed, step), ..self }
    }

    /// Sets the embedder.
    pub fn with_embedder(self, embedder: &'a dyn Embedder) -> Self {
        Self { embedder: Some(embedder), ..self }
    }

    /// Sets the inputs supplied by a provider.
    pub fn with_model_inputs(self, model_inputs: &'a ModelInputs) -> Self {
        Self { model_inputs, ..self }
    }

    /// Returns the log-probs that the current stage requested, in the order of its requests.
    pub fn scores(&self) -> &'a [Vec<f32>] {
        self.model_inputs.scores.get(self.stage).map_or(&[], Vec::as_slice)
    }

    /// Creates a random number generator seeded by run seed, step, stage and `coordinate`.
    pub fn rng(&self, coordinate: u64) -> Rng {
        let (seed, step) = self.coordinates;
        Seed::derive(seed, Purpose::Credit, &[step, self.stage as u64, coordinate]).rng()
    }

    pub(crate) fn of_stage(self, stage: usize) -> Self {
        Self { stage, ..self }
    }
}
