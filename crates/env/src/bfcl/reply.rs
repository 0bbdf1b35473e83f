//! Replies of a model: a list of calls, or words to the user.

use super::python::calls;

/// The calls of a reply, as they are written; none if it is no list of calls, which ends the user's turn.
///
/// As the package reads replies: quotes and brackets around the list may be missing. Unlike there, arguments without a
/// name are kept.
pub fn read_calls(reply: &str) -> Vec<String> {
    let reply = reply.trim_matches(['`', '\n', ' ']);
    let open = if reply.starts_with('[') { "" } else { "[" };
    let close = if reply.ends_with(']') { "" } else { "]" };
    let list = format!("{open}{reply}{close}");
    let list = list.trim().trim_matches('\'');
    calls(list).map(|calls| calls.into_iter().map(str::to_owned).collect()).unwrap_or_default()
}

/// Calls as a model writes them.
pub fn write_calls(calls: &[String]) -> String {
    format!("[{}]", calls.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_calls_are_read_and_words_are_none() {
        for (reply, expected) in [
            ("[cd(folder='a'), ls()]", &["cd(folder='a')", "ls()"][..]),
            ("```\n[ls( ) ,]\n```", &["ls( )"]),
            ("cd(folder='a, b'), f(x=[1, (2)])", &["cd(folder='a, b')", "f(x=[1, (2)])"]),
            ("a.b(c=1)", &["a.b(c=1)"]),
            ("[]", &[]),
            ("", &[]),
            ("Done.", &[]),
            ("Done", &[]),
            ("I cannot do that [yet].", &[]),
            ("Sure: [ls()]", &[]),
            ("[ls(), 5]", &[]),
            ("[ls()", &["ls()"]),
            ("[ls(]", &[]),
        ] {
            assert_eq!(read_calls(reply), expected, "{reply}");
        }
        let calls = read_calls("[cd(folder='a'), ls()]");
        assert_eq!(write_calls(&calls), "[cd(folder='a'), ls()]");
    }
}
