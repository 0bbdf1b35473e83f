//! Problems of settings.

use std::fmt::{self, Display};

use thiserror::Error;

/// One invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Origin of the setting: a file and line, or a command-line argument; `None` if code created
    /// it.
    pub origin: Option<String>,
    /// Key of the setting, such as `table.key`; empty if the whole source is invalid.
    pub key: String,
    /// Value as TOML; `None` if the key is wrong or missing.
    pub value: Option<String>,
    /// What is wrong, with an example of a valid value.
    pub reason: String,
}

impl Problem {
    /// Creates a problem without origin or value.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { origin: None, key: key.into(), value: None, reason: reason.into() }
    }
}

impl Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(to, "{origin}: ")?;
        }
        if self.key.is_empty() {
            return to.write_str(&self.reason);
        }
        match &self.value {
            Some(value) => write!(to, "{} = {value}: {}", self.key, self.reason),
            None => write!(to, "{}: {}", self.key, self.reason),
        }
    }
}

const LISTED: usize = 50;

/// Invalid settings; contains at least one problem.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct SettingsError(pub Vec<Problem>);

impl SettingsError {
    /// Returns an error if there are problems.
    ///
    /// # Errors
    /// Returns the problems.
    pub fn of(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }
}

impl Display for SettingsError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return write!(to, "{problem}");
        }
        write!(to, "{} settings cannot be used:", self.0.len())?;
        self.0.iter().take(LISTED).try_for_each(|problem| write!(to, "\n  {problem}"))?;
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(to, "\n  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let list = |count: usize| {
            let problems = (0..count).map(|number| Problem::new(format!("key_{number}"), "unknown key"));
            SettingsError(problems.collect()).to_string()
        };
        assert!(list(LISTED).lines().count() == LISTED + 1 && !list(LISTED).contains("more"));
        let text = list(40_000);
        assert!(text.starts_with("40000 settings cannot be used:\n  key_0: unknown key\n"), "{text}");
        assert!(text.ends_with("  key_49: unknown key\n  and 39950 more"), "{text}");
    }
}
