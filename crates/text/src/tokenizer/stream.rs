//! Incremental decoding of tokens.

use crate::Tokenizer;

/// Decodes tokens one at a time. A character that spans several tokens is returned once it is
/// complete. The concatenated results equal [`Tokenizer::decode`] of all tokens.
#[derive(Clone, Debug, Default)]
pub struct DecodeStream {
    /// Up to three bytes of an incomplete character.
    held: Vec<u8>,
}

impl DecodeStream {
    /// Creates an empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token and returns the text that it completes.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        self.held.extend_from_slice(tokenizer.token_bytes(token));
        let held = std::mem::take(&mut self.held);
        let mut text = String::with_capacity(held.len());
        let mut rest = held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(broken) = error.error_len() else {
                        self.held.extend_from_slice(after);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[broken..];
                }
            }
        }
    }

    /// Returns the remaining text: U+FFFD if the last character is incomplete, otherwise nothing.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;
    use proptest::prelude::*;

    fn bytes_only() -> Tokenizer {
        Tokenizer::train(["a"].into_iter(), &TokenizerConfig::default()).unwrap()
    }

    #[test]
    fn a_character_comes_out_when_it_is_whole() {
        let tokenizer = bytes_only();
        let ids = tokenizer.encode("é日🦙x");
        let mut stream = DecodeStream::new();
        let pieces: Vec<String> = ids.iter().map(|&id| stream.push(&tokenizer, id)).collect();
        assert_eq!(pieces, ["", "é", "", "", "日", "", "", "", "🦙", "x"]);
        assert_eq!(stream.finish(), "");
        for &id in &ids[..4] {
            stream.push(&tokenizer, id);
        }
        assert_eq!(stream.finish(), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            let tokenizer = bytes_only();
            let ids: Vec<u32> =
                bytes.iter().map(|&byte| (0..256).find(|&id| tokenizer.token_bytes(id) == [byte]).unwrap()).collect();
            let mut stream = DecodeStream::new();
            let mut text: String = ids.iter().map(|&id| stream.push(&tokenizer, id)).collect();
            text.push_str(&stream.finish());
            prop_assert_eq!(text, tokenizer.decode(&ids));
        }
    }
}
