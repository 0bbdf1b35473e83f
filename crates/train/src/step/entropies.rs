//! Fills in entropies if the samplers do not report them.

use turnwise_core::{Batch, TokenSequence, Trajectory};
use turnwise_credit::TurnField;

use crate::TrainError;
use crate::config::EntropyKind;
use crate::learners::policy::PolicyLearner;
use crate::step::Method;

/// Fills in missing entropies with one scoring pass at the sampling temperature. With
/// `rollout.max_staleness`, that pass uses newer weights than the sampler did. With
/// `rollout.engine.entropies = "sampled"`, entropies are `-log p` of the sampled tokens.
pub(crate) fn fill_entropies(
    batch: &mut Batch,
    method: &Method<'_>,
    policy: &mut dyn PolicyLearner,
) -> Result<(), TrainError> {
    if !method.pipeline.fields().iter().any(|(_, field)| *field == TurnField::Entropies) {
        return Ok(());
    }
    let unknown = |trajectory: &&mut Trajectory| {
        trajectory.turns.iter().any(|turn| turn.entropies.len() != turn.response_ids.len())
    };
    let mut wanting: Vec<&mut Trajectory> =
        batch.groups.iter_mut().flat_map(|group| &mut group.trajectories).filter(unknown).collect();
    let engine = method.config.rollout.engine.as_ref();
    if engine.is_some_and(|engine| engine.entropies == EntropyKind::Sampled) {
        for turn in wanting.iter_mut().flat_map(|trajectory| &mut trajectory.turns) {
            turn.entropies = turn.old_logprobs.iter().map(|logprob| -logprob).collect();
        }
        return Ok(());
    }
    let sequences: Vec<&TokenSequence> =
        wanting.iter().flat_map(|trajectory| &trajectory.sequences).collect();
    if sequences.is_empty() {
        return Ok(());
    }
    let mut scores = policy.score(&sequences, f64::from(method.config.rollout.temperature))?.into_iter();
    for trajectory in &mut wanting {
        for (sequence, scores) in trajectory.sequences.iter().zip(&mut scores) {
            let mut start = 0;
            for span in &sequence.spans {
                let end = start + span.len();
                trajectory.turns[span.turn].entropies = scores.entropies[start..end].to_vec();
                start = end;
            }
        }
    }
    Ok(())
}
