//! Stop strings, which may span tokens.

use std::sync::Arc;

use crate::Tokenizer;

/// Tags around reasoning, in which stop strings are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// Opening tag.
    pub open: String,
    /// Closing tag.
    pub close: String,
    /// Text with which prompts open the reasoning (for example `<think>` and a line break). Empty
    /// if prompts do not open the reasoning.
    pub opening: String,
}

impl ReasoningTags {
    /// Returns true if a response to this prompt starts inside reasoning.
    pub(crate) fn are_open_after(&self, tokenizer: &Tokenizer, prompt: &[u32]) -> bool {
        if self.opening.is_empty() {
            return false;
        }
        let mut rest = self.opening.as_bytes();
        for &token in prompt.iter().rev() {
            let bytes = tokenizer.token_bytes(token);
            if bytes.len() >= rest.len() {
                return bytes.ends_with(rest);
            }
            match rest.strip_suffix(bytes) {
                Some(before) => rest = before,
                None => return false,
            }
        }
        false
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Start,
    Reasoning,
    Blanks,
    Answer,
}

/// Finds stop strings in a growing response.
#[derive(Debug, Default)]
pub struct StopStringMatcher {
    /// The last bytes of the response, as many as are needed to find a stop string or tag.
    tail: Vec<u8>,
    tags: Option<Arc<ReasoningTags>>,
    part: Part,
}

impl StopStringMatcher {
    /// Creates a matcher that ignores stop strings inside reasoning, and stop strings that consist
    /// of white space if they directly follow the reasoning. Reasoning starts at the opening tag
    /// that ends the prompt, or else at the first opening tag in the response. Reasoning ends at
    /// the first closing tag.
    pub fn past_reasoning(tags: Arc<ReasoningTags>, tokenizer: &Tokenizer, prompt: &[u32]) -> Self {
        let part = if tags.are_open_after(tokenizer, prompt) { Part::Reasoning } else { Part::Start };
        Self { tail: Vec::new(), tags: Some(tags), part }
    }

    /// Adds a token and returns true if it completes a stop string. Compares bytes, so stop strings
    /// may start and end inside tokens.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32, stops: &[String]) -> bool {
        let tags = self.tags.iter().flat_map(|tags| [tags.open.len(), tags.close.len()]);
        let reach = stops.iter().map(String::len).chain(tags).max().unwrap_or(0);
        let mut found = false;
        for &byte in tokenizer.token_bytes(token) {
            self.tail.push(byte);
            found |= self.is_stopped(byte, stops);
            let surplus = self.tail.len().saturating_sub(reach);
            self.tail.drain(..surplus);
        }
        found
    }

    fn is_stopped(&mut self, byte: u8, stops: &[String]) -> bool {
        let is_last = |tail: &[u8], text: &str| !text.is_empty() && tail.ends_with(text.as_bytes());
        let complete = stops.iter().any(|stop| is_last(&self.tail, stop));
        let Some(tags) = &self.tags else { return complete };
        match self.part {
            Part::Start => {
                if is_last(&self.tail, &tags.open) {
                    self.part = Part::Reasoning;
                    self.tail.clear();
                }
                complete
            }
            Part::Reasoning => {
                if is_last(&self.tail, &tags.close) {
                    self.part = Part::Blanks;
                    self.tail.clear();
                }
                false
            }
            Part::Blanks if byte.is_ascii_whitespace() => false,
            Part::Blanks | Part::Answer => {
                self.part = Part::Answer;
                complete
            }
        }
    }
}

