//! HAS, hybrid advantage shaping: `A_t <- alpha A_traj + (1 - alpha) A_turn,t` (HAS, equation 2).
//!
//! `A_turn` is the turn's credit from a reward redistribution model (decomposer), z-scored at each
//! turn index over the group's trajectories that reach it (with the population standard deviation).
//! `A_turn` is 0 if only one trajectory reaches the turn. The estimator's advantages stay
//! bit-identical in groups with equal environment returns and, with `alpha = 1`, in all groups.
//!
//! `baseline = "leave-one-out"` (verl's RFC 7244, "a turn-level baseline that stays unbiased under
//! variable turn counts") uses `A_turn,i,t = c_{i,t} - 1/(K-1) sum_{j != i} c_{j,t}`, with credits
//! `c_{j,t}` of 0 for trajectories that ended before t. The leave-one-out baseline does not bias
//! the gradient, because it does not depend on the turn's action. The z-score's baseline includes
//! the turn's own credit and therefore biases the gradient. Leave-one-out does not rescale credits,
//! so use `credit.estimator.normalize = "mean"` with it.
//!
//! Differs from the paper: groups with equal returns are dropped by `train.skip_equal_groups` (set
//! by the presets). `min_std` is a lower bound of the standard deviation, because credits at one
//! turn index may differ only by noise. The paper does not say whether the progress credit is
//! progress (our default) or its change (`signal`).

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, Group, PerTurn, Preset, Trajectory};

use crate::registry::{MethodSettings, in_range};
use crate::statistics::{Correlation, Moments, Normalize, Singleton};
use crate::{CreditError, CreditInputs, Explanation, Refinement, RequiredInputs, TurnField};

const NAME: &str = "has";

/// The paper has no invalid-action penalty, excludes groups with equal returns (appendix C) and
/// adapts its KL coefficient, which starts at 0.04 (appendix B, sweeps). The paper does not state
/// which standard deviation it uses; we use the population's.
const PROGRESSIVE: &str = "credit.estimator = { ddof = 0, invalid_penalty = 0.0 }\n\
                           credit.refinements = [{ kind = \"has\" }]\n\
                           objective.kl = { coef = 0.04, adaptive = {} }\ntrain.skip_equal_groups = true";

/// The paper's TurnRD: credits from equation 5, five passes over the whole replay per round
/// (appendix B, tables 5 and 6).
const PAPERS_TURNRD: &str = "decomposer.network = { credits = \"projection\", epochs = 5, older_per_new = 1e6, \
                             min_improvement = 0.0 }";

/// Number of turns at the start of a trajectory over which the metric `has/early_turn_correlation`
/// correlates `A_turn` with `A_traj`. A negative value means that early turns get less credit in
/// successes than in failures.
const EARLY_TURNS: usize = 3;

/// Splits a trajectory's return into one credit per turn.
pub trait Decomposer: Send + Sync {
    /// Returns each turn's credit.
    ///
    /// # Errors
    /// Fails on a missing input.
    fn credits(&self, batch: &Batch) -> Result<PerTurn<f64>, CreditError>;
}

/// Source of per-turn credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecomposerKind {
    /// The environment's progress.
    #[default]
    Progressive,
    /// An LLM judge or learned model (`[decomposer]`).
    External,
}

/// How the progress signal becomes a credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressSignal {
    /// Progress after the turn.
    #[default]
    Level,
    /// Change in progress during the turn, from 0 before the first.
    Change,
}

/// How a credit is compared with the group's other credits at the same turn index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TurnBaseline {
    /// Z-score over the group's trajectories that reach the turn (paper).
    #[default]
    ZScore,
    /// Subtracts the mean credit of the group's other trajectories, counting 0 for those that ended
    /// earlier. This keeps the gradient unbiased even if the policy decides when to stop.
    LeaveOneOut,
}

/// Settings of HAS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HasConfig {
    /// Weight of the estimator's advantage, in [0, 1].
    #[schemars(range(min = 0.0, max = 1.0))]
    pub alpha: f64,
    /// Source of per-turn credits.
    pub decomposer: DecomposerKind,
    /// How the progress signal becomes a credit (only with `decomposer = "progressive"`).
    pub signal: ProgressSignal,
    /// How a credit is compared with the group's other credits at the same turn index.
    pub baseline: TurnBaseline,
    /// Constant added to the standard deviation before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// Minimum standard deviation at a turn index, so that noise is not amplified; 0, as in the
    /// paper, sets no minimum.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub min_std: f64,
}

