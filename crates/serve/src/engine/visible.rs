//! The part of a response without stop strings and tool calls.

use turnwise_core::ToolCall;
use turnwise_env::parse::{ActionParser, CallFormat, ResponseRules, Style};
use turnwise_text::{DecodeStream, Tokenizer};

const CALL_TAG: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

/// Tags of reasoning, inside which tool calls are not parsed.
const THOUGHT_END: &str = "</think>";
const THOUGHT: &str = "<think>";

#[derive(Clone, Debug)]
pub(super) struct CallReader {
    format: CallFormat,
    parser: ActionParser,
    /// Start of the response that the prompt already contains: `<think>`, or nothing.
    opening: String,
}

impl CallReader {
    pub(super) fn new(format: CallFormat, opening: &str) -> Self {
        let mut rules = ResponseRules::new(Style::Call);
        rules.calls = format;
        rules.action_tags = [CALL_TAG, CALL_END].map(str::to_owned);
        rules.text_answer = true;
        Self { format, parser: ActionParser::new(rules, false), opening: opening.to_owned() }
    }

    fn read(&self, text: &str) -> Vec<ToolCall> {
        let parsed = self.parser.parse(&format!("{}{text}", self.opening), &[]);
        if parsed.valid { parsed.calls } else { Vec::new() }
    }

