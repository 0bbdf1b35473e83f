use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use safetensors::tensor::{SafeTensors, TensorView};
use serde_json::Value;

use super::mapped::Mapped;
use super::{INDEX, WEIGHTS};
use crate::files::{self, check_shape, decode};
use crate::{ModelError, Parameters, TensorInfo};

/// Reads all weights from a folder. Files are memory-mapped and read once, so little memory is
/// needed beyond the weights.
pub(super) fn fill(folder: &Path, parameters: &mut Parameters<f32>) -> Result<(), ModelError> {
    let files = weight_files(folder)?;
    let Parameters { config, layout, data } = parameters;
    let tied = config.tie_word_embeddings && layout.value.is_none();
    let index: HashMap<&str, usize> =
        layout.tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.as_str(), index)).collect();
    let mut ranges = split(&layout.tensors, data);
    let mut unexpected = Vec::new();
    let mut tied_outputs = Vec::new();
    for path in &files {
        let file = Mapped::open(path)?;
        let tensors =
            SafeTensors::deserialize(file.bytes()).map_err(|error| ModelError::file(path, error))?;
        // In layout order, so that the same error is always reported first.
        let mut found: Vec<_> = tensors
            .iter()
            .map(|(name, view)| {
                let known = canonical(name);
                (index.get(known.as_str()).copied(), known, name, view)
            })
            .collect();
        found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut jobs = Vec::new();
        for (index, known, name, view) in found {
            if let Some(index) = index {
                check_shape(path, name, &view, &layout.tensors[index].shape)?;
                let Some(to) = ranges[index].take() else {
                    return Err(ModelError::file(path, format!("tensor `{known}` is there twice")));
                };
                jobs.push((name.to_owned(), view, to));
            } else if known == OUTPUT && tied {
                tied_outputs.push((path.clone(), name.to_owned()));
            } else if !known.ends_with("rotary_emb.inv_freq") {
                unexpected.push(name.to_owned());
            }
        }
        // In file order, for sequential reads.
        jobs.sort_by_key(|(_, view, _)| view.data().as_ptr().addr());
        for (name, view, to) in jobs {
            read(&file, &name, &view, to)?;
        }
    }
    let missing: Vec<&TensorInfo> = layout
        .tensors
        .iter()
        .zip(&ranges)
        .filter(|(_, range)| range.is_some())
        .map(|(tensor, _)| tensor)
        .collect();
    drop(ranges);
    let source = if let [single] = files.as_slice() { single } else { folder };
    refuse_missing(source, &missing)?;
    refuse_unexpected(source, &mut unexpected)?;
    for (path, name) in tied_outputs {
        check_tied(&path, &name, &data[layout.embedding.clone()])?;
    }
    Ok(())
}

const OUTPUT: &str = "lm_head.weight";

fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let (single, index) = (folder.join(WEIGHTS), folder.join(INDEX));
    // A single file takes precedence, as in `transformers`.
    if single.exists() {
        return Ok(vec![single]);
    }
    if !index.exists() {
        let old = ["pytorch_model.bin", "pytorch_model.bin.index.json"].map(|name| folder.join(name));
        if let Some(old) = old.iter().find(|path| path.exists()) {
            return Err(ModelError::file(
                old,
                "is a pickle, which can run code; only safetensors are read. Convert it with \
                 `AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder)`",
            ));
        }
        return Err(ModelError::file(
            &single,
            format!("is missing, and so is {INDEX}: this folder holds no weights"),
        ));
    }
    let bytes = files::read(&index)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| ModelError::file(&index, error))?;
    let Some(map) = value.get("weight_map").and_then(Value::as_object) else {
        return Err(ModelError::file(&index, "has no `weight_map` that says which file holds which tensor"));
    };
    let names: BTreeSet<&str> = map.values().map(|name| name.as_str().unwrap_or_default()).collect();
    let mut found = Vec::new();
    for name in names {
        if Path::new(name).file_name().is_none_or(|plain| plain != name) {
            return Err(ModelError::file(
                &index,
                format!("`weight_map` names `{name}`, which is no plain file name"),
            ));
        }
        let path = folder.join(name);
        if !path.exists() {
            return Err(ModelError::file(
                &path,
                format!("is missing, and {INDEX} says that weights are in it"),
            ));
        }
        found.push(path);
    }
    if found.is_empty() {
        return Err(ModelError::file(&index, "`weight_map` is empty"));
    }
    Ok(found)
}

