//! Converts text to token ids and back.
//!
//! Reads byte-level BPE tokenizers from a `tokenizer.json` or a hub model's folder
//! ([`Tokenizer::load_folder`]). Small models use a tokenizer trained on their environment's text
//! ([`Tokenizer::train`]), in which a phrase, or a name with its number, is one token.

mod files;
mod generation;
mod scanner;
mod stream;
mod train;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use files::Companions;
pub use generation::GenerationSampling;
pub use stream::DecodeStream;
pub use train::TokenizerConfig;

use scanner::Scanner;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{DecoderWrapper, ModelWrapper, PreTokenizerWrapper};
use turnwise_files::catch_panic;

use crate::whole::{read, write, wrong};
use crate::{TextError, parts};

/// Maximum number of token ids; a larger number indicates a corrupt file.
const MOST_IDS: usize = 1 << 24;

/// A byte-level tokenizer. A tokenizer without a normalizer is lossless if its vocabulary contains
/// all 256 byte characters (SmolLM2's lacks 21).
///
/// As in the `tokenizers` library, a missing byte becomes `unk_token`, or is dropped if there is no
/// such token ([`Tokenizer::missing_bytes`]). A special token's string in a text becomes that
/// token.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    library: tokenizers::Tokenizer,
    bytes: Vec<Box<[u8]>>,
    byte_ids: Vec<Option<u32>>,
    fast: Option<Fast>,
    prefix: Vec<u32>,
    companions: Arc<Companions>,
}

/// Fast encoder for tokenizers trained by this crate.
#[derive(Clone, Debug)]
struct Fast {
    byte_ids: Vec<u32>,
    scanner: Scanner,
    pieces: HashMap<Box<[u8]>, u32>,
    special: SpecialTokens,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails with the file name if the file cannot be read or is invalid.
    pub fn load(path: &Path) -> Result<Self, TextError> {
        Self::from_json(&read(path)?).map_err(|error| match error {
            TextError::Tokenizer(reason) => wrong(path, reason),
            other => other,
        })
    }

