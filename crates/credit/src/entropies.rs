//! Mean response entropies of a batch, the one signal AEM, EMPG and STAPO start from.

use turnwise_core::Batch;

use crate::CreditError;

/// `Hbar_{i,t}`: the mean entropy over the response's tokens in nats, `[group][trajectory][turn]`.
///
/// # Errors
/// A turn without token entropies, or with one that is not finite.
pub fn mean_entropies(method: &'static str, batch: &Batch) -> Result<Vec<Vec<Vec<f64>>>, CreditError> {
    let mut table = Vec::with_capacity(batch.groups.len());
    for (group, data) in batch.groups.iter().enumerate() {
        let mut rows = Vec::with_capacity(data.trajectories.len());
        for (trajectory, data) in data.trajectories.iter().enumerate() {
            let mut row = Vec::with_capacity(data.turns.len());
            for (turn, data) in data.turns.iter().enumerate() {
                let field = "entropies";
                let value = data.mean_entropy().ok_or(CreditError::MissingField {
                    method,
                    field,
                    group,
                    trajectory,
                    turn,
                })?;
                if !value.is_finite() {
                    return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
                }
                row.push(value);
            }
            rows.push(row);
        }
        table.push(rows);
    }
    Ok(table)
}

/// Smallest and largest value; `None` of nothing.
pub(crate) fn extent<'a>(values: impl IntoIterator<Item = &'a f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |extent, &value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}