/// Returns the number of tokens up to and including the one that completes a stop string; `None` if
/// no stop string is completed.
pub fn stop_length(tokenizer: &Tokenizer, tokens: &[u32], stops: &[String]) -> Option<usize> {
    let mut matcher = StopStringMatcher::default();
    let last = tokens.iter().position(|&token| matcher.push(tokenizer, token, stops))?;
    Some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    #[test]
    fn strings_are_found_across_and_inside_tokens() {
        let config = TokenizerConfig {
            phrases: vec!["</act>x".into()],
            max_pieces: 50,
            special_tokens: vec!["<end>".into()],
            ..TokenizerConfig::default()
        };
        let tokenizer = Tokenizer::train(["go to desk 1"].into_iter(), &config).unwrap();
        let stops_after = |text: &str, stops: &[&str]| {
            let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
            let mut matcher = StopStringMatcher::default();
            let ids = tokenizer.encode(text);
            let at = ids.iter().position(|&id| matcher.push(&tokenizer, id, &stops));
            at.map(|at| tokenizer.decode(&ids[..=at]))
        };
        assert_eq!(stops_after("go to desk 1 quickly", &["to desk"]).unwrap(), "go to desk 1");
        assert_eq!(stops_after("zzz</act>xyz", &["</act>"]).unwrap(), "zzz</act>x");
        assert_eq!(stops_after("aaé日b", &["é日", "nothing"]).unwrap(), "aaé日");
        assert_eq!(stops_after("abcabd", &["abd"]).unwrap(), "abcabd");
        assert_eq!(stops_after("go<end> to", &["o<end>"]).unwrap(), "go<end>");
        assert_eq!(stops_after("go to desk 1", &["desk 2"]), None);
        assert_eq!(stops_after("go", &[]), None);
    }
    #[test]
    fn a_response_ends_with_the_token_that_completes_a_stop_string() {
        let phrases = vec!["</act>x".into()];
        let config = TokenizerConfig { phrases, max_pieces: 50, ..TokenizerConfig::default() };
        let tokenizer = Tokenizer::train(["go to desk 1"].into_iter(), &config).unwrap();
        let kept = |text: &str, stops: &[&str]| {
            let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
            let ids = tokenizer.encode(text);
            stop_length(&tokenizer, &ids, &stops).map(|length| tokenizer.decode(&ids[..length]))
        };
        assert_eq!(kept("zzz</act>xyz", &["</act>"]).unwrap(), "zzz</act>x");
        assert_eq!(kept("abcabdabd", &["abd"]).unwrap(), "abcabd");
        assert_eq!(kept("aaé日b", &["none", "é日"]).unwrap(), "aaé日");
        assert_eq!(kept("go", &["goes"]), None);
        assert_eq!(kept("go", &[]), None);
        assert_eq!(kept("go\nnow", &["</act>", "\n"]).as_deref(), Some("go\n"));
        let plain = Tokenizer::train(["a b"].into_iter(), &TokenizerConfig::default()).unwrap();
        let ids = plain.encode("go\nnow</act> x");
        let end = stop_length(&plain, &ids, &["</act>".to_owned()]);
        assert_eq!(end.map(|end| plain.decode(&ids[..end])).as_deref(), Some("go\nnow</act>"));
        assert_eq!(stop_length(&plain, &ids, &["</go>".to_owned()]), None);
    }

    const STOPS: [&str; 2] = ["\n", "\nObservation:"];

    fn tokenizer(special: &[&str], phrases: &[&str]) -> Tokenizer {
        let [special_tokens, phrases] =
            [special, phrases].map(|texts| texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        let config = TokenizerConfig {
            special_tokens,
            max_pieces: phrases.len(),
            phrases,
            ..TokenizerConfig::default()
        };
        Tokenizer::train(["a"].into_iter(), &config).unwrap()
    }

    fn kept(tokenizer: &Tokenizer, opening: &str, prompt: &str, text: &str) -> Option<String> {
        let [open, close, opening] = ["<think>", "</think>", opening].map(str::to_owned);
        let tags = Arc::new(ReasoningTags { open, close, opening });
        let stops = STOPS.map(str::to_owned);
        let mut matcher = StopStringMatcher::past_reasoning(tags, tokenizer, &tokenizer.encode(prompt));
        let ids = tokenizer.encode(text);
        let at = ids.iter().position(|&id| matcher.push(tokenizer, id, &stops))?;
        Some(tokenizer.decode(&ids[..=at]))
    }

    #[test]
    fn stop_strings_are_looked_for_behind_the_reasoning() {
        for tokenizer in [tokenizer(&[], &[]), tokenizer(&["<think>", "</think>"], &[])] {
            let opened = |text| kept(&tokenizer, "<think>\n", "Act.<think>\n", text);
            let closed = |text| kept(&tokenizer, "<think>\n", "Act.", text);
            let end = |text: Option<&str>| text.map(str::to_owned);
            assert_eq!(opened("a\nb\n</think>\n\ngo\nand"), end(Some("a\nb\n</think>\n\ngo\n")));
            assert_eq!(opened("\n</think>\n\ngo\n"), end(Some("\n</think>\n\ngo\n")));
            assert_eq!(opened("a\nb</think>go"), None);
            assert_eq!(opened("a\nb\n"), None, "it is never closed");
            assert_eq!(closed("<think>\na\n</think>go\nand"), end(Some("<think>\na\n</think>go\n")));
            assert_eq!(closed(" <think>a</think>\n go\n"), end(Some(" <think>a</think>\n go\n")));
            assert_eq!(closed("go\nnow"), end(Some("go\n")));
            assert_eq!(closed("\n<think>a</think>go"), end(Some("\n")));
            assert_eq!(closed("</think>\ngo"), end(Some("</think>\n")), "none was open");
            assert_eq!(
                closed("<think>a</think>go<think>\nb</think>"),
                end(Some("<think>a</think>go<think>\n"))
            );
            let text = "<think>a\nObservation: b</think>\nObservation: c";
            assert_eq!(closed(text), end(Some("<think>a\nObservation: b</think>\nObservation:")));
        }
    }

    #[test]
    fn one_token_may_end_the_reasoning_and_the_answer() {
        let opened =
            |phrase: &str, text: &str| kept(&tokenizer(&[], &[phrase]), "<think>\n", "Act.<think>\n", text);
        let whole = "a\n</think>\n\ngo\nx";
        assert_eq!(opened("</think>\n\ngo\nx", &format!("{whole}y")).as_deref(), Some(whole));
        assert_eq!(opened("</think>\n\ngo", &format!("{whole}y")).as_deref(), whole.strip_suffix('x'));
        assert_eq!(opened("</think>\n", "</think>\n\nx"), None);
    }

    #[test]
    fn a_prompt_opens_the_reasoning_with_its_last_words() {
        let tokenizer = tokenizer(&[], &[" <think>\n"]);
        let is_open = |opening, prompt| kept(&tokenizer, opening, prompt, "\n").is_none();
        assert!(is_open("<think>\n", "Act.<think>\n") && is_open("<think>\n", "Act. <think>\n"));
        assert!(is_open("<think>\n", "<think>\n"));
        for (opening, prompt) in [
            ("<think>\n", "Act.<think>"),
            ("<think>\n", "Act.<think>\n\n</think>\n\n"),
            ("<think>\n", "hink>\n"),
            ("<think>\n", ""),
            ("", "Act.<think>\n"),
        ] {
            assert!(!is_open(opening, prompt), "{prompt:?}");
        }
    }
}
