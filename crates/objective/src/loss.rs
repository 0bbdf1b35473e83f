//! The loss of a run: its extra model passes, and the objective of each minibatch.

use std::sync::{Arc, Mutex, PoisonError};

use turnwise_core::{
    DirectLoss, GradientPass, GradientScale, MaskedContextGradients, MaskedContextStatistics, Objective,
    ObjectiveError, RequiredPasses, SecondPass, TokenGradients, TokenStatistics, TurnSpan,
};

use crate::{
    KlPlace, LossTerm, Minibatch, ObjectiveBatch, ObjectiveConfig, PolicyObjective, Registry, Surrogate,
    TermObjective, reward_kl,
};

/// A configured loss with its terms.
///
/// ```
/// use turnwise_core::{Objective as _, TokenStatistics, TurnSpan};
/// use turnwise_objective::{Loss, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, Registry};
///
/// let loss = Loss::new(&ObjectiveConfig::default(), &Registry::builtin())?;
/// assert!(!loss.passes().needs_reference());
/// let turn = TurnSpan { turn: 0, start: 3, end: 5 };
/// let sequence = ObjectiveSequence::new(vec![turn], vec![-1.0, -2.0], vec![0.5]);
/// let minibatch = loss.for_minibatch(ObjectiveBatch::new(vec![sequence]), &[])?;
/// let statistics = TokenStatistics { logprobs: &[-1.0, -2.0], entropies: &[], reference_kls: &[] };
/// let gradients = minibatch.evaluate(0, statistics)?;
/// assert_eq!(gradients.d_logprobs, [-0.25, -0.25]);
/// # Ok::<(), turnwise_core::ObjectiveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loss {
    /// The settings, with the effective KL coefficient.
    config: ObjectiveConfig,
    /// The KL coefficient before the terms change it.
    kl_coef: f64,
    terms: Vec<Arc<dyn LossTerm>>,
    passes: RequiredPasses,
}

impl Loss {
    /// Creates a config's loss. `registry` provides the additional terms.
    ///
    /// # Errors
    /// Fails on invalid settings, and on terms that are unknown or exclude each other.
    pub fn new(config: &ObjectiveConfig, registry: &Registry) -> Result<Self, ObjectiveError> {
        config.check()?;
        let terms = registry.terms(config)?;
        Self { config: config.clone(), kl_coef: 0.0, terms, passes: RequiredPasses::default() }
            .with_kl_coef(config.kl.coef)
    }

    /// Returns the loss with another KL coefficient ([`crate::AdaptiveKl`]).
    ///
    /// # Errors
    /// Fails on a negative or infinite coefficient.
    pub fn with_kl_coef(&self, coef: f64) -> Result<Self, ObjectiveError> {
        let mut loss = self.clone();
        loss.kl_coef = coef;
        loss.config.kl.coef = self.terms.iter().fold(coef, |coef, term| term.kl_coef(coef));
        // Unchecked: a controller or a term may exceed the config's bounds.
        let acting = loss.config.kl.coef;
        if !(acting.is_finite() && acting >= 0.0) {
            return Err(ObjectiveError::Setting(format!(
                "kl.coef is {acting}; it must be a finite number that is not negative"
            )));
        }
        loss.passes = loss.config.passes();
        for term in &loss.terms {
            loss.passes = loss.passes.and(term.passes())?;
        }
        Ok(loss)
    }

    /// Returns the extra model passes of a step, and whether a term scales the gradient.
    pub fn passes(&self) -> RequiredPasses {
        self.passes
    }

    /// Returns the settings with the effective KL coefficient.
    pub fn config(&self) -> &ObjectiveConfig {
        &self.config
    }

    /// Returns the additional terms.
    pub fn terms(&self) -> impl Iterator<Item = &dyn LossTerm> {
        self.terms.iter().map(AsRef::as_ref)
    }

    /// Returns whether tokens with advantage 0 have a gradient and thus need a forward pass.
    pub fn acts_without_advantage(&self) -> bool {
        self.config.needs_reference()
            || self.config.entropy_coef != 0.0
            || self.terms.iter().any(|term| term.acts_without_advantage())
    }

    /// Returns the KL penalty of a turn's reward (`objective.kl.apply_to = "reward"`), from
    /// log-probs under the sampling policy and the reference.
    pub fn reward_kl(&self, old_logprobs: &[f32], ref_logprobs: &[f32]) -> f64 {
        if self.config.kl.place == KlPlace::Loss {
            return 0.0;
        }
        reward_kl(self.config.kl.estimator, self.config.kl.coef, old_logprobs, ref_logprobs)
    }

    /// Returns the next step's KL coefficient, given the measured mean KL. The coefficient only
    /// changes if `kl.adaptive` is set.
    pub fn next_kl_coef(&self, measured: f64) -> f64 {
        self.config
            .kl
            .adaptive
            .as_ref()
            .map_or(self.kl_coef, |adaptive| adaptive.next(self.kl_coef, measured))
    }

