//! Compares recorded episodes with replayed ones.

use std::fmt;
use std::io::BufRead;

use turnwise_core::EnvError;

/// A value that differs from the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The episode's line in the recording, 1-based.
    pub episode: usize,
    /// The episode's task.
    pub task: String,
    /// Step number; the reset is step 0.
    pub step: usize,
    /// Compared value.
    pub field: &'static str,
    /// Recorded value.
    pub expected: String,
    /// Value that the replay in this crate produced.
    pub found: String,
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Counts of what was replayed, such as episodes and steps, as text for the user.
    pub counts: String,
    /// Word that the environment uses for an episode, such as `session`.
    pub unit: &'static str,
    /// Differences in recorded order.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { episode, task, step, field, expected, found } = self;
        write!(f, "episode {episode} ({task}), step {step}, {field}: expected {expected:?}, found {found:?}")
    }
}

/// Compares an episode with the recording and collects differences.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    differences: &'a mut Vec<Difference>,
    episode: usize,
    task: String,
    step: usize,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(differences: &'a mut Vec<Difference>, episode: usize, task: impl Into<String>) -> Self {
        Self { differences, episode, task: task.into(), step: 0 }
    }

    pub(crate) fn at(&mut self, step: usize) {
        self.step = step;
    }

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

#[derive(Debug)]
pub(crate) struct Line<'a> {
    name: &'a str,
    pub(crate) number: usize,
    pub(crate) text: String,
}

impl Line<'_> {
    pub(crate) fn error(&self, reason: impl Into<String>) -> EnvError {
        EnvError::File { path: format!("{}, line {}", self.name, self.number), reason: reason.into() }
    }
}

/// Returns a recording's non-blank lines; `name` is for error messages.
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
