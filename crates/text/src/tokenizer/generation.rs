//! `generation_config.json`: end tokens and sampling defaults.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Tokenizer;
use super::files::{Companions, GENERATION, MODEL, NamedToken, object};
use crate::TextError;
use crate::whole::wrong;

/// Sampling defaults for `transformers` and inference servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationSampling {
    /// Softmax temperature, above 0.
    pub temperature: f32,
    /// Number of most probable tokens to sample from; 0 disables top-k sampling.
    pub top_k: usize,
    /// Probability mass of the most probable tokens to sample from.
    pub top_p: f32,
}

impl Default for GenerationSampling {
    /// Samples from the full distribution.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0 }
    }
}

impl GenerationSampling {
    /// Returns the entries of `generation_config.json`.
    pub fn entries(self) -> [(&'static str, Value); 4] {
        // Writes 0.7 and not the f32's nearest f64.
        let decimal = |value: f32| value.to_string().parse().unwrap_or_else(|_| f64::from(value));
        [
            ("do_sample", json!(true)),
            ("temperature", json!(decimal(self.temperature))),
            ("top_k", json!(self.top_k)),
            ("top_p", json!(decimal(self.top_p))),
        ]
    }

    /// Adds these settings to a `generation_config.json`, and removes all other sampling settings.
    /// Content that already has exactly these settings, or that is not a JSON object, is returned
    /// unchanged.
    pub(super) fn put_into(self, content: &[u8]) -> Vec<u8> {
        let Ok(Value::Object(mut entries)) = serde_json::from_slice(content) else { return content.to_vec() };
        let before = entries.clone();
        entries.retain(|key, _| !OTHER_SAMPLING.contains(&key.as_str()));
        for (key, value) in self.entries() {
            entries.insert(key.to_owned(), value);
        }
        if entries == before {
            return content.to_vec();
        }
        serde_json::to_vec_pretty(&Value::Object(entries)).unwrap_or_else(|_| content.to_vec())
    }
}

/// Sampling keys that [`GenerationSampling`] does not have.
const OTHER_SAMPLING: [&str; 14] = [
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "length_penalty",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "penalty_alpha",
];

impl Tokenizer {
    /// Adds the base model's end tokens to an adapter's, if the adapter's folder has no
    /// `generation_config.json` (PEFT does not write this file). Adds nothing if a base model's end
    /// token is a different token in the adapter.
    pub fn with_ends_of(mut self, base: &Self) -> Self {
        let is_generation = |(name, _): &&(String, Vec<u8>)| name == GENERATION;
        let is_same = |&id: &u32| self.token_bytes(id) == base.token_bytes(id);
        let has_own = self.companions.files.iter().any(|file| is_generation(&file));
        if has_own || !base.end_tokens().iter().all(is_same) {
            return self;
        }
        let mut companions = Companions::clone(&self.companions);
        companions.files.extend(base.companions.files.iter().find(is_generation).cloned());
        let mut end = base.end_tokens().to_vec();
        end.extend(self.end_tokens().iter().filter(|id| !base.end_tokens().contains(id)));
        companions.end = end;
        self.companions = Arc::new(companions);
        self
    }
}

/// Returns the end token ids and the padding id. As in `transformers`, end ids come from
/// `generation_config.json` or else `config.json`; the tokenizer's `eos_token` is always added.
pub(super) fn end_and_padding(
    folder: &Path,
    named: &BTreeMap<&'static str, NamedToken>,
    tokenizer: &Tokenizer,
) -> Result<(Vec<u32>, Option<u32>), TextError> {
    let ids = |name: &str, key: &str| -> Result<Vec<u32>, TextError> {
        let path = folder.join(name);
        let table = object(folder, name)?.unwrap_or_default();
        let listed = match table.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(ids)) => ids.as_slice(),
            Some(id) => std::slice::from_ref(id),
        };
        let id = |value: &Value| {
            let id = value.as_u64().filter(|&id| (id as usize) < tokenizer.vocab_size());
            id.map(|id| id as u32).ok_or_else(|| {
                let size = tokenizer.vocab_size();
                wrong(&path, format!("{key}: {value} is not the id of a token; the tokenizer has {size} ids"))
            })
        };
        // Some old files use -1 for none.
        listed.iter().filter(|value| value.as_i64() != Some(-1)).map(id).collect()
    };
    let role = |role: &str| named.get(role).and_then(|token| tokenizer.token_id(&token.text));
    let own = role("eos_token");
    if let Some(NamedToken { text, file }) = named.get("eos_token")
        && own.is_none()
    {
        // If ignored, the model would continue after its response.
        let reason =
            format!("eos_token: `{text}` is no token of the tokenizer; name the one that ends a response");
        return Err(wrong(&folder.join(file), reason));
    }
    let mut end = ids(GENERATION, "eos_token_id")?;
    if end.is_empty() {
        end = match ids(MODEL, "eos_token_id") {
            // The ids belong to another tokenizer; this one has its own end token.
            Err(_) if own.is_some() => Vec::new(),
            found => found?,
        };
    }
    end.extend(own.filter(|id| !end.contains(id)));
    let padding = ids(GENERATION, "pad_token_id")?.first().copied().or_else(|| role("pad_token"));
    Ok((end, padding))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::TokenizerConfig;

    fn folder(tokens: [&str; 4], files: &[(&str, &str)]) -> tempfile::TempDir {
        let special_tokens = tokens.map(str::to_owned).to_vec();
        let config = TokenizerConfig { special_tokens, ..TokenizerConfig::default() };
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::train(std::iter::empty(), &config).unwrap().save_folder(folder.path()).unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    const TOKENS: [&str; 4] = ["<text>", "<turn>", "<call>", "<pad>"];

    fn load(files: &[(&str, &str)]) -> Result<Tokenizer, TextError> {
        Tokenizer::load_folder(folder(TOKENS, files).path())
    }

    #[test]
    fn the_models_end_tokens_come_before_the_tokenizers() {
        let turn = ("tokenizer_config.json", r#"{"eos_token": "<turn>"}"#);
        let model = (MODEL, r#"{"eos_token_id": 256}"#);
        let ends = |files: &[(&str, &str)]| load(files).unwrap().end_tokens().to_vec();
        assert_eq!(ends(&[model]), [256]);
        assert_eq!(ends(&[turn]), [257]);
        assert_eq!(ends(&[model, turn]), [256, 257]);
        assert_eq!(ends(&[(MODEL, r#"{"eos_token_id": [257, 256]}"#), turn]), [257, 256]);
        let saved = (GENERATION, r#"{"eos_token_id": 256}"#);
        assert_eq!(ends(&[model, saved, turn]), [256, 257]);
        // `generation_config.json` takes precedence if it names an id.
        assert_eq!(ends(&[(GENERATION, r#"{"eos_token_id": 258}"#), model, turn]), [258, 257]);
        assert_eq!(ends(&[(GENERATION, r#"{"pad_token_id": 259}"#), model, turn]), [256, 257]);
        // Unknown ids are ignored only if the tokenizer has an end token.
        let other = (MODEL, r#"{"eos_token_id": 9999}"#);
        assert_eq!(ends(&[other, turn]), [257]);
        let error = load(&[other]).unwrap_err().to_string();
        assert!(error.contains("config.json: eos_token_id: 9999"), "{error}");
    }

    #[test]
    fn a_tokenizer_takes_over_the_ends_of_its_base() {
        let generation = (GENERATION, r#"{"eos_token_id": [256, 258]}"#);
        let turn = ("tokenizer_config.json", r#"{"eos_token": "<turn>"}"#);
        let base = load(&[generation]).unwrap();
        let tokenizer = load(&[turn]).unwrap();
        assert_eq!(tokenizer.end_tokens(), [257]);
        let whole = tokenizer.clone().with_ends_of(&base);
        assert_eq!(whole.end_tokens(), [256, 258, 257]);
        let saved = tempfile::tempdir().unwrap();
        whole.save_folder(saved.path()).unwrap();
        assert_eq!(Tokenizer::load_folder(saved.path()).unwrap().end_tokens(), [256, 258, 257]);
        let base_of_model = load(&[(MODEL, r#"{"eos_token_id": 256}"#)]).unwrap();
        assert_eq!(tokenizer.with_ends_of(&base_of_model).end_tokens(), [256, 257]);
        // The adapter's file is used alone, and its tokens win.
        let own = load(&[(GENERATION, r#"{"eos_token_id": 257}"#)]).unwrap();
        assert_eq!(own.with_ends_of(&base).end_tokens(), [257]);
        let others = folder(["<text>", "<turn>", "<tool>", "<pad>"], &[turn]);
        let others = Tokenizer::load_folder(others.path()).unwrap();
        assert_eq!(others.with_ends_of(&base).end_tokens(), [257]);
    }

    #[test]
    fn a_saved_folder_names_the_sampling_that_it_is_given() {
        let sampling = GenerationSampling { temperature: 0.7, top_k: 20, top_p: 0.9 };
        let saved = |tokenizer: &Tokenizer, to: &Path| -> Value {
            tokenizer.save_folder_sampled(to, sampling).unwrap();
            serde_json::from_slice(&fs::read(to.join(GENERATION)).unwrap()).unwrap()
        };
        let expected = json!({
            "do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "eos_token_id": 256,
        });
        let hub = r#"{"eos_token_id": 256, "temperature": 0.6, "min_p": 0.1}"#;
        let to = tempfile::tempdir().unwrap();
        let tokenizer = load(&[(GENERATION, hub)]).unwrap();
        assert_eq!(saved(&tokenizer, to.path()), expected);
        let before = fs::read(to.path().join(GENERATION)).unwrap();
        assert_eq!(saved(&Tokenizer::load_folder(to.path()).unwrap(), to.path()), expected);
        assert_eq!(fs::read(to.path().join(GENERATION)).unwrap(), before);
        let with_weights = folder(TOKENS, &[(GENERATION, hub)]);
        assert_eq!(saved(&load(&[]).unwrap(), with_weights.path()), expected);
        let bare = tempfile::tempdir().unwrap();
        load(&[]).unwrap().save_folder_sampled(bare.path(), sampling).unwrap();
        assert!(!bare.path().join(GENERATION).exists());
        tokenizer.save_folder(to.path()).unwrap();
        let whole: Value = serde_json::from_slice(&fs::read(to.path().join(GENERATION)).unwrap()).unwrap();
        assert_eq!(
            (&whole["temperature"], &whole["top_k"], &whole["top_p"]),
            (&json!(1.0), &json!(0), &json!(1.0))
        );
    }
}
