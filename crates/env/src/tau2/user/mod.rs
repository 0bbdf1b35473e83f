//! Simulated users.

mod model;
mod person;
mod scripted;

use std::fmt;
use std::sync::Arc;

use turnwise_core::EnvError;

pub use model::{Chat, ModelUser, OpenChat, Tau2User, Tau2UserKind, model_prompt};
pub use scripted::Scripted;

use super::task::Tau2Task;

/// Text by which the user ends the conversation because the request is fulfilled.
pub const STOP: &str = "###STOP###";
/// Text by which the user ends the conversation after a transfer to another agent.
pub const TRANSFER: &str = "###TRANSFER###";
/// Text by which the user ends the conversation because the scenario does not cover what is asked.
pub(crate) const OUT_OF_SCOPE: &str = "###OUT-OF-SCOPE###";

/// The agent's greeting, to which the user's first message replies.
pub(crate) const GREETING: &str = "Hi! How can I help you today?";

/// Returns true if a message ends the conversation.
pub fn ends(words: &str) -> bool {
    [STOP, TRANSFER, OUT_OF_SCOPE].iter().any(|token| words.contains(token))
}

/// Inputs that determine a user's next message.
#[derive(Clone, Copy, Debug)]
pub struct Talk<'a> {
    /// The task.
    pub task: &'a Tau2Task,
    /// The agent's messages, starting with the greeting. The user has replied to all messages
    /// except the last.
    pub agent: &'a [String],
    /// The user's messages.
    pub user: &'a [String],
    /// Whether the agent transferred the user to a human.
    pub is_transferred: bool,
    /// The episode's random bits.
    pub draw: u64,
}

/// A simulated user.
pub trait User: Send + Sync + fmt::Debug {
    /// Returns the user's next message.
    ///
    /// # Errors
    /// Fails if the language model cannot be reached.
    fn reply(&self, talk: Talk<'_>) -> Result<String, EnvError>;

    /// Returns true if replies never wait for another process.
    fn is_instant(&self) -> bool {
        false
    }
}

/// A simulated user shared by environments.
pub type SharedUser = Arc<dyn User>;
