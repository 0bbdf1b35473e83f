//! The record of a run: its output, which a resume reads back.

pub(crate) mod abandoned;
pub mod checkpoint;
pub mod directory;
pub mod earlier_configs;
pub mod learning;
pub mod lock;
pub(crate) mod log;
pub mod metrics;
pub mod observer;
pub mod panels;
pub mod position;
pub mod state;
pub mod tensorboard;