impl Default for HasConfig {
    fn default() -> Self {
        Self {
            alpha: 0.5,
            decomposer: DecomposerKind::Progressive,
            signal: ProgressSignal::Level,
            baseline: TurnBaseline::ZScore,
            epsilon: 1e-6,
            min_std: 0.0,
        }
    }
}

/// Decomposer that uses the environment's progress as credits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progressive {
    /// Whether a credit is the progress or its change.
    pub signal: ProgressSignal,
}

impl Decomposer for Progressive {
    fn credits(&self, batch: &Batch) -> Result<PerTurn<f64>, CreditError> {
        let mut before = 0.0;
        PerTurn::try_from_fn(batch, |group, trajectory, turn| {
            let (method, field) = (NAME, "progress");
            let missing = CreditError::MissingField { method, field, group, trajectory, turn };
            let value = batch.groups[group].trajectories[trajectory].turns[turn].progress.ok_or(missing)?;
            let earlier = if turn == 0 { 0.0 } else { before };
            before = value;
            Ok(match self.signal {
                ProgressSignal::Level => value,
                ProgressSignal::Change => value - earlier,
            })
        })
    }
}

impl MethodSettings for HasConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[
        Preset::on("grpo", "has-progressive", PROGRESSIVE),
        Preset::on(
            "has-progressive",
            "has-judge",
            "credit.refinements = [{ kind = \"has\", decomposer = \"external\" }]\ndecomposer.kind = \"judge\"",
        ),
        // Ours: attention credits and few old records per pass, the defaults of
        // `[decomposer.network]`.
        Preset::on(
            "has-progressive",
            "has-attention",
            "credit.refinements = [{ kind = \"has\", decomposer = \"external\" }]\ndecomposer = { kind = \"turnrd\", network.film = false }",
        ),
        Preset::on("has-attention", "has-attention-film", "decomposer.network.film = true"),
        Preset::on("has-attention", "has-turnrd", PAPERS_TURNRD),
        Preset::on("has-turnrd", "has-turnrd-film", "decomposer.network.film = true"),
    ];
    type Method = Has;

    fn build(self) -> Result<Has, CreditError> {
        Has::new(self)
    }
}

/// The HAS refinement.
#[derive(Clone, Debug)]
pub struct Has {
    config: HasConfig,
}

impl Has {
    /// Creates HAS.
    ///
    /// # Errors
    /// Fails on a value out of range, or an unused `signal` or `min_std`.
    pub fn new(config: HasConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        let min_std = config.min_std;
        if config.decomposer == DecomposerKind::External && config.signal != ProgressSignal::default() {
            let reason = "signal has no effect with decomposer = \"external\"; remove it, or take the progress signal as \
                          credit (decomposer = \"progressive\")";
            return Err(CreditError::Setting { method: NAME, reason: reason.into() });
        }
        if config.baseline == TurnBaseline::LeaveOneOut && min_std != 0.0 {
            let reason = format!(
                "min_std is {min_std}, and baseline = \"leave-one-out\" divides by no deviation; leave one of the two out"
            );
            return Err(CreditError::Setting { method: NAME, reason });
        }
        Ok(Self { config })
    }

