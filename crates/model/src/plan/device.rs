//! Memory for training and sampling on an NVIDIA GPU.
//!
//! A trained weight takes 18 bytes: 2 for the bf16 copy, 4 for the f32 master weight, 8 for two
//! moments and 4 for the gradient. A frozen weight takes 2 bytes. Buffer sizes must match
//! `cuda/decoder.rs`, `cuda/head.rs` and `cuda/engine.rs`.

use super::{MemoryPlan, NUMBER, PlanPhase, PlanSettings};
use crate::{ModelConfig, ParameterLayout};

const HALF: u64 = 2;

/// Estimate for the CUDA context, kernels and cuBLAS workspace.
const CONTEXT: u64 = 1 << 30;

const LOGITS: u64 = 1 << 27;

/// Maximum number of prompt tokens per sampling step, as in `cuda/engine.rs`.
const PROMPT_ROWS: u64 = 2048;
/// Maximum number of thread blocks among which a row's keys are split, as in `cuda/engine.rs`.
const SPLITS: u64 = 16;

const ROOM: u64 = 256;

struct Widths {
    layers: u64,
    hidden: u64,
    queries: u64,
    query: u64,
    qkv: u64,
    inner: u64,
    head: u64,
    vocabulary: u64,
}

impl Widths {
    fn of(config: &ModelConfig) -> Self {
        let wide = |width: usize| width as u64;
        Self {
            layers: wide(config.num_hidden_layers),
            hidden: wide(config.hidden_size),
            queries: wide(config.num_attention_heads),
            query: wide(config.query_width()),
            qkv: wide(config.query_width() + 2 * config.key_value_width()),
            inner: wide(config.intermediate_size),
            head: wide(config.head_dim),
            vocabulary: wide(config.vocab_size.next_multiple_of(16)),
        }
    }

    fn kept(&self) -> u64 {
        // Two normed rows, raw and rotated queries, keys and values, attention output, gate and up.
        let narrow = 2 * self.hidden + 2 * self.qkv + self.query + 2 * self.inner;
        // Residual stream, log-sums, and inverse norms of heads and both normed rows.
        let wide = self.hidden + 2 * self.queries + self.qkv / self.head.max(1) + 2;
        narrow * HALF + wide * NUMBER
    }

    /// Returns the bytes of a decoder's passes without the head.
    fn decoder(&self, tokens: u64, kept_layers: u64, adapter_row: u64, backward: bool) -> u64 {
        let residual = (self.layers + 1) * self.hidden * NUMBER;
        let forward = residual + kept_layers * self.kept() + (self.inner + adapter_row) * HALF;
        let narrow = 2 * self.hidden + self.query + self.qkv + self.inner;
        let derivatives = (self.hidden + self.queries) * NUMBER + narrow * HALF;
        let partials = ROOM * self.hidden.max(8 * self.head) * NUMBER;
        tokens * (forward + if backward { derivatives } else { 0 }) + partials
    }

    fn chunk(&self, tokens: u64) -> u64 {
        tokens.min((LOGITS / self.vocabulary).max(1))
    }
}

