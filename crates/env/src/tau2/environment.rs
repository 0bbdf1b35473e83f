//! Conversations, tool calls and saved states.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{
    Action, EnvError, Environment, Metric, Observation, Seed, Snapshot, Step, Task, Tool, ToolCall,
};

use super::domain::State;
use super::grade::{Played, grade};
use super::set::Shared;
use super::task::Tau2Task;
use super::telecom::DONE_NAME;
use super::user::{GREETING, Talk, ends};
use crate::parse::calls_of_words;
use crate::python::values::Raise;
use crate::saved::SavedEpisode;

const TRANSFER_TOOL: &str = "transfer_to_human_agents";

/// Plays the tasks of a [`super::Tau2Tasks`].
///
/// The observation is a call's result or the user's reply. An episode is graded when the user ends
/// the conversation. After too many failed calls, an episode terminates ungraded and unsolved; at
/// the turn limit, it is truncated. In solo mode, the tool `done` ends and grades the episode, and
/// a message to the user ends the episode unsolved.
#[derive(Debug)]
pub struct Tau2Env {
    shared: Arc<Shared>,
    max_turns: usize,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    task: String,
    state: State,
    draw: u64,
    /// Actions so far; a saved state contains them, and restoring executes them again.
    actions: Vec<Action>,
    agent: Vec<String>,
    user: Vec<String>,
    calls: Vec<ToolCall>,
    errors: usize,
    is_transferred: bool,
    /// State key: a digest of all calls, results and messages.
    history: String,
    over: bool,
}

/// A saved episode; the fields' order is the order of the JSON keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    task: String,
    draw: u64,
    actions: Vec<Action>,
    /// The user's messages so far; restoring uses them instead of asking the simulated user again.
    user: Vec<String>,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "tau2";
    const FORMAT: &'static str = "turnwise.tau2.episode";
    const VERSION: u32 = 1;
}

fn failed(task: &str, raise: &Raise) -> EnvError {
    EnvError::Other(format!("{task}: the task cannot be set up: {}", raise.text))
}

impl Tau2Env {
    pub(super) fn new(shared: Arc<Shared>, max_turns: usize) -> Self {
        Self { shared, max_turns, episode: None }
    }

    fn begin(&self, id: &str, draw: u64) -> Result<Episode, EnvError> {
        let state = State::new(&self.shared.checkout.base, self.shared.task(id)?)
            .map_err(|raise| failed(id, &raise))?;
        Ok(Episode {
            task: id.to_owned(),
            state,
            draw,
            actions: Vec::new(),
            agent: vec![GREETING.to_owned()],
            user: Vec::new(),
            calls: Vec::new(),
            errors: 0,
            is_transferred: false,
            history: String::new(),
            over: false,
        })
    }

    /// Returns the user's reply. While an episode is being restored, `known` is the saved reply.
    fn answer(&self, episode: &mut Episode, known: Option<String>) -> Result<String, EnvError> {
        let words = match known {
            Some(words) => words,
            None => self.shared.user.reply(Talk {
                task: self.shared.task(&episode.task)?,
                agent: &episode.agent,
                user: &episode.user,
                is_transferred: episode.is_transferred,
                draw: episode.draw,
            })?,
        };
        episode.note(&[b"user", words.as_bytes()]);
        episode.user.push(words.clone());
        Ok(words)
    }

    /// Returns the first observation. While an episode is being restored, `known` is the user's
    /// saved first message.
    fn opening(&self, episode: &mut Episode, known: Option<String>) -> Result<String, EnvError> {
        let words = if self.is_solo() {
            let ticket = self.shared.task(&episode.task)?.ticket.as_deref().unwrap_or_default();
            format!("Ticket: {}", ticket.trim())
        } else {
            format!("User: {}", self.answer(episode, known)?)
        };
        let policy = if self.shared.options.policy { self.shared.checkout.policy.trim() } else { "" };
        let gap = if policy.is_empty() { "" } else { "\n\n" };
        Ok(format!("{policy}{gap}{words}"))
    }

    fn is_solo(&self) -> bool {
        self.shared.checkout.domain.is_solo()
    }

    fn end(&self, episode: &Episode, task: &Tau2Task, step: &mut Step) -> Result<(), EnvError> {
        let played = Played { state: &episode.state, calls: &episode.calls, words: &episode.agent };
        let grade = grade(&self.shared.checkout.base, task, played, self.shared.options.information)
            .map_err(|raise| failed(&task.id, &raise))?;
        step.terminated = true;
        step.success = grade.success;
        step.reward = f64::from(u8::from(grade.success));
        let parts = [
            ("database_correct", grade.database),
            ("assertions_hold", grade.assertions),
            ("information_given", grade.communicated),
            ("gold_calls_made", grade.actions),
        ];
        step.metrics = parts.map(|(name, is)| Metric::last(name, f64::from(u8::from(is)))).to_vec();
        Ok(())
    }

