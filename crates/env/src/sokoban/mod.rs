//! Sokoban with the rules and rewards of gym-sokoban, as in verl-agent and RAGEN.

pub mod action;
mod environment;
mod expert;
pub mod generator;
pub mod level;
mod phrases;
pub mod picture;
pub mod replay;
pub mod room;
mod set;
pub mod solver;
mod world;

pub use environment::SokobanEnv;
pub use expert::Expert;
pub use set::{SokobanOptions, SokobanPictures, SokobanReward, SokobanSet};
pub use world::{SokobanExpert, SokobanKind, SokobanSettings, SokobanWorld};
