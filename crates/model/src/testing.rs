//! Derivatives held against finite differences: for the tests of operations, here and in other crates.

use turnwise_core::{Purpose, Seed};

/// Standard normal numbers.
pub fn random(seed: u64, len: usize) -> Vec<f64> {
    let mut rng = Seed::derive(seed, Purpose::Init, &[]).rng();
    (0..len).map(|_| rng.normal()).collect()
}

/// Panics unless `gradient` is the derivative of `function` at `x`.
///
/// Five-point central differences in `f64`: their error is of fourth order in the step, so the two
/// agree to about 1e-9 of the gradient's largest entry; 1e-7 is asked for.
pub fn check_gradient(name: &str, x: &[f64], gradient: &[f64], mut function: impl FnMut(&[f64]) -> f64) {
    assert_eq!(x.len(), gradient.len());
    let scale = gradient.iter().fold(0.0f64, |largest, g| largest.max(g.abs()));
    assert!(scale > 0.0, "{name}: the gradient is zero everywhere");
    let mut moved = x.to_vec();
    let step = 3e-4;
    // At most 50 entries, spread over the whole.
    for index in (0..x.len()).step_by(x.len().div_ceil(50)) {
        let mut at = |shift: f64| {
            moved[index] = x[index] + shift;
            let value = function(&moved);
            moved[index] = x[index];
            value
        };
        let difference = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
        let error = (difference - gradient[index]).abs() / scale;
        assert!(
            error < 1e-7,
            "{name}[{index}]: derivative {} by hand, {difference} by differences",
            gradient[index]
        );
    }
}
