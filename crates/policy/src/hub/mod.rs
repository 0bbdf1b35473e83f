//! Models and adapters on the Hugging Face hub: `ORG/NAME` or `ORG/NAME@REVISION`.
//!
//! The feature `hub` downloads missing models into the shared hub cache, unless an environment
//! variable forbids it. Cached models are used without checking for newer ones;
//! `hf download ORG/NAME` updates them.

#[cfg(feature = "hub")]
mod download;
#[cfg(feature = "hub")]
pub mod push;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use turnwise_model::is_adapter;

use crate::{Notes, PolicyError};

#[derive(Clone, Debug, PartialEq, Eq)]
struct HubModel {
    id: String,
    revision: String,
}

impl HubModel {
    fn parse(text: &str) -> Option<Self> {
        let (id, revision) = text.split_once('@').unwrap_or((text, "main"));
        let plain = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !part.is_empty() && part.chars().all(allowed) && !part.starts_with(['.', '-'])
        };
        let (organisation, name) = id.split_once('/')?;
        // A revision may contain slashes (refs/pr/1), but must stay inside the cache.
        (plain(organisation) && plain(name) && revision.split('/').all(plain))
            .then(|| Self { id: id.to_owned(), revision: revision.to_owned() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cache {
    /// Folder of `models--ORG--NAME/{refs, snapshots, blobs}`.
    root: PathBuf,
    /// Name of the environment variable that forbids downloads, if one is set.
    offline: Option<&'static str>,
    /// Value of `HF_ENDPOINT`; `None` means huggingface.co.
    #[cfg(feature = "hub")]
    endpoint: Option<String>,
    /// From `HF_TOKEN` or `hf auth login`.
    #[cfg(feature = "hub")]
    token: Option<String>,
}

impl Cache {
    /// Finds the cache like `huggingface_hub`: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`,
    /// `HF_HOME/hub`, `XDG_CACHE_HOME/huggingface/hub`, then `~/.cache/huggingface/hub`.
    fn find(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = || set("HOME").or_else(|| set("USERPROFILE")).map(PathBuf::from);
        let folder = |name: &str| set(name).map(|value| expanded(value, home().as_deref(), &variable));
        let root = folder("HF_HUB_CACHE")
            .or_else(|| folder("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(folder("HF_HOME")?.join("hub")))
            .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("huggingface/hub")))
            .or_else(|| Some(home()?.join(".cache/huggingface/hub")))?;
        let yes = |value: &OsString| {
            let value = value.to_string_lossy().to_uppercase();
            ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
        };
        // The first variable that is set decides.
        let offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().find(|name| set(name).is_some());
        let offline = offline.filter(|name| set(name).as_ref().is_some_and(yes));
        #[cfg(feature = "hub")]
        let text = |name: &str| variable(name)?.into_string().ok().filter(|text| !text.is_empty());
        Some(Self {
            root,
            offline,
            #[cfg(feature = "hub")]
            endpoint: text("HF_ENDPOINT"),
            #[cfg(feature = "hub")]
            token: text("HF_TOKEN"),
        })
    }

    fn folder(&self, model: &HubModel) -> PathBuf {
        self.root.join(format!("models--{}", model.id.replace('/', "--")))
    }

    fn named(&self, folder: &Path) -> Option<(String, String)> {
        let (folder, root) = (folder.canonicalize().ok()?, self.root.canonicalize().ok()?);
        let inside: Vec<&str> =
            folder.strip_prefix(&root).ok()?.iter().filter_map(|part| part.to_str()).collect();
        let [model, "snapshots", commit] = inside[..] else { return None };
        let id = model.strip_prefix("models--")?.replacen("--", "/", 1);
        HubModel::parse(&format!("{id}@{commit}")).map(|model| (model.id, model.revision))
    }

    fn snapshot(&self, model: &HubModel) -> Option<PathBuf> {
        let folder = self.folder(model);
        // A branch or tag is a file with a commit.
        let commit = fs::read_to_string(folder.join("refs").join(&model.revision));
        let commit = commit.map_or_else(|_| model.revision.clone(), |commit| commit.trim().to_owned());
        let snapshot = folder.join("snapshots").join(commit);
        snapshot.is_dir().then_some(snapshot)
    }
}

/// Expands a path like Python's `expanduser` and `expandvars`; unset variables are left as they
/// are.
fn expanded(value: OsString, home: Option<&Path>, variable: &impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let text = match value.into_string() {
        Ok(text) => text,
        Err(value) => return value.into(),
    };
    let after = text.strip_prefix('~').filter(|after| after.is_empty() || after.starts_with('/'));
    let text = match (after, home.and_then(Path::to_str)) {
        (Some(after), Some(home)) => format!("{}{after}", home.trim_end_matches('/')),
        _ => text,
    };
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let word = |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').count();
        // The length in bytes after the `$`.
        let (name, length) = match after.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => (&after[..word(after)], word(after)),
        };
        match variable(name).filter(|_| !name.is_empty()).and_then(|value| value.into_string().ok()) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[before.len()..=before.len() + length]),
        }
        rest = &after[length..];
    }
    PathBuf::from(out + rest)
}

