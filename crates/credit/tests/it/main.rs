//! Advantages against hand-made numbers, golden files of numpy and Python, and properties. One binary with a module per subject, because every test binary costs a link of all crates.

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
