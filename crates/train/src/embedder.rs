//! Text embedder for methods that match states by meaning.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use turnwise_credit::embedding::HashedNgrams;
use turnwise_credit::{CreditConfig, Embedder};
use turnwise_model::bert::{SentenceEncoder, SentenceOptions};

use crate::TrainError;

/// Maximum number of cached texts; a full cache is cleared.
const KEPT: usize = 1 << 16;

/// Returns the configured embedder: a model folder, or hashed n-grams by default.
///
/// # Errors
/// Returns [`TrainError::Model`] if the folder has no valid encoder.
pub fn embedder(config: &CreditConfig) -> Result<Box<dyn Embedder>, TrainError> {
    if config.encoder.as_os_str().is_empty() {
        return Ok(Box::new(HashedNgrams::default()));
    }
    Ok(Box::new(ModelEmbedder::load(&config.encoder)?))
}

struct ModelEmbedder {
    encoder: SentenceEncoder,
    kept: Mutex<HashMap<String, Vec<f32>>>,
}

impl ModelEmbedder {
    fn load(folder: &Path) -> Result<Self, TrainError> {
        let encoder = SentenceEncoder::load(folder, SentenceOptions::default())?;
        // Detects a tokenizer that does not fit its model.
        encoder.encode(&["You open the fridge 1. In it, you see nothing."])?;
        Ok(Self { encoder, kept: Mutex::default() })
    }
}

impl Embedder for ModelEmbedder {
    fn embed(&self, text: &str) -> Vec<f32> {
        if let Some(vector) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return vector.clone();
        }
        // A text that cannot be encoded matches nothing.
        let vector = self.encoder.encode(&[text]).unwrap_or_else(|_| vec![0.0; self.encoder.dimensions()]);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(text.to_owned(), vector.clone());
        vector
    }
}

#[cfg(test)]
mod tests {
    use turnwise_model::testing::write_bert;

    use super::*;

    const WORDS: [&str; 12] =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "fridge", "closed", "open", "is", "the", "apple", "you", "see"];

    fn config(folder: &Path) -> CreditConfig {
        CreditConfig { encoder: folder.to_owned(), ..CreditConfig::default() }
    }

    fn cosine(embedder: &dyn Embedder, left: &str, right: &str) -> f64 {
        let (left, right) = (embedder.embed(left), embedder.embed(right));
        left.iter().zip(&right).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    }

    #[test]
    fn the_folder_decides_what_is_near() {
        let folder = tempfile::tempdir().unwrap();
        write_bert(folder.path(), &WORDS, 0.0).unwrap();
        let model = embedder(&config(folder.path())).unwrap();
        let hashed = embedder(&CreditConfig::default()).unwrap();
        assert_eq!((model.embed("the apple").len(), hashed.embed("the apple").len()), (16, 1024));
        for embedder in [&*model, &*hashed] {
            assert!((cosine(embedder, "the fridge is open", "the fridge is open") - 1.0).abs() < 1e-5);
            assert!(
                cosine(embedder, "the fridge is open", "the fridge is closed")
                    > cosine(embedder, "the fridge is open", "you see apple")
            );
        }
        assert_eq!(model.embed("you see"), model.embed("you see"));
    }

    #[test]
    fn a_folder_without_an_encoder_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || match embedder(&config(folder.path())) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was taken"),
        };
        assert!(refused().contains("config.json"), "{}", refused());
        write_bert(folder.path(), &WORDS, 0.0).unwrap();
        std::fs::write(folder.path().join("vocab.txt"), format!("{}\nin\nit", WORDS.join("\n"))).unwrap();
        assert!(refused().contains("belong together"), "{}", refused());
    }
}
