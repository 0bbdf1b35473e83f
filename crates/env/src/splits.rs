//! Splits by content: the digest of a task selects its split, so the split does not depend on seeds
//! or on other tasks.

use turnwise_core::{EnvError, Task};

pub(crate) const SPLITS: [&str; 3] = ["train", "valid", "test"];

/// Returns an index into [`SPLITS`], selected by the first byte of the digest: test if it is below
/// `test`, validation for the next `valid` values, training otherwise.
pub(crate) fn split_of(digest: &str, test: u8, valid: u8) -> usize {
    match digest.get(..2).and_then(|byte| u8::from_str_radix(byte, 16).ok()) {
        Some(byte) if byte < test => 2,
        Some(byte) if byte - test < valid => 1,
        _ => 0,
    }
}

pub(crate) fn tasks_of<'a>(splits: &'a [Vec<Task>; 3], split: &str) -> Result<&'a [Task], EnvError> {
    let found = SPLITS.iter().zip(splits).find(|(name, _)| **name == split);
    found
        .map(|(_, tasks)| tasks.as_slice())
        .ok_or_else(|| EnvError::UnknownSplit { split: split.to_owned(), known: SPLITS.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_says_the_split() {
        for (byte, split) in [("00", 2), ("19", 2), ("1a", 1), ("33", 1), ("34", 0), ("ff", 0), ("", 0)] {
            assert_eq!(split_of(byte, 26, 26), split, "{byte}");
        }
        assert_eq!([split_of("00", 0, 0), split_of("ff", 200, 55), split_of("ff", 200, 56)], [0, 0, 1]);
    }

    #[test]
    fn an_unknown_split_names_those_there_are() {
        let splits = [vec![Task::new("a", "k", "g")], Vec::new(), vec![Task::new("b", "k", "g")]];
        assert_eq!(tasks_of(&splits, "test").unwrap()[0].id, "b");
        let error = tasks_of(&splits, "dev").unwrap_err().to_string();
        assert!(error.contains("dev") && error.contains("train, valid, test"), "{error}");
    }
}
