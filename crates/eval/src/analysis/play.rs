//! Plays groups of trajectories for an analysis.

use std::sync::atomic::AtomicBool;

use turnwise_core::{Batch, Group, Purpose, StopReason, Task};
use turnwise_model::Weights;
use turnwise_model::engine::NativeEngine;
use turnwise_train::config::Config;
use turnwise_train::rollout::{EnvRunner, Job, Rollout, RolloutProgress, is_faulty};

use crate::EvalError;

/// Policy and environment.
pub struct AnalysisSettings<'a> {
    /// Prompts, parsing, sampling and limits.
    pub config: &'a Config,
    /// Environment, tokenizer and prompts.
    pub runner: &'a EnvRunner,
    /// The weights.
    pub weights: Weights,
    /// Set by the caller to stop early.
    pub stop: &'a AtomicBool,
}

impl AnalysisSettings<'_> {
    pub(crate) fn samplers(&self) -> Result<Vec<NativeEngine>, EvalError> {
        Ok(self.runner.samplers(self.config, &self.weights)?)
    }
}

/// Plays each task `samples` times as one group, at the rollout temperature. Drops trajectories in
/// which the environment or the sampler failed. Prompts have tokens in place of images, but not the
/// images themselves.
///
/// # Errors
/// Returns [`EvalError::Train`] on too little memory or a failed sampler,
/// [`EvalError::Interrupted`] if stopped, [`EvalError::Environment`] if all trajectories failed.
pub fn play_groups(
    settings: &AnalysisSettings<'_>,
    tasks: &[Task],
    samples: usize,
    tick: &mut dyn FnMut(&RolloutProgress),
) -> Result<Batch, EvalError> {
    let AnalysisSettings { config, runner, stop, .. } = *settings;
    let rollout = Rollout::new(config, Purpose::Evaluation, stop);
    let job = |(group, task): (usize, &Task)| {
        let task = task.clone();
        (0..samples).map(move |sample| Job::new(task.clone(), group, sample))
    };
    let jobs: Vec<Job> = tasks.iter().enumerate().flat_map(job).collect();
    let mut samplers = settings.samplers()?;
    let played = runner.play(&rollout, &jobs, &mut samplers, tick)?.ok_or(EvalError::Interrupted)?;
    let mut played = played.trajectories;
    if let Some(StopReason::EnvironmentError(reason) | StopReason::SampleError(reason)) =
        played.first().map(|trajectory| &trajectory.stop)
        && played.iter().all(is_faulty)
    {
        return Err(EvalError::Environment { tasks: tasks.len(), reason: reason.clone() });
    }
    // The batch outlives the in-memory picture store.
    runner.finish(config, &mut played);
    let mut groups = vec![Group::default(); tasks.len()];
    for trajectory in played.into_iter().filter(|trajectory| !is_faulty(trajectory)) {
        groups[trajectory.group].trajectories.push(trajectory);
    }
    groups.retain(|group| !group.trajectories.is_empty());
    Ok(Batch { groups })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use turnwise_core::{Part, TokenSequence};
    use turnwise_credit::aem::AemConfig;
    use turnwise_model::vision::FIRST_PICTURE_TOKEN;
    use turnwise_train::config::{ConfigSource, Registries, load};
    use turnwise_train::run::source::{NativeSource, NewRun, PolicySource as _};
    use turnwise_train::setup::{self, World};
    use turnwise_train::{NoopObserver, Phase, RunDirectory};

    use super::*;
    use crate::analysis::{SurprisalSettings, surprisal};

    #[test]
    fn played_batches_name_their_pictures_and_studies_show_them_again() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = format!("env.pictures={}", folder.path().join("pictures").display());
        let small =
            ["env.generator.train=4", "env.generator.valid=2", "env.generator.test=2", "env.max_turns=2"];
        let overrides = small.iter().map(|text| (*text).to_owned()).chain([pictures]).collect();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/vision/sokoban.toml");
        let config = load(&ConfigSource { files: vec![file], overrides, ..ConfigSource::default() }).unwrap();
        let registries = Registries::builtin();
        let world = World::new(&config.env, &registries, &["train"], &mut |_| ()).unwrap();
        let template = setup::template(&config, &registries).unwrap();
        let directory = RunDirectory::create(&folder.path().join("run")).unwrap();
        let run = NewRun {
            config: &config,
            registries: &registries,
            phase: Phase::Rl,
            world: Some(&world),
            template: &template,
            directory: &directory,
            ignore_memory: true,
        };
        let (policy, tokenizer) = NativeSource.start(&run, &mut NoopObserver).unwrap();
        let weights = policy.weights().unwrap();
        let image = weights.config().vision.as_ref().unwrap().tokens.image;
        let stop = AtomicBool::new(false);
        let vision = weights.config().vision.clone();
        let runner = EnvRunner::new(&config, &registries, world, tokenizer, vision.as_ref()).unwrap();
        let settings = AnalysisSettings { config: &config, runner: &runner, weights, stop: &stop };
        let tasks = runner.world.task_set().tasks("train").unwrap();
        let mut batch = play_groups(&settings, &tasks[..2], 4, &mut |_| ()).unwrap();

        let sequences: Vec<&TokenSequence> =
            batch.trajectories().flat_map(|trajectory| &trajectory.sequences).collect();
        assert!(
            sequences.iter().flat_map(|sequence| &sequence.tokens).all(|&token| token < FIRST_PICTURE_TOKEN)
        );
        assert!(
            sequences
                .iter()
                .all(|sequence| sequence.tokens.iter().filter(|&&token| token == image).count() == 1)
        );
        assert!(sequences.len() > 8);

        let study = SurprisalSettings {
            states: 4,
            draws: 2,
            aem: AemConfig { min_spread: 0.0, ..AemConfig::default() },
        };
        assert!(!surprisal(&settings, &batch, &study, &mut |_| ()).unwrap().points.is_empty());
        let turns = batch.groups.iter_mut().flat_map(|group| &mut group.trajectories);
        for part in turns.flat_map(|trajectory| &mut trajectory.turns).flat_map(|turn| &mut turn.parts) {
            if let Part::Image(image) = part {
                image.sha256 = "0".repeat(64);
            }
        }
        let error = surprisal(&settings, &batch, &study, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(&"0".repeat(64)), "{error}");
    }
}
