//! A user simulated by a language model, as in the original.

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
    /// Turnwise's scripted user for training, which is deterministic for a given seed.
    #[default]
    Scripted,
    /// A language model behind an OpenAI-compatible endpoint, prompted as in the original.
    Model,
}

/// The user. All keys except `kind` apply only to `kind = "model"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tau2User {
    /// How the user is simulated.
    pub kind: Tau2UserKind,
    /// Base URL of the service. Requests go to `{endpoint}/chat/completions`.
    pub endpoint: String,
    /// Model name, as used by the service.
    pub model: String,
    /// Environment variable that contains the API key, or empty if the service needs no key.
    pub api_key_env: String,
    /// Sampling temperature. The original uses 0.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: f64,
    /// Maximum number of tokens in a user message.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: u32,
    /// Timeout for a request in seconds, including the response.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Number of times to retry a failed request, in addition to `rollout.env_retries`.
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

/// Returns a reply to a list of messages, each given as role and text.
pub type Chat = Arc<dyn Fn(&[(&str, &str)]) -> Result<String, EnvError> + Send + Sync>;

/// Opens the model specified by these settings ([`crate::tau2::Tau2Kind::with_chat`]).
pub type OpenChat = Arc<dyn Fn(&Tau2User) -> Result<Chat, EnvError> + Send + Sync>;

/// A user simulated by a language model.
#[derive(Clone)]
pub struct ModelUser {
    chat: Chat,
    guidelines: String,
}

impl ModelUser {
    /// Creates a user with the original's guidelines.
    pub fn new(chat: Chat, guidelines: String) -> Self {
        Self { chat, guidelines }
    }
}

impl fmt::Debug for ModelUser {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("ModelUser").finish_non_exhaustive()
    }
}

/// Returns the original's system prompt for the language model that simulates the user.
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
            // To the model, the agent is the one who asks.
            messages.push(("user", words));
            messages.extend(user.next().map(|words| ("assistant", words.as_str())));
        }
        (self.chat)(&messages)
    }
}
