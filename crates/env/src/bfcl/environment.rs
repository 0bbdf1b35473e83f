//! User turns, function calls, results and saved states.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{
    Action, EnvError, Environment, Metric, Observation, Seed, Snapshot, Step, Task, Tool, ToolCall,
};

use super::document::{BfclDocuments, lines, tools};
use super::grade::Grader;
use super::package::BfclTask;
use super::reply::read_calls;
use super::session::Session;
use super::set::Shared;
use crate::parse::calls_of_words;
use crate::saved::SavedEpisode;

/// Plays the tasks of a [`super::BfclTasks`].
///
/// A reply's calls are executed, and the observation lists their results. A reply without calls
/// ends the user's turn. An episode terminates after the last user turn, or after more than
/// [`max_steps`](super::BfclOptions::max_steps) replies with calls in one user turn. An episode at
/// the turn limit is truncated. The last reply gets reward 1 if all user turns passed.
#[derive(Debug)]
pub struct BfclEnv {
    shared: Arc<Shared>,
    max_turns: usize,
    episode: Option<Episode>,
    tools: Vec<Tool>,
}

#[derive(Debug)]
struct Episode {
    task: String,
    session: Session,
    grader: Grader,
    turn: usize,
    steps: usize,
    /// Actions so far; a saved state contains them, and restoring executes them again.
    actions: Vec<Action>,
    /// Digest of all calls and results so far, a part of the state key.
    history: String,
    over: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    task: String,
    actions: Vec<Action>,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "BFCL";
    const FORMAT: &'static str = "turnwise.bfcl.episode";
    const VERSION: u32 = 2;
}

impl BfclEnv {
    pub(super) fn new(shared: Arc<Shared>, max_turns: usize) -> Self {
        Self { shared, max_turns, episode: None, tools: Vec::new() }
    }

    fn says(&self, id: &str, turn: usize) -> Result<String, EnvError> {
        let task = self.shared.task(id)?;
        let documents = lines(&self.shared.package, task, turn, self.shared.options.documents);
        let mut text = String::new();
        if !documents.is_empty() {
            text.push_str(if turn == 0 { "Functions:\n" } else { "More functions:\n" });
            text.push_str(&documents.join("\n"));
            text.push('\n');
        }
        let said = task.turns.get(turn).map(String::as_str).unwrap_or_default();
        // A turn that only adds functions has no message.
        let said = if said.is_empty() {
            "There are more functions now. Please go on with what was missing."
        } else {
            said
        };
        text.push_str("User: ");
        text.push_str(said);
        Ok(text)
    }

    fn declare(&mut self, id: &str) -> Result<(), EnvError> {
        self.tools = tools(self.shared.task(id)?, &self.shared.tools);
        Ok(())
    }

    fn begin(&self, id: &str) -> Result<Episode, EnvError> {
        let task = self.shared.task(id)?;
        let scenario = self.shared.package.scenario(task);
        let mut session = Session::new(scenario, "turnwise");
        hide(&mut session, task, 0);
        Ok(Episode {
            task: id.to_owned(),
            session,
            grader: Grader::new(scenario),
            turn: 0,
            steps: 0,
            actions: Vec::new(),
            history: String::new(),
            over: false,
        })
    }

    fn calls(&self, action: &Action) -> Vec<Called> {
        if let Action::Call(call) = action {
            return vec![Called::Tool(call.clone())];
        }
        let text = action.text();
        let tools = match self.shared.options.documents {
            BfclDocuments::Tools => calls_of_words(text.trim()),
            _ => Vec::new(),
        };
        if tools.is_empty() {
            read_calls(&text).into_iter().map(Called::Python).collect()
        } else {
            tools.into_iter().map(Called::Tool).collect()
        }
    }

    fn act(&self, episode: &mut Episode, action: &Action) -> Result<Step, EnvError> {
        let task = self.shared.task(&episode.task)?;
        let options = &self.shared.options;
        episode.actions.push(action.clone());
        let mut step = Step { understood: true, ..Step::default() };
        let calls = self.calls(action);
        let text = if let Action::Malformed { error, .. } = action {
            step.understood = false;
            episode.steps += 1;
            error.clone()
        } else if calls.is_empty() {
            episode.grader.end_turn(task, episode.turn, &episode.session);
            episode.turn += 1;
            episode.steps = 0;
            hide(&mut episode.session, task, episode.turn);
            let failed = episode.grader.failure().is_some();
            step.terminated = episode.turn >= task.turns.len() || (failed && options.stop_at_failed_turn);
            step.success = step.terminated && !failed;
            step.reward = f64::from(u8::from(step.success));
            if step.terminated { String::new() } else { self.says(&episode.task, episode.turn)? }
        } else {
            let mut shown = Vec::with_capacity(calls.len());
            for call in &calls {
                let result = match call {
                    Called::Python(call) => episode.session.execute(call),
                    Called::Tool(call) => episode.session.execute_tool(call),
                };
                episode.grader.see(&result);
                let history = [episode.history.as_bytes(), &call.bytes(), result.as_bytes()];
                episode.history = turnwise_core::digest(history);
                shown.push(match call {
                    Called::Python(call) => format!("{call} -> {result}"),
                    Called::Tool(_) => result,
                });
            }
            episode.steps += 1;
            shown.join("\n")
        };
        step.terminated |= episode.steps > options.max_steps;
        step.observation = Observation::new(text).with_state_key(episode.state_key());
        let passed = episode.grader.passed();
        step.progress = Some(passed as f64 / task.turns.len().max(1) as f64);
        step.metrics = vec![Metric::last("turns_passed", passed as f64)];
        step.truncated = !step.terminated && episode.actions.len() >= self.max_turns;
        episode.over = step.terminated || step.truncated;
        Ok(step)
    }
}

enum Called {
    Python(String),
    Tool(ToolCall),
}

impl Called {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Python(call) => call.clone().into_bytes(),
            Self::Tool(call) => format!("{}{}", call.name, call.arguments).into_bytes(),
        }
    }
}

impl Episode {
    fn state_key(&self) -> String {
        format!("{} {} {}", self.turn, self.steps, self.history)
    }
}

fn hide(session: &mut Session, task: &BfclTask, turn: usize) {
    if task.functions.is_some() && !task.added.is_empty() {
        let later = task.added.iter().filter(|(added, _)| **added > turn);
        session.hide(later.flat_map(|(_, names)| names.iter().cloned()).collect());
    }
}

impl Environment for BfclEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        // A failed reset leaves no episode.
        self.episode = None;
        let text = self.says(&task.id, 0)?;
        let episode = self.begin(&task.id)?;
        let key = episode.state_key();
        self.declare(&task.id)?;
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
            self.act(&mut episode, action)
        };
        self.episode = Some(episode);
        step
    }

    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Saves the task and the actions, but not the limits, which are settings. Finished episodes
    /// cannot be saved.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::State("the episode has ended; there is nothing to save".to_owned()));
        }
        Saved { task: episode.task.clone(), actions: episode.actions.clone() }.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        let mut episode = self.begin(&saved.task)?;
        for action in &saved.actions {
            self.act(&mut episode, action)?;
            if episode.over {
                return Err(EnvError::State("the saved episode has ended".to_owned()));
            }
        }
        self.declare(&saved.task)?;
        self.episode = Some(episode);
        Ok(())
    }
}
