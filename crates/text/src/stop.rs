//! Stop strings across token borders.

use crate::Tokenizer;

/// Looks for stop strings in the bytes of a growing response.
#[derive(Debug, Default)]
pub struct StopStringMatcher {
    /// The last bytes of the response; as many as a stop string can reach back.
    tail: Vec<u8>,
}

impl StopStringMatcher {
    /// Adds a token; true if a stop string is complete now.
    ///
    /// Strings are compared as bytes, so one may begin and end inside tokens, and a character may be
    /// spread over several.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32, stops: &[String]) -> bool {
        let new = tokenizer.token_bytes(token);
        self.tail.extend_from_slice(new);
        let found = stops.iter().any(|stop| {
            let stop = stop.as_bytes();
            // An occurrence that ended before the new bytes would have been found before.
            let start = self.tail.len().saturating_sub(new.len() + stop.len().saturating_sub(1));
            self.tail[start..].windows(stop.len().max(1)).any(|window| window == stop)
        });
        let reach = stops.iter().map(String::len).max().unwrap_or(0);
        let surplus = self.tail.len().saturating_sub(reach);
        self.tail.drain(..surplus);
        found
    }
}

/// Number of tokens up to and with the first whose bytes complete one of the strings; `None` where none is complete.
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
}
