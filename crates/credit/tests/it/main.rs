//! Advantages: hand-computed numbers, golden files of NumPy and Python, and properties. One test
//! binary, because each one links all crates.

mod aem_drift;
mod anchors;
mod common;
mod data;
mod embedding;
mod estimators;
mod golden;
mod properties;
mod registry;
mod rounding;
mod scored;
mod similarity;
mod turn_level;
