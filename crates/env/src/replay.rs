//! Replay of recorded episodes for all environments: reading lines, comparing values, reporting
//! differences.

use std::fmt;
use std::io::BufRead;

use turnwise_core::EnvError;

/// One value that the engine gave otherwise than the recording has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The episode's number in the recording, from 1: its line.
    pub episode: usize,
    /// The task: a game, a goal.
    pub task: String,
    /// The step, from 1; 0 is the start.
    pub step: usize,
    /// The key.
    pub field: &'static str,
    /// Value in the recording.
    pub expected: String,
    /// Value that the engine gave.
    pub found: String,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Counts of the replayed parts, for people.
    pub counts: String,
    /// Word for an episode of the recording.
    pub unit: &'static str,
    /// Everything that differed, in the order of the recording.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { episode, task, step, field, expected, found } = self;
        write!(f, "episode {episode} ({task}), step {step}, {field}: expected {expected:?}, found {found:?}")
    }
}

/// The values of one episode, compared with the recording's: every difference is kept.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    differences: &'a mut Vec<Difference>,
    episode: usize,
    task: String,
    step: usize,
}

impl<'a> Checker<'a> {
    /// Creates a comparison at the start of an episode; `episode` is its line.
    pub(crate) fn new(differences: &'a mut Vec<Difference>, episode: usize, task: impl Into<String>) -> Self {
        Self { differences, episode, task: task.into(), step: 0 }
    }

    /// Compares the values of this step from here on.
    pub(crate) fn at(&mut self, step: usize) {
        self.step = step;
    }

    /// Compares one value.
    pub(crate) fn add<T: PartialEq + ToString + ?Sized>(
        &mut self,
        field: &'static str,
        expected: &T,
        found: &T,
    ) {
        if expected != found {
            self.differences.push(Difference {
                episode: self.episode,
                task: self.task.clone(),
                step: self.step,
                field,
                expected: expected.to_string(),
                found: found.to_string(),
            });
        }
    }
}

/// A line of a recording.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    name: &'a str,
    /// Its number, from 1.
    pub(crate) number: usize,
    /// Its text.
    pub(crate) text: String,
}

impl Line<'_> {
    /// Returns the error for a line that cannot be replayed: it names the recording and the line.
    pub(crate) fn error(&self, reason: impl Into<String>) -> EnvError {
        EnvError::File { path: format!("{}, line {}", self.name, self.number), reason: reason.into() }
    }
}

/// Returns the lines of a recording but for blank ones; `name` is what errors call it.
pub(crate) fn numbered_lines(
    name: &str,
    reader: impl BufRead,
) -> impl Iterator<Item = Result<Line<'_>, EnvError>> {
    (1..).zip(turnwise_files::lines(reader)).filter_map(move |(number, line)| match line {
        Ok(text) if text.trim().is_empty() => None,
        Ok(text) => Some(Ok(Line { name, number, text })),
        Err(source) => Some(Err(EnvError::Io { path: name.to_owned(), source })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_count_and_are_left_out() {
        let lines: Vec<_> = numbered_lines("a.jsonl", &b"x\n\n \t\ny\n"[..]).map(Result::unwrap).collect();
        let found: Vec<(usize, &str)> = lines.iter().map(|line| (line.number, line.text.as_str())).collect();
        assert_eq!(found, [(1, "x"), (4, "y")]);
        assert_eq!(lines[1].error("is wrong").to_string(), "a.jsonl, line 4: is wrong");
        let broken = numbered_lines("a.jsonl", &[b'x', b'\n', 0xff][..]).nth(1).unwrap().unwrap_err();
        assert!(broken.to_string().starts_with("a.jsonl"), "{broken}");
    }

    #[test]
    fn only_differences_are_kept_and_say_where_they_are() {
        let mut differences = Vec::new();
        let mut checker = Checker::new(&mut differences, 3, "a task");
        checker.add("reward", &1.0, &1.0);
        checker.at(2);
        checker.add("text", "a", "b");
        let [difference] = differences.as_slice() else { panic!("{differences:?}") };
        assert_eq!(difference.to_string(), "episode 3 (a task), step 2, text: expected \"a\", found \"b\"");
    }
}
