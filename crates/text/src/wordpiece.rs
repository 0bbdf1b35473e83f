//! Tokenizer for BERT and similar encoders.

use std::path::Path;

use serde::Deserialize;
use tokenizers::models::wordpiece::WordPiece as Pieces;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{AddedToken, Model as _, TruncationParams};

use crate::whole::{failed, read};
use crate::{TextError, parts};

/// An encoder's tokenizer. A text becomes `[CLS]`, its tokens and `[SEP]`, truncated to a maximum
/// length.
#[derive(Clone, Debug)]
pub struct WordPiece {
    library: tokenizers::Tokenizer,
}

#[derive(Default, Deserialize)]
struct Settings {
    do_lower_case: Option<bool>,
    strip_accents: Option<bool>,
    tokenize_chinese_chars: Option<bool>,
    unk_token: Option<Named>,
    sep_token: Option<Named>,
    pad_token: Option<Named>,
    cls_token: Option<Named>,
    mask_token: Option<Named>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Text(String),
    Token { content: String },
}

fn name_of(token: Option<Named>, usual: &str) -> String {
    match token {
        Some(Named::Text(text) | Named::Token { content: text }) => text,
        None => usual.to_owned(),
    }
}

impl WordPiece {
    /// Reads `tokenizer.json` or, if it is missing, `vocab.txt` with `tokenizer_config.json`. As in
    /// `transformers`, a special token's string in a text (`[SEP]`) becomes that token. Tokenizers
    /// other than WordPiece work too: E5's small multilingual model uses XLM-R's tokenizer.
    ///
    /// # Errors
    ///
    /// Returns [`TextError`] if both files are missing, `max_tokens` is below 3, or the tokenizer
    /// does not add exactly two special tokens.
    pub fn load_folder(folder: &Path, max_tokens: usize) -> Result<Self, TextError> {
        let whole = folder.join("tokenizer.json");
        let wrong =
            |path: &Path, reason: String| TextError::File { path: path.display().to_string(), reason };
        let mut library = if whole.is_file() {
            parts::library(&read(&whole)?).map_err(|reason| wrong(&whole, reason))?
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
        let empty = library.encode_fast("", true).map_err(|error| wrong(&whole, error.to_string()))?;
        if empty.get_ids().len() != 2 {
            let reason = format!(
                "puts {} tokens around a text where a tokenizer of BERT or its kin puts two, such as [CLS] and [SEP]; is it \
                 that of an encoder?",
                empty.get_ids().len()
            );
            return Err(wrong(&whole, reason));
        }
        Ok(Self { library })
    }

    /// Returns a text's token ids, including the special tokens around it.
    ///
    /// # Errors
    ///
    /// Returns [`TextError::Tokenizer`] if the tokenizer fails on this text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding =
            self.library.encode_fast(text, true).map_err(|error| TextError::Tokenizer(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}

fn from_vocabulary(folder: &Path) -> Result<tokenizers::Tokenizer, TextError> {
    let path = folder.join("vocab.txt");
    let wrong = |reason: String| TextError::File { path: path.display().to_string(), reason };
    if !path.is_file() {
        return Err(wrong("is missing, and so is tokenizer.json".to_owned()));
    }
    let name = path.to_str().ok_or_else(|| wrong("the path is not UTF-8".to_owned()))?;
    let settings_path = folder.join("tokenizer_config.json");
    let settings: Settings = match std::fs::read(&settings_path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| TextError::File {
            path: settings_path.display().to_string(),
            reason: error.to_string(),
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Settings::default(),
        Err(error) => return Err(failed(&settings_path)(error)),
    };
    let unknown = name_of(settings.unk_token, "[UNK]");
    let pieces = Pieces::from_file(name).unk_token(unknown.clone()).build();
    let pieces = pieces.map_err(|error| wrong(error.to_string()))?;
    let marker = |token: String| {
        let id = pieces.token_to_id(&token).ok_or_else(|| wrong(format!("has no line `{token}`")))?;
        Ok::<_, TextError>((token, id))
    };
    let (unknown, _) = marker(unknown)?;
    let last = marker(name_of(settings.sep_token, "[SEP]"))?;
    let first = marker(name_of(settings.cls_token, "[CLS]"))?;
    let others = [(settings.pad_token, "[PAD]"), (settings.mask_token, "[MASK]")];
    let others = others.map(|(token, usual)| name_of(token, usual));
    let mut special = vec![unknown, last.0.clone(), first.0.clone()];
    // Folders may lack these; their ids would exceed the model's.
    special.extend(others.into_iter().filter(|token| pieces.token_to_id(token).is_some()));
    let mut library = tokenizers::Tokenizer::new(pieces);
    let normalizer = BertNormalizer::new(
        true,
        settings.tokenize_chinese_chars.unwrap_or(true),
        settings.strip_accents,
        settings.do_lower_case.unwrap_or(true),
    );
    library.with_normalizer(Some(normalizer)).map_err(|error| wrong(error.to_string()))?;
    library.with_pre_tokenizer(Some(BertPreTokenizer));
    library.with_post_processor(Some(BertProcessing::new(last, first)));
    // Matched before the text is lower-cased and split.
    let special = special.into_iter().map(|token| AddedToken::from(token, true));
    library.add_special_tokens(special.collect::<Vec<_>>()).map_err(|error| wrong(error.to_string()))?;
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
        let cased = folder(r#"{"do_lower_case": false}"#);
        assert_eq!(ids(cased.path(), "unaffable Who who", 64), [2, 5, 6, 7, 1, 11, 3]);
    }

    #[test]
    fn special_tokens_in_a_text_are_themselves() {
        // Results of `BertTokenizer` in transformers.
        let lower = folder("{}");
        assert_eq!(ids(lower.path(), "who [SEP] who[MASK]unaffable", 64), [2, 11, 3, 11, 4, 5, 6, 7, 3]);
        assert_eq!(ids(lower.path(), "[CLS][PAD] [UNK]", 64), [2, 2, 0, 1, 3]);
        assert_eq!(ids(lower.path(), "[sep]", 64), [2, 1, 1, 1, 3]);
        let settings = r#"{"mask_token": {"content": "who", "lstrip": false}, "pad_token": "<pad>"}"#;
        assert_eq!(ids(folder(settings).path(), "[MASK] unwho", 64), [2, 1, 1, 1, 5, 11, 3]);
    }

    #[test]
    fn a_tokenizer_without_markers_is_refused() {
        let folder = folder("{}");
        let path = folder.path().join("tokenizer.json");
        let mut file = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
            "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0],
                "trim_offsets": true, "add_prefix_space": false},
            "model": {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1, "who": 2}, "unk_token": "</s>"},
        });
        std::fs::write(&path, file.to_string()).unwrap();
        assert_eq!(ids(folder.path(), "who", 64), [0, 2, 1]);
        file["post_processor"] = serde_json::Value::Null;
        std::fs::write(&path, file.to_string()).unwrap();
        let error = WordPiece::load_folder(folder.path(), 64).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json: puts 0 tokens around a text"), "{error}");
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
