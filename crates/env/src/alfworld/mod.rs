//! ALFWorld's text engine, reimplemented; reads the official game files.
//!
//! | file | subject |
//! |---|---|
//! | `pddl` | tokens and facts of a PDDL problem |
//! | `parse`, `facts`, `assembly` | from a `game.tw-pddl` file to a [`Game`] |
//! | `game` | constants: names, types, places, which objects fit where |
//! | `goal` | the six goals and progress toward them |
//! | `command` | commands and their admissibility |
//! | `episode` | state, effects and feedback |
//! | `set`, `files` | folders and archives of games, splits and order |
//! | `environment` | the [`turnwise_core::Environment`] |
//! | [`generator`] | generated games |
//! | [`expert`], `prior` | an expert that searches likely places first |
//! | [`demonstrations`] | expert episodes for SFT |
//! | `world` | the [`crate::world::WorldKind`]: settings, templates |
//! | `phrases` | [`PHRASES`]: fixed phrases for the tokenizer |
//! | [`replay`] | comparison with recorded episodes of the original |
//!
//! The engine reproduces the original (TextWorld 1.7.0 with the ALFWorld 0.4.2 logic stored in the
//! games) byte for byte: observations, admissible commands, rewards and ends. Rules have the names
//! of the games' PDDL domain. The three-dimensional simulator is not included.

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