    /// Returns the loss of one optimizer batch. `masked` has the response span of each masked
    /// context, in the learner's order.
    ///
    /// # Errors
    /// Fails on wrong array lengths, and on missing, NaN or infinite numbers.
    pub fn for_minibatch(
        &self,
        batch: ObjectiveBatch,
        masked: &[TurnSpan],
    ) -> Result<MinibatchLoss, ObjectiveError> {
        let policy = Arc::new(PolicyObjective::new_unchecked(&self.config, batch)?);
        let minibatch = Minibatch { policy: &policy, masked };
        let terms: Vec<TermObjective> =
            self.terms.iter().map(|term| term.for_minibatch(&minibatch)).collect::<Result<_, _>>()?;
        let position = |uses: fn(RequiredPasses) -> bool| self.terms.iter().position(|t| uses(t.passes()));
        Ok(MinibatchLoss {
            masking: position(|passes| passes.masked_context.is_some()),
            scaling: position(|passes| passes.gradient != GradientPass::Plain),
            passes: self.passes,
            policy,
            terms,
            clipped: Mutex::default(),
        })
    }
}

/// Loss of one optimizer batch.
pub struct MinibatchLoss {
    policy: Arc<PolicyObjective>,
    terms: Vec<TermObjective>,
    passes: RequiredPasses,
    /// Index of the term that uses masked contexts.
    masking: Option<usize>,
    /// Index of the term that scales the gradient.
    scaling: Option<usize>,
    clipped: Mutex<Vec<(usize, Vec<Surrogate>)>>,
}

impl MinibatchLoss {
    /// Returns the surrogate's branches for each sequence that was evaluated since the last call
    /// and has clipped tokens, in no particular order.
    pub fn take_clipped(&self) -> Vec<(usize, Vec<Surrogate>)> {
        std::mem::take(&mut self.clipped.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Objective for MinibatchLoss {
    fn passes(&self) -> RequiredPasses {
        self.passes
    }

    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let mut gradients = self.policy.evaluate(sequence, tokens)?;
        if gradients.metrics.clipped_low + gradients.metrics.clipped_high > 0.0 {
            let logprobs: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
            let branches = self.policy.branches(sequence, &logprobs)?;
            self.clipped.lock().unwrap_or_else(PoisonError::into_inner).push((sequence, branches));
        }
        for term in &self.terms {
            let share = term.evaluate(sequence, tokens)?;
            check_lengths(sequence, &share, tokens.logprobs.len())?;
            add(&mut gradients, share);
        }
        Ok(gradients)
    }

    fn evaluate_masked_context(
        &self,
        masked_context: usize,
        statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError> {
        match self.masking {
            Some(term) => self.terms[term].evaluate_masked_context(masked_context, statistics),
            None => self.policy.evaluate_masked_context(masked_context, statistics),
        }
    }

    fn direct(&self, sequence: usize) -> Option<DirectLoss> {
        self.terms.is_empty().then(|| self.policy.direct(sequence)).flatten()
    }

    fn second_pass(&self) -> Result<Option<SecondPass<'_>>, ObjectiveError> {
        self.scaling.map_or(Ok(None), |term| self.terms[term].second_pass())
    }

    fn gradient_scale(&self, second_norm: f64) -> Result<GradientScale, ObjectiveError> {
        match self.scaling {
            Some(term) => self.terms[term].gradient_scale(second_norm),
            None => self.policy.gradient_scale(second_norm),
        }
    }
}

fn check_lengths(sequence: usize, share: &TokenGradients, expected: usize) -> Result<(), ObjectiveError> {
    for (what, found) in [
        ("d_logprobs of a term", share.d_logprobs.len()),
        ("d_entropies of a term", share.d_entropies.len()),
        ("d_reference_kls of a term", share.d_reference_kls.len()),
    ] {
        if found != 0 && found != expected {
            return Err(ObjectiveError::Length { sequence, what, found, expected });
        }
    }
    Ok(())
}

/// Adds a term's gradients. Ignores the term's token counts, because the policy objective already
/// counted the same tokens.
fn add(gradients: &mut TokenGradients, mut term: TokenGradients) {
    fn sum<T: Copy + std::ops::AddAssign>(to: &mut Vec<T>, from: Vec<T>) {
        if to.is_empty() {
            *to = from;
        } else {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
    gradients.loss += term.loss;
    sum(&mut gradients.d_logprobs, term.d_logprobs);
    sum(&mut gradients.d_entropies, term.d_entropies);
    sum(&mut gradients.d_reference_kls, term.d_reference_kls);
    term.metrics.tokens = 0.0;
    gradients.metrics.add(&term.metrics);
}
