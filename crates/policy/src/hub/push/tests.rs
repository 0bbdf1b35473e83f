//! Uploads to a local double of the hub, which checks the requests.

mod double;

use std::fs;
use std::path::Path;

use self::double::{Double, TOKEN};
use super::*;

/// Two text files, two LFS files, and files that must not be uploaded.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    fs::create_dir(folder.path().join("templates")).unwrap();
    fs::create_dir(folder.path().join(".cache")).unwrap();
    write("config.json", b"{}");
    write("tokenizer.json", &[b'x'; 2000]);
    write("README.md", b"# card\n");
    write("templates/chat.jinja", b"{{ messages }}");
    write("model.safetensors", b"weights in three parts!!!");
    write("small.safetensors", b"one part");
    write(".cache/token", b"stays here");
    write(".gitattributes", b"stays here");
    folder
}

fn options(folder: &Path) -> Push {
    Push {
        folder: folder.to_path_buf(),
        repository: "org/name".into(),
        create: true,
        private: true,
        message: "Upload".into(),
    }
}

fn hub(double: &Double) -> Hub {
    Hub { endpoint: double.endpoint.clone(), token: TOKEN.into(), pause: Duration::ZERO }
}

fn push_quietly(options: &Push, double: &Double) -> Result<Pushed, PushError> {
    push_to(options, &hub(double), &mut |_| ())
}

#[test]
fn a_folder_is_uploaded_whole_and_only_once() {
    let (folder, double) = (model(), Double::start());
    double.state().failures = 2;
    let mut notes = Vec::new();
    let pushed = push_to(&options(folder.path()), &hub(&double), &mut |note| notes.push(note)).unwrap();
    assert_eq!((pushed.files, pushed.uploaded), (6, (2, 33)), "{notes:?}");
    assert_eq!(pushed.commit.as_deref(), Some("commit-1"));
    let state = double.state();
    assert!(state.private == Some(true) && state.failures == 0);
    let names: Vec<&str> = state.files.keys().map(String::as_str).collect();
    let expected = [
        "README.md",
        "config.json",
        "model.safetensors",
        "small.safetensors",
        "templates/chat.jinja",
        "tokenizer.json",
    ];
    assert_eq!(names, expected);
    for (name, bytes) in &state.files {
        assert_eq!(*bytes, fs::read(folder.path().join(name)).unwrap(), "{name}");
    }
    drop(state);

    double.state().requests.clear();
    let again = push_quietly(&options(folder.path()), &double).unwrap();
    assert_eq!((again.commit, again.files), (None, 0));
    assert!(!double.state().requests.iter().any(|line| line.starts_with("PUT") || line.contains("commit")));

    fs::write(folder.path().join("config.json"), "{\"a\": 1}").unwrap();
    let changed = push_quietly(&options(folder.path()), &double).unwrap();
    assert_eq!((changed.commit.as_deref(), changed.files), (Some("commit-2"), 1));
}

#[test]
fn an_interrupted_upload_resumes_with_what_the_storage_lacks() {
    let (folder, double) = (model(), Double::start());
    double.state().conflict = true;
    let error = push_quietly(&options(folder.path()), &double).unwrap_err().to_string();
    assert!(error.contains("status 409") && error.contains("rerun the command"), "{error}");
    double.state().conflict = false;
    let resumed = push_quietly(&options(folder.path()), &double).unwrap();
    assert_eq!((resumed.files, resumed.uploaded), (6, (0, 0)));
    assert_eq!(double.state().files.len(), 6);
}

#[test]
fn rejections_name_the_fix() {
    let (folder, double) = (model(), Double::start());
    let failure = |change: &dyn Fn(&mut Push, &mut Hub)| {
        let (mut options, mut hub) = (options(folder.path()), hub(&double));
        options.create = false;
        options.private = false;
        change(&mut options, &mut hub);
        push_to(&options, &hub, &mut |_| ()).unwrap_err().to_string()
    };
    let expect = |error: String, words: &[&str]| {
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    expect(failure(&|_, _| ()), &["/api/models/org/name/preupload/main", "404", "--create"]);
    // The server repeats the token; the error does not.
    let wrong_token = failure(&|_, hub| hub.token = "hf_wrong".into());
    expect(wrong_token.clone(), &["401", "hf auth login", "***"]);
    assert!(!wrong_token.contains("hf_wrong"), "{wrong_token}");
    expect(failure(&|options, _| options.repository = "name".into()), &["ORG/NAME"]);
    double.state().private = Some(false);
    expect(failure(&|options, _| options.repository = "org/name@v2".into()), &["v2", "create the branch"]);
    expect(failure(&|options, _| options.private = true), &["org/name: is public"]);
    // Nothing private is sent to an existing public repository.
    expect(failure(&|options, _| (options.private, options.create) = (true, true)), &["is public"]);
    assert!(double.state().files.is_empty());
    fs::remove_file(folder.path().join("config.json")).unwrap();
    expect(failure(&|_, _| ()), &["lacks config.json", "turnwise export"]);
}

#[test]
fn lost_parts_and_a_broken_server_are_errors() {
    let (folder, double) = (model(), Double::start());
    double.state().lose_parts = true;
    let error = push_quietly(&options(folder.path()), &double).unwrap_err().to_string();
    assert!(error.contains("status 400") && error.contains("not the SHA-256"), "{error}");
    assert!(double.state().files.is_empty(), "a commit without its large file");
    double.state().lose_parts = false;
    double.state().failures = 100;
    let error = push_quietly(&options(folder.path()), &double).unwrap_err().to_string();
    assert!(error.contains("status 500"), "{error}");
    assert_eq!(double.state().failures, 96, "four tries");
}

#[test]
fn the_token_is_where_the_hubs_programs_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let find = |set: &[(&str, &str)]| {
        let set: Vec<(String, String)> = set.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        Hub::find(move |name| set.iter().find(|(key, _)| key == name).map(|(_, value)| value.into()))
    };
    let error = find(&[("HOME", home)]).err().unwrap().to_string();
    assert!(error.contains("hf auth login") && error.contains("HF_TOKEN"), "{error}");
    let error =
        find(&[("HF_HUB_OFFLINE", "1"), ("HOME", home), ("HF_TOKEN", "a")]).err().unwrap().to_string();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    for path in [".cache/huggingface", "x/huggingface", "f"] {
        fs::create_dir_all(folder.path().join(path)).unwrap();
        fs::write(folder.path().join(path).join("token"), format!("{path}\n")).unwrap();
    }
    let (x, f) = (format!("{home}/x"), format!("{home}/f"));
    let set = [
        ("HOME", home),
        ("XDG_CACHE_HOME", x.as_str()),
        ("HF_HOME", f.as_str()),
        ("HUGGING_FACE_HUB_TOKEN", "old"),
        ("HF_TOKEN", " new\n"),
    ];
    for (count, token) in (1..).zip([".cache/huggingface", "x/huggingface", "f", "old", "new"]) {
        assert_eq!(find(&set[..count]).unwrap().token, token);
    }
}