impl MemoryPlan {
    /// Returns the device's plan for one training process. Samplers share the weights, and lanes
    /// share one set of buffers.
    pub fn on_device(config: &ModelConfig, settings: &PlanSettings) -> Self {
        let mut plan = Self::default();
        let widths = Widths::of(config);
        let (weights, trainable) = (ParameterLayout::new(config).len as u64, settings.trainable as u64);
        let read = settings.read(weights);
        plan.add(PlanPhase::Always, "weights", read * HALF, format!("{read} numbers, bf16"));
        let detail = format!("{trainable} numbers that are trained, f32");
        plan.add(PlanPhase::Always, "master weights", trainable * NUMBER, detail);
        let detail = format!("2 x {trainable} numbers that are trained, f32");
        plan.add(PlanPhase::Always, "moments", 2 * trainable * NUMBER, detail);
        if settings.reference > 0 {
            let detail = format!("{} numbers, frozen, bf16", settings.reference);
            plan.add(PlanPhase::Always, "reference weights", settings.reference as u64 * HALF, detail);
        }
        if let Some([own, trained]) = settings.critic {
            let bytes = own as u64 * HALF + 3 * trained as u64 * NUMBER;
            let detail = format!("{own} weights, bf16; {trained} masters and their moments, f32");
            plan.add(PlanPhase::Always, "critic", bytes, detail);
        }
        plan.add(PlanPhase::Always, "CUDA", CONTEXT, "context, kernels and workspaces, an allowance".into());
        if let Some((engines, engine)) = settings.sampling {
            plan.device_sampling(
                &widths,
                engines as u64,
                engine.max_num_seqs as u64,
                engine.max_model_len as u64,
            );
        }
        let detail = format!("{trainable} numbers, f32");
        plan.add(PlanPhase::Training, "gradients", trainable * NUMBER, detail);
        if settings.second_gradient {
            let detail = "kept while that of the clipping bias is taken".into();
            plan.add(PlanPhase::Training, "second gradients", trainable * NUMBER, detail);
        }
        plan.device_passes(&widths, settings);
        if let Some([_, trained]) = settings.critic {
            let detail = format!("{trained} numbers, f32");
            plan.add(PlanPhase::Training, "critic's gradients", trained as u64 * NUMBER, detail);
        }
        plan
    }

    /// Returns the plan of host memory for a run on a device: loaded weights, and the copies for a
    /// checkpoint.
    pub fn beside_device(config: &ModelConfig, settings: &PlanSettings) -> Self {
        let mut plan = Self::default();
        let (weights, trainable) = (ParameterLayout::new(config).len as u64, settings.trainable as u64);
        plan.add(
            PlanPhase::Always,
            "weights",
            weights * NUMBER,
            format!("{weights} numbers, f32, as loaded"),
        );
        if settings.reference > 0 {
            let detail = format!("{} numbers, f32, as loaded", settings.reference);
            plan.add(PlanPhase::Always, "reference weights", settings.reference as u64 * NUMBER, detail);
        }
        let critic = settings.critic.unwrap_or_default();
        if critic != [0, 0] {
            let detail = format!("{} numbers, f32, as made", critic[0]);
            plan.add(PlanPhase::Always, "critic", critic[0] as u64 * NUMBER, detail);
        }
        let trained = trainable + critic[1] as u64;
        let detail = format!("3 x {trained} numbers, weights and moments from the device");
        plan.add(PlanPhase::Training, "checkpoint", 3 * trained * NUMBER, detail);
        if settings.merged {
            plan.merged(weights);
        }
        plan
    }

    fn device_sampling(&mut self, widths: &Widths, engines: u64, slots: u64, max_model_len: u64) {
        let key_values = widths.qkv - widths.query;
        let cache = engines * widths.layers * (slots + 1) * max_model_len * key_values * HALF;
        let detail = format!("{} sequences x {max_model_len} tokens, bf16, taken at once", engines * slots);
        self.add(PlanPhase::Sampling, "key/value cache", cache, detail);
        let (rows, wanted) = (slots + PROMPT_ROWS, slots);
        let narrow = widths.hidden + widths.qkv + widths.query + 3 * widths.inner;
        let row = widths.hidden * NUMBER + narrow * HALF;
        let parts = widths.queries * SPLITS * (widths.head + 2) + widths.vocabulary;
        let bytes = engines * (rows * row + wanted * parts * NUMBER);
        self.add(PlanPhase::Sampling, "sampling rows", bytes, "activations and logits of a step".into());
    }

