//! The tokenizer of BERT and its kin: words cut into pieces, between two markers.

use std::path::Path;

use serde::Deserialize;
use tokenizers::models::wordpiece::WordPiece as Pieces;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{Model as _, TruncationParams};

use crate::TextError;

/// A tokenizer for encoders: a text becomes `[CLS]`, its pieces, `[SEP]`, cut to a greatest length.
#[derive(Clone, Debug)]
pub struct WordPiece {
    library: tokenizers::Tokenizer,
}

#[derive(Default, Deserialize)]
struct Settings {
    do_lower_case: Option<bool>,
    strip_accents: Option<bool>,
    tokenize_chinese_chars: Option<bool>,
}

impl WordPiece {
    /// Reads `tokenizer.json` of a folder, or `vocab.txt` with `tokenizer_config.json` where there is none.
    ///
    /// # Errors
    ///
    /// [`TextError`] with the file: neither is there, or it is none of a BERT.
    pub fn load_folder(folder: &Path, max_tokens: usize) -> Result<Self, TextError> {
        let whole = folder.join("tokenizer.json");
        let wrong =
            |path: &Path, reason: String| TextError::File { path: path.display().to_string(), reason };
        let mut library = if whole.is_file() {
            tokenizers::Tokenizer::from_file(&whole).map_err(|error| wrong(&whole, error.to_string()))?
        } else {
            from_vocabulary(folder)?
        };
        if max_tokens < 3 {
            return Err(wrong(
                folder,
                format!("{max_tokens} tokens leave no room for text between the markers"),
            ));
        }
        let cut = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        library.with_truncation(Some(cut)).map_err(|error| wrong(&whole, error.to_string()))?;
        library.with_padding(None);
        Ok(Self { library })
    }

    /// The ids of a text with its markers.
    ///
    /// # Errors
    ///
    /// [`TextError::Tokenizer`] where the tokenizer's file is broken in a way that only this text shows.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding =
            self.library.encode_fast(text, true).map_err(|error| TextError::Tokenizer(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// A tokenizer from a list of pieces.
fn from_vocabulary(folder: &Path) -> Result<tokenizers::Tokenizer, TextError> {
    let path = folder.join("vocab.txt");
    let wrong = |reason: String| TextError::File { path: path.display().to_string(), reason };
    if !path.is_file() {
        return Err(wrong("is missing, and so is tokenizer.json".to_owned()));
    }
    let name = path.to_str().ok_or_else(|| wrong("the path is not UTF-8".to_owned()))?;
    let pieces = Pieces::from_file(name).unk_token("[UNK]".into()).build();
    let pieces = pieces.map_err(|error| wrong(error.to_string()))?;
    let marker = |token: &str| {
        let id = pieces.token_to_id(token).ok_or_else(|| wrong(format!("has no line `{token}`")))?;
        Ok::<_, TextError>((token.to_owned(), id))
    };
    let markers = (marker("[SEP]")?, marker("[CLS]")?);
    let settings_path = folder.join("tokenizer_config.json");
    let settings: Settings = match std::fs::read(&settings_path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| TextError::File {
            path: settings_path.display().to_string(),
            reason: error.to_string(),
        })?,
        Err(_) => Settings::default(),
    };
    let mut library = tokenizers::Tokenizer::new(pieces);
    let normalizer = BertNormalizer::new(
        true,
        settings.tokenize_chinese_chars.unwrap_or(true),
        settings.strip_accents,
        settings.do_lower_case.unwrap_or(true),
    );
    library.with_normalizer(Some(normalizer)).map_err(|error| wrong(error.to_string()))?;
    library.with_pre_tokenizer(Some(BertPreTokenizer));
    library.with_post_processor(Some(BertProcessing::new(markers.0, markers.1)));
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [&str; 12] =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "cafe", "!", "食", "who"];

    fn folder(settings: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), PIECES.join("\n")).unwrap();
        std::fs::write(folder.path().join("tokenizer_config.json"), settings).unwrap();
        folder
    }

    fn ids(folder: &Path, text: &str, most: usize) -> Vec<u32> {
        WordPiece::load_folder(folder, most).unwrap().encode(text).unwrap()
    }

    #[test]
    fn words_are_cut_into_pieces() {
        let lower = folder("{}");
        assert_eq!(ids(lower.path(), "Unaffable CAFÉ!食 zebra", 64), [2, 5, 6, 7, 8, 9, 10, 1, 3]);
        assert_eq!(ids(lower.path(), "", 64), [2, 3]);
        // Case counts where the folder says so.
        let cased = folder(r#"{"do_lower_case": false}"#);
        assert_eq!(ids(cased.path(), "unaffable Who who", 64), [2, 5, 6, 7, 1, 11, 3]);
    }

    #[test]
    fn a_text_is_cut_between_its_markers() {
        let lower = folder("{}");
        assert_eq!(ids(lower.path(), "who who who who", 5), [2, 11, 11, 11, 3]);
        assert!(WordPiece::load_folder(lower.path(), 2).is_err());
    }

    #[test]
    fn a_folder_without_a_tokenizer_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        let error = WordPiece::load_folder(empty.path(), 64).unwrap_err().to_string();
        assert!(error.contains("vocab.txt") && error.contains("tokenizer.json"), "{error}");
        std::fs::write(empty.path().join("vocab.txt"), "[UNK]\nwho").unwrap();
        let error = WordPiece::load_folder(empty.path(), 64).unwrap_err().to_string();
        assert!(error.contains("no line `[SEP]`"), "{error}");
    }
}