    fn begin(&self, text: &str) -> Option<usize> {
        if self.format != CallFormat::Hermes {
            return Some(0);
        }
        let thinks = !self.opening.is_empty() || text.trim_start().starts_with(THOUGHT);
        let answer = match text.find(THOUGHT_END) {
            Some(at) => at + THOUGHT_END.len(),
            None if thinks => return None,
            None => 0,
        };
        text[answer..].find(CALL_TAG).map(|at| answer + at)
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Rest {
    pub(super) text: String,
    /// Tool calls; the text before them has been shown or is in `text`.
    pub(super) calls: Vec<ToolCall>,
}

#[derive(Debug)]
pub(super) struct Visible {
    stream: DecodeStream,
    stops: Vec<String>,
    calls: Option<CallReader>,
    text: String,
    shown: usize,
    stopped: bool,
}

impl Visible {
    pub(super) fn new(stops: Vec<String>, calls: Option<CallReader>) -> Self {
        Self { stream: DecodeStream::new(), stops, calls, text: String::new(), shown: 0, stopped: false }
    }

    /// Adds a token and returns the new text to show.
    pub(super) fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        let more = self.stream.push(tokenizer, token);
        self.add(&more);
        let mut certain = self.text.len();
        if !self.stopped {
            let stops = self.stops.iter().map(String::as_str);
            let tag = self.calls.as_ref().map(|_| CALL_TAG);
            let held = stops.chain(tag).map(|end| begun_prefix(&self.text[self.shown..], end)).max();
            certain -= held.unwrap_or(0);
        }
        if let Some(begin) = self.calls.as_ref().and_then(|calls| calls.begin(&self.text)) {
            certain = certain.min(begin);
        }
        if self.calls.is_some() {
            // White space before a call is dropped.
            certain = self.text[..certain].trim_end().len();
        }
        self.show(certain)
    }

    pub(super) fn finish(&mut self) -> Rest {
        let more = self.stream.finish();
        self.add(&more);
        if let Some(reader) = &self.calls {
            let calls = reader.read(&self.text);
            if !calls.is_empty() {
                let begin = reader.begin(&self.text).unwrap_or(0);
                let text = self.show(begin);
                return Rest { text: text.trim_end().to_owned(), calls };
            }
        }
        Rest { text: self.show(self.text.len()), calls: Vec::new() }
    }

    fn add(&mut self, more: &str) {
        if self.stopped {
            return;
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.push_str(more);
        let first = self.stops.iter().filter_map(|stop| self.text[from..].find(stop.as_str())).min();
        if let Some(at) = first {
            self.text.truncate(from + at);
            self.stopped = true;
        }
    }

    fn show(&mut self, to: usize) -> String {
        if to <= self.shown {
            return String::new();
        }
        let text = self.text[self.shown..to].to_owned();
        self.shown = to;
        text
    }
}

/// Returns the length of the longest proper prefix of `other` with which `text` ends.
fn begun_prefix(text: &str, other: &str) -> usize {
    let most = text.len().min(other.len().saturating_sub(1));
    (1..=most).rev().find(|&length| text.as_bytes().ends_with(&other.as_bytes()[..length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use turnwise_text::TokenizerConfig;

    use super::*;

    fn shown(text: &str, stops: &[&str], calls: Option<CallReader>) -> (Vec<String>, Rest) {
        let tokenizer = Tokenizer::train(["a"].into_iter(), &TokenizerConfig::default()).unwrap();
        let mut visible = Visible::new(stops.iter().map(ToString::to_string).collect(), calls);
        let mut pieces: Vec<String> =
            tokenizer.encode(text).into_iter().map(|token| visible.push(&tokenizer, token)).collect();
        pieces.retain(|piece| !piece.is_empty());
        (pieces, visible.finish())
    }

    fn text(text: &str) -> Rest {
        Rest { text: text.to_owned(), calls: Vec::new() }
    }

    #[test]
    fn a_stop_string_is_never_shown_and_its_beginning_is_when_it_is_none() {
        assert_eq!(shown("ab", &[], None), (vec!["a".into(), "b".into()], text("")));
        let (pieces, rest) = shown("go\nObs. x", &["\nObservation:", "stop"], None);
        assert_eq!(pieces.concat(), "go\nObs. x");
        assert_eq!(pieces[2], "\nObs.", "held back until it is none");
        assert_eq!(rest, text(""));
        let (pieces, rest) = shown("go\nObservation:", &["\nObservation:", "stop"], None);
        assert_eq!((pieces.concat().as_str(), rest), ("go", text("")));
        let (pieces, rest) = shown("go st", &["stop"], None);
        assert_eq!((pieces.concat().as_str(), rest), ("go ", text("st")));
        let (pieces, _) = shown("é日b", &["b", "日"], None);
        assert_eq!(pieces.concat(), "é");
    }

    fn call(name: &str, arguments: &str) -> ToolCall {
        let arguments = serde_json::from_str(arguments).unwrap();
        ToolCall { id: String::new(), name: name.into(), arguments }
    }

    #[test]
    fn calls_are_read_and_not_shown() {
        let hermes = || Some(CallReader::new(CallFormat::Hermes, ""));
        let both = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>\n\
                    <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
        let (pieces, rest) = shown(both, &[], hermes());
        assert_eq!(pieces.concat(), "I look.");
        assert_eq!(rest.calls, [call("f", r#"{"n":1}"#), call("g", "{}")]);
        // Invalid calls are shown at the end.
        for broken in ["<tool_call>{\"name\": \"f\"", "<tool_call>f</tool_call>", "a <tool b", "a <tool"] {
            let (pieces, rest) = shown(broken, &[], hermes());
            assert_eq!(pieces.concat() + &rest.text, broken);
            assert!(rest.calls.is_empty());
        }
        let thought = "<think>\n<tool_call>{\"name\": \"f\"}</tool_call>\n</think>\n\nNo.";
        let (pieces, rest) = shown(thought, &[], hermes());
        assert_eq!((pieces.concat() + &rest.text, rest.calls.len()), (thought.to_owned(), 0));
        let open = Some(CallReader::new(CallFormat::Hermes, "<think>\n"));
        let thought = "Hm <tool_call>.\n</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>";
        let (pieces, rest) = shown(thought, &[], open);
        assert_eq!(pieces.concat(), "Hm <tool_call>.\n</think>");
        assert_eq!(rest.calls, [call("f", "{}")]);
    }

    #[test]
    fn formats_without_tags_are_held_back_whole() {
        for (format, written) in [
            (CallFormat::Llama, r#"{"name": "f", "parameters": {"n": 1}}"#),
            (CallFormat::Python, "[f(n=1)]"),
        ] {
            let reader = || Some(CallReader::new(format, ""));
            let (pieces, rest) = shown(written, &[], reader());
            assert!(pieces.is_empty(), "{pieces:?}");
            assert_eq!(rest, Rest { text: String::new(), calls: vec![call("f", r#"{"n":1}"#)] });
            assert_eq!(shown("Hello.", &[], reader()), (Vec::new(), text("Hello.")));
        }
    }
}
