//! Finds an adapter's base model and checks that it is unchanged.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnwise_model::{AdapterBase, Parameters};

use crate::run_folder::enclosing_run;
use crate::{PolicyError, policy_folder};

/// Folder in a run directory for a copy of the base model, written only if no other folder keeps
/// the model.
pub const FOLDER: &str = "base";

/// Reference to an adapter's base model in a checkpoint's `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseModel {
    /// Folder or hub id.
    pub name: String,
    /// Commit of a hub model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// CRC-32C of the weights in `f32`, in layout order.
    pub crc32c: u32,
}

impl BaseModel {
    /// References a hub model (`ORG/NAME` or `ORG/NAME@REVISION`) in `folder`, with its commit if
    /// `folder` is a snapshot in the hub's cache.
    pub fn of_hub(id: &str, folder: &Path, crc32c: u32) -> Self {
        let (name, asked) = id.split_once('@').map_or((id, None), |(name, revision)| (name, Some(revision)));
        let in_snapshots = folder.parent().is_some_and(|parent| parent.ends_with("snapshots"));
        let commit = folder.file_name().filter(|_| in_snapshots).and_then(|commit| commit.to_str());
        let revision = commit.or(asked).map(str::to_owned);
        Self { name: name.to_owned(), revision, crc32c }
    }

    /// References the model in a folder: by hub id and commit if the folder is in the hub's cache,
    /// else by absolute path.
    ///
    /// # Errors
    /// Fails if the folder does not exist.
    pub fn of_folder(folder: &Path, crc32c: u32) -> Result<Self, PolicyError> {
        if let Some((name, commit)) = crate::hub::named(folder) {
            return Ok(Self { name, revision: Some(commit), crc32c });
        }
        let folder = folder.canonicalize().map_err(PolicyError::io(folder))?;
        Ok(Self { name: folder.to_string_lossy().into_owned(), revision: None, crc32c })
    }

    /// Returns the reference in the form that adapter files store.
    pub fn named(&self) -> AdapterBase {
        AdapterBase { name: self.name.clone(), revision: self.revision.clone() }
    }
}

/// Returns the base model's folder for the adapter in `folder`: the run's copy if there is one,
/// else the model named in the adapter's config. A relative path is tried in the working directory,
/// then in the adapter's folder.
///
/// # Errors
/// Fails if there is no copy and `base_model_name_or_path` is neither a folder with a `config.json`
/// nor a model that [`policy_folder`] finds.
pub fn find(folder: &Path, named: Option<&AdapterBase>) -> Result<PathBuf, PolicyError> {
    if let Some(own) = enclosing_run(folder).map(|run| run.join(FOLDER)).filter(|own| is_model(own)) {
        return Ok(own);
    }
    let config = folder.join("adapter_config.json");
    let Some(AdapterBase { name, revision }) = named.filter(|base| !base.name.is_empty()) else {
        return Err(PolicyError::file(
            &config,
            "base_model_name_or_path: is missing, and nothing else says which model the adapter stands on; set \
             it to the model's folder",
        ));
    };
    if let Some(path) = [PathBuf::from(name), folder.join(name)].into_iter().find(|path| is_model(path)) {
        return Ok(path);
    }
    policy_folder(Path::new(&revised(name, revision.as_deref())), &mut |_| ()).map_err(|error| {
        PolicyError::file(
            &config,
            format!("base_model_name_or_path: there is no model `{name}`: put it there, or set the key to its folder ({error})"),
        )
    })
}

pub(crate) fn revised(name: &str, revision: Option<&str>) -> String {
    revision.map_or_else(|| name.to_owned(), |revision| format!("{name}@{revision}"))
}

fn is_model(folder: &Path) -> bool {
    folder.join("config.json").is_file()
}

/// Rejects a base other than the one that a checkpoint's adapter was trained on. Adapters outside
/// checkpoints are not checked.
///
/// # Errors
/// Fails if `adapter` does not exist, a run's `state.json` is invalid, or the base's CRC-32C
/// differs.
pub fn verify(adapter: &Path, base: &Path, parameters: &Parameters<f32>) -> Result<(), PolicyError> {
    // `policy` and `.` have no parent, and a link's parent is not the adapter's.
    let real = adapter.canonicalize().map_err(PolicyError::io(adapter))?;
    let Some(path) = real.parent().map(|checkpoint| checkpoint.join("state.json")) else { return Ok(()) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(PolicyError::io(&path)(error)),
    };
    let found = serde_json::from_str::<Value>(&text);
    let of_checkpoint = |state: &Value| KEYS.iter().all(|key| state.get(*key).is_some());
    if !found.as_ref().is_ok_and(of_checkpoint) && enclosing_run(&real).is_none() {
        return Ok(());
    }
    let state: State = found
        .and_then(serde_json::from_value)
        .map_err(|error| PolicyError::file(&path, error.to_string()))?;
    match state.base {
        Some(expected) if expected.crc32c != parameters.checksum() => Err(PolicyError::file(
            base,
            format!(
                "has changed since the adapter in {} was trained on it (CRC-32C {:08x}, then {:08x}); restore the \
                 model that it was trained on",
                adapter.display(),
                parameters.checksum(),
                expected.crc32c
            ),
        )),
        _ => Ok(()),
    }
}

