use crate::python::strip;
use turnwise_core::Action;

pub(super) const ADMISSIBLE: [&str; 2] = ["search[<your query>]", "answer[<your answer>]"];

/// Parsed action; its text is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Query to retrieve passages for.
    Search(&'a str),
    /// Answer that ends the episode.
    Answer(&'a str),
    /// Anything else.
    Unknown,
}

impl<'a> Request<'a> {
    /// Parses a call to `search` or `answer`, or a text such as `<search>query</search>` or
    /// `search[query]`.
    pub fn of(action: &'a Action) -> Self {
        match action {
            Action::Text { text } | Action::Malformed { text, .. } => Self::parse(text),
            Action::Reply(reply) => Self::parse(&reply.content),
            Action::Call(call) => {
                let argument = |name: &str| call.arguments.get(name).and_then(|value| value.as_str());
                let request = match call.name.as_str() {
                    "search" => argument("query").map(|query| Self::Search(strip(query))),
                    "answer" => argument("answer").map(|answer| Self::Answer(strip(answer))),
                    _ => None,
                };
                request.unwrap_or(Self::Unknown)
            }
        }
    }

    fn parse(text: &'a str) -> Self {
        let text = strip(text);
        let inside = |open: &str, close: &str| {
            text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)).map(strip)
        };
        if let Some(query) = inside("<search>", "</search>").or_else(|| inside("search[", "]")) {
            return Self::Search(query);
        }
        match inside("<answer>", "</answer>").or_else(|| inside("answer[", "]")) {
            Some(answer) => Self::Answer(answer),
            None => Self::Unknown,
        }
    }

    /// Formats the request as an action.
    pub fn text(&self) -> String {
        match self {
            Self::Search(query) => format!("<search>{query}</search>"),
            Self::Answer(answer) => format!("<answer>{answer}</answer>"),
            Self::Unknown => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use turnwise_core::ToolCall;

    use super::*;

    #[test]
    fn tags_brackets_and_calls_are_understood() {
        for (text, request) in [
            ("<search> who wrote it </search>", Request::Search("who wrote it")),
            ("<answer>\nMira\n</answer>", Request::Answer("Mira")),
            (" search[who wrote it] ", Request::Search("who wrote it")),
            ("answer[a [b]]", Request::Answer("a [b]")),
            ("<search></search>", Request::Search("")),
            ("<search>open", Request::Unknown),
            ("search it", Request::Unknown),
            ("I say <answer>x</answer>", Request::Unknown),
            ("", Request::Unknown),
        ] {
            assert_eq!(Request::of(&Action::from(text)), request, "{text}");
        }
        let call = |name: &str, arguments| {
            Action::Call(ToolCall { id: String::new(), name: name.to_owned(), arguments })
        };
        assert_eq!(Request::of(&call("search", json!({"query": " q "}))), Request::Search("q"));
        assert_eq!(Request::of(&call("answer", json!({"answer": "a"}))), Request::Answer("a"));
        assert_eq!(Request::of(&call("answer", json!({"query": "a"}))), Request::Unknown);
        assert_eq!(Request::of(&call("look", json!({}))), Request::Unknown);
        assert_eq!(Request::Search("q").text(), "<search>q</search>");
    }
}
