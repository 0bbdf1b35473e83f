//! EZPoints: building a formula of two cards that equals 12, with the rules of gym-cards as used by
//! verl-agent.
//!
//! | file | subject |
//! |---|---|
//! | [`cards`] | cards and deals |
//! | [`formula`] | symbols, and evaluation as in Python |
//! | [`game`] | effects and rewards of actions |
//! | `set`, `environment` | the [`turnwise_core::Environment`] |
//! | `expert` | demonstrations |
//! | `world` | settings, templates |
//! | [`picture`] | cards and formula as a picture |
//! | [`mod@replay`] | comparison with recorded episodes of the original |
//!
//! verl-agent requests a JSON reply; [`crate::parse`] describes how it is parsed.

pub mod cards;
mod environment;
mod expert;
pub mod formula;
pub mod game;
pub mod picture;
pub mod replay;
mod set;
mod world;

pub use environment::EzPointsEnv;
pub use set::{EzPointsGenerator, EzPointsPictures, EzPointsReward, EzPointsSet};
pub use world::{EzPointsExpert, EzPointsKind, EzPointsSettings, EzPointsWorld};