/// Keys that distinguish a run's `state.json` from one that another tool wrote.
const KEYS: [&str; 2] = ["position", "weights_version"];

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    base: Option<BaseModel>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_looked_for_where_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let model = |name: &str| {
            std::fs::create_dir_all(at(name)).unwrap();
            std::fs::write(at(name).join("config.json"), "{}").unwrap();
        };
        let named = |name: &str| AdapterBase { name: name.into(), revision: None };
        let adapter = at("run/checkpoints/step-000001/policy");
        std::fs::create_dir_all(&adapter).unwrap();
        for missing in [None, Some(named(""))] {
            let error = find(&adapter, missing.as_ref()).unwrap_err().to_string();
            assert!(error.contains("adapter_config.json: base_model_name_or_path: is missing"), "{error}");
        }
        let elsewhere = named(&at("model").display().to_string());
        let error = find(&adapter, Some(&elsewhere)).unwrap_err().to_string();
        assert!(
            error.contains("there is no model `") && error.contains("set the key to its folder"),
            "{error}"
        );
        model("model");
        assert_eq!(find(&adapter, Some(&elsewhere)).unwrap(), at("model"));
        assert!(is_model(&find(&adapter, Some(&named("../../../../model"))).unwrap()));
        std::fs::write(at("run/config.toml"), "").unwrap();
        std::fs::write(at("run/panel.json"), "").unwrap();
        model("run/base");
        let own = at("run/base").canonicalize().unwrap();
        assert_eq!(find(&adapter, Some(&elsewhere)).unwrap(), own);
    }

    #[test]
    fn the_base_is_checked_however_the_adapter_is_named() {
        let config = crate::testing::tiny_config(8);
        let parameters = Parameters::<f32>::zeros(config);
        let folder = tempfile::tempdir().unwrap();
        let (checkpoint, state) = (folder.path().join("step"), folder.path().join("step/state.json"));
        std::fs::create_dir_all(checkpoint.join("policy/inside")).unwrap();
        let write = |crc32c: u32| {
            let base = BaseModel { name: "m".into(), revision: None, crc32c };
            let content = serde_json::json!({ "position": {}, "weights_version": 0, "base": base });
            std::fs::write(&state, content.to_string()).unwrap();
        };
        let mut names = vec![checkpoint.join("policy"), checkpoint.join("policy/inside/..")];
        #[cfg(unix)]
        {
            names.push(folder.path().join("link"));
            std::os::unix::fs::symlink(&names[0], &names[2]).unwrap();
        }
        for name in &names {
            write(parameters.checksum());
            verify(name, Path::new("m"), &parameters).unwrap();
            write(!parameters.checksum());
            let error = verify(name, Path::new("m"), &parameters).unwrap_err().to_string();
            assert!(error.contains("has changed since"), "{}: {error}", name.display());
        }
        // Another tool's file is ignored, except inside a run.
        let inside = folder.path().join("checkpoints/step-000001/policy");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::write(folder.path().join("config.toml"), "").unwrap();
        std::fs::write(folder.path().join("panel.json"), "").unwrap();
        for other in ["[1, 2]", "{\"base\": \"some-model\"}", "step: 3"] {
            std::fs::write(&state, other).unwrap();
            verify(&names[0], Path::new("m"), &parameters).unwrap();
            std::fs::write(inside.with_file_name("state.json"), other).unwrap();
            let error = verify(&inside, Path::new("m"), &parameters).unwrap_err().to_string();
            assert!(error.contains("state.json"), "{error}");
        }
        std::fs::remove_file(&state).unwrap();
        verify(&names[0], Path::new("m"), &parameters).unwrap();
        std::fs::create_dir(&state).unwrap();
        let error = verify(&names[0], Path::new("m"), &parameters).unwrap_err().to_string();
        assert!(error.contains("state.json"), "{error}");
    }
}
