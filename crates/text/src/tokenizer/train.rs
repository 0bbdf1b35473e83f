//! Trains tokenizers for small models on text from their environment.

use serde_json::{Map, Value, json};
use tokenizers::models::wordlevel::{WordLevel, WordLevelTrainer};
use tokenizers::{Model as _, Trainer as _};

use super::scanner::Scanner;
use super::{Segment, SpecialTokens, Tokenizer, byte_alphabet, refused};
use crate::TextError;

/// Settings for training a tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// Strings that become one token wherever a piece starts with them, even if they do not occur
    /// in the training texts.
    pub phrases: Vec<String>,
    /// Maximum number of tokens, including phrases but not bytes and special tokens.
    pub max_pieces: usize,
    /// Whether a name and its number (`shelf 12`) are separate tokens.
    pub split_numbers: bool,
    /// Strings that become one token wherever they occur.
    pub special_tokens: Vec<String>,
}

impl TokenizerConfig {
    fn check(&self, phrases: usize) -> Result<(), TextError> {
        if phrases > self.max_pieces {
            return Err(TextError::Tokenizer(format!(
                "max_pieces = {} leaves no room for {phrases} phrases: raise it or give fewer phrases",
                self.max_pieces
            )));
        }
        for (index, token) in self.special_tokens.iter().enumerate() {
            let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
            if token.len() < 2 || !printable || self.special_tokens[..index].contains(token) {
                return Err(TextError::Tokenizer(format!(
                    "special token `{token}`: a special token is given once and has at least two \
                     characters, all of them visible ASCII"
                )));
            }
        }
        Ok(())
    }
}

impl Tokenizer {
    /// Trains a tokenizer for a small model on the texts that the model will read and write.
    ///
    /// The vocabulary consists of the 256 bytes, the special tokens, the phrases and the most
    /// frequent pieces (ties in byte order). A piece is a phrase (longest first), a line break,
    /// `name number` (unless `split_numbers` is set), a word, a number or a run of other
    /// characters. All pieces except line breaks may start with a space. Pieces outside the
    /// vocabulary are encoded as bytes; there are no BPE merges.
    ///
    /// # Errors
    /// Fails if there are more phrases than `max_pieces`, or if a special token is repeated, is
    /// shorter than two characters or is not visible ASCII.
    pub fn train<'a>(
        texts: impl Iterator<Item = &'a str> + Send,
        config: &TokenizerConfig,
    ) -> Result<Self, TextError> {
        let scanner = Scanner::new(&config.phrases, config.split_numbers);
        config.check(scanner.phrases().len())?;
        let alphabet = byte_alphabet();
        let pieces = frequent_pieces(texts, config, &scanner, &alphabet)?;
        let vocabulary = vocabulary(config, &scanner, &alphabet, pieces);
        Self::from_json(tokenizer_json(config, &scanner, &vocabulary).to_string().as_bytes())
    }
}

fn spell(alphabet: &[char], piece: &str) -> String {
    piece.bytes().map(|byte| alphabet[usize::from(byte)]).collect()
}

fn frequent_pieces<'a>(
    texts: impl Iterator<Item = &'a str> + Send,
    config: &TokenizerConfig,
    scanner: &Scanner,
    alphabet: &[char],
) -> Result<Vec<String>, TextError> {
    let special = SpecialTokens::new(config.special_tokens.iter().map(|token| (token.clone(), 0)).collect());
    let mut trainer = WordLevelTrainer::builder()
        .vocab_size(usize::MAX)
        .show_progress(false)
        .build()
        .map_err(|error| TextError::Tokenizer(error.to_string()))?;
    trainer
        .feed(texts, |text| {
            let mut pieces = Vec::new();
            special.split(text, |segment| {
                if let Segment::Text(mut rest) = segment {
                    while !rest.is_empty() {
                        let (piece, after) = rest.split_at(scanner.piece_len(rest));
                        pieces.push(spell(alphabet, piece));
                        rest = after;
                    }
                }
            });
            Ok(pieces)
        })
        .map_err(refused)?;
    let mut counted = WordLevel::default();
    trainer.train(&mut counted).map_err(refused)?;
    let mut counted: Vec<(String, u32)> = counted.get_vocab().into_iter().collect();
    counted.sort_unstable_by_key(|entry| entry.1);
    Ok(counted.into_iter().map(|(piece, _)| piece).collect())
}

fn vocabulary(
    config: &TokenizerConfig,
    scanner: &Scanner,
    alphabet: &[char],
    pieces: Vec<String>,
) -> Map<String, Value> {
    let mut vocabulary = Map::new();
    let mut add = |token: String| {
        let id = vocabulary.len();
        vocabulary.entry(token).or_insert(json!(id));
        vocabulary.len()
    };
    for character in alphabet {
        add(character.to_string());
    }
    let mut size = alphabet.len();
    for token in &config.special_tokens {
        size = add(token.clone());
    }
    let full = size + config.max_pieces;
    for phrase in scanner.phrases() {
        size = add(spell(alphabet, phrase));
    }
    for piece in pieces {
        if size == full {
            break;
        }
        size = add(piece);
    }
    vocabulary
}

fn tokenizer_json(config: &TokenizerConfig, scanner: &Scanner, vocabulary: &Map<String, Value>) -> Value {
    let added = config.special_tokens.iter().map(|token| {
        json!({
            "id": vocabulary[token], "content": token, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true,
        })
    });
    let added: Vec<Value> = added.collect();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let split = json!({
        "type": "Split", "pattern": {"Regex": scanner.regex()}, "behavior": "Isolated", "invert": false,
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": vocabulary, "merges": [],
        },
    })
}
