//! Patterns of whole paths.

use crate::letters::{pieces, word_matches};

/// Tells whether a pattern matches a whole path. A pattern without `/` matches the last part of a path.
pub fn matches(pattern: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    if !pattern.contains('/') {
        return parts.last().is_some_and(|part| part_matches(pattern, part));
    }
    let patterns: Vec<&str> = pattern.trim_start_matches('/').split('/').collect();
    parts_match(&patterns, &parts)
}

fn parts_match(patterns: &[&str], parts: &[&str]) -> bool {
    let Some(pattern) = patterns.first() else { return parts.is_empty() };
    if *pattern == "**" {
        return (0..=parts.len()).any(|count| parts_match(&patterns[1..], &parts[count..]));
    }
    let Some(part) = parts.first() else { return false };
    part_matches(pattern, part) && parts_match(&patterns[1..], &parts[1..])
}

fn part_matches(pattern: &str, part: &str) -> bool {
    // A hidden file needs a pattern that begins with a dot.
    if part.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let word: Vec<char> = part.chars().collect();
    pieces(pattern).is_some_and(|pieces| word_matches(&pieces, &word))
}

/// Returns the number of folders above a file.
pub fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count().saturating_sub(1)
}

/// Returns the folder of a path.
pub fn parent(path: &str) -> Option<&str> {
    let end = path.rfind('/')?;
    if end == 0 { None } else { Some(&path[..end]) }
}
