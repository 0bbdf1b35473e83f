//! A reimplementation of ALFWorld's text engine that reads the official game files.
//!
//! | file | subject |
//! |---|---|
//! | `pddl`, `parse`, `facts`, `assembly` | from a `game.tw-pddl` file to a [`Game`] |
//! | `game`, `goal` | constants of a game and the six goals |
//! | `command`, `episode` | commands, their effects and feedback |
//! | `set`, `files`, `environment` | the task set and [`turnwise_core::Environment`] |
//! | [`generator`] | generated games |
//! | [`expert`], `prior`, [`demonstrations`] | an expert that searches likely receptacles first |
//! | `world`, `phrases` | settings, templates, tokenizer phrases |
//! | [`replay`] | comparison with recorded episodes of the original |
//!
//! Observations, admissible commands, rewards and episode ends are byte-identical to the original
//! (TextWorld 1.7.0 with the ALFWorld 0.4.2 logic stored in the games). The 3-D simulator is not
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
