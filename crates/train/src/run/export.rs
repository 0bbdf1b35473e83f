//! Exports a policy for `transformers`, PEFT, vLLM or llama.cpp.

use std::fs;
use std::path::{Path, PathBuf};

use turnwise_model::{
    AdapterBase, AdapterFile, GgufType, SaveOptions, WeightType, save_adapter, save_model_as, write_gguf,
};
use turnwise_policy::run_folder::enclosing_run;
use turnwise_policy::{BaseModel, Policy, base, policy_folder};
use turnwise_text::GenerationSampling;

use crate::TrainError;
use crate::record::directory::create_folders;
use crate::setup;

/// Options of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Merge an adapter into its base.
    pub merge: bool,
    /// Replace an existing model or adapter folder.
    pub force: bool,
    /// Number type of a model's weights; adapters are always `f32`.
    pub dtype: WeightType,
}

/// Result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exported {
    /// A full model.
    Model,
    /// A full model with a merged adapter.
    Merged,
    /// A PEFT adapter on this base.
    Adapter(String),
}

/// Writes the policy of a run, checkpoint or folder to `out` atomically. For a run, also writes its
/// sampling parameters to `generation_config.json`.
///
/// # Errors
/// Fails if `out` exists (except for a model's folder if `force` is set), or if the policy or its
/// run's `config.toml` is unreadable.
pub fn export(source: &Path, out: &Path, options: ExportOptions) -> Result<Exported, TrainError> {
    check_target(out, options.force)?;
    let folder = policy_folder(source, &mut |_| ())?;
    let policy = Policy::load(&folder)?;
    if policy.weights.adapter.is_some() && !options.merge && options.dtype != WeightType::F32 {
        let reason = "is an adapter, which is written in f32; leave --dtype out, or merge it with --merge";
        return Err(TrainError::file(&folder, reason));
    }
    let aside = beside(out, "part")?;
    clear(&aside)?;
    create_folders(&aside)?;
    let exported = match (&policy.weights.adapter, options.merge) {
        (Some(adapter), false) => {
            let named = base_name(&folder, AdapterFile::read(&folder)?.base)?;
            save_adapter(adapter, &aside, &named)?;
            Exported::Adapter(named.name)
        }
        (adapter, _) => {
            let whole = policy.weights.merged()?;
            let save = SaveOptions { dtype: options.dtype, ..SaveOptions::default() };
            save_model_as(&whole, &aside, save)?;
            if adapter.is_some() { Exported::Merged } else { Exported::Model }
        }
    };
    let sampling = match enclosing_run(&folder) {
        Some(run) => setup::sampling_of_run(&run)?,
        None => GenerationSampling::default(),
    };
    policy.tokenizer.save_folder_sampled(&aside, sampling)?;
    put(&aside, out)?;
    Ok(exported)
}

/// Writes the policy of a run, checkpoint or folder to `out` as one GGUF file, with any adapter
/// merged.
///
/// # Errors
/// Fails if `out` is a folder, if it exists and `force` is not set, if the policy cannot be read,
/// or if [`write_gguf`] fails.
pub fn export_gguf(source: &Path, out: &Path, number_type: GgufType, force: bool) -> Result<(), TrainError> {
    if out.is_dir() {
        return Err(TrainError::file(out, "is a folder; with --gguf, OUT is a file, such as model.gguf"));
    }
    if out.exists() && !force {
        return Err(TrainError::file(out, "exists already; name another file, or replace it with --force"));
    }
    let folder = policy_folder(source, &mut |_| ())?;
    let policy = Policy::load(&folder)?;
    let name = out.file_stem().unwrap_or_default().to_string_lossy();
    write_gguf(policy.weights.merged()?.as_ref(), &policy.tokenizer, &name, out, number_type)?;
    Ok(())
}

fn check_target(out: &Path, force: bool) -> Result<(), TrainError> {
    if !out.exists() {
        return Ok(());
    }
    if !force {
        return Err(TrainError::file(
            out,
            "is there already; choose another folder, or replace it with --force",
        ));
    }
    let entries = fs::read_dir(out).map_err(|error| TrainError::io(out, error))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(
            entry.map_err(|error| TrainError::io(out, error))?.file_name().to_string_lossy().into_owned(),
        );
    }
    names.sort();
    let model = ["config.json", "adapter_config.json"].iter().any(|name| names.iter().any(|of| of == name));
    if !names.is_empty() && !model {
        return Err(TrainError::file(
            out,
            "is not the folder of a model or an adapter, and --force replaces nothing else",
        ));
    }
    // Other folders may have a config.json, too, and would be lost.
    let is_card = |name: &str| name == "README.md" && is_card(&out.join(name));
    // Left by a killed process.
    let is_part = |name: &str| name.starts_with(".README.md.") && is_of_kind(name, "part");
    match names.iter().find(|name| !is_of_export(name) && !is_card(name) && !is_part(name)) {
        None => Ok(()),
        Some(name) => Err(TrainError::file(
            out,
            format!(
                "has `{name}`, which no export writes, and --force would remove it; choose another folder"
            ),
        )),
    }
}

fn is_card(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains("\ntags:\n- turnwise\n"))
}

fn is_of_export(name: &str) -> bool {
    let known = [
        "config.json",
        "generation_config.json",
        "adapter_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "additional_chat_templates",
    ];
    known.contains(&name) || is_of_kind(name, "safetensors")
}

fn is_of_kind(name: &str, kind: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == kind)
}

/// Returns the name of an adapter's base. A copy of the base in a run directory is named by its
/// absolute path.
fn base_name(folder: &Path, named: Option<AdapterBase>) -> Result<AdapterBase, TrainError> {
    let found = base::find(folder, named.as_ref())?;
    let named = named.unwrap_or_default();
    let own = enclosing_run(folder).is_some_and(|run| run.join(base::FOLDER) == found);
    if !own && !Path::new(&named.name).exists() && !folder.join(&named.name).exists() {
        return Ok(named);
    }
    Ok(BaseModel::of_folder(&found, 0)?.named())
}

fn beside(out: &Path, kind: &str) -> Result<PathBuf, TrainError> {
    let name = out.file_name().ok_or_else(|| TrainError::file(out, "is not the name of a folder"))?;
    Ok(out.with_file_name(format!(".{kind}-{}", name.to_string_lossy())))
}

fn clear(path: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TrainError::io(path, error)),
        _ => Ok(()),
    }
}

fn put(aside: &Path, out: &Path) -> Result<(), TrainError> {
    let old = beside(out, "old")?;
    clear(&old)?;
    if out.exists() {
        fs::rename(out, &old).map_err(|error| TrainError::io(out, error))?;
    }
    turnwise_files::sync_all_below(aside).map_err(|error| TrainError::io(aside, error))?;
    turnwise_files::rename_into_place(aside, out).map_err(|error| TrainError::io(out, error))?;
    clear(&old)
}
