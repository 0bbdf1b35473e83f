//! ALFWorld's text engine, reimplemented; it reads the official game files.
//!
//! | File | Subject |
//! |---|---|
//! | `pddl` | tokens and facts of a PDDL problem |
//! | `parse`, `facts`, `assembly` | one `game.tw-pddl` file to one [`Game`] |
//! | `game` | what never changes: names, types, places, what fits where |
//! | `goal` | the six goals, when they are met and how far along one is |
//! | `command` | what the agent may type, and which of it is admissible |
//! | `episode` | what changes: the state, the effects and the feedback |
//! | `set`, `files` | folders and archives of games, their splits and order |
//! | `environment` | the [`turnwise_core::Environment`] over them |
//! | [`generator`] | household worlds of the project's own making |
//! | [`expert`], `prior` | an agent that searches by the habits of households |
//! | [`demonstrations`] | episodes to imitate |
//! | `world` | the [`crate::world::WorldKind`]: settings, templates |
//! | `phrases` | [`PHRASES`]: what stands between the names |
//! | [`replay`] | recorded episodes of the original against this engine |
//!
//! The engine reproduces the original (TextWorld 1.7.0 with the ALFWorld 0.4.2 logic that is stored in the
//! games) to the byte: observations, admissible commands, rewards and ends. The names of the rules are those
//! of the games' own PDDL domain. What is left out: the three-dimensional simulator.

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
