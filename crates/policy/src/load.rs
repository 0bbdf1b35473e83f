//! Loads a policy from a folder, checkpoint, run or hub model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwise_model::{AdapterFile, Weights, is_adapter, load_adapter, load_model};
use turnwise_text::Tokenizer;

use crate::{PolicyError, base, hub, run_folder};

/// Receives messages for the user, such as download progress.
pub type Notes<'a> = dyn FnMut(String) + 'a;

/// A policy: weights and tokenizer.
pub struct Policy {
    /// Weights; base and adapter are separate.
    pub weights: Weights,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
}

impl Policy {
    /// Loads a policy from a model folder, adapter folder, run directory or checkpoint, else from
    /// the hub (`ORG/NAME` or `ORG/NAME@REVISION`).
    ///
    /// # Errors
    /// Fails on a missing model, an unsupported architecture or tokenizer, or a base that has
    /// changed since training.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        Self::load_with(path, &mut |_| ())
    }

    /// Loads like [`Policy::load`], and reports downloads and the model's origin to `notes`.
    ///
    /// # Errors
    /// Fails like [`Policy::load`].
    pub fn load_with(path: &Path, notes: &mut Notes<'_>) -> Result<Self, PolicyError> {
        let folder = policy_folder(path, notes)?;
        if is_adapter(&folder) {
            return Self::load_adapted(&folder, notes);
        }
        let weights = load_model(&folder)?;
        let tokenizer = Arc::new(Tokenizer::load_folder(&folder)?);
        check_vocabulary(&folder, &tokenizer, &folder, weights.config.vocab_size)?;
        Ok(Self { weights: weights.into(), tokenizer })
    }

    fn load_adapted(folder: &Path, notes: &mut Notes<'_>) -> Result<Self, PolicyError> {
        let named = AdapterFile::read(folder)?.base;
        let base = base::find(folder, named.as_ref())?;
        if is_adapter(&base) {
            return Err(PolicyError::file(folder, "stands on another adapter; merge that one first"));
        }
        let Self { weights, tokenizer } = Self::load_with(&base, notes)?;
        base::verify(folder, &base, &weights.base)?;
        let adapter = load_adapter(folder, weights.config())?;
        let tokenizer = if folder.join("tokenizer.json").is_file() {
            let own = Tokenizer::load_folder(folder)?;
            check_vocabulary(folder, &own, &base, weights.config().vocab_size)?;
            // PEFT's folders may lack the end tokens and chat template of the base.
            let bare = own.end_tokens().is_empty() && own.chat_template().is_none();
            if bare && own.to_json()? == tokenizer.to_json()? {
                tokenizer
            } else {
                Arc::new(own.with_ends_of(&tokenizer))
            }
        } else {
            tokenizer
        };
        Ok(Self { weights: Weights::adapted(weights.base, adapter)?, tokenizer })
    }
}

fn check_vocabulary(
    folder: &Path,
    tokenizer: &Tokenizer,
    model: &Path,
    rows: usize,
) -> Result<(), PolicyError> {
    if tokenizer.vocab_size() <= rows {
        return Ok(());
    }
    let name = if folder.join("tokenizer.json").is_file() { "tokenizer.json" } else { "vocab.json" };
    let config = if folder == model { PathBuf::new() } else { model.to_path_buf() }.join("config.json");
    let reason = format!(
        "the tokenizer ({name}) has {} tokens but {} says vocab_size = {rows}; they do not belong together",
        tokenizer.vocab_size(),
        config.display()
    );
    Err(PolicyError::file(folder, reason))
}

/// Returns the folder of a model, checkpoint, run (its newest complete checkpoint) or hub model.
/// With the feature `hub`, downloads a missing hub model.
///
/// # Errors
/// Fails if the model is missing or cannot be downloaded, or if its files differ from those in its
/// checkpoint's manifest.
pub fn policy_folder(path: &Path, notes: &mut Notes<'_>) -> Result<PathBuf, PolicyError> {
    if path.join("model.safetensors").is_file() || path.join("config.json").is_file() || is_adapter(path) {
        if let Some(checkpoint) = run_folder::checkpoint_of(path) {
            run_folder::checked_policy(&checkpoint)?;
        }
        return Ok(path.to_path_buf());
    }
    let inside = path.join("policy");
    if inside.join("config.json").is_file() || is_adapter(&inside) {
        return if run_folder::is_checkpoint(path) { run_folder::checked_policy(path) } else { Ok(inside) };
    }
    if run_folder::is_run(path) {
        return run_folder::checked_policy(&run_folder::newest_checkpoint(path)?);
    }
    if let Some(error) = mistyped(path) {
        return Err(error);
    }
    if !path.exists()
        && let Some(found) = path.to_str().and_then(|text| hub::resolve(text, notes))
    {
        return found;
    }
    Err(PolicyError::file(
        path,
        "is not a model: expected a folder with config.json, tokenizer.json and model.safetensors, a checkpoint, \
         a run directory, or a model of the hub as ORG/NAME or ORG/NAME@REVISION",
    ))
}

/// Returns an error if `path` does not exist but its parent folder holds runs or models. Such a
/// `path` is a mistyped name and not a hub model.
fn mistyped(path: &Path) -> Option<PolicyError> {
    let parent = path.parent().filter(|parent| !path.exists() && parent.is_dir())?;
    let mut there: Vec<String> = std::fs::read_dir(parent)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| run_folder::is_run(path) || path.join("config.json").is_file() || is_adapter(path))
        .map(|path| path.display().to_string())
        .collect();
    there.sort_unstable();
    let more = there.len().saturating_sub(MOST_NAMED);
    there.truncate(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let reason = format!("there is no run or model of this name; there are {}{more}", there.join(", "));
    (!there.is_empty()).then(|| PolicyError::file(path, reason))
}

