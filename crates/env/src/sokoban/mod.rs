//! Sokoban: pushing boxes onto targets, with the rules and rewards of gym-sokoban as used by verl-agent
//! and RAGEN.
//!
//! | file | subject |
//! |---|---|
//! | [`room`] | cells, moves, rewards, the room as text |
//! | [`action`] | parsing of actions |
//! | [`level`] | levels from files, equality under symmetry |
//! | [`solver`] | shortest solutions |
//! | [`generator`] | generated levels |
//! | `set`, `environment` | the [`turnwise_core::Environment`] |
//! | `expert` | demonstrations |
//! | `phrases` | fixed phrases for the tokenizer |
//! | `world` | settings, templates |
//! | [`picture`] | the room as a picture |
//! | [`mod@replay`] | comparison with recorded episodes of the original |

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
