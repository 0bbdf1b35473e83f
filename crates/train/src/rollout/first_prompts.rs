//! Checks first prompts against the context and `prompt.compact_after`. The check runs before SFT,
//! which may take hours.

use std::time::{Duration, Instant};

use turnwise_core::{Purpose, Seed, Tasks};
use turnwise_text::TextError;

use super::Job;
use super::observations::shorten;
use super::pool::{EnvCalls, EnvPool, LanePool, Outcome};
use super::prompting::Prompter;
use super::tasks::TaskOrder;
use crate::TrainError;
use crate::config::Config;
use crate::setup::World;

/// Rejects the config if none of the first step's prompts fits. Ignores environments that cannot
/// start; the rollout reports them.
pub(crate) fn check(config: &Config, world: &World, prompter: Prompter<'_>) -> Result<(), TrainError> {
    let (rollout, compact_after) = (&config.rollout, config.prompt.compact_after);
    let order = TaskOrder::new(Tasks::of(world.task_set(), &config.env.split)?, config.seed);
    let Some(order) = order.filter(|_| config.train.steps > 0) else { return Ok(()) };
    let pool = EnvPool::new(world.shared_task_set(), EnvCalls::new(rollout));
    let mut lane = pool.lane();
    let mut shortest = usize::MAX;
    for (group, task) in order.draw(0, rollout.tasks_per_step)?.into_iter().enumerate() {
        // Same seed as in the first step's rollout.
        let coordinates = [Purpose::Rollout as u64, 0, group as u64];
        lane.begin(
            Job::new(task.clone(), group, 0),
            Seed::derive(config.seed, Purpose::Environment, &coordinates),
        );
        let Some(Outcome::Begun(environment, observation)) = next(&mut lane) else { return Ok(()) };
        let tools = environment.tools().to_vec();
        lane.close(environment);
        let observation = shorten(observation, &task, prompter.tokenizer);
        let layout = (config.prompt.layout, config.prompt.history);
        let prompt = prompter.first(layout, &task, (&observation, ""), &tools);
        let prompt = match prompt {
            Ok(prompt) => prompt,
            Err(error @ TextError::Picture(_)) => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        if prompt.len() < rollout.max_model_len && compact_after.is_none_or(|after| prompt.len() <= after) {
            return Ok(());
        }
        shortest = shortest.min(prompt.len());
    }
    if let Some(after) = compact_after.filter(|_| shortest < rollout.max_model_len) {
        return Err(TrainError::Config {
            origin: "prompt.compact_after".into(),
            reason: format!(
                "is {after}, and no first prompt is that short: the shortest of the first step has {shortest} tokens; raise it to \
                 more than {shortest}, a summary and a few turns"
            ),
        });
    }
    Err(TrainError::Config {
        origin: "rollout.max_model_len".into(),
        reason: format!(
            "is {}, and no first prompt fits: the shortest of the first step has {shortest} tokens; raise it to more than \
             {shortest} and room for responses, or choose a shorter prompt.template",
            rollout.max_model_len
        ),
    })
}

fn next(lane: &mut LanePool) -> Option<Outcome> {
    // The call has its own timeout (`rollout.env_timeout_s`, or the environment's).
    let deadline = Instant::now() + Duration::from_hours(24);
    lane.poll(deadline).pop().map(|(_, outcome)| outcome)
}
