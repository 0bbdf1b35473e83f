//! Sizes that determine a config's memory.

use turnwise_core::{GradientPass, RequiredPasses};
use turnwise_credit::selection::{RejectionConfig, SelectionConfig};
use turnwise_model::engine::EngineConfig;
use turnwise_model::{
    AdapterLayout, Device, LoraConfig, ModelConfig, ParameterLayout, PicturePlan, PlanSettings,
};

use crate::config::{Config, Registries, ServedWeights};
use crate::learners::settings::learner_config;
use crate::rollout::engines::sampling_lanes;

fn pictures(config: &Config, model: &ModelConfig, drawn: Option<[usize; 2]>) -> Option<PicturePlan> {
    let vision = model.vision.as_ref().filter(|_| config.prompt.pictures)?;
    let scored = turns_of_a_step(config);
    let size = PicturePlan::size(vision, drawn, config.rollout.max_model_len);
    let tokens = size.iter().map(|side| side / vision.factor()).product::<usize>();
    // A sequence has one picture, with a start and an end token.
    let of_warm_start = if config.has_sft() { config.sft.batch_tokens / (tokens + 2) + 1 } else { 0 };
    let demonstrated = if config.has_sft() { config.sft.demonstrations * config.env.max_turns } else { 0 };
    let steps = 2 + config.rollout.max_staleness as usize;
    Some(PicturePlan {
        size,
        known: demonstrated.max(steps * scored),
        scored,
        differentiated: of_warm_start.max(scored.div_ceil(config.train.num_minibatches)),
    })
}

fn turns_of_a_step(config: &Config) -> usize {
    trajectories_of_a_step(config) * config.env.max_turns
}

fn trajectories_of_a_step(config: &Config) -> usize {
    let oversample = match config.rollout.filter_groups {
        SelectionConfig::Rejection(RejectionConfig { oversample }) => oversample,
        _ => 1,
    };
    config.rollout.tasks_per_step * oversample * config.rollout.group_size
}

/// `drawn` is the height and width of pictures, if known.
pub(super) fn settings(
    config: &Config,
    registries: &Registries,
    model: &ModelConfig,
    drawn: Option<[usize; 2]>,
) -> PlanSettings {
    let weights = ParameterLayout::new(model).len;
    let learner = learner_config(config, config.rollout.temperature);
    let passes = registries.loss(config).map_or_else(|_| RequiredPasses::default(), |loss| loss.passes());
    let has_critic = registries.pipeline(config).is_ok_and(|pipeline| pipeline.required_inputs().values);
    let adapter = |lora: &LoraConfig, critic: bool| {
        AdapterLayout::new(model, lora, critic).map_or(0, |layout| layout.len)
    };
    let lora = config.policy.lora.as_ref();
    let trainable = lora.map_or(weights, |lora| adapter(lora, false));
    let critic = has_critic.then(|| match config.critic_lora() {
        None => [ParameterLayout::critic(model).len; 2],
        Some(critic) => {
            let trained = adapter(critic, true);
            // The critic uses the policy's base, or a copy if that is trained.
            [trained + if lora.is_some() { 0 } else { weights }, trained]
        }
    });
    // Nothing (adapter off), the adapter after SFT, or a copy of all weights.
    let reference = match (passes.needs_reference(), lora) {
        (false, _) => 0,
        (true, Some(_)) if !config.has_sft() => 0,
        (true, _) => trainable,
    };
    let adapter_row = [lora, config.critic_lora().filter(|_| critic.is_some())]
        .into_iter()
        .flatten()
        .map(|lora| {
            let widest = model.hidden_size.max(model.query_width()).max(model.intermediate_size);
            // Three modules side by side; with dropout also the dropped inputs and their
            // derivative.
            6 * lora.rank + if lora.dropout > 0.0 { 2 * widest } else { 0 }
        })
        .sum();
    let lanes = config.rollout.num_workers;
    // There may be fewer trajectories than slots.
    let step = trajectories_of_a_step(config).div_ceil(config.rollout.num_workers);
    let evaluated = if config.eval.tasks == 0 { usize::MAX } else { config.eval.tasks };
    let slots =
        config.rollout.max_num_seqs.min(step.max(evaluated.div_ceil(config.rollout.num_workers))).max(1);
    let (lanes, slots) = match config.policy.device {
        Device::Cpu => (lanes, slots),
        // One engine, which allocates all caches at once.
        Device::Cuda => sampling_lanes(config),
    };
    let here = config.rollout.engine.is_none() && config.needs_world();
    let engine = EngineConfig { max_num_seqs: slots, max_model_len: config.rollout.max_model_len };
    PlanSettings {
        learner,
        trainable,
        longest: config.rollout.max_model_len,
        adapter_row,
        adapter_rank: lora.map_or(0, |lora| lora.rank),
        reference,
        divergences: passes.needs_divergences(),
        second_gradient: passes.gradient == GradientPass::ScaledByNorm,
        critic,
        sampling: here.then_some((lanes, engine)),
        staleness: if here { config.rollout.max_staleness } else { 0 },
        merged: lora.is_some() && sends_all_weights(config),
        pictures: pictures(config, model, drawn),
    }
}

