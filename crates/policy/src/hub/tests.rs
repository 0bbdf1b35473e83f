use std::collections::HashMap;

use super::*;
use crate::base::{BaseModel, revised};

pub(super) fn model(text: &str) -> HubModel {
    HubModel::parse(text).unwrap()
}

#[test]
fn models_of_the_hub_are_told_from_paths() {
    let HubModel { id, revision } = model("Qwen/Qwen2.5-0.5B-Instruct");
    assert_eq!((id.as_str(), revision.as_str()), ("Qwen/Qwen2.5-0.5B-Instruct", "main"));
    assert_eq!(model("org/name@refs/pr/1").revision, "refs/pr/1");
    assert_eq!(model("org/name@7ae557604adf67be50417f59c2c2f167def9a775").id, "org/name");
    for path in [
        "model",
        "./org/name",
        "../org/name",
        "/org/name",
        "org/name/policy",
        "org/",
        "/name",
        "",
        "org/na me",
        "org/name@",
        "org/name@../../x",
        "org/..",
        "~/name",
    ] {
        assert_eq!(HubModel::parse(path), None, "{path}");
    }
}

#[test]
fn the_cache_is_where_the_hubs_programs_look_for_it() {
    let find = |variables: &[(&str, &str)]| {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        Cache::find(|name| variables.get(name).map(OsString::from))
    };
    let root = |variables: &[(&str, &str)]| find(variables).unwrap().root;
    let all = [
        ("HOME", "/h"),
        ("XDG_CACHE_HOME", "/x"),
        ("HF_HOME", "/f"),
        ("HUGGINGFACE_HUB_CACHE", "/g"),
        ("HF_HUB_CACHE", "/c"),
    ];
    let expected = ["/h/.cache/huggingface/hub", "/x/huggingface/hub", "/f/hub", "/g", "/c"];
    for (count, expected) in (1..).zip(expected) {
        assert_eq!(root(&all[..count]), Path::new(expected));
    }
    for (value, expected) in [
        ("~/c", "/h/c"),
        ("~", "/h"),
        ("~other/c", "~other/c"),
        ("/a/~/c", "/a/~/c"),
        ("$DISK/c", "/d/c"),
        ("/m${DISK}x/$DISK", "/m/dx//d"),
        ("$DISK_2/$", "$DISK_2/$"),
        ("${NONE}/${DISK", "${NONE}/${DISK"),
        ("é$DISKé", "é/dé"),
    ] {
        let variables = [("HOME", "/h"), ("DISK", "/d"), ("HF_HUB_CACHE", value)];
        assert_eq!(root(&variables), Path::new(expected), "{value}");
        let variables = [("HOME", "/h"), ("DISK", "/d"), ("HF_HOME", value)];
        assert_eq!(root(&variables), Path::new(expected).join("hub"), "{value}");
    }
    assert_eq!(root(&[("HOME", "/h"), ("HF_HOME", "")]), Path::new("/h/.cache/huggingface/hub"));
    assert_eq!(find(&[]), None);
    for name in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"] {
        for (value, offline) in [("1", true), ("true", true), ("ON", true), ("0", false), ("", false)] {
            let found = find(&[("HOME", "/h"), (name, value)]).unwrap().offline;
            assert_eq!(found, offline.then_some(name), "{value}");
        }
    }
    // The hub's own variable wins.
    let both = [("HOME", "/h"), ("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")];
    assert_eq!(find(&both).unwrap().offline, None);
}

pub(super) const COMMIT: &str = "7ae557604adf67be50417f59c2c2f167def9a775";

