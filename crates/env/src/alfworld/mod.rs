//! ALFWorld's text engine in Rust, for official game files and [generated](generator) games.
//!
//! Observations, admissible commands, rewards and episode ends are byte-identical to those of
//! TextWorld 1.7.0 with the ALFWorld 0.4.2 logic that the games contain. The 3-D simulator is not
//! included.

mod assembly;
mod command;
pub mod demonstrations;
mod environment;
mod episode;
pub mod expert;
mod facts;
mod files;
mod game;
pub mod generator;
mod goal;
mod parse;
mod pddl;
mod phrases;
mod prior;
pub mod replay;
mod set;
mod world;

pub use command::Command;
pub use environment::{AlfworldEnv, DEFAULT_MAX_STEPS};
pub use episode::{Episode, StepOutcome};
pub use game::{Game, ObjectId, ReceptacleId};
pub use goal::{Goal, TaskType};
pub use phrases::PHRASES;
pub use prior::Prior;
pub use set::AlfworldSet;
pub use world::{AlfworldExpert, AlfworldKind, AlfworldSettings, AlfworldWorld};
