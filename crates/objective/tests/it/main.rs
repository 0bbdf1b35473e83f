//! Losses and their derivatives.

mod correction;
mod loss;
mod policy;
mod properties;
mod terms;
