//! JSON lines, plain or compressed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::json_bounds::Budget;
use crate::{DumpError, not_finite};

/// Calls `take` with each non-blank line and its number until it returns `false`. Recognizes
/// zstd-compressed files by their content.
///
/// Each line is JSON. Fails if parsing it takes far more memory than the file's size suggests.
pub(crate) fn each(
    path: &Path,
    mut take: impl FnMut(usize, &str) -> Result<bool, DumpError>,
) -> Result<(), DumpError> {
    each_text(path, |line, text, budget| {
        budget.take(path, line, text)?;
        take(line, text)
    })?;
    Ok(())
}

/// Calls `take` like [`each`], but also for lines that are only a part of their JSON. `take` and the
/// caller must reserve memory from the budget before they parse the JSON.
pub(crate) fn each_text(
    path: &Path,
    mut take: impl FnMut(usize, &str, &mut Budget) -> Result<bool, DumpError>,
) -> Result<Budget, DumpError> {
    let file = turnwise_files::open_counted(path).map_err(|error| DumpError::io(path, error))?;
    let mut budget = Budget::new(file.length, file.position);
    for (index, line) in turnwise_files::lines(file.reader).enumerate() {
        let line = line.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => {
                DumpError::line(path, index + 1, "this is not text in UTF-8, so it is not a JSON line")
            }
            std::io::ErrorKind::FileTooLarge => DumpError::line(path, index + 1, error.to_string()),
            _ => DumpError::io(path, error),
        })?;
        budget.add_text(line.len() + 1);
        if !line.trim().is_empty() && !take(index + 1, &line, &mut budget)? {
            break;
        }
    }
    Ok(budget)
}

/// Parses a line. NaN and infinities become null, but are errors if `used` returns true for their
/// path of keys.
pub(crate) fn parse<T: DeserializeOwned>(
    path: &Path,
    line: usize,
    text: &str,
    used: impl Fn(&[&str]) -> bool,
) -> Result<T, DumpError> {
    let fail = |error: serde_json::Error| DumpError::line(path, line, json_reason(&error));
    serde_json::from_str(text).or_else(|error| match not_finite::as_null(text, used) {
        Ok(None) => Err(fail(error)),
        Ok(Some(finite)) => serde_json::from_str(&finite).map_err(fail),
        Err(reason) => Err(DumpError::line(path, line, reason)),
    })
}

/// Formats serde's error without its misleading "line 1".
pub(crate) fn json_reason(error: &serde_json::Error) -> String {
    error.to_string().replace(&format!(" at line {} column", error.line()), " at column")
}

pub(crate) fn is_file(path: &Path) -> Result<bool, DumpError> {
    let found = std::fs::metadata(path).map_err(|error| DumpError::io(path, error))?;
    Ok(found.is_file() || found.is_dir())
}

pub(crate) fn is_parquet(path: &Path) -> Result<bool, DumpError> {
    if !is_file(path)? {
        let reason = "this is a pipe or a device, not a file, and Parquet is read from its end; write it to a file first";
        return Err(DumpError::file(path, reason));
    }
    begins_with(path, *b"PAR1")
}

fn begins_with(path: &Path, magic: [u8; 4]) -> Result<bool, DumpError> {
    let file = File::open(path).map_err(|error| DumpError::io(path, error))?;
    let mut start = Vec::new();
    file.take(4).read_to_end(&mut start).map_err(|error| DumpError::io(path, error))?;
    Ok(start == magic)
}
