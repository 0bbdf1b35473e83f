//! WebShop: buying a product that matches an instruction (Yao et al. 2022).
//!
//! Pages, clickable items, goals, prices and rewards are byte-identical to the original's, except
//! for the type factor if the nouns of the titles are unknown ([`reward::Judge::type_score`]).

pub mod action;
pub mod catalogue;
mod copies;
pub mod demonstrations;
mod environment;
mod expert;
mod fuzzy;
pub mod generator;
pub mod goal;
mod goal_file;
pub mod nouns;
pub mod official;
mod open;
pub mod page;
mod phrases;
pub mod product;
pub mod replay;
pub mod reward;
pub mod search;
pub mod session;
mod set;
pub mod shop;
pub mod store;
mod task_index;
mod world;

pub use environment::{DEFAULT_MAX_STEPS, TASK_SCORE, TYPE_STAND_IN, WebshopEnv};
pub use expert::Expert;
pub use fuzzy::token_set_ratio;
pub use product::{HumanInstruction, Product, ProductOption};
pub use set::{Splits, WebshopOptions, WebshopSet};
pub use world::{WebshopCatalogue, WebshopExpert, WebshopKind, WebshopSettings, WebshopWorld};
