//! Losses and their derivatives. One test binary, because each one links all crates.

mod correction;
mod loss;
mod policy;
mod properties;
mod terms;