    /// Executes an action. While an episode is being restored, `known` contains the user's saved
    /// messages.
    fn act(
        &self,
        episode: &mut Episode,
        action: &Action,
        known: &mut impl Iterator<Item = String>,
    ) -> Result<Step, EnvError> {
        let mut step = Step { understood: true, ..Step::default() };
        let calls = match action {
            Action::Call(call) => vec![call.clone()],
            Action::Malformed { .. } => Vec::new(),
            other => calls_of_words(other.text().trim()),
        };
        let text = if let Action::Malformed { error, .. } = action {
            step.understood = false;
            episode.errors += 1;
            episode.note(&[b"malformed", error.as_bytes()]);
            error.clone()
        } else if calls.is_empty() && self.is_solo() {
            step.terminated = true;
            "There is no user to talk to.".to_owned()
        } else if self.is_solo() && calls.iter().any(|call| call.name == DONE_NAME) {
            let task = self.shared.task(&episode.task)?;
            self.end(episode, task, &mut step)?;
            String::new()
        } else if calls.is_empty() {
            let words = action.text();
            let before = episode.history.clone();
            episode.note(&[b"agent", words.as_bytes()]);
            episode.agent.push(words.into_owned());
            let answer = self.answer(episode, known.next()).inspect_err(|_| {
                // So that the step can be repeated if the user could not be reached.
                episode.agent.pop();
                episode.history = before;
            })?;
            if ends(&answer) {
                let task = self.shared.task(&episode.task)?;
                self.end(episode, task, &mut step)?;
            }
            format!("User: {answer}")
        } else {
            let results = calls.into_iter().map(|call| episode.execute(call));
            results.collect::<Vec<_>>().join("\n")
        };
        episode.actions.push(action.clone());
        step.terminated |= episode.errors >= self.shared.options.max_errors;
        step.observation = Observation::new(text).with_state_key(episode.history.clone());
        step.truncated = !step.terminated && episode.actions.len() >= self.max_turns;
        episode.over = step.terminated || step.truncated;
        Ok(step)
    }
}

impl Episode {
    fn note(&mut self, parts: &[&[u8]]) {
        let before = [self.history.as_bytes()];
        self.history = turnwise_core::digest(before.iter().chain(parts));
    }

    fn execute(&mut self, call: ToolCall) -> String {
        let outcome = self.state.execute(&call);
        self.errors += usize::from(outcome.is_error);
        self.is_transferred |= call.name == TRANSFER_TOOL && !outcome.is_error;
        let arguments = call.arguments.to_string();
        self.note(&[b"call", call.name.as_bytes(), arguments.as_bytes(), outcome.text.as_bytes()]);
        self.calls.push(call);
        outcome.text
    }
}

impl Environment for Tau2Env {
    fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        // A failed reset leaves no episode.
        self.episode = None;
        let mut episode = self.begin(&task.id, seed.rng().bits())?;
        let text = self.opening(&mut episode, None)?;
        let key = episode.history.clone();
        self.episode = Some(episode);
        Ok(Observation::new(text).with_state_key(key))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let mut episode = self.episode.take().ok_or(EnvError::NotReset)?;
        let step = if episode.over {
            Err(EnvError::Other(format!(
                "{}: the episode is over after {} replies; call `reset` before the next `step`",
                episode.task,
                episode.actions.len()
            )))
        } else {
            self.act(&mut episode, action, &mut std::iter::empty())
        };
        self.episode = Some(episode);
        step
    }

    fn tools(&self) -> &[Tool] {
        &self.shared.checkout.tools
    }

    /// Saves the task, the actions and the user's messages, but not the limits, which are settings.
    /// Fails after the end of the episode.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::State("the episode has ended; there is nothing to save".to_owned()));
        }
        let saved = Saved {
            task: episode.task.clone(),
            draw: episode.draw,
            actions: episode.actions.clone(),
            user: episode.user.clone(),
        };
        saved.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        let mut episode = self.begin(&saved.task, saved.draw)?;
        let mut known = saved.user.into_iter();
        let opening = known.next();
        self.opening(&mut episode, opening)?;
        for action in &saved.actions {
            self.act(&mut episode, action, &mut known)?;
            if episode.over {
                return Err(EnvError::State("the saved episode has ended".to_owned()));
            }
        }
        self.episode = Some(episode);
        Ok(())
    }
}
