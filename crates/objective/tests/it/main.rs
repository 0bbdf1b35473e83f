//! Losses and their derivatives. One binary with a module per subject, because every test binary costs a link of all crates.

mod correction;
mod loss;
mod policy;
mod properties;
mod terms;
