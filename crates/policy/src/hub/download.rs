//! Downloads a model into the hub's cache.

use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Repo, RepoType};

use super::{Cache, HubModel};
use crate::Notes;

/// Downloads all files from one commit, to which the revision is resolved at the start. The
/// revision is recorded in the cache only once the last file is complete.
pub(super) fn download(model: &HubModel, cache: &Cache, notes: &mut Notes<'_>) -> Result<(), ApiError> {
    let files = hf_hub::Cache::new(cache.root.clone());
    // `ApiBuilder::from_env` knows fewer variables, and panics without a home.
    let mut builder = ApiBuilder::from_cache(files.clone()).with_progress(false).with_retries(3);
    if let Some(endpoint) = &cache.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if let Some(token) = &cache.token {
        builder = builder.with_token(Some(token.clone()));
    }
    let api = builder.build()?;
    let named = Repo::with_revision(model.id.clone(), RepoType::Model, model.revision.clone());
    let info = api.repo(named.clone()).info()?;
    let pinned = api.repo(Repo::with_revision(model.id.clone(), RepoType::Model, info.sha.clone()));
    for name in info.siblings.iter().map(|file| &file.rfilename).filter(|name| wanted(name)) {
        notes(format!("fetching {name} of {}", model.id));
        // Skips files of this commit in the cache.
        pinned.get(name)?;
    }
    if model.revision != info.sha {
        files.repo(named).create_ref(&info.sha)?;
    }
    Ok(())
}

fn wanted(name: &str) -> bool {
    let ending = [".json", ".safetensors", ".txt", ".jinja", ".model"];
    let is_read = !name.contains('/') || name.starts_with("additional_chat_templates/");
    is_read && ending.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::super::tests::{COMMIT, model};
    use super::super::{Cache, find_or_fetch};

    const FILES: [(&str, &str); 6] = [
        ("config.json", "{}"),
        ("tokenizer.json", "{\"a\":1}"),
        ("model.safetensors", "weights"),
        ("additional_chat_templates/tool_use.jinja", "{{ messages }}"),
        ("pytorch_model.bin", "not wanted"),
        ("original/params.json", "not wanted"),
    ];

    fn hub() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap());
            }
        });
        endpoint
    }

    fn answer(mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        let request = lines.next().unwrap_or_default();
        let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let path = request.split(' ').nth(1).unwrap_or_default();
        let file = FILES.iter().find(|(name, _)| path == format!("/org/name/resolve/{COMMIT}/{name}"));
        let reply = if path == "/api/models/org/name/revision/main" {
            let siblings: Vec<_> =
                FILES.iter().map(|(name, _)| serde_json::json!({ "rfilename": name })).collect();
            let body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string();
            format!("200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        } else if let Some((name, text)) = file {
            let first = headers.iter().any(|line| line.to_lowercase() == "range: bytes=0-0");
            let body = if first { &text[..1] } else { text };
            let (end, whole) = (body.len() - 1, text.len());
            format!(
                "206 Partial Content\r\nETag: \"{name}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Range: bytes \
                 0-{end}/{whole}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        } else {
            "404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()
        };
        let reply = reply.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        stream.write_all(format!("HTTP/1.1 {reply}").as_bytes()).unwrap();
    }

    #[test]
    fn a_model_is_fetched_into_the_cache_and_found_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = Cache {
            root: folder.path().join("hub"),
            offline: None,
            endpoint: Some(hub()),
            token: Some("token".into()),
        };
        let mut notes = Vec::new();
        let found = find_or_fetch(&model("org/name"), &cache, &mut |note| notes.push(note)).unwrap();
        assert_eq!(found, cache.root.join("models--org--name/snapshots").join(COMMIT));
        assert_eq!(notes.len(), 4, "{notes:?}");
        for (name, text) in &FILES[..4] {
            assert_eq!(std::fs::read_to_string(found.join(name)).unwrap(), *text);
        }
        assert!(!found.join("pytorch_model.bin").exists() && !found.join("original").exists());
        cache.offline = Some("HF_HUB_OFFLINE");
        assert_eq!(find_or_fetch(&model("org/name"), &cache, &mut |_| ()).unwrap(), found);
    }

    #[test]
    fn without_the_model_or_the_network_the_error_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        let mut cache = Cache { root, offline: None, endpoint: Some(hub()), token: None };
        let error = find_or_fetch(&model("org/other"), &cache, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("404"), "{error}");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        cache.endpoint = Some(format!("http://127.0.0.1:{port}"));
        let error = find_or_fetch(&model("org/name"), &cache, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("fetching it failed") && error.contains("without a network"), "{error}");
    }
}
