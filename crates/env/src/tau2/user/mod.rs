//! Simulated users, which return their next message based on the conversation so far.

mod model;
mod person;
mod scripted;

use std::fmt;
use std::sync::Arc;

use turnwise_core::EnvError;

pub use model::{Chat, ModelUser, OpenChat, Tau2User, Tau2UserKind, model_prompt};
pub use scripted::Scripted;

use super::task::Tau2Task;

/// Ends the conversation because the request is fulfilled.
pub const STOP: &str = "###STOP###";
/// Ends the conversation because the user is transferred to another agent.
pub const TRANSFER: &str = "###TRANSFER###";
/// Ends the conversation because the scenario does not cover this situation.
pub(crate) const OUT_OF_SCOPE: &str = "###OUT-OF-SCOPE###";

/// The agent's greeting, which precedes the user's first message as in the original.
pub(crate) const GREETING: &str = "Hi! How can I help you today?";

/// Returns true if a user message ends the conversation.
pub fn ends(words: &str) -> bool {
    [STOP, TRANSFER, OUT_OF_SCOPE].iter().any(|token| words.contains(token))
}

/// Everything that a user's next message is based on.
#[derive(Clone, Copy, Debug)]
pub struct Talk<'a> {
    /// The task.
    pub task: &'a Tau2Task,
    /// The agent's messages, starting with the greeting. The user has replied to all messages but
    /// the last.
    pub agent: &'a [String],
    /// The user's messages.
    pub user: &'a [String],
    /// Whether the agent has transferred the user to a human agent.
    pub is_transferred: bool,
    /// Random bits drawn for the episode.
    pub draw: u64,
}

/// A user.
pub trait User: Send + Sync + fmt::Debug {
    /// Returns the user's next message.
    ///
    /// # Errors
    /// Fails if the language model that simulates the user cannot be reached.
    fn reply(&self, talk: Talk<'_>) -> Result<String, EnvError>;

    /// Returns true if replies never wait for another process.
    fn is_instant(&self) -> bool {
        false
    }
}

/// A user shared by several environments.
pub type SharedUser = Arc<dyn User>;
