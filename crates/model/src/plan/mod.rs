//! Estimates a run's memory item by item, from the shapes with which the buffers are allocated.
//! `tests/memory.rs` compares the estimates with allocation counts.

mod device;
mod pictures;

pub use self::pictures::PicturePlan;
use crate::cpu::decoder::Workspace;
use crate::cpu::head::HeadState;
use crate::engine::{EngineConfig, EngineWeights, NativeEngine};
use crate::{LearnerConfig, ModelConfig, ParameterLayout};

const NUMBER: u64 = size_of::<f32>() as u64;

/// Phase in which memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanPhase {
    /// The whole run.
    Always,
    /// While trajectories are sampled.
    Sampling,
    /// While weights are updated.
    Training,
}

/// One item of a [`MemoryPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanItem {
    /// Phase that uses the memory.
    pub phase: PlanPhase,
    /// Name of the item.
    pub name: &'static str,
    /// Maximum bytes.
    pub bytes: u64,
    /// How the bytes were computed.
    pub detail: String,
}

/// Settings that determine a run's memory.
#[derive(Clone, Debug)]
pub struct PlanSettings {
    /// Learner settings, with the lanes of one process.
    pub learner: LearnerConfig,
    /// Number of trained parameters: all of the model's, or only the adapter's.
    pub trainable: usize,
    /// Maximum tokens in a sequence.
    pub longest: usize,
    /// Elements per token in an adapter's buffers; 0 without an adapter.
    pub adapter_row: usize,
    /// Rank of the policy's adapter; 0 without an adapter.
    pub adapter_rank: usize,
    /// Parameters of a separate reference policy; 0 without a reference, or if the base serves as
    /// reference.
    pub reference: usize,
    /// True if the run computes KL divergences over the whole vocabulary, against a reference
    /// policy or a masked prompt.
    pub divergences: bool,
    /// True if a second gradient is accumulated while the first is kept.
    pub second_gradient: bool,
    /// Total and trained parameters of a separate critic.
    pub critic: Option<[usize; 2]>,
    /// Number of samplers in one process, and their settings.
    pub sampling: Option<(usize, EngineConfig)>,
    /// Number of rollouts that may run during training (`rollout.max_staleness`); 0 if sampling and
    /// training alternate.
    pub staleness: u64,
    /// True if the adapter is merged into a copy of the base, for servers that accept only full
    /// weights.
    pub merged: bool,
    /// Images in prompts.
    pub pictures: Option<PicturePlan>,
}

impl PlanSettings {
    /// Returns the number of parameters that a pass reads: those of the base and of the adapter.
    fn read(&self, weights: u64) -> u64 {
        let trainable = self.trainable as u64;
        if trainable == weights { weights } else { weights + trainable }
    }
}

/// A run's estimated memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Items, grouped by phase.
    pub items: Vec<PlanItem>,
}

impl MemoryPlan {
    /// Returns the plan for one process that trains on the CPU, assuming that all lanes have full
    /// micro-batches and every token is a target.
    pub fn new(config: &ModelConfig, settings: &PlanSettings) -> Self {
        let mut plan = Self::default();
        let weights = ParameterLayout::new(config).len as u64;
        let learner = &settings.learner;
        let (lanes, trainable) = (learner.lanes as u64, settings.trainable as u64);
        let read = settings.read(weights);
        plan.add(PlanPhase::Always, "weights", read * NUMBER, format!("{read} numbers, f32"));
        plan.add(
            PlanPhase::Always,
            "moments",
            2 * trainable * NUMBER,
            format!("2 x {trainable} numbers that are trained"),
        );
        if settings.reference > 0 {
            let detail = format!("{} numbers, frozen", settings.reference);
            plan.add(PlanPhase::Always, "reference weights", settings.reference as u64 * NUMBER, detail);
        }
        if let Some([own, trained]) = settings.critic {
            let bytes = (own + 2 * trained) as u64 * NUMBER;
            plan.add(PlanPhase::Always, "critic", bytes, format!("{own} weights, 2 x {trained} moments"));
        }
        if let Some((engines, engine)) = settings.sampling {
            plan.sampling(config, engines as u64, engine, settings);
        }
        if settings.merged {
            plan.merged(weights);
        }
        if settings.staleness > 0 {
            plan.during_training(settings.staleness, trainable);
        }
        plan.add(
            PlanPhase::Training,
            "gradients",
            lanes * trainable * NUMBER,
            format!("{trainable} numbers x {lanes} lanes"),
        );
        if settings.second_gradient {
            let detail = "kept while that of the clipping bias is taken".into();
            plan.add(PlanPhase::Training, "second gradients", lanes * trainable * NUMBER, detail);
        }
        plan.passes(config, settings);
        plan.pictures(config, settings);
        if let Some([_, trained]) = settings.critic {
            let detail = format!("{trained} numbers x {lanes} lanes");
            plan.add(PlanPhase::Training, "critic's gradients", lanes * trained as u64 * NUMBER, detail);
        }
        plan
    }

