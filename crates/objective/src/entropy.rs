//! The entropy bonus.

/// Returns the loss `-coef * sum_t weight_t H_t` and its derivatives, with `H_t` in nats. Tokens of
/// weight 0 contribute nothing.
pub fn entropy_bonus(coef: f64, weights: &[f64], entropies: &[f64]) -> (f64, Vec<f64>) {
    let mut loss = 0.0;
    let slopes = weights
        .iter()
        .zip(entropies)
        .map(|(&weight, &entropy)| {
            if weight == 0.0 {
                return 0.0;
            }
            loss -= coef * weight * entropy;
            -coef * weight
        })
        .collect();
    (loss, slopes)
}
