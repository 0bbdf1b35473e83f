//! Mean response entropies, for AEM, EMPG and STAPO.

use turnwise_core::{Batch, PerTurn};

use crate::CreditError;

/// Returns `Hbar_{i,t}`, each turn's mean token entropy, in nats.
///
/// # Errors
/// Fails on missing, NaN or infinite entropies.
pub fn mean_entropies(method: &'static str, batch: &Batch) -> Result<PerTurn<f64>, CreditError> {
    let field = "entropies";
    PerTurn::try_from_fn(batch, |group, trajectory, turn| {
        let found = batch.groups[group].trajectories[trajectory].turns[turn].mean_entropy();
        let missing = CreditError::MissingField { method, field, group, trajectory, turn };
        let value = found.ok_or(missing)?;
        if !value.is_finite() {
            return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
        }
        Ok(value)
    })
}

pub(crate) fn extent<'a>(values: impl IntoIterator<Item = &'a f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |extent, &value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}
