//! Converts server output to text for the policy.

use serde_json::Value;

/// Maximum bytes of a goal, which a server gives each task.
pub(crate) const LONGEST_GOAL: usize = 1 << 16;

const CUT: &str = " [...]";

/// Keeps strings; formats other values as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn cut(mut text: String, limit: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(limit) else { return text };
    let keep = limit.saturating_sub(CUT.chars().count());
    let kept = text.char_indices().nth(keep).map_or(end, |(at, _)| at);
    text.truncate(kept);
    text.push_str(CUT);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_with_a_mark() {
        assert_eq!(cut("abcdefghij".into(), 10), "abcdefghij");
        assert_eq!(cut("äbcdefghijk".into(), 10), "äbcd [...]");
        assert_eq!(cut("äbcdefghijk".into(), 10).chars().count(), 10);
    }
}