/// Returns this crate's name for a tensor. Removes the prefixes of PyTorch wrappers and vision
/// models, and adds a missing `model.` to decoder tensors.
fn canonical(name: &str) -> String {
    let mut name = name;
    while let Some(rest) =
        ["_orig_mod.", "module."].into_iter().find_map(|wrapper| name.strip_prefix(wrapper))
    {
        name = rest;
    }
    // In `transformers`, decoder and tower are siblings.
    if let Some(rest) = name.strip_prefix("model.language_model.") {
        return format!("model.{rest}");
    }
    if let Some(rest) = name.strip_prefix("model.visual.") {
        return format!("visual.{rest}");
    }
    let bare = ["embed_tokens.", "layers.", "norm."].into_iter().any(|part| name.starts_with(part));
    if bare { format!("model.{name}") } else { name.to_owned() }
}

fn split<'a>(tensors: &[TensorInfo], data: &'a mut [f32]) -> Vec<Option<&'a mut [f32]>> {
    let mut rest = data;
    let mut parts = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let (part, after) = rest.split_at_mut(tensor.range.len());
        parts.push(Some(part));
        rest = after;
    }
    parts
}

const CHUNK: usize = 1 << 22;

fn read(file: &Mapped, name: &str, view: &TensorView<'_>, to: &mut [f32]) -> Result<(), ModelError> {
    let width = view.data().len() / to.len().max(1);
    for (to, bytes) in to.chunks_mut(CHUNK).zip(view.data().chunks(CHUNK * width.max(1))) {
        let parts = to.par_chunks_mut(CHUNK / 32).zip(bytes.par_chunks(CHUNK / 32 * width.max(1)));
        parts.try_for_each(|(to, bytes)| decode(file.path(), name, view.dtype(), bytes, to))?;
        file.release(bytes);
    }
    Ok(())
}

fn some<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let listed: Vec<String> = names.take(5).map(|name| format!("`{name}`")).collect();
    let more =
        if count > listed.len() { format!(" and {} more", count - listed.len()) } else { String::new() };
    format!("{}{more}", listed.join(", "))
}

fn refuse_missing(source: &Path, missing: &[&TensorInfo]) -> Result<(), ModelError> {
    let [first, others @ ..] = missing else { return Ok(()) };
    let mut reason =
        format!("tensor `{}` is missing; the config asks for it with shape {:?}", first.name, first.shape);
    if !others.is_empty() {
        let names = some(others.iter().map(|tensor| tensor.name.as_str()));
        reason.push_str(&format!(". So are {names}. Do config.json and these weights belong together?"));
    }
    Err(ModelError::file(source, reason))
}

fn refuse_unexpected(source: &Path, unexpected: &mut [String]) -> Result<(), ModelError> {
    if unexpected.is_empty() {
        return Ok(());
    }
    unexpected.sort();
    let names = some(unexpected.iter().map(String::as_str));
    Err(ModelError::file(
        source,
        format!(
            "holds {names}, which a model of this config does not have, so that something would be left out \
             silently; do config.json and these weights belong together?"
        ),
    ))
}

fn check_tied(path: &Path, name: &str, embedding: &[f32]) -> Result<(), ModelError> {
    let file = Mapped::open(path)?;
    let tensors = SafeTensors::deserialize(file.bytes()).map_err(|error| ModelError::file(path, error))?;
    let view = tensors.tensor(name).map_err(|error| ModelError::file(path, error))?;
    let width = (view.data().len() / embedding.len().max(1)).max(1);
    let mut buffer = vec![0.0; CHUNK.min(embedding.len())];
    let mut equal = view.data().len() == embedding.len() * width;
    for (embedding, bytes) in embedding.chunks(CHUNK).zip(view.data().chunks(CHUNK * width)) {
        let buffer = &mut buffer[..embedding.len()];
        if equal {
            decode(path, name, view.dtype(), bytes, buffer)?;
            equal = buffer == embedding;
            file.release(bytes);
        }
    }
    if equal {
        return Ok(());
    }
    let reason = format!(
        "`{name}` differs from the embedding, but config.json says tie_word_embeddings = true; set it to false \
         if the output layer is a matrix of its own"
    );
    Err(ModelError::file(path, reason))
}
