//! Questions answered by searching: the search environments of Search-R1 and verl-agent.
//!
//! | file | subject |
//! |---|---|
//! | `question.rs`, `choice.rs` | questions, golden answers, options |
//! | `answer.rs` | normalization, exact match, F1, cover match |
//! | `records.rs`, `options.rs`, `files.rs` | layouts of data sets |
//! | `generator/` | a generated encyclopaedia with questions |
//! | `action.rs`, `format.rs` | actions and observations |
//! | `retriever.rs` | settings of the retriever |
//! | `environment.rs`, `set.rs` | episodes and the task set |
//! | `expert.rs` | demonstrations |
//! | `phrases.rs` | fixed phrases for the tokenizer |
//! | `replay.rs` | recorded episodes of the original |
//! | `world.rs` | settings, templates |

mod action;
pub mod answer;
pub mod choice;
mod environment;
mod expert;
mod files;
mod format;
pub mod generator;
mod options;
mod phrases;
mod question;
mod records;
mod replay;
mod retriever;
mod set;
#[cfg(test)]
mod tests;
mod world;

pub use self::action::Request;
pub use self::environment::{AnswerFrom, SearchEnv};
pub use self::files::TableReader;
pub use self::format::{INVALID, ObservationFormat};
pub use self::question::{PlannedSearch, Question, SearchReward};
pub use self::retriever::{OpenRetriever, RetrieverSettings};
pub use self::set::{SearchOptions, SearchSet};
pub use self::world::{SearchData, SearchExpert, SearchFiles, SearchKind, SearchSettings, SearchWorld};
pub use turnwise_retrieval::RetrieverKind;
