//! Suggestions for misspelled names.

const NEAR: f64 = 0.75;

/// Returns the known name that is most similar to `wrong`; `None` if no name is similar enough.
pub fn suggest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), *name))
        .filter(|(similarity, _)| *similarity > NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
