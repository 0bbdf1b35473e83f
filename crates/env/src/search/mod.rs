//! Question answering with a search engine, as in Search-R1 and verl-agent.

mod action;
pub mod answer;
pub mod choice;
mod environment;
mod expert;
pub(crate) mod files;
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
