//! Grades like `bfcl-eval`: after each user turn, the API states must equal those after the gold
//! calls, and the model must have seen the results of all gold calls.

use super::package::BfclTask;
use super::session::{Scenario, Session};

/// Why a turn failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The model made no calls although there are gold calls.
    NoCalls,
    /// A public attribute differs from its value after the gold calls.
    State,
    /// The result of a gold call is not among the results of the model's calls.
    Response,
}

/// Compares the model's calls with the gold calls.
#[derive(Clone, Debug)]
pub(crate) struct Grader {
    gold: Session,
    seen: Vec<String>,
    of_turn: usize,
    failure: Option<Failure>,
    passed: usize,
}

impl Grader {
    /// Starts an episode.
    pub(crate) fn new(scenario: Scenario<'_>) -> Self {
        let gold = Session::new(scenario, "gold");
        Self { gold, seen: Vec::new(), of_turn: 0, failure: None, passed: 0 }
    }

    /// Records the result of a model's call.
    pub(crate) fn see(&mut self, result: &str) {
        self.seen.push(result.to_owned());
        self.of_turn += 1;
    }

    /// Grades the turn that has ended. A turn without gold calls always passes; changes that the
    /// model makes in such a turn count in the next turn with gold calls.
    pub(crate) fn end_turn(&mut self, task: &BfclTask, turn: usize, model: &Session) {
        let calls = task.gold.get(turn).map(Vec::as_slice).unwrap_or_default();
        let results: Vec<String> = calls.iter().map(|call| self.gold.execute(call)).collect();
        let made = std::mem::take(&mut self.of_turn);
        if self.failure.is_some() {
            return;
        }
        self.failure = if calls.is_empty() {
            None
        } else if made == 0 {
            Some(Failure::NoCalls)
        } else if !same_states(model, &self.gold) {
            Some(Failure::State)
        } else if !has_all(&self.seen, &results) {
            Some(Failure::Response)
        } else {
            None
        };
        self.passed += usize::from(self.failure.is_none());
    }

    /// Returns the first failure.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Returns the number of turns before the first failure.
    pub(crate) fn passed(&self) -> usize {
        self.passed
    }
}

fn same_states(model: &Session, gold: &Session) -> bool {
    let states =
        |session: &Session| session.instances().map(super::apis::Instance::state).collect::<Vec<_>>();
    states(model) == states(gold)
}

fn has_all(seen: &[String], wanted: &[String]) -> bool {
    let mut left: Vec<&String> = seen.iter().collect();
    wanted.iter().all(|result| {
        let place = left.iter().position(|seen| *seen == result);
        place.map(|place| left.swap_remove(place)).is_some()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::apis::Api;
    use super::*;
    use crate::python::values::Dict;

    fn task(gold: &[&[&str]]) -> BfclTask {
        BfclTask {
            id: "t_0".into(),
            kind: "base".into(),
            is_long: false,
            apis: vec![Api::Files, Api::Vehicle],
            config: Dict::new(),
            turns: vec![String::new(); gold.len()],
            functions: None,
            added: HashMap::new(),
            plan: Vec::new(),
            gold: gold.iter().map(|calls| calls.iter().map(|call| (*call).to_owned()).collect()).collect(),
        }
    }

    fn grade(gold: &[&[&str]], calls: &[&[&str]]) -> (Option<Failure>, usize) {
        let task = task(gold);
        let scenario = Scenario { id: &task.id, apis: &task.apis, config: &task.config, long: None };
        let (mut grader, mut session) = (Grader::new(scenario), Session::new(scenario, "model"));
        for (turn, calls) in calls.iter().enumerate() {
            for call in *calls {
                grader.see(&session.execute(call));
            }
            grader.end_turn(&task, turn, &session);
        }
        (grader.failure(), grader.passed())
    }

    #[test]
    fn states_and_results_decide() {
        let gold: &[&[&str]] = &[&["touch('a')"], &[], &["ls()", "setHeadlights('on')"]];
        let good: &[&str] = &["touch(file_name='a')"];
        assert_eq!(grade(gold, &[good, &[], &["setHeadlights('on')", "ls()"]]), (None, 3));
        // More calls are allowed if the state is the same.
        assert_eq!(grade(gold, &[good, &["ls()"], &["setHeadlights('on')", "pwd()"]]), (None, 3));
        assert_eq!(grade(gold, &[&[], &[], &[]]), (Some(Failure::NoCalls), 0));
        assert_eq!(grade(gold, &[&["touch('b')"], &[], &[]]), (Some(Failure::State), 0));
        assert_eq!(grade(gold, &[good, &[], &["setHeadlights('on')"]]), (Some(Failure::Response), 2));
        assert_eq!(grade(gold, &[good, &[], &["ls()"]]), (Some(Failure::State), 2));
        // The next turn detects changes in a turn without gold calls.
        assert_eq!(
            grade(gold, &[good, &["touch('c')"], &["setHeadlights('on')", "ls()"]]),
            (Some(Failure::State), 2)
        );
    }

    #[test]
    fn equal_results_are_counted() {
        let gold: &[&[&str]] = &[&["pwd()", "pwd()"]];
        assert_eq!(grade(gold, &[&["pwd()"]]), (Some(Failure::Response), 0));
        assert_eq!(grade(gold, &[&["pwd()", "pwd()"]]), (None, 1));
    }
}
