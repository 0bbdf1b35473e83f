//! Actions: `search[words]` and `click[item]`.

/// A parsed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The words of `search[..]` in lower case. Searching is allowed on any page.
    Search(String),
    /// The item of `click[..]` in lower case.
    Click(String),
    /// Any other action, which has no effect.
    Other,
}

impl Action {
    /// Parses an action like the original, which applies the greedy pattern `(.+)\[(.+)\]` to the
    /// first line. Text after the last bracket is ignored.
    pub fn parse(text: &str) -> Self {
        let line = text.split('\n').next().unwrap_or_default();
        let Some((name, argument)) = split(line) else { return Self::Other };
        match name {
            "search" => Self::Search(argument.to_lowercase()),
            "click" => Self::Click(argument.to_lowercase()),
            _ => Self::Other,
        }
    }
}

fn split(line: &str) -> Option<(&str, &str)> {
    let close = line.rfind(']')?;
    let open = line[..close].bytes().enumerate().rposition(|(at, byte)| byte == b'[' && at + 1 < close)?;
    (open > 0).then(|| (&line[..open], &line[open + 1..close]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_greedily() {
        let search = |text: &str| Action::Search(text.to_owned());
        let click = |text: &str| Action::Click(text.to_owned());
        let cases = [
            ("search[Red Shoes]", search("red shoes")),
            ("click[< Prev] please", click("< prev")),
            ("click[x]]", click("x]")),
            ("search[caf\u{c9}]", search("caf\u{e9}")),
            ("search[\u{e9}]", search("\u{e9}")),
            ("search[a[b]]", Action::Other),
            ("search[]", Action::Other),
            ("search[[]", search("[")),
            ("click[b][]", click("b][")),
            ("[x]", Action::Other),
            ("I think click[x]", Action::Other),
            ("Search[x]", Action::Other),
            (" search[x]", Action::Other),
            ("search[a\nb]", Action::Other),
            ("\nsearch[a]", Action::Other),
            ("search", Action::Other),
            ("]", Action::Other),
            ("", Action::Other),
        ];
        for (text, expected) in cases {
            assert_eq!(Action::parse(text), expected, "{text:?}");
        }
        assert_eq!(Action::parse("search[a]\nsearch[b]"), search("a"));
    }
}
