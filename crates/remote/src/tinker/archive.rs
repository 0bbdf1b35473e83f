//! Unpacks a service's adapters into PEFT's layout.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use super::error::TinkerError;

const LARGEST: u64 = 128 << 30;
const LARGEST_CONFIG: u64 = 16 << 20;
/// Maximum size in bytes of a weight file's header, which lists the tensors.
const LARGEST_HEADER: u64 = 64 << 20;

/// Unpacks an archive's regular files into `folder`, ignoring the folders in their paths, and sets
/// `base` as the base model. Detects compression.
///
/// # Errors
/// Fails if the archive is neither an adapter nor a model, or if a file cannot be read or written.
pub(crate) fn unpack(archive: &Path, folder: &Path, base: &Path) -> Result<(), TinkerError> {
    let fail = |reason: String| TinkerError::File { path: archive.display().to_string(), reason };
    let io = |error: std::io::Error| fail(format!("is not a complete archive: {error}"));
    let mut file = BufReader::new(File::open(archive).map_err(io)?);
    let mut magic = [0; 2];
    let most = file.get_ref().metadata().map_err(io)?.len();
    let most = turnwise_files::most_expanded(most).min(LARGEST);
    let read = file.read(&mut magic).map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let bytes: Box<dyn Read> =
        if read == 2 && magic == [0x1f, 0x8b] { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut names = Vec::new();
    let mut archive = tar::Archive::new(bytes.take(most));
    for entry in archive.entries().map_err(io)? {
        let mut entry = entry.map_err(io)?;
        let path = entry.path().map_err(io)?.into_owned();
        let Some(name) = path.file_name().filter(|_| entry.header().entry_type().is_file()) else { continue };
        let to = folder.join(name);
        let mut out = File::create(&to).map_err(|error| file_error(&to, &error))?;
        std::io::copy(&mut entry, &mut out).map_err(io)?;
        names.push(PathBuf::from(name));
    }
    let has = |name: &str| names.iter().any(|found| found == Path::new(name));
    if has("adapter_config.json") && has("adapter_model.safetensors") {
        complete(folder, base)
    } else if has("config.json") {
        // A merged model needs no base.
        Ok(())
    } else {
        Err(fail(
            "holds neither an adapter nor a model; the service saves its weights where they cannot be downloaded".into(),
        ))
    }
}

/// Sets the base model, and the list of adapted modules, which SkyRL on JAX omits.
fn complete(folder: &Path, base: &Path) -> Result<(), TinkerError> {
    let config = &folder.join("adapter_config.json");
    let fail = |reason: String| TinkerError::File { path: config.display().to_string(), reason };
    let mut text = Vec::new();
    let read = File::open(config).and_then(|file| file.take(LARGEST_CONFIG + 1).read_to_end(&mut text));
    read.map_err(|error| file_error(config, &error))?;
    if text.len() as u64 > LARGEST_CONFIG {
        return Err(fail(format!("has more than {LARGEST_CONFIG} bytes")));
    }
    let mut value: Value = serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))?;
    let Some(entries) = value.as_object_mut() else { return Err(fail("is not a JSON object".into())) };
    entries.insert("base_model_name_or_path".into(), base.display().to_string().into());
    if entries.get("target_modules").is_none_or(Value::is_null) {
        let modules = modules(&folder.join("adapter_model.safetensors"))?;
        entries.insert("target_modules".into(), modules.into_iter().map(Value::String).collect());
    }
    if entries.get("task_type").is_none_or(Value::is_null) {
        entries.insert("task_type".into(), "CAUSAL_LM".into());
    }
    let text = serde_json::to_vec_pretty(&value).map_err(|error| fail(error.to_string()))?;
    std::fs::write(config, text).map_err(|error| file_error(config, &error))
}