const MOST_NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use turnwise_model::{Adapter, AdapterBase, LoraConfig, Parameters, save_adapter, save_model};
    use turnwise_text::TokenizerConfig;

    use super::*;

    fn tokenizer(more: usize) -> Tokenizer {
        let special_tokens = (0..more).map(|index| format!("<{index}>")).collect();
        let config = TokenizerConfig { special_tokens, ..TokenizerConfig::default() };
        Tokenizer::train(std::iter::empty(), &config).unwrap()
    }

    /// Returns a folder with a model of 258 embedding rows in `base`, and an adapter for it in
    /// `adapter`.
    fn folders() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let config = crate::testing::tiny_config(258);
        let (base, adapted) = (folder.path().join("base"), folder.path().join("adapter"));
        let adapter = Adapter::zeros(&config, &LoraConfig { rank: 1, ..LoraConfig::default() }).unwrap();
        save_model(&Parameters::zeros(config), &base).unwrap();
        tokenizer(2).save_folder(&base).unwrap();
        let named = AdapterBase { name: base.display().to_string(), revision: None };
        save_adapter(&adapter, &adapted, &named).unwrap();
        folder
    }

    #[test]
    fn a_name_beside_others_is_mistyped_and_no_model_of_the_hub() {
        let folder = folders();
        let error = Policy::load(&folder.path().join("bas")).err().unwrap().to_string();
        let at = |name: &str| folder.path().join(name).display().to_string();
        assert_eq!(
            error,
            format!(
                "{}: there is no run or model of this name; there are {}, {}",
                at("bas"),
                at("adapter"),
                at("base")
            )
        );
        // A folder without runs and models suggests no names.
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let error = Policy::load(&folder.path().join("other/bas")).err().unwrap().to_string();
        assert!(error.contains("is not a model"), "{error}");
    }

    #[test]
    fn an_adapters_own_tokenizer_must_fit_its_base() {
        let folder = folders();
        let adapter = folder.path().join("adapter");
        Policy::load(&adapter).unwrap();
        tokenizer(2).save_folder(&adapter).unwrap();
        Policy::load(&adapter).unwrap();
        tokenizer(3).save_folder(&adapter).unwrap();
        let error = Policy::load(&adapter).err().unwrap().to_string();
        let base = folder.path().join("base/config.json");
        let expected = format!("the tokenizer (tokenizer.json) has 259 tokens but {} says", base.display());
        assert!(error.contains(&expected) && error.contains("vocab_size = 258"), "{error}");
    }

    #[test]
    fn an_adapter_ends_its_responses_as_its_base_does() {
        let folder = folders();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("base/generation_config.json"), r#"{"eos_token_id": [256, 257]}"#).unwrap();
        // As PEFT does: one end token, and no generation config.
        tokenizer(2).save_folder(&at("adapter")).unwrap();
        std::fs::write(at("adapter/tokenizer_config.json"), r#"{"eos_token": "<1>"}"#).unwrap();
        let ends = || Policy::load(&at("adapter")).unwrap().tokenizer.end_tokens().to_vec();
        assert_eq!(ends(), [256, 257]);
        Policy::load(&at("adapter")).unwrap().tokenizer.save_folder(&at("saved")).unwrap();
        assert_eq!(Tokenizer::load_folder(&at("saved")).unwrap().end_tokens(), [256, 257]);
        std::fs::write(at("adapter/generation_config.json"), r#"{"eos_token_id": 257}"#).unwrap();
        assert_eq!(ends(), [257]);
    }

    #[test]
    fn a_checkpoint_without_a_manifest_is_not_loaded_and_a_plain_folder_is() {
        let folder = folders();
        let checkpoint = folder.path().join("checkpoint");
        std::fs::create_dir(&checkpoint).unwrap();
        std::fs::rename(folder.path().join("base"), checkpoint.join("policy")).unwrap();
        Policy::load(&checkpoint).unwrap();
        std::fs::write(checkpoint.join("state.json"), "{}").unwrap();
        for manifest in [None, Some(""), Some(r#"{"files":{}}"#)] {
            if let Some(text) = manifest {
                std::fs::write(checkpoint.join(run_folder::COMPLETE), text).unwrap();
            }
            for path in [checkpoint.clone(), checkpoint.join("policy")] {
                let error = Policy::load(&path).err().unwrap().to_string();
                assert!(
                    error.contains("cannot be verified; name an earlier checkpoint"),
                    "{manifest:?}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_tokenizer_in_parts_is_named_by_its_file() {
        let folder = folders();
        let base = folder.path().join("base");
        let file: serde_json::Value = serde_json::from_str(&tokenizer(3).to_json().unwrap()).unwrap();
        std::fs::remove_file(base.join("tokenizer.json")).unwrap();
        std::fs::write(base.join("vocab.json"), file["model"]["vocab"].to_string()).unwrap();
        std::fs::write(base.join("merges.txt"), "").unwrap();
        std::fs::write(base.join("tokenizer_config.json"), r#"{"tokenizer_class": "GPT2Tokenizer"}"#)
            .unwrap();
        let error = Policy::load(&base).err().unwrap().to_string();
        assert!(error.contains("the tokenizer (vocab.json) has 259 tokens but config.json says"), "{error}");
    }
}
