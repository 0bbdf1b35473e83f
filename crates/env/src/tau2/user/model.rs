//! A user simulated by a language model, as in tau2-bench.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::EnvError;

use super::{Talk, User};
use crate::tau2::task::Tau2Task;

/// How the user is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tau2UserKind {
    /// Scripted user for training; the episode's seed determines its random choices.
    #[default]
    Scripted,
    /// Language model at an OpenAI-compatible endpoint, prompted as in tau2-bench.
    Model,
}

/// Settings of the simulated user. All keys except `kind` apply only to `kind = "model"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tau2User {
    /// Kind of user.
    pub kind: Tau2UserKind,
    /// Base URL; requests go to `{endpoint}/chat/completions`.
    pub endpoint: String,
    /// The service's model name.
    pub model: String,
    /// Name of the environment variable that contains the API key; empty if the service needs no
    /// key.
    pub api_key_env: String,
    /// Sampling temperature (tau2-bench: 0).
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: f64,
    /// Maximum tokens per user message.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: u32,
    /// Timeout of a request with its response, in seconds.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Retries per request, in addition to `rollout.env_retries`.
    #[schemars(range(max = 100))]
    pub retries: u32,
}

impl Default for Tau2User {
    fn default() -> Self {
        Self {
            kind: Tau2UserKind::default(),
            endpoint: "http://127.0.0.1:8000/v1".to_owned(),
            model: String::new(),
            api_key_env: String::new(),
            temperature: 0.0,
            max_tokens: 512,
            timeout_s: 60.0,
            retries: 2,
        }
    }
}

/// Function that sends messages to a language model and returns its reply. Each message is a role
/// and a text.
pub type Chat = Arc<dyn Fn(&[(&str, &str)]) -> Result<String, EnvError> + Send + Sync>;

/// Function that opens the language model that the settings describe; pass it to
/// [`crate::tau2::Tau2Kind::with_chat`].
pub type OpenChat = Arc<dyn Fn(&Tau2User) -> Result<Chat, EnvError> + Send + Sync>;

/// A user simulated by a language model.
#[derive(Clone)]
pub struct ModelUser {
    chat: Chat,
    guidelines: String,
}

impl ModelUser {
    /// Creates a user with tau2-bench's guidelines.
    pub fn new(chat: Chat, guidelines: String) -> Self {
        Self { chat, guidelines }
    }
}

impl fmt::Debug for ModelUser {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("ModelUser").finish_non_exhaustive()
    }
}

/// Returns tau2-bench's system prompt of the simulated user.
pub fn model_prompt(guidelines: &str, task: &Tau2Task) -> String {
    let guidelines = guidelines.replace("<PERSONA_GUIDELINES>", "");
    format!("{guidelines}\n\n<scenario>\n{}\n</scenario>", task.user_scenario)
}

impl User for ModelUser {
    fn reply(&self, talk: Talk<'_>) -> Result<String, EnvError> {
        let system = model_prompt(&self.guidelines, talk.task);
        let mut messages = vec![("system", system.as_str())];
        let mut user = talk.user.iter();
        for words in talk.agent {
            // The model plays the assistant's role, so the agent is its user.
            messages.push(("user", words));
            messages.extend(user.next().map(|words| ("assistant", words.as_str())));
        }
        (self.chat)(&messages)
    }
}