fn sends_all_weights(config: &Config) -> bool {
    config.rollout.engine.as_ref().is_some_and(|servers| servers.weights == ServedWeights::Full)
}

/// Returns the bytes of one version of the weights in f32. The shared folder never has two
/// versions, because the previous version is deleted first.
pub(super) fn shared_folder(config: &Config, parameters: usize) -> Option<u64> {
    sends_all_weights(config).then_some(4 * parameters as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use turnwise_model::vision::VisionTokens;

    use super::*;
    use crate::config::{ConfigSource, load};
    use crate::plan::memory::MemoryReport;

    #[test]
    fn pictures_are_planned_by_the_turns_that_show_them() {
        let report = |drawn: Option<[usize; 2]>, more: &[&str]| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/vision/sokoban.toml");
            let mut overrides = vec!["sft.steps=0", "env.max_turns=10", "rollout.tasks_per_step=4"];
            overrides.extend(["rollout.group_size=8", "train.num_minibatches=4"].iter().chain(more));
            let overrides = overrides.into_iter().map(str::to_owned).collect();
            let config =
                load(&ConfigSource { files: vec![file], overrides, ..ConfigSource::default() }).unwrap();
            let scratch = &config.policy.scratch;
            let tokens = VisionTokens { start: 4, end: 5, image: 6, video: 7 };
            let model = scratch.with_tower(scratch.model_config(300, config.rollout.max_model_len), tokens);
            let planned = settings(&config, &Registries::builtin(), &model, drawn).pictures.unwrap();
            (planned, MemoryReport::new(&config, &Registries::builtin(), &model, drawn).machine.plan)
        };
        let (planned, plan) = report(Some([96, 96]), &[]);
        // 96 x 96 pixels are read as 48 x 48. Two steps have 4 x 8 trajectories of 10 turns each.
        let expected = PicturePlan { size: [48, 48], known: 640, scored: 320, differentiated: 80 };
        assert_eq!((planned, plan.item("pictures")), (expected, 3 * 48 * 48 * 640));
        assert!(plan.item("tower") > 0 && plan.item("encoded pictures") == 320 * 64 * 4);
        assert_eq!(report(None, &[]).0, expected);
        let large = ["policy.scratch.vision.max_pixels=1000000"];
        assert_eq!(report(None, &large).0.size, [48, 48 * 64]);
        assert_eq!(report(Some([96, 96]), &large).0.size, [96, 96]);
        let (planned, _) = report(Some([96, 96]), &["sft.steps=10", "sft.demonstrations=500"]);
        assert_eq!((planned.known, planned.differentiated), (5000, 1000 / 3 + 1));
    }
}
