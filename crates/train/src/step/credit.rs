//! The credit stage: one advantage per turn.

use turnwise_core::{Batch, PerToken};
use turnwise_credit::{CreditInputs, CreditReport, ModelInputs, attach_explanations};

use crate::TrainError;
use crate::step::Method;

pub(crate) struct Credited {
    pub(crate) report: CreditReport,
    pub(crate) values: Option<PerToken<f64>>,
}

pub(crate) fn assign(
    batch: &mut Batch,
    model_inputs: ModelInputs,
    method: &Method<'_>,
    at: u64,
) -> Result<Credited, TrainError> {
    let inputs = CreditInputs::new(batch)
        .at(method.config.seed, at)
        .with_embedder(method.embedder)
        .with_model_inputs(&model_inputs);
    let mut report = method.pipeline.report(&inputs, method.config.train.explain)?;
    for (group, advantages) in batch.groups.iter_mut().zip(report.advantages.groups()) {
        for (trajectory, advantages) in group.trajectories.iter_mut().zip(advantages) {
            trajectory.advantages = Some(advantages.clone());
        }
    }
    attach_explanations(batch, std::mem::take(&mut report.explanations));
    Ok(Credited { report, values: model_inputs.values })
}
