//! E5 and other sentence encoders, as vectors of queries and passages.

use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;
use turnwise_model::bert::{SentenceEncoder, SentenceOptions};
use turnwise_retrieval::RetrievalError;
use turnwise_retrieval::dense::Encoder;

/// Settings of an encoder besides the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Before a query.
    pub query_prefix: String,
    /// Before a passage.
    pub passage_prefix: String,
    /// Length of a text and arithmetic.
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

/// A sentence encoder with its prefixes.
#[derive(Debug)]
pub struct PrefixedEncoder {
    encoder: SentenceEncoder,
    options: EncoderOptions,
    fingerprint: String,
}

impl PrefixedEncoder {
    /// Reads a model folder (`config.json`, `model.safetensors`, `tokenizer.json` or `vocab.txt`).
    ///
    /// # Errors
    ///
    /// [`RetrievalError::Setting`] with the file and what is wrong with it.
    pub fn load(folder: &Path, options: EncoderOptions) -> Result<Self, RetrievalError> {
        let wrong = |reason: String| RetrievalError::Setting { key: "encoder".to_owned(), reason };
        let encoder =
            SentenceEncoder::load(folder, options.sentence).map_err(|error| wrong(error.to_string()))?;
        let mut hash = Sha256::new();
        for name in ["config.json", "model.safetensors"] {
            let path = folder.join(name);
            let failed = |error: std::io::Error| wrong(format!("{}: {error}", path.display()));
            let mut file = std::fs::File::open(&path).map_err(failed)?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                match file.read(&mut buffer).map_err(failed)? {
                    0 => break,
                    count => hash.update(&buffer[..count]),
                }
            }
        }
        // What else decides the vectors of passages.
        hash.update(options.passage_prefix.as_bytes());
        hash.update((options.sentence.max_tokens as u64).to_le_bytes());
        let fingerprint = hexadecimal(&hash.finalize());
        Ok(Self { encoder, options, fingerprint })
    }

    fn encode(&self, prefix: &str, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        let prefixed: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let prefixed: Vec<&str> = prefixed.iter().map(String::as_str).collect();
        self.encoder.encode(&prefixed).map_err(|error| RetrievalError::Encoder { reason: error.to_string() })
    }
}

impl Encoder for PrefixedEncoder {
    fn dimensions(&self) -> usize {
        self.encoder.dimensions()
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn queries(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        self.encode(&self.options.query_prefix, texts)
    }

    fn passages(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        self.encode(&self.options.passage_prefix, texts)
    }
}
