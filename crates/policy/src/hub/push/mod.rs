//! Uploads a model or adapter folder to the Hugging Face hub, like `huggingface_hub.create_commit`.
//!
//! The hub decides which files are large (`preupload`); those are uploaded by git LFS, and one
//! commit adds all files. Repeating an upload sends only missing files. From version 1.0 on, the
//! crate `hf-hub` can upload, but it requires an async runtime and another HTTP client.

mod client;
mod error;
mod files;
mod lfs;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use self::client::{Client, Form, JSON};
pub use self::error::PushError;
use self::files::LocalFile;
use self::lfs::Large;
use super::{Cache, HubModel, expanded, missing};
use crate::Notes;

const BATCH: usize = 256;

/// Upload options.
#[derive(Clone, Debug)]
pub struct Push {
    /// Model or adapter folder.
    pub folder: PathBuf,
    /// `ORG/NAME` or `ORG/NAME@BRANCH`.
    pub repository: String,
    /// Create a missing repository.
    pub create: bool,
    /// Require a private repository; a new repository is created as private.
    pub private: bool,
    /// First line of the commit message.
    pub message: String,
}

/// Result of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// URL of the repository.
    pub url: String,
    /// Commit id; `None` if the repository already had all files.
    pub commit: Option<String>,
    /// Files in the commit.
    pub files: usize,
    /// Number and total bytes of the large files sent.
    pub uploaded: (usize, u64),
}

#[derive(Deserialize)]
struct Preupload {
    files: Vec<Mode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    path: String,
    upload_mode: String,
    #[serde(default)]
    should_ignore: bool,
    /// Object id (git or LFS) of the branch's file at this path.
    oid: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Committed {
    commit_oid: String,
}

#[derive(Deserialize)]
struct Info {
    private: bool,
}

/// Uploads a folder in one commit, with the token from `HF_TOKEN` or `hf auth login`. `HF_ENDPOINT`
/// selects another hub.
///
/// # Errors
/// Fails if the model or adapter is incomplete, there is no token, or the hub rejects a request.
pub fn push(options: &Push, notes: &mut Notes<'_>) -> Result<Pushed, PushError> {
    push_to(options, &Hub::find(|name| std::env::var_os(name))?, notes)
}

struct Hub {
    endpoint: String,
    token: String,
    pause: Duration,
}

impl Hub {
    fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, PushError> {
        if let Some(variable) = Cache::find(&variable).and_then(|cache| cache.offline) {
            return Err(PushError::Environment(format!("{variable} forbids the network; unset it")));
        }
        let text = |name: &str| variable(name)?.into_string().ok().filter(|text| !text.is_empty());
        let clean = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let from_file = || clean(std::fs::read_to_string(token_file(&variable)?).ok()?);
        let token = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN")).and_then(clean);
        let token = token.or_else(from_file).ok_or_else(|| {
            PushError::Environment(
                "there is no token for the hub: run `hf auth login`, or set HF_TOKEN to a token with write permission"
                    .into(),
            )
        })?;
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Ok(Self { endpoint, token, pause: Duration::from_secs(1) })
    }
}

fn token_file(variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = || set("HOME").or_else(|| set("USERPROFILE")).map(PathBuf::from);
    let folder = |name: &str| set(name).map(|value| expanded(value, home().as_deref(), variable));
    folder("HF_TOKEN_PATH")
        .or_else(|| Some(folder("HF_HOME")?.join("token")))
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("huggingface/token")))
        .or_else(|| Some(home()?.join(".cache/huggingface/token")))
}

