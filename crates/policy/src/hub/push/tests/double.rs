//! A double of the hub that checks an upload's requests, as `huggingface_hub` 2.4 sends them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;

use super::super::files::blob;

pub(super) const TOKEN: &str = "hf_secret";
const PART: usize = 10;

#[derive(Default)]
pub(super) struct State {
    /// `None` if the repository does not exist.
    pub(super) private: Option<bool>,
    /// Files of the branch `main`.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// Large files by SHA-256.
    storage: BTreeMap<String, Vec<u8>>,
    parts: BTreeMap<String, Vec<u8>>,
    commits: usize,
    pub(super) requests: Vec<String>,
    /// Number of storage requests, from the next on, that fail.
    pub(super) failures: usize,
    pub(super) conflict: bool,
    pub(super) lose_parts: bool,
}

pub(super) struct Double {
    pub(super) endpoint: String,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

type Reply = (u16, Vec<(&'static str, String)>, Value);

impl Double {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, own) = (Arc::clone(&state), endpoint.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read(&stream) else { continue };
                let (status, headers, body) = shared.lock().unwrap().answer(&own, &request);
                let body = if body.is_null() { String::new() } else { body.to_string() };
                let mut head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
            }
        });
        Self { endpoint, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    assert!(!headers.contains_key("transfer-encoding"), "{path}: the storage takes no chunked bodies");
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body })
}

fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn ok(body: Value) -> Reply {
    (200, Vec::new(), body)
}

fn fail(status: u16, code: &str, message: &str) -> Reply {
    let headers = vec![("X-Error-Code", code.to_owned()), ("X-Error-Message", message.to_owned())];
    (status, headers, json!({ "error": message }))
}

impl State {
    fn answer(&mut self, endpoint: &str, request: &Request) -> Reply {
        let Request { method, path, headers, body } = request;
        self.requests.push(format!("{method} {path}"));
        let header = |name: &str| headers.get(name).map(String::as_str);
        let json = || serde_json::from_slice::<Value>(body).unwrap();
        if let Some(object) = path.strip_prefix("/storage/") {
            // Signed addresses must not receive the token.
            assert_eq!((method.as_str(), header("authorization")), ("PUT", None));
            return self.store(object.strip_suffix("?signature=s").unwrap(), body);
        }
        if let Some(oid) = path.strip_prefix("/complete/") {
            assert_eq!(header("authorization"), None);
            return self.complete(oid, &json());
        }
        let token =
            header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if token != TOKEN {
            return fail(401, "", &format!("Invalid credentials {token}"));
        }
        if path == "/api/repos/create" {
            let body = json();
            assert_eq!((&body["organization"], &body["name"]), (&json!("org"), &json!("name")));
            if self.private.is_some() {
                return fail(409, "", "You already created this model repo");
            }
            self.private = Some(body["visibility"] == "private");
            return ok(json!({ "url": format!("{endpoint}/org/name") }));
        }
        let Some(private) = self.private else { return fail(404, "RepoNotFound", "Repository not found") };
        match (method.as_str(), path.as_str()) {
            ("GET", "/api/models/org/name") => ok(json!({ "id": "org/name", "private": private })),
            ("POST", "/api/models/org/name/preupload/main") => {
                let body = json();
                let files = body["files"].as_array().unwrap().iter();
                ok(json!({ "files": files.map(|file| self.mode(file)).collect::<Vec<_>>() }))
            }
            ("POST", "/org/name.git/info/lfs/objects/batch") => {
                assert_eq!(header("content-type"), Some("application/vnd.git-lfs+json"));
                let body = json();
                assert_eq!((&body["operation"], &body["hash_algo"]), (&json!("upload"), &json!("sha256")));
                let objects = body["objects"].as_array().unwrap().iter();
                let objects: Vec<Value> = objects.map(|object| self.object(endpoint, object)).collect();
                ok(json!({ "transfer": "basic", "objects": objects }))
            }
            ("POST", "/org/name.git/info/lfs/verify") => {
                let body = json();
                let stored = self.storage.get(body["oid"].as_str().unwrap());
                match stored {
                    Some(bytes) if body["size"] == bytes.len() => ok(json!({})),
                    _ => fail(404, "", "the object is not in the storage"),
                }
            }
            ("POST", "/api/models/org/name/commit/main") => {
                assert_eq!(header("content-type"), Some("application/x-ndjson"));
                self.commit(std::str::from_utf8(body).unwrap())
            }
            _ => fail(404, "RevisionNotFound", &format!("Invalid rev id in {path}")),
        }
    }

