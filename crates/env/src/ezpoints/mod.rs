//! EZPoints: combine two cards into a formula that equals 12. The rules are those of gym-cards as
//! used by verl-agent.
//!
//! verl-agent asks for JSON replies; [`crate::parse`] describes how they are parsed.

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
