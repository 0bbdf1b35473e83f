//! A policy from whatever a user may name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwise_model::{AdapterFile, Weights, is_adapter, load_adapter, load_model};
use turnwise_text::Tokenizer;

use crate::{PolicyError, base, hub, run_folder};

/// Takes lines for people: which file is fetched, where a model was found.
pub type Notes<'a> = dyn FnMut(String) + 'a;

/// A policy: weights and tokenizer.
pub struct Policy {
    /// The weights, with their adapter where they are in two parts.
    pub weights: Weights,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
}

impl Policy {
    /// Reads a policy from a Hugging Face folder or the folder of an adapter, from a run directory or
    /// checkpoint that holds one, or from the hub (`ORG/NAME` or `ORG/NAME@REVISION`, where there is no such
    /// folder).
    ///
    /// # Errors
    /// Name the file and what is wrong with it: no model there, an unsupported architecture or tokenizer, a base
    /// that changed since its adapter was trained.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        Self::load_with(path, &mut |_| ())
    }

    /// The same; `notes` receives what is fetched and from where the model comes.
    ///
    /// # Errors
    /// Those of [`Policy::load`].
    pub fn load_with(path: &Path, notes: &mut Notes<'_>) -> Result<Self, PolicyError> {
        let folder = policy_folder(path, notes)?;
        if is_adapter(&folder) {
            return Self::load_adapted(&folder, notes);
        }
        let weights = load_model(&folder)?;
        let tokenizer = Arc::new(Tokenizer::load_folder(&folder)?);
        if tokenizer.vocab_size() > weights.config.vocab_size {
            return Err(PolicyError::file(
                &folder,
                format!(
                    "tokenizer.json has {} tokens but config.json says vocab_size = {}; they do not belong together",
                    tokenizer.vocab_size(),
                    weights.config.vocab_size
                ),
            ));
        }
        Ok(Self { weights: weights.into(), tokenizer })
    }

    /// An adapter with the model that it stands on.
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
            // PEFT's folders need not say what the base's does: how a response ends, how a chat looks.
            let bare = own.end_tokens().is_empty() && own.chat_template().is_none();
            if bare && own.to_json()? == tokenizer.to_json()? { tokenizer } else { Arc::new(own) }
        } else {
            tokenizer
        };
        Ok(Self { weights: Weights::adapted(weights.base, adapter)?, tokenizer })
    }
}

/// The model folder behind what a user may name: the folder itself, a checkpoint, a run (its newest whole
/// checkpoint), or a model of the hub, which is fetched where that is built in.
///
/// # Errors
/// There is no model, it cannot be fetched, or a file of the checkpoint is not what was written.
pub fn policy_folder(path: &Path, notes: &mut Notes<'_>) -> Result<PathBuf, PolicyError> {
    if path.join("model.safetensors").is_file() || path.join("config.json").is_file() || is_adapter(path) {
        return Ok(path.to_path_buf());
    }
    let inside = path.join("policy");
    if inside.join("config.json").is_file() || is_adapter(&inside) {
        let of_run = path.join(run_folder::COMPLETE).is_file();
        return if of_run { run_folder::checked_policy(path) } else { Ok(inside) };
    }
    if run_folder::is_run(path) {
        return run_folder::checked_policy(&run_folder::newest_checkpoint(path)?);
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
