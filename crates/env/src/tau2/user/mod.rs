//! The user: what it says next, given what was said.

mod model;
mod person;
mod scripted;

use std::fmt;
use std::sync::Arc;

use turnwise_core::EnvError;

pub use model::{Chat, ModelUser, OpenChat, Tau2User, Tau2UserKind, model_prompt};
pub use scripted::Scripted;

use super::task::Tau2Task;

/// Ends the talk: the user has what it wanted.
pub const STOP: &str = "###STOP###";
/// Ends the talk: the user is passed on to another agent.
pub const TRANSFER: &str = "###TRANSFER###";
/// Ends the talk: the scenario does not say how to go on.
pub const OUT_OF_SCOPE: &str = "###OUT-OF-SCOPE###";

/// Words of the agent before the user's first, as in the original.
pub const GREETING: &str = "Hi! How can I help you today?";

/// Returns true if words of the user end the talk.
pub fn ends(words: &str) -> bool {
    [STOP, TRANSFER, OUT_OF_SCOPE].iter().any(|token| words.contains(token))
}

/// What the user knows when it speaks.
#[derive(Clone, Copy, Debug)]
pub struct Talk<'a> {
    /// The task.
    pub task: &'a Tau2Task,
    /// The agent's words, from its greeting on. The user answered each but the last.
    pub agent: &'a [String],
    /// The user's words.
    pub user: &'a [String],
    /// Whether the agent has passed the user on to a human agent.
    pub is_transferred: bool,
    /// Random bits of the episode.
    pub draw: u64,
}

/// A user.
pub trait User: Send + Sync + fmt::Debug {
    /// Returns the user's next words.
    ///
    /// # Errors
    /// Fails if whoever plays the user cannot be reached.
    fn reply(&self, talk: Talk<'_>) -> Result<String, EnvError>;

    /// Returns true if replies never wait for anything outside of this process.
    fn is_instant(&self) -> bool {
        false
    }
}

/// A user that environments share.
pub type SharedUser = Arc<dyn User>;