    /// Parses a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails if the text is not a byte-level BPE tokenizer or an id is 2^24 or larger.
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        Self::new(parts::library(json).map_err(TextError::Tokenizer)?)
    }

    /// Returns the content of `tokenizer.json`, which is identical for equal tokenizers.
    ///
    /// # Errors
    /// Fails if the `tokenizers` library cannot serialize the tokenizer.
    pub fn to_json(&self) -> Result<String, TextError> {
        self.library.to_string(true).map_err(refused)
    }

    /// Writes a `tokenizer.json` atomically.
    ///
    /// # Errors
    /// Fails like [`Tokenizer::to_json`], or if writing fails.
    pub fn save(&self, path: &Path) -> Result<(), TextError> {
        write(path, self.to_json()?.as_bytes())
    }

    /// The library panics on some invalid parts, for example if a template of special tokens names
    /// a token without an id.
    fn new(library: tokenizers::Tokenizer) -> Result<Self, TextError> {
        catch_panic(|| Self::build(library)).unwrap_or_else(|panic| {
            Err(TextError::Tokenizer(format!("the `tokenizers` library failed on it: {panic}")))
        })
    }

    fn build(mut library: tokenizers::Tokenizer) -> Result<Self, TextError> {
        // A training script's batch settings would truncate and pad every text.
        library.with_padding(None);
        library.with_truncation(None).map_err(|error| TextError::Tokenizer(error.to_string()))?;
        if !matches!(library.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
            || !matches!(library.get_model(), ModelWrapper::BPE(_))
        {
            return Err(TextError::Tokenizer(
                "not a byte-level BPE tokenizer (model `BPE` with decoder `ByteLevel`), as Qwen's is; only \
                 those are supported"
                    .into(),
            ));
        }
        respell(&mut library)?;
        let alphabet = byte_alphabet();
        let byte_of: HashMap<char, u8> =
            (0..=u8::MAX).map(|byte| (alphabet[usize::from(byte)], byte)).collect();
        let mut bytes: Vec<Box<[u8]>> = Vec::new();
        for (token, id) in library.get_vocab(true) {
            let id = id as usize;
            if id >= MOST_IDS {
                return Err(TextError::Tokenizer(format!(
                    "token `{token}` has id {id}; below {MOST_IDS} expected"
                )));
            }
            if bytes.len() <= id {
                bytes.resize_with(id + 1, Box::default);
            }
            let spelt: Option<Vec<u8>> =
                token.chars().map(|character| byte_of.get(&character).copied()).collect();
            bytes[id] = spelt.unwrap_or_else(|| token.into_bytes()).into();
        }
        let byte_ids: Vec<Option<u32>> =
            alphabet.iter().map(|character| library.token_to_id(&character.to_string())).collect();
        let fast = Fast::of(&library, &bytes, &byte_ids);
        let prefix = prefix_of(&library);
        Ok(Self { library, bytes, byte_ids, fast, prefix, companions: Arc::default() })
    }

    /// Returns the ids that the model expects before plain text (Llama 3: `<|begin_of_text|>`),
    /// usually none. Chat templates add these ids themselves.
    pub fn text_prefix(&self) -> &[u32] {
        &self.prefix
    }

    /// Encodes a text without adding special tokens.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        if let Some(fast) = &self.fast {
            let mut ids = Vec::with_capacity(text.len() / 4);
            fast.encode(text, &mut ids);
            return ids;
        }
        match self.library.encode_fast(text, false) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            // If the library fails, encode single bytes.
            Err(_) => text.bytes().filter_map(|byte| self.byte_ids[usize::from(byte)]).collect(),
        }
    }

    /// Returns the bytes missing from the vocabulary.
    pub fn missing_bytes(&self) -> Vec<u8> {
        (0..=u8::MAX).filter(|&byte| self.byte_ids[usize::from(byte)].is_none()).collect()
    }

    /// Decodes ids, including special tokens. Invalid UTF-8 becomes U+FFFD; unused ids are skipped.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.token_bytes(id)).copied().collect();
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Returns a token's bytes; empty for unused ids.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], AsRef::as_ref)
    }

    /// Returns a token's id by its name in `tokenizer.json`; a special token's name is its text.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.library.token_to_id(token)
    }

    /// Returns true if the token is found even inside words, so that the text on either side of it
    /// is tokenized separately.
    pub(crate) fn splits_text(&self, id: u32) -> bool {
        self.library
            .get_added_tokens_decoder()
            .get(&id)
            .is_some_and(|token| !token.single_word && !token.normalized)
    }

    /// Returns the largest id plus one, which is the number of embedding rows needed.
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }
}

impl Fast {
    fn of(library: &tokenizers::Tokenizer, bytes: &[Box<[u8]>], byte_ids: &[Option<u32>]) -> Option<Self> {
        let byte_ids = byte_ids.iter().copied().collect::<Option<Vec<u32>>>()?;
        let ModelWrapper::BPE(model) = library.get_model() else { return None };
        let file: serde_json::Value = serde_json::to_value(library).ok()?;
        let no_merges = file["model"]["merges"].as_array().is_some_and(Vec::is_empty);
        if !model.ignore_merges || !no_merges || model.dropout.is_some() || library.get_normalizer().is_some()
        {
            return None;
        }
        let Some(PreTokenizerWrapper::Sequence(_)) = library.get_pre_tokenizer() else { return None };
        let [split, byte_level] = file["pre_tokenizer"]["pretokenizers"].as_array()?.as_slice() else {
            return None;
        };
        let plain_split =
            split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false;
        let plain_bytes = byte_level["type"] == "ByteLevel"
            && byte_level["add_prefix_space"] == false
            && byte_level["use_regex"] == false;
        if !plain_split || !plain_bytes {
            return None;
        }
        let scanner = Scanner::from_regex(split["pattern"]["Regex"].as_str()?)?;
        let mut special = Vec::new();
        for (id, token) in library.get_added_tokens_decoder() {
            if token.single_word
                || token.lstrip
                || token.rstrip
                || token.normalized
                || token.content.is_empty()
            {
                return None;
            }
            special.push((token.content, id));
        }
        let pieces = model
            .get_vocab()
            .into_values()
            .filter(|&id| special.iter().all(|(_, special)| *special != id))
            .map(|id| (bytes[id as usize].clone(), id))
            .collect();
        Some(Self { byte_ids, scanner, pieces, special: SpecialTokens::new(special) })
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        self.special.split(text, |segment| match segment {
            Segment::Special(id) => ids.push(id),
            Segment::Text(mut rest) => {
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(self.scanner.piece_len(rest));
                    match self.pieces.get(piece.as_bytes()) {
                        Some(&id) => ids.push(id),
                        None => ids.extend(piece.bytes().map(|byte| self.byte_ids[usize::from(byte)])),
                    }
                    rest = after;
                }
            }
        });
    }
}