fn push_to(options: &Push, hub: &Hub, notes: &mut Notes<'_>) -> Result<Pushed, PushError> {
    let wrong = |reason: &str| PushError::Repository {
        repository: options.repository.clone(),
        reason: reason.to_owned(),
    };
    let repository = HubModel::parse(&options.repository)
        .ok_or_else(|| wrong("is not a repository of the hub; write ORG/NAME or ORG/NAME@BRANCH"))?;
    let HubModel { id, revision } = &repository;
    let folder = &options.folder;
    if let Some(name) = missing(folder) {
        let reason = format!(
            "is neither a model nor an adapter: it lacks {name}; write one with `turnwise export RUN {} --card`",
            folder.display()
        );
        return Err(PushError::folder(folder, reason));
    }
    let files = files::list(folder)?;
    if !files.iter().any(|file| file.name == "README.md") {
        notes("the folder has no model card (README.md); `turnwise export --card` writes one".into());
    }
    let client = Client::new(&hub.endpoint, hub.token.clone(), hub.pause);
    let endpoint = &client.endpoint;
    if options.create {
        create(&client, id, options.private, notes)?;
    }
    if options.private {
        let info: Info = client.get(&format!("{endpoint}/api/models/{id}"))?;
        if !info.private {
            return Err(wrong("is public; make it private on the hub first, or leave out --private"));
        }
    }
    // A branch such as refs/pr/1 is one segment of an address.
    let branch = revision.replace('/', "%2F");
    let modes = modes(&client, &format!("{endpoint}/api/models/{id}/preupload/{branch}"), &files)?;

    let (mut lines, mut large) = (String::new(), Vec::new());
    let mut line = |value: Value| writeln!(lines, "{value}").unwrap_or_default();
    line(json!({ "key": "header", "value": { "summary": options.message, "description": "" } }));
    let mut count = 0;
    for (file, mode) in files.iter().zip(modes) {
        if mode.should_ignore {
            notes(format!("{}: ignored by the repository's .gitignore", file.name));
            continue;
        }
        // The hub rejects empty files by LFS.
        let value = if mode.upload_mode == "lfs" && file.size > 0 {
            let oid = file.sha256()?;
            if mode.oid.as_ref() == Some(&oid) {
                continue;
            }
            let value = json!({ "path": file.name, "algo": "sha256", "oid": oid, "size": file.size });
            large.push(Large { file, oid });
            json!({ "key": "lfsFile", "value": value })
        } else {
            let bytes = file.read()?;
            if mode.oid == Some(files::blob(&bytes)) {
                continue;
            }
            let content = STANDARD.encode(bytes);
            let value = json!({ "path": file.name, "content": content, "encoding": "base64" });
            json!({ "key": "file", "value": value })
        };
        line(value);
        count += 1;
    }
    let url = format!("{endpoint}/{id}");
    if count == 0 {
        return Ok(Pushed { url, commit: None, files: 0, uploaded: (0, 0) });
    }
    let uploaded = lfs::upload(&client, id, revision, &large, notes)?;
    let address = format!("{endpoint}/api/models/{id}/commit/{branch}");
    let committed: Committed = client.post_lines(&address, &lines)?;
    Ok(Pushed { url, commit: Some(committed.commit_oid), files: count, uploaded })
}

/// Creates the repository unless it exists.
fn create(client: &Client, id: &str, private: bool, notes: &mut Notes<'_>) -> Result<(), PushError> {
    let (organization, name) = id.split_once('/').unwrap_or_default();
    let mut body = json!({ "name": name, "organization": organization });
    if private {
        body["visibility"] = "private".into();
    }
    let url = format!("{}/api/repos/create", client.endpoint);
    match client.post_only(&url, &body, Form { repeatable: false, ..JSON }) {
        Ok(()) => notes(format!("created {id}")),
        Err(PushError::Status { status: 409, .. }) => notes(format!("{id} exists already")),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn modes(client: &Client, url: &str, files: &[LocalFile]) -> Result<Vec<Mode>, PushError> {
    let mut found = Vec::new();
    for files in files.chunks(BATCH) {
        let request: Vec<Value> = files
            .iter()
            .map(|file| json!({ "path": file.name, "sample": file.sample, "size": file.size }))
            .collect();
        let mut reply: Preupload = client.post(url, &json!({ "files": request }), JSON)?;
        for file in files {
            let place = reply.files.iter().position(|mode| mode.path == file.name);
            let place =
                place.ok_or_else(|| client.network(url, &format!("the response lacks {}", file.name)))?;
            found.push(reply.files.swap_remove(place));
        }
    }
    Ok(found)
}