    fn add(&mut self, phase: PlanPhase, name: &'static str, bytes: u64, detail: String) {
        self.items.push(PlanItem { phase, name, bytes, detail });
    }

    fn merged(&mut self, weights: u64) {
        let detail = format!("{weights} numbers with the adapter in them, while they are written");
        self.add(PlanPhase::Sampling, "merged weights", weights * NUMBER, detail);
    }

    fn sampling(
        &mut self,
        config: &ModelConfig,
        engines: u64,
        engine: EngineConfig,
        settings: &PlanSettings,
    ) {
        let packed = EngineWeights::bytes(config, settings.adapter_rank, settings.learner.compute) as u64;
        self.add(
            PlanPhase::Sampling,
            "sampling weights",
            packed,
            "packed for sampling, shared by lanes".into(),
        );
        let EngineConfig { max_num_seqs: slots, max_model_len } = engine;
        let [cache, rows] = NativeEngine::bytes(config, engine).map(|bytes| engines * bytes as u64);
        let detail = format!("{engines} lanes x {slots} sequences x {max_model_len} tokens, all full");
        self.add(PlanPhase::Sampling, "key/value cache", cache, detail);
        self.add(PlanPhase::Sampling, "sampling rows", rows, "activations and logits of a step".into());
    }

    /// Moves the sampling items to [`PlanPhase::Always`], counting them once per concurrent
    /// rollout. A rollout that began in an earlier step also keeps that step's weights.
    fn during_training(&mut self, rollouts: u64, trainable: u64) {
        for item in self.items.iter_mut().filter(|item| item.phase == PlanPhase::Sampling) {
            item.phase = PlanPhase::Always;
            item.bytes *= rollouts + 1;
            item.detail.push_str(&format!(", {} rollouts", rollouts + 1));
        }
        let detail = format!("{trainable} numbers x {rollouts} rollouts that began before");
        self.add(PlanPhase::Always, "earlier weights", rollouts * trainable * NUMBER, detail);
    }

    fn passes(&mut self, config: &ModelConfig, settings: &PlanSettings) {
        let LearnerConfig { lanes, micro_batch_tokens, recompute, share_prefixes, .. } = settings.learner;
        let lanes = lanes as u64;
        // A longer sequence is its own micro-batch.
        let tokens = micro_batch_tokens.max(settings.longest);
        let shape = [tokens, tokens, settings.longest];
        let [layers, head] = Workspace::<f32>::new(config, recompute)
            .bytes(config, shape, share_prefixes)
            .map(|bytes| lanes * bytes as u64);
        let kept = if recompute { "layers' inputs kept, the rest made anew" } else { "all kept" };
        let detail = format!("{tokens} tokens x {lanes} lanes, {kept}");
        let adapter = lanes * (tokens * settings.adapter_row) as u64 * NUMBER;
        self.add(PlanPhase::Training, "activations", layers + adapter, detail);
        let detail = format!("a chunk at a time, vocabulary {}", config.vocab_size);
        self.add(PlanPhase::Training, "output layer", head, detail);
        if settings.divergences {
            let [layers, head] = Workspace::<f32>::forward_only(config)
                .bytes(config, shape, share_prefixes)
                .map(|bytes| lanes * bytes as u64);
            let pairs = lanes * HeadState::<f32>::divergence_bytes(config, tokens) as u64;
            let detail = "the reference's pass, and both sides of a chunk of divergences".into();
            self.add(PlanPhase::Training, "divergences", layers + head + pairs, detail);
        }
        if settings.critic.is_some() {
            let [layers, head] = Workspace::<f32>::new(config, recompute)
                .bytes(config, shape, share_prefixes)
                .map(|bytes| lanes * bytes as u64);
            let logits = lanes * HeadState::<f32>::logit_bytes(config, tokens) as u64;
            let detail = format!("{tokens} tokens x {lanes} lanes, {kept}");
            self.add(PlanPhase::Training, "critic's activations", layers + head - logits, detail);
        }
    }

    /// Returns a phase's bytes.
    pub fn of(&self, phase: PlanPhase) -> u64 {
        self.items.iter().filter(|item| item.phase == phase).map(|item| item.bytes).sum()
    }

    /// Returns the peak bytes if each phase frees its buffers.
    pub fn peak(&self) -> u64 {
        self.of(PlanPhase::Always) + self.of(PlanPhase::Sampling).max(self.of(PlanPhase::Training))
    }

    /// Returns the peak bytes if buffers stay allocated.
    pub fn sum(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }

    /// Returns the total bytes of items with this name.
    pub fn item(&self, name: &str) -> u64 {
        self.items.iter().filter(|item| item.name == name).map(|item| item.bytes).sum()
    }
}
