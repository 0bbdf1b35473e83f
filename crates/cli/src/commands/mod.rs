pub(crate) mod analyze;
pub(crate) mod arrows;
pub(crate) mod benchmark;
mod card;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod credit;
pub(crate) mod env;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod index;
pub(crate) mod init;
pub(crate) mod output;
pub(crate) mod pages;
pub(crate) mod picture;
pub(crate) mod play;
pub(crate) mod push;
pub(crate) mod quickstart;
pub(crate) mod rollout;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod train;
pub(crate) mod turnrd;
pub(crate) mod view;

use std::path::Path;

pub(crate) fn is_run(folder: &Path) -> bool {
    folder.join("config.toml").is_file()
}

/// Returns the last component of the canonical path, or the whole path if it does not exist.
pub(crate) fn name_of(path: &Path) -> String {
    let name = path.canonicalize().ok().and_then(|path| Some(path.file_name()?.display().to_string()));
    name.unwrap_or_else(|| path.display().to_string())
}

/// Parses a seed, at most 2^63 - 1, which is TOML's largest integer.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    const MOST: u64 = i64::MAX as u64;
    match text.parse() {
        Ok(seed) if seed <= MOST => Ok(seed),
        _ => Err(format!("a seed is a whole number from 0 to {MOST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::seed;

    #[test]
    fn seeds_are_what_a_config_can_hold() {
        assert_eq!(seed("9223372036854775807"), Ok(i64::MAX as u64));
        for wrong in ["9223372036854775808", "-1", "1.5", ""] {
            assert!(seed(wrong).unwrap_err().contains("9223372036854775807"), "{wrong}");
        }
    }
}
