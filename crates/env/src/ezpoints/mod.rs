//! EZPoints: build a formula of two cards that equals 12, with the rules of gym-cards as verl-agent
//! uses it.
//!
//! | File | Subject |
//! |---|---|
//! | [`cards`] | cards, and deals by the original's distribution |
//! | [`formula`] | symbols, and what Python's `eval` makes of them |
//! | [`game`] | what an action does and what it is worth |
//! | `set`, `environment` | the [`turnwise_core::Environment`] over deals in splits |
//! | `expert` | formulas to imitate, with mistakes if wished |
//! | `world` | settings, templates, how it is opened |
//! | [`picture`] | the cards and the formula as a picture |
//! | [`mod@replay`] | recorded episodes of the original against these rules |
//!
//! verl-agent asks for a JSON reply; [`crate::parse`] describes how it is parsed.

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
