//! Questions that are answered by searching: Search-R1's and verl-agent's search environments.
//!
//! | file | subject |
//! |---|---|
//! | `question.rs`, `choice.rs` | a question, its golden answers, its options |
//! | `answer.rs` | normal form of answers, exact match, F1, cover match |
//! | `records.rs`, `options.rs`, `files.rs` | the layouts of data sets, those of options, and their files |
//! | `generator/` | an encyclopaedia that is made, and questions about it |
//! | `action.rs`, `format.rs` | what the agent may do and what it reads |
//! | `retriever.rs` | what is searched with |
//! | `environment.rs` | an episode |
//! | `set.rs` | questions as a task set |
//! | `expert.rs` | episodes to imitate |
//! | `phrases.rs` | phrases for tokenizers of small models |
//! | `replay.rs` | recordings of the original |
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