#[derive(Clone, Debug)]
struct SpecialTokens {
    by_first_byte: Vec<Vec<(String, u32)>>,
}

enum Segment<'a> {
    Text(&'a str),
    Special(u32),
}

impl SpecialTokens {
    fn new(mut tokens: Vec<(String, u32)>) -> Self {
        tokens.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        let mut by_first_byte = vec![Vec::new(); 256];
        for token in tokens {
            by_first_byte[usize::from(token.0.as_bytes()[0])].push(token);
        }
        Self { by_first_byte }
    }

    /// Splits a text at special tokens. The leftmost token is taken first; of several tokens with
    /// the same start, the longest is taken.
    fn split<'a>(&self, text: &'a str, mut emit: impl FnMut(Segment<'a>)) {
        let (mut start, mut at) = (0, 0);
        while let Some(&byte) = text.as_bytes().get(at) {
            let rest = &text.as_bytes()[at..];
            let candidates = &self.by_first_byte[usize::from(byte)];
            let found = candidates.iter().find(|(token, _)| rest.starts_with(token.as_bytes()));
            if let Some((token, id)) = found {
                if at > start {
                    emit(Segment::Text(&text[start..at]));
                }
                emit(Segment::Special(*id));
                at += token.len();
                start = at;
            } else {
                at += 1;
            }
        }
        if start < text.len() {
            emit(Segment::Text(&text[start..]));
        }
    }
}

/// Replaces a regex that earlier versions of this crate wrote and that regex engines interpret
/// differently ([`Scanner::regex`]).
fn respell(library: &mut tokenizers::Tokenizer) -> Result<(), TextError> {
    let Some(PreTokenizerWrapper::Sequence(parts)) = library.get_pre_tokenizer() else { return Ok(()) };
    let mut parts: Vec<PreTokenizerWrapper> = parts.as_ref().to_vec();
    let mut changed = false;
    for part in &mut parts {
        if let PreTokenizerWrapper::Split(split) = part
            && let SplitPattern::Regex(regex) = &split.pattern
            && let Some(spelt) = Scanner::from_regex(regex).map(|scanner| scanner.regex())
            && spelt != *regex
        {
            let pattern = SplitPattern::Regex(spelt);
            *split = Split::new(pattern, split.behavior, split.invert).map_err(refused)?;
            changed = true;
        }
    }
    if changed {
        library.with_pre_tokenizer(Some(Sequence::new(parts)));
    }
    Ok(())
}

fn prefix_of(library: &tokenizers::Tokenizer) -> Vec<u32> {
    let ids = |special| library.encode_fast("a", special).map(|encoding| encoding.get_ids().to_vec());
    let (Ok(bare), Ok(whole)) = (ids(false), ids(true)) else { return Vec::new() };
    let start = (0..whole.len()).find(|&start| whole[start..].starts_with(&bare));
    whole[..start.unwrap_or(0)].to_vec()
}

/// Returns the characters that represent the 256 bytes. Visible Latin-1 characters represent
/// themselves; all other bytes are represented by characters from U+0100 on.
fn byte_alphabet() -> Vec<char> {
    let mut moved = 0x100..;
    (0..=u8::MAX)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
            _ => moved.next().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER),
        })
        .collect()
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn refused(error: tokenizers::Error) -> TextError {
    TextError::Tokenizer(error.to_string())
}

#[cfg(test)]
mod tests;
