//! Overflows: trajectories that ended because their next prompt did not fit the context.

use turnwise_core::{Batch, StopReason};

use crate::TrainError;
use crate::config::Config;
use crate::record::observer::{Event, Observer};

/// Share of a batch from which on a warning is worth a line.
const WORTH_A_WARNING: f64 = 0.1;

/// Warns of a first step in which many trajectories overflowed, and refuses one in which no first prompt fits: nothing would
/// be learnt from it.
///
/// # Errors
/// No trajectory has a turn, and all overflowed.
pub(crate) fn check_overflows(
    batch: &Batch,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<(), TrainError> {
    let overflowed = |trajectory: &&turnwise_core::Trajectory| trajectory.stop == StopReason::ContextOverflow;
    let all = batch.trajectories().count();
    let count = batch.trajectories().filter(overflowed).count();
    let limit = config.rollout.max_context;
    if all > 0 && count == all && batch.trajectories().all(|trajectory| trajectory.turns.is_empty()) {
        return Err(TrainError::Config {
            origin: "rollout.max_context".into(),
            reason: format!(
                "is {limit}, and with rollout.max_response_tokens = {} no first prompt fits, so that there is no turn to learn \
                 from; raise the one, lower the other, or choose a shorter prompt.template",
                config.rollout.max_response_tokens
            ),
        });
    }
    let share = count as f64 / all.max(1) as f64;
    if share >= WORTH_A_WARNING {
        observer.event(Event::Note(format!(
            "warning: {:.0} % of the trajectories ended because their next prompt did not fit rollout.max_context = {limit}; \
             the share of each step is rollout/overflow_rate",
            100.0 * share
        )));
    }
    Ok(())
}
