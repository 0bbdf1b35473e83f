//! States in the middle of an episode, which trajectories are continued from.
//!
//! A [`Branch`] has the state of the world and the exact tokens that the policy was given there, so that a continuation
//! differs from the episode it branches from by its draws alone.

use turnwise_core::{
    Action, EnvError, Environment, Observation, Part, Purpose, Seed, Snapshot, Task, TaskSet, TokenSequence,
    Trajectory, Turn, TurnKind, digest,
};

use super::RolloutContext;
use crate::TrainError;
use crate::config::Layout;
use crate::rollout::observations::shorten;

/// The state before a turn of a played episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// The state of the world.
    pub(super) snapshot: Snapshot,
    /// The turns before it, without their tokens. Of their sequences it has those that later prompts are made from.
    pub(super) before: Trajectory,
    /// What the policy saw.
    pub(super) observation: Observation,
    /// The prompt that it was sampled from.
    pub(super) prompt: Vec<u32>,
    /// What the response to it is for.
    pub(super) kind: TurnKind,
}

impl Branch {
    /// The task that is played.
    pub fn task(&self) -> &Task {
        &self.before.task
    }

    /// Number of turns before the state.
    pub fn turn(&self) -> usize {
        self.before.turns.len()
    }

    /// Returns the kind of the response in this state.
    pub(super) fn kind(&self) -> TurnKind {
        self.kind
    }

    /// Restores the state and returns what the agent sees in it.
    pub(super) fn restore(&self, environment: &mut dyn Environment) -> Result<Observation, EnvError> {
        environment.restore(&self.snapshot)?;
        Ok(self.observation.clone())
    }

    /// Observations and actions before the state.
    pub(super) fn history(&self) -> Vec<(String, String)> {
        self.before.turns.iter().map(|turn| (turn.observation.clone(), turn.action.clone())).collect()
    }

    /// Returns a key that two branches of one task share exactly if their continuations have the same distribution: the
    /// state of the world, the prompt, the number of turns before it, and the turns that windowed prompts still show.
    pub fn key(&self, history: usize) -> String {
        let turns = &self.before.turns;
        let prompt: Vec<u8> = self.prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        let count = turns.len().to_le_bytes();
        let own = [self.snapshot.0.as_slice(), &prompt[..], &count[..]];
        let shown = turns[turns.len().saturating_sub(history)..].iter();
        let shown = shown.flat_map(|turn| [turn.observation.as_bytes(), turn.action.as_bytes()]);
        digest(own.into_iter().chain(shown))
    }
}

/// Returns the state before each turn of a trajectory that was played in this context, by playing its actions again.
///
/// # Errors
/// Fails with [`TrainError::Env`] if the world cannot save its states, fails, or does not repeat its answers to the same actions.
/// A trajectory without the tokens of its prompts fails, too.
pub fn branches(context: &RolloutContext<'_>, trajectory: &Trajectory) -> Result<Vec<Branch>, TrainError> {
    let mut environment = context.task_set.environment()?;
    let coordinates = [context.purpose as u64, context.step, trajectory.group as u64];
    let seed = Seed::derive(context.run_seed, Purpose::Environment, &coordinates);
    let mut seen = environment.reset(&trajectory.task, seed)?;
    let mut branches = Vec::with_capacity(trajectory.turns.len());
    for (index, turn) in trajectory.turns.iter().enumerate() {
        let place = || format!("{}, turn {index}", trajectory.task.id);
        // An observation that the task's limit has cut is not compared.
        let same = trajectory.task.limits.observation_tokens.is_some()
            || turn.is_compaction()
            || (seen.text() == turn.observation && seen.state_key == turn.state_key);
        if !same {
            return Err(differs(&*context.task_set, &place(), "observation"));
        }
        let Some(snapshot) = environment.snapshot()? else {
            return Err(EnvError::Other(format!(
                "the world `{}` cannot save and restore its states, which continuations start from; use a native world \
                 (alfworld, webshop, sokoban, ezpoints, search), or give your program `save` and `restore`",
                context.task_set.name()
            ))
            .into());
        };
        let Some((prompt, sequence)) = tokens_before(trajectory, index, context.layout) else {
            return Err(
                EnvError::Other(format!("{}: the trajectory has no tokens of its prompt", place())).into()
            );
        };
        let before = Trajectory {
            turns: trajectory.turns[..index].iter().map(without_tokens).collect(),
            sequences: sequence.into_iter().collect(),
            ..Trajectory::new(trajectory.task.clone(), Vec::new())
        };
        // The action after a summary was taken in the same state, and saw the observation without the request.
        let shown = match trajectory.turns.get(index + 1).filter(|_| turn.is_compaction()) {
            Some(next) => observation(next),
            None if turn.is_compaction() => shorten(seen.clone(), &trajectory.task, context.tokenizer),
            None => observation(turn),
        };
        branches.push(Branch { snapshot, before, observation: shown, prompt, kind: turn.kind });
        if turn.is_compaction() {
            continue;
        }
        let mut reward = 0.0;
        for action in actions(turn) {
            let step = environment.step(&action)?;
            reward += step.reward;
            seen = step.observation;
        }
        if reward != turn.reward {
            return Err(differs(&*context.task_set, &place(), "reward"));
        }
    }
    environment.close();
    Ok(branches)
}

fn differs(task_set: &dyn TaskSet, place: &str, what: &str) -> TrainError {
    EnvError::Other(format!(
        "{place}: the world `{}` gave another {what} when the same actions were played again; continuations need a world \
         that depends on its task, its seed and the actions alone",
        task_set.name()
    ))
    .into()
}

/// Returns the prompt of a turn, and in the concatenated layout the sequence up to the response before it.
fn tokens_before(
    trajectory: &Trajectory,
    turn: usize,
    layout: Layout,
) -> Option<(Vec<u32>, Option<TokenSequence>)> {
    let (sequence, place) = trajectory
        .sequences
        .iter()
        .find_map(|sequence| Some((sequence, sequence.spans.iter().position(|span| span.turn == turn)?)))?;
    let prompt = sequence.tokens[..sequence.spans[place].start].to_vec();
    let before = match (layout, place.checked_sub(1)) {
        (Layout::Concatenated, Some(last)) => {
            let end = sequence.spans[last].end;
            Some(TokenSequence {
                tokens: sequence.tokens[..end].to_vec(),
                spans: sequence.spans[..place].to_vec(),
            })
        }
        _ => None,
    };
    Some((prompt, before))
}

/// Returns the parts of a turn that later prompts need, because every continuation copies them.
fn without_tokens(turn: &Turn) -> Turn {
    Turn {
        kind: turn.kind,
        observation: turn.observation.clone(),
        action: turn.action.clone(),
        reward: turn.reward,
        valid: turn.valid,
        // A summary has the progress of the turn before it.
        progress: turn.progress,
        calls: turn.calls.clone(),
        ..Turn::default()
    }
}

/// Returns the observation of a turn as the policy saw it.
fn observation(turn: &Turn) -> Observation {
    let parts = match turn.parts.as_slice() {
        [] => vec![Part::Text { text: turn.observation.clone() }],
        parts => parts.to_vec(),
    };
    Observation {
        parts,
        admissible: turn.admissible.clone(),
        state_key: turn.state_key.clone(),
        conversation: None,
    }
}

/// The actions of a turn, as the environment was given them: each call is one.
fn actions(turn: &Turn) -> Vec<Action> {
    match turn.calls.as_slice() {
        [] => vec![Action::from(&turn.action)],
        calls => calls.iter().cloned().map(Action::Call).collect(),
    }
}
