//! EZPoints: combine two cards into a formula for 12, with the rules of gym-cards as in verl-agent.

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
