//! EZPoints: building a formula of two cards that equals 12, with the rules of gym-cards as used by
//! verl-agent.
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