    fn comparison(&self, group: &Group, credits: &[Vec<f64>]) -> impl Fn(usize, f64) -> f64 {
        let HasConfig { baseline, epsilon, min_std, .. } = self.config;
        let longest = group.trajectories.iter().map(|trajectory| trajectory.turns.len()).max().unwrap_or(0);
        let positions: Vec<Moments> = (0..longest)
            .map(|turn| {
                let of = |(trajectory, row): (&Trajectory, &Vec<f64>)| {
                    (turn < trajectory.turns.len()).then(|| row[turn])
                };
                let values = group.trajectories.iter().zip(credits).map(of);
                let moments = match baseline {
                    TurnBaseline::ZScore => Moments::of(&values.flatten().collect::<Vec<_>>(), 0),
                    TurnBaseline::LeaveOneOut => {
                        Moments::of(&values.map(Option::unwrap_or_default).collect::<Vec<_>>(), 0)
                    }
                };
                let std = if moments.is_constant() { 0.0 } else { moments.std.max(min_std) };
                Moments { std, ..moments }
            })
            .collect();
        move |turn, credit| {
            let moments = &positions[turn];
            match baseline {
                TurnBaseline::ZScore => {
                    moments.standardise(credit, Normalize::MeanStd, epsilon, Singleton::Zero)
                }
                // Leaving one out of n scales the distance from the mean by n / (n - 1).
                TurnBaseline::LeaveOneOut => {
                    let others = moments.count.saturating_sub(1).max(1);
                    let away = moments.standardise(credit, Normalize::Mean, epsilon, Singleton::Zero);
                    moments.count as f64 / others as f64 * away
                }
            }
        }
    }

    fn credits(&self, inputs: &CreditInputs<'_>) -> Result<PerTurn<f64>, CreditError> {
        let credits = match (self.config.decomposer, &inputs.model_inputs.credits) {
            (DecomposerKind::Progressive, _) => {
                Progressive { signal: self.config.signal }.credits(inputs.batch)?
            }
            (DecomposerKind::External, Some(credits)) => credits.clone(),
            (DecomposerKind::External, None) => {
                let reason = "decomposer = \"external\" needs a decomposer; use \"progressive\" or give one";
                return Err(CreditError::Setting { method: NAME, reason: reason.into() });
            }
        };
        let (method, field) = (NAME, "credit");
        PerTurn::try_from_fn(inputs.batch, |group, trajectory, turn| {
            match credits.row(group, trajectory).and_then(|row| row.get(turn)) {
                None => Err(CreditError::MissingField { method, field, group, trajectory, turn }),
                Some(&value) if !value.is_finite() => {
                    Err(CreditError::NotFinite { method, field, value, group, trajectory, turn })
                }
                Some(_) => Ok(()),
            }
        })?;
        Ok(credits)
    }
}

impl Refinement for Has {
    fn name(&self) -> &'static str {
        NAME
    }

    fn required_inputs(&self) -> RequiredInputs {
        let credits = self.config.decomposer == DecomposerKind::External && self.config.alpha != 1.0;
        RequiredInputs { credits, ..RequiredInputs::default() }
    }

    fn fields(&self) -> Vec<TurnField> {
        match self.config.decomposer {
            _ if self.config.alpha == 1.0 => Vec::new(),
            DecomposerKind::Progressive => vec![TurnField::Progress],
            DecomposerKind::External => vec![TurnField::Credit],
        }
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let alpha = self.config.alpha;
        if alpha == 1.0 {
            return Ok(());
        }
        let credits = self.credits(inputs)?;
        let mut skipped = 0;
        let mut early = Correlation::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            if group.has_equal_returns() {
                skipped += 1;
                continue;
            }
            let compare = self.comparison(group, &credits[index]);
            // (A_traj, credit, A_turn) of each turn.
            let mut facts: Vec<Vec<(f64, f64, f64)>> = Vec::with_capacity(group.trajectories.len());
            for (advantages, credits) in advantages[index].iter_mut().zip(&credits[index]) {
                let mut row = Vec::with_capacity(advantages.len());
                for (turn, advantage) in advantages.iter_mut().enumerate() {
                    let turn_advantage = compare(turn, credits[turn]);
                    row.push((*advantage, credits[turn], turn_advantage));
                    if turn < EARLY_TURNS {
                        early.add(*advantage, turn_advantage);
                    }
                    *advantage = alpha * *advantage + (1.0 - alpha) * turn_advantage;
                }
                facts.push(row);
            }
            explanation.facts(index, &facts, |_, _, &(trajectory, credit, turn)| {
                vec![("trajectory", trajectory), ("credit", credit), ("turn", turn), ("alpha", alpha)]
            });
        }
        explanation.diagnostic("has/skipped_groups", f64::from(skipped));
        if let Some(correlation) = early.coefficient() {
            explanation.diagnostic("has/early_turn_correlation", correlation);
        }
        Ok(())
    }
}
