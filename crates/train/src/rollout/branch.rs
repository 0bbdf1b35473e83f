//! States within an episode from which trajectories are continued.
//!
//! A [`Branch`] has the environment's state and the policy's exact tokens, so continuations differ
//! from the original only by random draws.

use turnwise_core::{
    Action, EnvError, Environment, Observation, Part, Purpose, Seed, Snapshot, Task, TaskSet, TokenSequence,
    Trajectory, Turn, TurnKind, digest,
};
use turnwise_env::parse::ParsedAction;

use super::{EnvRunner, Rollout};
use crate::TrainError;
use crate::config::Layout;
use crate::rollout::observations::shorten;

/// State before a turn of an episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    pub(super) snapshot: Snapshot,
    /// The trajectory before the state, with only the token ids that later prompts need.
    pub(super) before: Trajectory,
    pub(super) observation: Observation,
    pub(super) prompt: Vec<u32>,
    pub(super) kind: TurnKind,
}

impl Branch {
    /// Returns the task.
    pub fn task(&self) -> &Task {
        &self.before.task
    }

    /// Returns the number of earlier turns.
    pub fn turn(&self) -> usize {
        self.before.turns.len()
    }

    pub(super) fn kind(&self) -> TurnKind {
        self.kind
    }

    pub(super) fn restore(&self, environment: &mut dyn Environment) -> Result<Observation, EnvError> {
        environment.restore(&self.snapshot)?;
        Ok(self.observation.clone())
    }

    pub(super) fn history(&self) -> Vec<(String, String)> {
        self.before.turns.iter().map(|turn| (turn.observation.clone(), turn.action.clone())).collect()
    }

    /// Returns a key that two branches of the same task share if and only if their continuations
    /// have the same distribution.
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

/// Returns the state before each turn by replaying the actions in the rollout's environment.
///
/// # Errors
/// Returns [`TrainError::Env`] if the environment fails, cannot save its state, or returns
/// observations that differ from the recorded ones; also fails on missing prompt tokens.
pub fn branches(
    runner: &EnvRunner,
    rollout: &Rollout<'_>,
    trajectory: &Trajectory,
) -> Result<Vec<Branch>, TrainError> {
    let context = &runner.context(rollout);
    let mut environment = context.task_set.environment()?;
    let coordinates = [context.purpose as u64, context.step, trajectory.group as u64];
    let seed = Seed::derive(context.run_seed, Purpose::Environment, &coordinates);
    let mut seen = environment.reset(&trajectory.task, seed)?;
    let mut branches = Vec::with_capacity(trajectory.turns.len());
    for (index, turn) in trajectory.turns.iter().enumerate() {
        let place = || format!("{}, turn {index}", trajectory.task.id);
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
        // The observation after a summary lacks the summary request.
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
        let response =
            runner.prompter().whole(&turn.response, context.layout == Layout::Windowed || index == 0);
        for action in actions(turn, &context.parser.parse(&response, &seen.admissible)) {
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

/// Returns a turn's prompt and, in a concatenated sequence, the tokens up to the previous response.
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

/// Drops the turn's tokens, because each continuation copies the turn.
fn without_tokens(turn: &Turn) -> Turn {
    Turn {
        kind: turn.kind,
        observation: turn.observation.clone(),
        action: turn.action.clone(),
        reward: turn.reward,
        valid: turn.valid,
        // A summary has the progress of the previous turn.
        progress: turn.progress,
        calls: turn.calls.clone(),
        ..Turn::default()
    }
}

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

/// Returns the actions of a turn. Trajectories do not keep the error of a malformed call, so it
/// comes from parsing the response again.
fn actions(turn: &Turn, parsed: &ParsedAction) -> Vec<Action> {
    match (turn.calls.as_slice(), &parsed.error) {
        ([], Some(error)) if parsed.action == turn.action => {
            vec![Action::Malformed { text: turn.action.clone(), error: error.clone() }]
        }
        ([], _) => vec![Action::from(&turn.action)],
        (calls, _) => calls.iter().cloned().map(Action::Call).collect(),
    }
}

#[cfg(test)]
mod tests {
    use turnwise_env::parse::ActionParser;
    use turnwise_env::prompt::PromptTemplate;

    use super::*;

    #[test]
    fn malformed_calls_are_replayed_with_their_errors() {
        let parser = ActionParser::new(PromptTemplate::named("tools").unwrap().rules().clone(), false);
        for response in [
            "<tool_call>\n{\"name\": \"view\", \"arguments\": {}}\n</tool_call>",
            "<tool_call>\n{\"name\": \n</tool_call>",
            "no call",
        ] {
            let parsed = parser.parse(response, &[]);
            let turn = Turn { action: parsed.action.clone(), calls: parsed.calls.clone(), ..Turn::default() };
            let replayed = actions(&turn, &parsed);
            let malformed = matches!(replayed.as_slice(), [Action::Malformed { .. }]);
            assert_eq!(malformed, !response.contains("view"), "{replayed:?}");
            let texts =
                |actions: &[Action]| actions.iter().map(|one| one.text().into_owned()).collect::<Vec<_>>();
            assert_eq!(texts(&replayed), texts(&parsed.into_actions("")), "{response}");
        }
        // Actions that the parser did not make, such as a user's own, are sent as they are.
        let own = Turn { action: "look".into(), ..Turn::default() };
        assert_eq!(actions(&own, &parser.parse("no call", &[])), [Action::from("look")]);
    }
}