    fn device_passes(&mut self, widths: &Widths, settings: &PlanSettings) {
        let learner = &settings.learner;
        let tokens = (learner.micro_batch_tokens.max(settings.longest) as u64).next_multiple_of(ROOM);
        let (layers, kept) = if learner.recompute {
            (1, "layers' inputs kept, the rest made anew")
        } else {
            (widths.layers, "all kept")
        };
        let adapter_row = settings.adapter_row as u64;
        let passes = widths.decoder(tokens, layers, adapter_row, true);
        let detail = format!("{tokens} tokens, {kept}");
        self.add(PlanPhase::Training, "activations", passes, detail.clone());
        let (chunk, rows) = (widths.chunk(tokens), tokens * widths.hidden * (HALF + NUMBER));
        let logits = chunk * widths.vocabulary * (NUMBER + HALF);
        let chunks = format!("{chunk} rows of logits at a time, vocabulary {}", widths.vocabulary);
        self.add(PlanPhase::Training, "output layer", rows + logits, chunks);
        if settings.divergences {
            let bytes = widths.decoder(tokens, layers, adapter_row, false) + rows + 2 * logits;
            let detail = "the reference's pass, and both sides of a chunk of divergences".into();
            self.add(PlanPhase::Training, "divergences", bytes, detail);
        }
        if settings.critic.is_some() {
            self.add(PlanPhase::Training, "critic's activations", passes + rows, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineConfig;
    use crate::{LearnerConfig, ModelConfig};

    fn seven_billion() -> ModelConfig {
        ModelConfig {
            vocab_size: 152_064,
            hidden_size: 3584,
            intermediate_size: 18_944,
            num_hidden_layers: 28,
            num_attention_heads: 28,
            num_key_value_heads: 4,
            head_dim: 128,
            tie_word_embeddings: false,
            attention_bias: true,
            ..ModelConfig::default()
        }
    }

    fn settings(trainable: usize, reference: usize) -> PlanSettings {
        let learner =
            LearnerConfig { recompute: true, micro_batch_tokens: 16_384, ..LearnerConfig::default() };
        PlanSettings {
            learner,
            trainable,
            longest: 2560,
            adapter_row: 0,
            adapter_rank: 0,
            reference,
            divergences: false,
            second_gradient: false,
            critic: None,
            sampling: Some((1, EngineConfig { max_num_seqs: 64, max_model_len: 2560 })),
            staleness: 0,
            merged: false,
            pictures: None,
        }
    }

    #[test]
    fn a_trained_weight_takes_18_bytes_and_a_frozen_one_2() {
        let config = seven_billion();
        let weights = ParameterLayout::new(&config).len;
        assert_eq!(weights, 7_615_616_512);
        let plan = MemoryPlan::on_device(&config, &settings(weights, weights));
        let of = |names: &[&str]| names.iter().map(|name| plan.item(name)).sum::<u64>();
        let bytes = |each: u64| each * weights as u64;
        assert_eq!(of(&["weights", "master weights", "moments", "gradients"]), bytes(18));
        assert_eq!(of(&["reference weights"]), bytes(2));
        // More than an H200 has, even without activations.
        assert!(bytes(20) > 139 << 30);
        // 28 layers, 65 slots of 2,560 tokens, keys and values of 512 elements each.
        assert_eq!(of(&["key/value cache"]), 28 * 65 * 2560 * 2 * 512 * 2);

        let adapter = 80_000_000;
        let plan = MemoryPlan::on_device(&config, &settings(adapter, 0));
        assert_eq!(plan.item("weights"), 2 * (weights + adapter) as u64);
        assert_eq!(plan.item("moments") + plan.item("gradients"), 12 * adapter as u64);
        let processors = MemoryPlan::new(&config, &settings(adapter, 0));
        assert_eq!(processors.item("weights"), 4 * (weights + adapter) as u64);
        let host = MemoryPlan::beside_device(&config, &settings(adapter, 0));
        assert_eq!(host.peak(), 4 * weights as u64 + 12 * adapter as u64);
    }

    #[test]
    fn what_a_run_has_more_of_needs_more() {
        let config = seven_billion();
        let base = settings(1000, 0);
        let peak = |settings: &PlanSettings| MemoryPlan::on_device(&config, settings).peak();
        let learner = |change: fn(&mut LearnerConfig)| {
            let mut settings = base.clone();
            change(&mut settings.learner);
            peak(&settings)
        };
        assert!(learner(|learner| learner.recompute = false) > peak(&base));
        assert!(learner(|learner| learner.micro_batch_tokens = 65_536) > peak(&base));
        assert!(peak(&PlanSettings { divergences: true, ..base.clone() }) > peak(&base));
        assert!(peak(&PlanSettings { critic: Some([1000, 1000]), ..base.clone() }) > peak(&base));
        assert_eq!(learner(|learner| learner.lanes = 8), peak(&base));
    }
}
