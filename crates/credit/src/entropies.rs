//! Mean response entropies of a batch, the one signal AEM, EMPG and STAPO start from.

use turnwise_core::{Batch, PerTurn};

use crate::CreditError;

/// `Hbar_{i,t}`: the mean entropy over the response's tokens, in nats.
///
/// # Errors
/// A turn without token entropies, or with one that is not finite.
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

/// Smallest and largest value; `None` of nothing.
pub(crate) fn extent<'a>(values: impl IntoIterator<Item = &'a f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |extent, &value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}
