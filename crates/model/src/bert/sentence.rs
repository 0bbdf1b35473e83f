use std::borrow::Cow;
use std::path::Path;

use rayon::prelude::*;
use serde::Deserialize;
use turnwise_text::WordPiece;

use super::Bert;
use crate::{Compute, ModelError, files};

/// How a text's hidden states are combined into one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// Mean of all hidden states.
    #[default]
    Mean,
    /// Hidden state of the first token (`[CLS]`).
    First,
}

/// Sentence encoder settings that are not in the model folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentenceOptions {
    /// Maximum number of tokens per text, including the two special tokens; longer texts are
    /// truncated. If the model folder sets a lower limit, that limit applies.
    pub max_tokens: usize,
    /// Precision of matrix products.
    pub compute: Compute,
}

impl Default for SentenceOptions {
    fn default() -> Self {
        Self { max_tokens: 256, compute: Compute::F32 }
    }
}

/// A read-only text encoder, usable from several threads.
///
/// Loads a `transformers` folder (mean pooling, L2 normalization, as for E5) or a
/// sentence-transformers folder, whose `modules.json` and `1_Pooling/config.json` define the
/// pooling.
#[derive(Clone, Debug)]
pub struct SentenceEncoder {
    bert: Bert,
    tokenizer: WordPiece,
    pooling: Pooling,
    normalise: bool,
    lowercase: bool,
}

const PIECE: usize = 2048;

#[derive(Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
    path: String,
}

#[derive(Deserialize)]
struct PoolingFile {
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
    #[serde(default)]
    pooling_mode_max_tokens: bool,
    #[serde(default)]
    pooling_mode_mean_sqrt_len_tokens: bool,
    #[serde(default)]
    pooling_mode_weightedmean_tokens: bool,
    #[serde(default)]
    pooling_mode_lasttoken: bool,
}

#[derive(Deserialize)]
struct TransformerFile {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

impl SentenceEncoder {
    /// Reads a folder.
    ///
    /// # Errors
    ///
    /// Fails if the BERT or the tokenizer is missing, or if a module or the pooling is unknown.
    pub fn load(folder: &Path, options: SentenceOptions) -> Result<Self, ModelError> {
        let bert = Bert::load(folder, options.compute)?;
        let (mut pooling, mut normalise) = (Pooling::Mean, true);
        let modules = folder.join("modules.json");
        if modules.exists() {
            normalise = false;
            let wrong = |reason: String| ModelError::file(&modules, reason);
            let listed: Vec<Module> =
                serde_json::from_slice(&files::read(&modules)?).map_err(|error| wrong(error.to_string()))?;
            for module in listed {
                match module.kind.rsplit('.').next().unwrap_or_default() {
                    "Transformer" => {}
                    "Pooling" => pooling = read_pooling(&folder.join(&module.path).join("config.json"))?,
                    "Normalize" => normalise = true,
                    other => {
                        return Err(wrong(format!(
                            "the module `{other}` is not known; Transformer, Pooling and Normalize are"
                        )));
                    }
                }
            }
        }
        let mut longest = options.max_tokens.min(bert.config().max_positions);
        let mut lowercase = false;
        let settings = folder.join("sentence_bert_config.json");
        if settings.exists() {
            let file: TransformerFile = serde_json::from_slice(&files::read(&settings)?)
                .map_err(|error| ModelError::file(&settings, error))?;
            longest = longest.min(file.max_seq_length.unwrap_or(longest));
            lowercase = file.do_lower_case;
        }
        let tokenizer = WordPiece::load_folder(folder, longest)
            .map_err(|error| ModelError::file(folder, format!("no tokenizer: {error}")))?;
        Ok(Self { bert, tokenizer, pooling, normalise, lowercase })
    }

    /// Returns the length of the vectors.
    pub fn dimensions(&self) -> usize {
        self.bert.config().hidden_size
    }

    /// Returns the embeddings of `texts`, `[texts, dimensions]`. A text's vector depends on the
    /// other texts only by rounding.
    ///
    /// # Errors
    ///
    /// Fails if the tokenizer fails or returns a token that the model's vocabulary lacks.
    pub fn encode(&self, texts: &[&str]) -> Result<Vec<f32>, ModelError> {
        let wrong = |error: turnwise_text::TextError| ModelError::Setting {
            key: "tokenizer".to_owned(),
            reason: error.to_string(),
        };
        let tokens: Vec<Vec<u32>> = texts
            .par_iter()
            .map(|text| {
                let text =
                    if self.lowercase { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(*text) };
                self.tokenizer.encode(&text).map_err(wrong)
            })
            .collect::<Result<_, _>>()?;
        // Texts of similar length share a pass.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&index| (tokens[index].len(), index));
        let mut pieces: Vec<&[usize]> = Vec::new();
        let mut rest = order.as_slice();
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = rest.iter().take_while(|&&index| {
                sum += tokens[index].len();
                sum <= PIECE
            });
            let (piece, after) = rest.split_at(fits.count().max(1));
            pieces.push(piece);
            rest = after;
        }
        let width = self.dimensions();
        let encoded: Vec<Vec<f32>> = pieces
            .par_iter()
            .map(|piece| {
                let sequences: Vec<Vec<u32>> = piece.iter().map(|&index| tokens[index].clone()).collect();
                let states = self.bert.forward(&sequences)?;
                let mut vectors = Vec::with_capacity(piece.len() * width);
                let mut start = 0;
                for sequence in &sequences {
                    let end = start + sequence.len() * width;
                    vectors.extend(self.pool(&states[start..end]));
                    start = end;
                }
                Ok(vectors)
            })
            .collect::<Result<_, ModelError>>()?;
        let mut vectors = vec![0.0; texts.len() * width];
        for (piece, encoded) in pieces.iter().zip(encoded) {
            for (&index, vector) in piece.iter().zip(encoded.chunks_exact(width)) {
                vectors[index * width..][..width].copy_from_slice(vector);
            }
        }
        Ok(vectors)
    }

    fn pool(&self, states: &[f32]) -> Vec<f32> {
        let width = self.dimensions();
        let mut vector = states[..width].to_vec();
        if self.pooling == Pooling::Mean {
            for state in states[width..].chunks_exact(width) {
                vector.iter_mut().zip(state).for_each(|(sum, value)| *sum += value);
            }
            let count = (states.len() / width) as f32;
            for value in &mut vector {
                *value /= count;
            }
        }
        if self.normalise {
            let norm = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt().max(1e-12);
            for value in &mut vector {
                *value = (f64::from(*value) / norm) as f32;
            }
        }
        vector
    }
}

fn read_pooling(path: &Path) -> Result<Pooling, ModelError> {
    let file: PoolingFile =
        serde_json::from_slice(&files::read(path)?).map_err(|error| ModelError::file(path, error))?;
    let others = file.pooling_mode_max_tokens
        || file.pooling_mode_mean_sqrt_len_tokens
        || file.pooling_mode_weightedmean_tokens
        || file.pooling_mode_lasttoken;
    match (file.pooling_mode_mean_tokens, file.pooling_mode_cls_token, others) {
        (true, false, false) => Ok(Pooling::Mean),
        (false, true, false) => Ok(Pooling::First),
        _ => Err(ModelError::file(
            path,
            "only one of pooling_mode_mean_tokens and pooling_mode_cls_token can be on, and no other",
        )),
    }
}
