//! Sentence encoders such as E5.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;
use turnwise_model::bert::{SentenceEncoder, SentenceOptions};
use turnwise_retrieval::RetrievalError;
use turnwise_retrieval::dense::{Encoder, Encoding};

/// A [`PrefixedEncoder`]'s settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Text before each query.
    pub query_prefix: String,
    /// Text before each passage.
    pub passage_prefix: String,
    /// Maximum length and matrix precision.
    pub sentence: SentenceOptions,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self {
            query_prefix: "query: ".to_owned(),
            passage_prefix: "passage: ".to_owned(),
            sentence: SentenceOptions::default(),
        }
    }
}

impl EncoderOptions {
    /// Returns the settings that are stored with vectors: those that change vectors by more than
    /// rounding errors.
    pub fn encoding(&self) -> Encoding {
        Encoding {
            query_prefix: self.query_prefix.clone(),
            passage_prefix: self.passage_prefix.clone(),
            max_tokens: self.sentence.max_tokens,
        }
    }
}

/// A sentence encoder with prefixes.
#[derive(Debug)]
pub struct PrefixedEncoder {
    encoder: SentenceEncoder,
    options: EncoderOptions,
    fingerprint: String,
    /// Fingerprint as computed by earlier versions, over the weights only. It is still accepted in
    /// indexes, which are expensive to recompute.
    earlier: String,
}

impl PrefixedEncoder {
    /// Loads a model folder (`config.json`, `model.safetensors`, and `tokenizer.json` or
    /// `vocab.txt`).
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] with the file and cause.
    pub fn load(folder: &Path, options: EncoderOptions) -> Result<Self, RetrievalError> {
        let wrong = |reason: String| RetrievalError::Setting { key: "encoder".to_owned(), reason };
        let encoder =
            SentenceEncoder::load(folder, options.sentence).map_err(|error| wrong(error.to_string()))?;
        let add = |hash: &mut Sha256, name: &str| -> Result<(), RetrievalError> {
            let path = folder.join(name);
            let failed = |error: std::io::Error| wrong(format!("{}: {error}", path.display()));
            let mut file = std::fs::File::open(&path).map_err(failed)?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                match file.read(&mut buffer).map_err(failed)? {
                    0 => return Ok(()),
                    count => hash.update(&buffer[..count]),
                }
            }
        };
        // Other settings that determine passage vectors.
        let finish = |mut hash: Sha256| {
            hash.update(options.passage_prefix.as_bytes());
            hash.update((options.sentence.max_tokens as u64).to_le_bytes());
            hexadecimal(&hash.finalize())
        };
        let mut hash = Sha256::new();
        for name in ["config.json", "model.safetensors"] {
            add(&mut hash, name)?;
        }
        let earlier = finish(hash.clone());
        for name in other_files(folder) {
            if folder.join(&name).is_file() {
                // Equal bytes mean different things in other files.
                hash.update(name.as_bytes());
                add(&mut hash, &name)?;
            }
        }
        let fingerprint = finish(hash);
        Ok(Self { encoder, options, fingerprint, earlier })
    }

    fn encode(&self, prefix: &str, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        let prefixed: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let prefixed: Vec<&str> = prefixed.iter().map(String::as_str).collect();
        self.encoder.encode(&prefixed).map_err(|error| RetrievalError::Encoder { reason: error.to_string() })
    }
}

/// Returns the files, other than the weights, that affect vectors: those read by
/// [`SentenceEncoder::load`] and its tokenizer.
fn other_files(folder: &Path) -> Vec<String> {
    let mut names = vec!["modules.json".to_owned(), "sentence_bert_config.json".to_owned()];
    // The encoder already checked the list.
    let modules = std::fs::read(folder.join("modules.json")).unwrap_or_default();
    let modules: Vec<Value> = serde_json::from_slice(&modules).unwrap_or_default();
    let pooling =
        modules.iter().filter(|module| module["type"].as_str().is_some_and(|of| of.ends_with("Pooling")));
    names.extend(pooling.filter_map(|module| Some(format!("{}/config.json", module["path"].as_str()?))));
    // If the first exists, the others are not read.
    let tokenizer: &[&str] = if folder.join("tokenizer.json").is_file() {
        &["tokenizer.json"]
    } else {
        &["vocab.txt", "tokenizer_config.json"]
    };
    names.extend(tokenizer.iter().map(|&name| name.to_owned()));
    names
}

impl Encoder for PrefixedEncoder {
    fn dimensions(&self) -> usize {
        self.encoder.dimensions()
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn is_named(&self, fingerprint: &str) -> bool {
        fingerprint == self.fingerprint || fingerprint == self.earlier
    }

    fn encoding(&self) -> Option<Encoding> {
        Some(self.options.encoding())
    }

    fn queries(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        self.encode(&self.options.query_prefix, texts)
    }

    fn passages(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        self.encode(&self.options.passage_prefix, texts)
    }
}
