//! Differences between texts by lines.

mod lcs;
mod merge;

pub use lcs::{Change, changes, common};
pub use merge::{Merged, merge};

#[cfg(test)]
mod tests;

/// Writes the changes with `+`, `-` and a space before each line.
pub fn show(old: &str, new: &str) -> String {
    let mut text = String::new();
    for change in changes(&lines(old), &lines(new)) {
        let (mark, line) = match change {
            Change::Keep(line) => (' ', line),
            Change::Add(line) => ('+', line),
            Change::Remove(line) => ('-', line),
        };
        text.push(mark);
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Applies a difference as `show` writes it; `None` if a line of it is not in the text.
pub fn apply(old: &str, difference: &str) -> Option<String> {
    let mut rest = old.lines();
    let mut result = Vec::new();
    for line in difference.lines() {
        let (mark, content) = line.split_at(1);
        if mark != "+" && rest.next() != Some(content) {
            return None;
        }
        if mark != "-" {
            result.push(content);
        }
    }
    if rest.next().is_some() { None } else { Some(result.join("\n")) }
}

/// Returns how similar two texts are: the share of equal lines in percent.
pub fn similarity(left: &str, right: &str) -> usize {
    let (left, right) = (lines(left), lines(right));
    let all = left.len() + right.len();
    if all == 0 {
        return 100;
    }
    common(&left, &right).len() * 200 / all
}

/// Splits a text into lines.
pub fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}
