//! WebShop: buying the product that an instruction describes, in a shop of searchable pages (Yao et al. 2022).

pub mod action;
pub mod catalogue;
pub mod demonstrations;
mod environment;
mod expert;
mod fuzzy;
pub mod generator;
pub mod goal;
pub mod official;
mod open;
pub mod page;
pub mod product;
pub mod python;
pub mod replay;
pub mod reward;
pub mod search;
pub mod session;
mod set;
pub mod shop;
pub mod store;

pub use environment::{DEFAULT_MAX_STEPS, TASK_SCORE, TYPE_STAND_IN, WebshopEnv};
pub use expert::Expert;
pub use fuzzy::token_set_ratio;
pub use product::{HumanInstruction, Product, ProductOption};
pub use set::{Splits, WebshopOptions, WebshopSet};