/// Returns modules with LoRA matrices: `...q_proj.lora_A.weight` belongs to `q_proj`.
fn modules(weights: &Path) -> Result<BTreeSet<String>, TinkerError> {
    let fail = |reason: String| TinkerError::File { path: weights.display().to_string(), reason };
    let mut file = File::open(weights).map_err(|error| file_error(weights, &error))?;
    let mut length = [0; 8];
    let read = file.read_exact(&mut length).and_then(|()| {
        let mut header = Vec::new();
        file.take(u64::from_le_bytes(length).min(LARGEST_HEADER)).read_to_end(&mut header)?;
        Ok(header)
    });
    let header = read.map_err(|error| file_error(weights, &error))?;
    let header: Value = serde_json::from_slice(&header)
        .map_err(|error| fail(format!("is not a safetensors file: {error}")))?;
    let names = header.as_object().into_iter().flat_map(|tensors| tensors.keys());
    Ok(names
        .filter_map(|name| {
            name.split(".lora_A")
                .next()?
                .rsplit('.')
                .next()
                .map(str::to_owned)
                .filter(|_| name.contains(".lora_A"))
        })
        .collect())
}

fn file_error(path: &Path, error: &std::io::Error) -> TinkerError {
    TinkerError::File { path: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn plain_and_compressed_archives_are_read() {
        let config = br#"{"r": 4, "base_model_name_or_path": "/srv/model"}"#;
        let header = br#"{"__metadata__":{},"m.0.q_proj.lora_A.weight":{},"m.1.q_proj.lora_B.weight":{},"m.0.up_proj.lora_A.weight":{}}"#;
        let weights = [&(header.len() as u64).to_le_bytes(), &header[..], b"numbers"].concat();
        let plain = tar_of(&[("./adapter_config.json", config), ("adapter_model.safetensors", &weights)]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        std::io::Write::write_all(&mut packed, &plain).unwrap();
        for bytes in [plain, packed.finish().unwrap()] {
            let folder = tempfile::tempdir().unwrap();
            let archive = folder.path().join("a.tar.gz");
            std::fs::write(&archive, bytes).unwrap();
            let to = folder.path().join("policy");
            std::fs::create_dir(&to).unwrap();
            unpack(&archive, &to, Path::new("/models/base")).unwrap();
            assert_eq!(std::fs::read(to.join("adapter_model.safetensors")).unwrap(), weights);
            let value: Value =
                serde_json::from_slice(&std::fs::read(to.join("adapter_config.json")).unwrap()).unwrap();
            assert_eq!((&value["base_model_name_or_path"], &value["r"]), (&"/models/base".into(), &4.into()));
            assert_eq!(value["target_modules"], serde_json::json!(["q_proj", "up_proj"]));
        }
    }

    #[test]
    fn what_holds_no_weights_is_refused() {
        let cut = tar_of(&[("adapter_config.json", b"{}"), ("adapter_model.safetensors", &[7; 5000])]);
        for (bytes, expected) in [
            (tar_of(&[("MARKER", b"")]), "neither an adapter nor a model"),
            (cut[..3000].to_vec(), "not a complete archive"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let archive = folder.path().join("a.tar");
            std::fs::write(&archive, bytes).unwrap();
            let error = unpack(&archive, folder.path(), Path::new("/models/base")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_expands_too_far_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("a.tar.gz");
        let large = vec![b' '; usize::try_from(LARGEST_CONFIG).unwrap() + 1];
        let files: [(&str, &[u8]); 2] =
            [("adapter_config.json", &large), ("adapter_model.safetensors", b"x")];
        std::fs::write(&archive, tar_of(&files)).unwrap();
        let error = unpack(&archive, folder.path(), Path::new("/models/base")).unwrap_err().to_string();
        assert!(
            error.contains("adapter_config.json") && error.contains("more than 16777216 bytes"),
            "{error}"
        );
        let zeros = vec![0; 200 << 20];
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut packed, &tar_of(&[("model.safetensors", &zeros)])).unwrap();
        std::fs::write(&archive, packed.finish().unwrap()).unwrap();
        let error = unpack(&archive, folder.path(), Path::new("/models/base")).unwrap_err().to_string();
        assert!(error.contains("not a complete archive"), "{error}");
    }

    #[test]
    fn no_file_leaves_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..10].copy_from_slice(b"../outside");
        header.set_size(1);
        header.set_cksum();
        builder.append(&header, &b"x"[..]).unwrap();
        let archive = folder.path().join("a.tar");
        std::fs::write(&archive, builder.into_inner().unwrap()).unwrap();
        let to = folder.path().join("policy");
        std::fs::create_dir(&to).unwrap();
        assert!(unpack(&archive, &to, Path::new("base")).is_err());
        assert!(!folder.path().join("outside").exists());
    }
}
