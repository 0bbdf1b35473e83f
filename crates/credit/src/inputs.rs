//! Inputs of credit assignment besides the trajectories. [`crate::Pipeline::supply`] requests the
//! methods' [`RequiredInputs`] and [`ScoreRequest`]s from an [`InputProvider`], checks their shapes
//! and passes them on in [`CreditInputs`].

use turnwise_core::{Batch, PerToken, PerTurn, Purpose, Rng, Seed};

use crate::Embedder;

/// How to estimate state values from continuations ([`turnwise_core::Turn::state_value`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateValues {
    /// Number of continuations per state.
    pub continuations: usize,
    /// Discount of the return.
    pub gamma: f64,
}

impl StateValues {
    fn and(self, other: Option<Self>) -> Self {
        let more = other.map_or(0, |other| other.continuations);
        Self { continuations: self.continuations.max(more), ..self }
    }
}

/// Model inputs that a method requires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequiredInputs {
    /// Value of the state before each turn, which is estimated during the rollout and stored in the
    /// turn.
    pub state_values: Option<StateValues>,
    /// A critic's value per response token.
    pub values: bool,
    /// An external decomposer's credit per turn.
    pub credits: bool,
    /// Text vectors ([`Embedder`]).
    pub embeddings: bool,
    /// The policy's hidden states, averaged over at most this many tokens of a turn: the first
    /// tokens of its observation and the last tokens of its response.
    pub hidden_states: Option<usize>,
    /// Log-probs under the policy ([`ScoreRequest`]).
    pub scores: bool,
}

impl RequiredInputs {
    /// Returns the union of two requirements, with the larger of the two token limits for hidden
    /// states.
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

/// Request to score tokens as if they were a turn's response, after the turn's exact prompt or an
/// extended prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreRequest {
    /// Group index.
    pub group: usize,
    /// Trajectory index.
    pub trajectory: usize,
    /// Turn index.
    pub turn: usize,
    /// Text before the sequence's first prompt, like Reflexion's memory; may be empty.
    pub preamble: String,
    /// Unscored text between prompt and scored tokens.
    pub lead: String,
    /// Text to score; `None` for the sampled response.
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

/// Supplies a pipeline's inputs, from training or a file.
pub trait InputProvider {
    /// The provider's error.
    type Error: From<crate::CreditError>;

    /// Returns the critic's value per response token.
    ///
    /// # Errors
    /// Fails if there is no critic, or if it cannot compute the values.
    fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, Self::Error>;

    /// Returns the decomposer's credit per turn.
    ///
    /// # Errors
    /// Fails if there is no decomposer, or if it cannot compute the credits.
    fn credits(&mut self, batch: &Batch) -> Result<PerTurn<f64>, Self::Error>;

    /// Returns hidden states per turn, averaged over at most `most_tokens` tokens
    /// ([`RequiredInputs::hidden_states`]).
    ///
    /// # Errors
    /// Fails if the provider has no hidden states, or if the forward pass fails.
    fn hidden_states(&mut self, batch: &Batch, most_tokens: usize) -> Result<PerTurn<Vec<f32>>, Self::Error>;

    /// Returns the log-probs of each request's tokens, in nats. A request's list is empty if the
    /// tokens do not fit the context, or if the prompt cannot be extended because an agent wrote
    /// its own messages.
    ///
    /// # Errors
    /// Fails if the provider cannot score tokens, or if the forward pass fails.
    fn scores(&mut self, batch: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, Self::Error>;
}

/// Inputs supplied for one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInputs {
    /// The critic's value per response token.
    pub values: Option<PerToken<f64>>,
    /// The decomposer's credit per turn.
    pub credits: Option<PerTurn<f64>>,
    /// The policy's hidden states per turn.
    pub hidden_states: Option<PerTurn<Vec<f32>>>,
    /// Log-probs of requested tokens, `[stage][request][token]`; stage 0 is the estimator.
    pub scores: Vec<Vec<Vec<f32>>>,
}

static NOTHING: ModelInputs =
    ModelInputs { values: None, credits: None, hidden_states: None, scores: Vec::new() };

/// Inputs of a pipeline stage.
#[derive(Clone, Copy)]
pub struct CreditInputs<'a> {
    /// The trajectories.
    pub batch: &'a Batch,
    /// Embedder, if states are matched by embedding.
    pub embedder: Option<&'a dyn Embedder>,
    /// Model inputs.
    pub model_inputs: &'a ModelInputs,
    /// Run seed and step, for random numbers.
    coordinates: (u64, u64),
    /// Stage index; 0 is the estimator.
    stage: usize,
}

impl<'a> CreditInputs<'a> {
    /// Creates inputs with seed 0 and step 0.
    pub fn new(batch: &'a Batch) -> Self {
        Self { batch, embedder: None, model_inputs: &NOTHING, coordinates: (0, 0), stage: 0 }
    }

    /// Sets seed and step for [`CreditInputs::rng`].
    pub fn at(self, seed: u64, step: u64) -> Self {
        Self { coordinates: (seed, step), ..self }
    }

    /// Sets the embedder.
    pub fn with_embedder(self, embedder: &'a dyn Embedder) -> Self {
        Self { embedder: Some(embedder), ..self }
    }

    /// Sets the model inputs.
    pub fn with_model_inputs(self, model_inputs: &'a ModelInputs) -> Self {
        Self { model_inputs, ..self }
    }

    /// Returns the log-probs that the current stage requested, in request order.
    pub fn scores(&self) -> &'a [Vec<f32>] {
        self.model_inputs.scores.get(self.stage).map_or(&[], Vec::as_slice)
    }

    /// Creates a generator seeded by run seed, step, stage and `coordinate`.
    pub fn rng(&self, coordinate: u64) -> Rng {
        let (seed, step) = self.coordinates;
        Seed::derive(seed, Purpose::Credit, &[step, self.stage as u64, coordinate]).rng()
    }

    pub(crate) fn of_stage(self, stage: usize) -> Self {
        Self { stage, ..self }
    }
}