    fn mode(&self, file: &Value) -> Value {
        let (name, size) = (file["path"].as_str().unwrap(), file["size"].as_u64().unwrap());
        let sample = STANDARD.decode(file["sample"].as_str().unwrap()).unwrap();
        assert_eq!(sample.len() as u64, size.min(512), "{name}");
        let large = name.ends_with(".safetensors");
        let known = self.files.get(name);
        let oid = known.map(|bytes| if large { sha256(bytes) } else { blob(bytes) });
        let mode = if large { "lfs" } else { "regular" };
        json!({ "path": name, "uploadMode": mode, "shouldIgnore": false, "oid": oid })
    }

    fn object(&self, endpoint: &str, object: &Value) -> Value {
        let (oid, size) = (object["oid"].as_str().unwrap(), object["size"].as_u64().unwrap() as usize);
        if self.storage.contains_key(oid) {
            return json!({ "oid": oid, "size": size });
        }
        let address = |part: &str| format!("{endpoint}/storage/{oid}/{part}?signature=s");
        let upload = if size > PART {
            let mut header = json!({ "chunk_size": PART.to_string() });
            for part in 1..=size.div_ceil(PART) {
                header[format!("{part:05}")] = address(&part.to_string()).into();
            }
            json!({ "href": format!("{endpoint}/complete/{oid}"), "header": header })
        } else {
            json!({ "href": address("whole") })
        };
        let verify = json!({ "href": format!("{endpoint}/org/name.git/info/lfs/verify") });
        json!({ "oid": oid, "size": size, "actions": { "upload": upload, "verify": verify } })
    }

    fn store(&mut self, object: &str, body: &[u8]) -> Reply {
        if self.failures > 0 {
            self.failures -= 1;
            return fail(500, "", "try again");
        }
        let (oid, part) = object.split_once('/').unwrap();
        if part == "whole" {
            if sha256(body) != oid {
                return fail(400, "", "not the SHA-256 of the object");
            }
            self.storage.insert(oid.to_owned(), body.to_vec());
            return ok(Value::Null);
        }
        let kept = if self.lose_parts { Vec::new() } else { body.to_vec() };
        self.parts.insert(object.to_owned(), kept);
        (200, vec![("ETag", format!("\"tag-{part}\""))], Value::Null)
    }

    fn complete(&mut self, oid: &str, body: &Value) -> Reply {
        assert_eq!(body["oid"], oid);
        let mut whole = Vec::new();
        for (number, part) in (1..).zip(body["parts"].as_array().unwrap()) {
            assert_eq!(*part, json!({ "partNumber": number, "etag": format!("\"tag-{number}\"") }));
            whole.extend_from_slice(&self.parts[&format!("{oid}/{number}")]);
        }
        if sha256(&whole) != oid {
            return fail(400, "", "not the SHA-256 of the object");
        }
        self.storage.insert(oid.to_owned(), whole);
        ok(Value::Null)
    }

    fn commit(&mut self, lines: &str) -> Reply {
        if self.conflict {
            return fail(409, "", "the branch has moved");
        }
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "key": "header", "value": { "summary": "Upload", "description": "" } }));
        for line in &lines[1..] {
            let value = &line["value"];
            let bytes = if line["key"] == "lfsFile" {
                assert_eq!(value["algo"], "sha256");
                let Some(bytes) = self.storage.get(value["oid"].as_str().unwrap()) else {
                    return fail(400, "", "an LFS object is missing");
                };
                bytes.clone()
            } else {
                assert_eq!((&line["key"], &value["encoding"]), (&json!("file"), &json!("base64")));
                STANDARD.decode(value["content"].as_str().unwrap()).unwrap()
            };
            self.files.insert(value["path"].as_str().unwrap().to_owned(), bytes);
        }
        self.commits += 1;
        let id = format!("commit-{}", self.commits);
        ok(json!({ "success": true, "commitUrl": "", "commitOid": id }))
    }
}
