//! File patterns: `*` and `?` within a part of a path, `**` for any number of parts, `[a-z]` for one letter.

mod letters;
mod path;

pub use letters::{Piece, pieces, word_matches};
pub use path::{depth, matches, parent};

#[cfg(test)]
mod tests;

/// Returns the paths that a list of rules selects. The last rule that matches decides; a rule that begins with `!`
/// takes a path out.
pub fn select<'a>(rules: &[&str], paths: &[&'a str]) -> Vec<&'a str> {
    let mut selected = Vec::new();
    for path in paths {
        let mut chosen = false;
        for rule in rules {
            let (pattern, takes_out) = match rule.strip_prefix('!') {
                Some(pattern) => (pattern, true),
                None => (*rule, false),
            };
            if matches(pattern, path) {
                chosen = !takes_out;
            }
        }
        if chosen {
            selected.push(*path);
        }
    }
    selected
}

/// Returns the first pattern that matches no path.
pub fn unused<'a>(patterns: &[&'a str], paths: &[&str]) -> Option<&'a str> {
    patterns.iter().copied().find(|pattern| !paths.iter().any(|path| matches(pattern, path)))
}
