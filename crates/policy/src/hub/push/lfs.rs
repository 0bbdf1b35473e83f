//! Uploads large files with the git LFS batch protocol, whole or in parts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, Form, JSON};
use super::files::LocalFile;
use super::{BATCH, PushError};
use crate::Notes;

const LFS: Form = Form { content_type: "application/vnd.git-lfs+json", ..JSON };

pub(super) struct Large<'a> {
    pub(super) file: &'a LocalFile,
    pub(super) oid: String,
}

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    /// `None` if the storage already has the file.
    actions: Option<Actions>,
    error: Option<ObjectError>,
}

#[derive(Deserialize)]
struct ObjectError {
    code: u16,
    message: String,
}

#[derive(Deserialize)]
struct Actions {
    upload: Option<Action>,
    verify: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    /// HTTP headers; in a multipart upload, `chunk_size` and one URL per part number.
    #[serde(default)]
    header: BTreeMap<String, Value>,
}

/// Returns the number and total bytes of the uploaded files.
pub(super) fn upload(
    client: &Client,
    repository: &str,
    branch: &str,
    files: &[Large<'_>],
    notes: &mut Notes<'_>,
) -> Result<(usize, u64), PushError> {
    let url = format!("{}/{repository}.git/info/lfs/objects/batch", client.endpoint);
    let (mut count, mut bytes) = (0, 0);
    for files in files.chunks(BATCH) {
        let objects: Vec<Value> =
            files.iter().map(|large| json!({ "oid": large.oid, "size": large.file.size })).collect();
        let request = json!({
            "operation": "upload",
            "transfers": ["basic", "multipart"],
            "objects": objects,
            "hash_algo": "sha256",
            "ref": { "name": branch },
        });
        let batch: Batch = client.post(&url, &request, LFS)?;
        for large in files {
            let name = &large.file.name;
            let Some(object) = batch.objects.iter().find(|object| object.oid == large.oid) else {
                return Err(client.network(&url, &format!("the response lacks {name}")));
            };
            if let Some(ObjectError { code, message }) = &object.error {
                let (status, message) = (*code, format!("{name}: {message}"));
                return Err(PushError::Status { address: url, status, message, hint: String::new() });
            }
            let actions = object.actions.as_ref();
            let Some(action) = actions.and_then(|actions| actions.upload.as_ref()) else {
                notes(format!("{name}: uploaded before"));
                continue;
            };
            notes(format!("uploading {name}, {:.1} MB", large.file.size as f64 / 1e6));
            match action.header.get("chunk_size") {
                None => whole(client, large, action)?,
                Some(size) => parts(client, large, action, size)?,
            }
            if let Some(verify) = actions.and_then(|actions| actions.verify.as_ref()) {
                // The server chooses the address; the token is for the hub only.
                let authorized = verify.href.starts_with(&format!("{}/", client.endpoint));
                let body = json!({ "oid": large.oid, "size": large.file.size });
                client.post_only(&verify.href, &body, Form { authorized, ..JSON })?;
            }
            count += 1;
            bytes += large.file.size;
        }
    }
    Ok((count, bytes))
}

fn whole(client: &Client, large: &Large<'_>, action: &Action) -> Result<(), PushError> {
    let LocalFile { path, size, .. } = large.file;
    client.put(&action.href, *size, || Ok(File::open(path)?.take(*size))).map(drop)
}

/// Uploads a file in parts, then sends the parts' `ETag`s to the hub.
fn parts(client: &Client, large: &Large<'_>, action: &Action, size: &Value) -> Result<(), PushError> {
    let malformed = |reason: &str| client.network(&action.href, &format!("{}: {reason}", large.file.name));
    let size = size.as_u64().or_else(|| size.as_str()?.parse().ok()).filter(|&size| size > 0);
    let size = size.ok_or_else(|| malformed("chunk_size is not a number of bytes"))?;
    let number = |key: &String| key.parse::<u64>().ok();
    let mut urls: Vec<(u64, &str)> =
        action.header.iter().filter_map(|(key, url)| Some((number(key)?, url.as_str()?))).collect();
    urls.sort_unstable();
    if urls.len() as u64 != large.file.size.div_ceil(size) {
        return Err(malformed("the number of parts does not fit chunk_size"));
    }
    let mut done = Vec::new();
    for (index, (_, url)) in (0_u64..).zip(urls) {
        let start = index * size;
        let length = size.min(large.file.size - start);
        let open = || {
            let mut file = File::open(&large.file.path)?;
            file.seek(SeekFrom::Start(start))?;
            Ok(file.take(length))
        };
        let Some(tag) = client.put(url, length, open)? else {
            return Err(malformed("the storage returned no ETag for a part"));
        };
        done.push(json!({ "partNumber": index + 1, "etag": tag }));
    }
    // A signed address of the hub needs no token.
    let form = Form { authorized: false, ..LFS };
    client.post_only(&action.href, &json!({ "oid": large.oid, "parts": done }), form)
}