fn missing(folder: &Path) -> Option<String> {
    let there = |name: &str| folder.join(name).is_file();
    // An adapter names its base, whose tokenizer it may use.
    if is_adapter(folder) {
        return (!there("adapter_model.safetensors")).then(|| "adapter_model.safetensors".into());
    }
    if !there("config.json") {
        return Some("config.json".into());
    }
    if !(there("tokenizer.json") || there("vocab.json") && there("merges.txt")) {
        return Some("tokenizer.json".into());
    }
    if there("model.safetensors") {
        return None;
    }
    let index = fs::read(folder.join("model.safetensors.index.json")).ok();
    let index: Option<serde_json::Value> = index.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(shards) = index.as_ref().and_then(|index| index.get("weight_map")?.as_object()) else {
        return Some("model.safetensors".into());
    };
    let mut shards: Vec<&str> = shards.values().filter_map(|shard| shard.as_str()).collect();
    shards.sort_unstable();
    shards.into_iter().find(|shard| !there(shard)).map(str::to_owned)
}

/// Returns the id and commit of the model in a folder of the hub's cache, or `None` for any other
/// folder.
pub(crate) fn named(folder: &Path) -> Option<(String, String)> {
    Cache::find(|name| std::env::var_os(name))?.named(folder)
}

/// Returns the folder of the hub model that `text` names, or `None` if `text` does not name a hub
/// model.
pub(crate) fn resolve(text: &str, notes: &mut Notes<'_>) -> Option<Result<PathBuf, PolicyError>> {
    let model = HubModel::parse(text)?;
    let cache = Cache::find(|name| std::env::var_os(name));
    Some(match cache {
        Some(cache) => find_or_fetch(&model, &cache, notes),
        None => Err(fail(&model, "the hub's cache is nowhere: set HF_HOME to a folder")),
    })
}

fn fail(model: &HubModel, reason: impl Into<String>) -> PolicyError {
    PolicyError::File { path: format!("{}@{}", model.id, model.revision), reason: reason.into() }
}

fn find_or_fetch(model: &HubModel, cache: &Cache, notes: &mut Notes<'_>) -> Result<PathBuf, PolicyError> {
    let snapshot = cache.snapshot(model);
    let lacking = if let Some(folder) = &snapshot {
        let Some(name) = missing(folder) else {
            let text = format!("{}@{}: {}", model.id, model.revision, folder.display());
            notes(text);
            return Ok(folder.clone());
        };
        format!("the cache has this model without {name} ({})", folder.display())
    } else {
        let folder = cache.folder(model);
        format!("there is no such folder here, and the hub's cache does not have it ({})", folder.display())
    };
    fetch(model, cache, &lacking, notes)
}

#[cfg(feature = "hub")]
fn fetch(
    model: &HubModel,
    cache: &Cache,
    lacking: &str,
    notes: &mut Notes<'_>,
) -> Result<PathBuf, PolicyError> {
    if let Some(variable) = cache.offline {
        return Err(fail(model, format!("{lacking}, and {variable} forbids to fetch it; unset it")));
    }
    download::download(model, cache, notes).map_err(|error| {
        let hint =
            "without a network, give the path of a folder with the model; a gated model needs HF_TOKEN";
        fail(model, format!("{lacking}, and fetching it failed: {error}; {hint}"))
    })?;
    match cache.snapshot(model) {
        Some(folder) => match missing(&folder) {
            None => Ok(folder),
            Some(name) => Err(fail(model, format!("the hub has this model without {name}"))),
        },
        None => Err(fail(model, "was fetched, but is not in the cache")),
    }
}

#[cfg(not(feature = "hub"))]
fn fetch(
    model: &HubModel,
    cache: &Cache,
    lacking: &str,
    _notes: &mut Notes<'_>,
) -> Result<PathBuf, PolicyError> {
    let HubModel { id, revision } = model;
    let revision = if revision == "main" { String::new() } else { format!(" --revision {revision}") };
    let offline = cache.offline.map_or_else(String::new, |variable| format!(" with {variable} unset"));
    Err(fail(
        model,
        format!(
            "{lacking}; fetch it with `hf download {id}{revision}` (or `huggingface-cli download {id}{revision}`)\
             {offline}, or build turnwise with `--features hub` to have it fetched"
        ),
    ))
}

#[cfg(test)]
mod tests;
