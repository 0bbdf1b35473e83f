//! Model files, and comparisons with other programs. One binary with a module per subject, because
//! every test binary links all crates.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "cuda")]
mod cuda;
mod hf_configs;
mod imports;
mod peft;
mod transformers;
mod vision_peers;

/// Returns the largest difference from another program's numbers.
fn distance(found: &[f64], expected: &serde_json::Value) -> f64 {
    let expected: Vec<f64> = serde_json::from_value(expected.clone()).unwrap();
    assert_eq!(found.len(), expected.len());
    found.iter().zip(&expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
}
