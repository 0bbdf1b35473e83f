//! Advantages: hand-computed and golden numbers, and properties.

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