fn cache(files: &[&str]) -> (tempfile::TempDir, Cache, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_path_buf();
    let forbidden = |name: &str| match name {
        "HF_HUB_CACHE" => Some(root.clone().into_os_string()),
        "HF_HUB_OFFLINE" => Some("1".into()),
        _ => None,
    };
    let cache = Cache::find(forbidden).unwrap();
    let repository = folder.path().join("models--org--name");
    let snapshot = repository.join("snapshots").join(COMMIT);
    fs::create_dir_all(repository.join("refs/pr")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(repository.join("refs/main"), format!("{COMMIT}\n")).unwrap();
    fs::write(repository.join("refs/pr/1"), COMMIT).unwrap();
    for name in files {
        fs::write(snapshot.join(name), "").unwrap();
    }
    (folder, cache, snapshot)
}

const WHOLE: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors"];

#[test]
fn a_model_in_the_cache_is_found_by_branch_and_by_commit() {
    let (_folder, cache, snapshot) = cache(&WHOLE);
    for revision in ["", "@main", "@pr/1", &format!("@{COMMIT}")] {
        let found = find_or_fetch(&model(&format!("org/name{revision}")), &cache, &mut |_| ()).unwrap();
        assert_eq!(found, snapshot);
    }
    for other in ["org/other", "org/name@v2"] {
        let error = find_or_fetch(&model(other), &cache, &mut |_| ()).unwrap_err().to_string();
        assert!(error.starts_with(other) && error.contains("cache does not have it"), "{error}");
        assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    }
}

#[test]
fn a_base_is_found_again_after_its_branch_has_moved() {
    let (_folder, cache, snapshot) = cache(&WHOLE);
    let find = |text: &str| find_or_fetch(&model(text), &cache, &mut |_| ()).unwrap();
    for id in ["org/name", "org/name@pr/1"] {
        let base = BaseModel::of_hub(id, &find(id), 7);
        let expected = BaseModel { name: "org/name".into(), revision: Some(COMMIT.into()), crc32c: 7 };
        assert_eq!(base, expected);
    }
    let base = BaseModel::of_hub("org/name", &find("org/name"), 7).named();
    let later = snapshot.with_file_name("0123456789abcdef0123456789abcdef01234567");
    fs::create_dir(&later).unwrap();
    for name in WHOLE {
        fs::write(later.join(name), "").unwrap();
    }
    let branch = cache.root.join("models--org--name/refs/main");
    fs::write(branch, later.file_name().unwrap().to_str().unwrap()).unwrap();
    assert_eq!(find("org/name"), later, "the branch has moved");
    assert_eq!(find(&revised(&base.name, base.revision.as_deref())), snapshot);
    // A folder that is not a snapshot has no commit.
    let elsewhere = |id: &str| BaseModel::of_hub(id, Path::new("/models/mine"), 7).revision;
    assert_eq!((elsewhere("org/name"), elsewhere("org/name@v1")), (None, Some("v1".to_owned())));
}

#[test]
fn a_folder_of_the_cache_has_the_name_of_its_model() {
    let (folder, cache, snapshot) = cache(&WHOLE);
    assert_eq!(cache.named(&snapshot), Some(("org/name".to_owned(), COMMIT.to_owned())));
    let found = find_or_fetch(&model(&format!("org/name@{COMMIT}")), &cache, &mut |_| ()).unwrap();
    assert_eq!(found, snapshot, "by its name it is found again");
    for other in [folder.path(), snapshot.parent().unwrap(), Path::new("/nowhere")] {
        assert_eq!(cache.named(other), None, "{}", other.display());
    }
}

#[test]
fn a_model_that_is_there_in_part_is_not_taken() {
    for (files, lacking) in [
        (&["tokenizer.json", "model.safetensors"][..], "config.json"),
        (&["config.json", "model.safetensors"], "tokenizer.json"),
        (&["config.json", "vocab.json", "model.safetensors"], "tokenizer.json"),
        (&["config.json", "tokenizer.json"], "model.safetensors"),
    ] {
        let (_folder, cache, _) = cache(files);
        let error = find_or_fetch(&model("org/name"), &cache, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("without {lacking}")), "{error}");
    }
    let (_folder, cache, snapshot) =
        cache(&["config.json", "vocab.json", "merges.txt", "model-00001-of-00002.safetensors"]);
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    fs::write(snapshot.join("model.safetensors.index.json"), index).unwrap();
    let error = find_or_fetch(&model("org/name"), &cache, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("without model-00002-of-00002.safetensors"), "{error}");
    fs::write(snapshot.join("model-00002-of-00002.safetensors"), "").unwrap();
    assert_eq!(find_or_fetch(&model("org/name"), &cache, &mut |_| ()).unwrap(), snapshot);
}

#[test]
fn an_adapter_in_the_cache_is_found_where_it_is_whole() {
    let (_folder, cache, snapshot) = cache(&["adapter_config.json", "README.md"]);
    let find = || find_or_fetch(&model("org/name"), &cache, &mut |_| ()).map_err(|error| error.to_string());
    assert!(find().unwrap_err().contains("without adapter_model.safetensors"));
    fs::write(snapshot.join("adapter_model.safetensors"), "").unwrap();
    assert_eq!(find().unwrap(), snapshot);
}

#[cfg(not(feature = "hub"))]
#[test]
fn a_build_without_a_network_says_how_to_fetch() {
    let (_folder, mut cache, _) = cache(&[]);
    cache.offline = None;
    let error = find_or_fetch(&model("org/other@v2"), &cache, &mut |_| ()).unwrap_err().to_string();
    for expected in ["hf download org/other --revision v2", "--features hub"] {
        assert!(error.contains(expected), "{error}");
    }
}
