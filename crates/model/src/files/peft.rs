//! Adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Map, Value, json};

use crate::files::{self, bytes_of, floats_of};
use crate::weights::lora::{ALL_LINEAR, Adapter, LoraConfig, Module};
use crate::{ModelConfig, ModelError, TensorInfo};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// File for a critic's value head, which PEFT's format cannot store with frozen layers.
const VALUE_HEAD: &str = "value_head.safetensors";

const PREFIX: &str = "base_model.model.";

/// Keys of `adapter_config.json` that have no effect or are checked individually. All other keys
/// must be unset.
const KNOWN: [&str; 24] = [
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
    "alpha_pattern",
    "rank_pattern",
];

const CHANGING_THE_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];

/// Base model of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterBase {
    /// Folder or hub id.
    pub name: String,
    /// Hub revision.
    pub revision: Option<String>,
}

/// Content of `adapter_config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    /// Settings. The `targets` are those written in the file and may differ from the modules that
    /// have weights.
    pub config: LoraConfig,
    /// Base model, if known.
    pub base: Option<AdapterBase>,
}

/// Returns true if a folder holds an adapter.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

impl AdapterFile {
    /// Reads `adapter_config.json`.
    ///
    /// # Errors
    /// Rejects fully trained modules, biases, per-module ranks or scales, variants such as DoRA,
    /// and methods other than LoRA. The error names the file and key.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join(CONFIG);
        let value: Value =
            serde_json::from_slice(&files::read(&path)?).map_err(|error| ModelError::file(&path, error))?;
        let Some(entries) = value.as_object() else {
            return Err(ModelError::file(&path, "is not a JSON object"));
        };
        check(entries).map_err(|reason| ModelError::file(&path, reason))?;
        let text = |key: &str| entries.get(key).and_then(Value::as_str).map(str::to_owned);
        let missing = |key: &str| ModelError::file(&path, format!("{key}: is missing or no number"));
        let rank = entries.get("r").and_then(Value::as_u64).ok_or_else(|| missing("r"))?;
        let alpha = entries.get("lora_alpha").and_then(Value::as_f64).ok_or_else(|| missing("lora_alpha"))?;
        let config = LoraConfig {
            rank: rank as usize,
            alpha,
            dropout: entries.get("lora_dropout").and_then(Value::as_f64).unwrap_or(0.0),
            rslora: entries.get("use_rslora").and_then(Value::as_bool).unwrap_or(false),
            targets: targets(entries.get("target_modules"))
                .map_err(|reason| ModelError::file(&path, reason))?,
        };
        config.check().map_err(|error| ModelError::file(&path, error))?;
        let revision = text("revision");
        let base = text("base_model_name_or_path").map(|name| AdapterBase { name, revision });
        Ok(Self { config, base })
    }
}

/// Returns the last part of each name in `target_modules`, or `all-linear` if that key is a string,
/// such as a pattern.
fn targets(value: Option<&Value>) -> Result<Vec<String>, String> {
    match value {
        Some(Value::String(_)) => Ok(vec![ALL_LINEAR.into()]),
        Some(Value::Array(names)) => {
            let mut modules = BTreeSet::new();
            for name in names.iter().filter_map(Value::as_str) {
                let last = name.rsplit('.').next().unwrap_or(name);
                modules.insert(Module::named(last).ok_or_else(|| {
                    format!(
                        "target_modules: `{name}` cannot have an adapter here; supported are {}",
                        Module::ALL.map(Module::name).join(", ")
                    )
                })?);
            }
            Ok(modules.into_iter().map(|module| module.name().to_owned()).collect())
        }
        _ => Err("target_modules: is missing; it says which linear layers have an adapter".into()),
    }
}

fn check(entries: &Map<String, Value>) -> Result<(), String> {
    let text = |key: &str| entries.get(key).and_then(Value::as_str);
    match text("peft_type") {
        Some("LORA") => {}
        other => {
            return Err(format!(
                "peft_type: `{}` is not supported; supported: LORA",
                other.unwrap_or_default()
            ));
        }
    }
    if let Some(bias) = text("bias").filter(|&bias| bias != "none") {
        return Err(format!(
            "bias: `{bias}` is not supported, as it trains biases of the base; supported: none"
        ));
    }
    if entries.get("modules_to_save").is_some_and(has_value) {
        return Err(format!(
            "modules_to_save: {} was trained whole, which is not supported; merge the adapter with PEFT's \
             `merge_and_unload` and load the merged model",
            entries["modules_to_save"]
        ));
    }
    for key in ["rank_pattern", "alpha_pattern"] {
        if entries.get(key).is_some_and(has_value) {
            return Err(format!(
                "{key}: another rank or scale for some modules is not supported; merge the adapter with PEFT's \
                 `merge_and_unload` and load the merged model"
            ));
        }
    }
    if let Some(start) = text("init_lora_weights") {
        let changed = CHANGING_THE_BASE.iter().any(|name| start.starts_with(name));
        if changed {
            return Err(format!(
                "init_lora_weights: after `{start}` the adapter stands on changed base weights; save it with \
                 PEFT's `path_initial_model_for_weight_conversion`"
            ));
        }
    }
    match entries.iter().find(|(key, value)| !KNOWN.contains(&key.as_str()) && has_effect(key, value)) {
        Some((key, value)) => Err(format!("{key}: {value} is not supported; an ordinary LoRA adapter is")),
        None => Ok(()),
    }
}

fn has_value(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(set) => *set,
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        _ => true,
    }
}

fn has_effect(key: &str, value: &Value) -> bool {
    let start = matches!(key, "loftq_config" | "corda_config" | "lora_ga_config");
    !start && has_value(value)
}

/// Loads an adapter for a model of this architecture, with its value head if present. Weights in
/// `f32`, `bf16` or `f16` become `f32`.
///
/// # Errors
/// Fails like [`AdapterFile::read`], or if a tensor is missing, unexpected or of the wrong shape.
/// The error names the tensor.
pub fn load_adapter(folder: &Path, model: &ModelConfig) -> Result<Adapter<f32>, ModelError> {
    let AdapterFile { mut config, .. } = AdapterFile::read(folder)?;
    let path = folder.join(WEIGHTS);
    if !path.exists() && folder.join("adapter_model.bin").exists() {
        return Err(ModelError::file(
            &path,
            "is missing, but adapter_model.bin is there; save the adapter with `safe_serialization=True`",
        ));
    }
    let bytes = files::read(&path)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| ModelError::file(&path, error))?;
    if config.targets.iter().any(|target| target == ALL_LINEAR) {
        config.targets = modules_of(tensors.names().into_iter());
    }
    let value_head = folder.join(VALUE_HEAD);
    let mut adapter =
        if value_head.exists() { Adapter::critic(model, &config)? } else { Adapter::zeros(model, &config)? };
    let Adapter { layout, data, .. } = &mut adapter;
    let mut found: BTreeMap<String, &str> =
        tensors.names().into_iter().map(|name| (plain(name), name)).collect();
    for tensor in layout.tensors.iter().filter(|tensor| is_lora(tensor)) {
        let name = found.remove(&plain(&tensor.name));
        let view = name.and_then(|name| tensors.tensor(name).ok());
        let to = &mut data[tensor.range.clone()];
        floats_of(&path, &tensor.name, view.as_ref(), &tensor.shape, to)?;
    }
    if let Some(name) = found.values().next() {
        return Err(ModelError::file(
            &path,
            format!(
                "tensor `{name}` is not part of an adapter on {} layers with the targets {}; whole modules, \
                 embeddings and output layers are not supported",
                model.num_hidden_layers,
                config.targets.join(", ")
            ),
        ));
    }
    if value_head.exists() {
        let bytes = files::read(&value_head)?;
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| ModelError::file(&value_head, error))?;
        for tensor in layout.tensors.iter().filter(|tensor| !is_lora(tensor)) {
            let view = tensors.tensor(&tensor.name).ok();
            let to = &mut data[tensor.range.clone()];
            floats_of(&value_head, &tensor.name, view.as_ref(), &tensor.shape, to)?;
        }
    }
    Ok(adapter)
}

fn modules_of<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let found: BTreeSet<Module> = names.flat_map(|name| name.split('.')).filter_map(Module::named).collect();
    found.into_iter().map(|module| module.name().to_owned()).collect()
}

/// Removes the parts of a tensor's name that differ between files: the wrapper's prefix, the
/// adapter's name, and `language_model`.
fn plain(name: &str) -> String {
    let name = name.strip_prefix(PREFIX).unwrap_or(name).replace(".default.", ".");
    name.replace("model.language_model.", "model.")
}

fn is_lora(tensor: &TensorInfo) -> bool {
    tensor.name.starts_with(PREFIX)
}

/// Writes an adapter in PEFT's format as `f32`, creating the folder if needed. Each file is written
/// atomically, `adapter_config.json` last; a critic's value head gets its own file.
///
/// # Errors
/// Fails if a target is not a linear layer, or if a file cannot be written; the error names the
/// path.
pub fn save_adapter(adapter: &Adapter<f32>, folder: &Path, base: &AdapterBase) -> Result<(), ModelError> {
    turnwise_files::create_folders(folder).map_err(ModelError::io(folder))?;
    write(adapter, &folder.join(WEIGHTS), is_lora)?;
    if adapter.layout.value.is_some() {
        write(adapter, &folder.join(VALUE_HEAD), |tensor| !is_lora(tensor))?;
    }
    let path = folder.join(CONFIG);
    let mut text = serde_json::to_string_pretty(&config_json(adapter, base)?)
        .map_err(|error| ModelError::file(&path, error))?;
    text.push('\n');
    files::write_atomically(&path, text.as_bytes())
}

fn write(
    adapter: &Adapter<f32>,
    path: &Path,
    chosen: impl Fn(&TensorInfo) -> bool,
) -> Result<(), ModelError> {
    let tensors = adapter.layout.tensors.iter().filter(|tensor| chosen(tensor));
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .map(|tensor| {
            let bytes = bytes_of(&adapter.data[tensor.range.clone()]);
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes);
            view.map(|view| (tensor.name.as_str(), view)).map_err(|error| ModelError::file(path, error))
        })
        .collect::<Result<_, _>>()?;
    let header = [("format".to_string(), "pt".to_string())].into();
    files::write_tensors(path, views, header)
}

fn config_json(adapter: &Adapter<f32>, base: &AdapterBase) -> Result<Value, ModelError> {
    let LoraConfig { rank, alpha, dropout, rslora, .. } = &adapter.config;
    let modules: Vec<&str> = adapter.config.modules()?.into_iter().map(Module::name).collect();
    // A vision tower has layers of the same names, which only a pattern can exclude.
    let targets = match adapter.model.vision {
        Some(_) => json!(format!(r".*language_model\..*\.({})", modules.join("|"))),
        None => json!(modules),
    };
    // PEFT writes whole numbers as integers.
    let alpha = if alpha.fract() == 0.0 && *alpha < 1e15 { json!(*alpha as u64) } else { json!(alpha) };
    let task = if adapter.layout.value.is_some() { Value::Null } else { json!("CAUSAL_LM") };
    Ok(json!({
        "base_model_name_or_path": base.name,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": rank,
        "revision": base.revision,
        "target_modules": targets,
        "task_type": task,
        "use_dora": false,
        "use_rslora": rslora,
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cpu::decoder::tests::config;
    use crate::testing::random;

    fn adapter(lora: &LoraConfig) -> Adapter<f32> {
        let mut adapter = Adapter::<f64>::zeros(&config(4, 2, true), lora).unwrap();
        adapter.data = random(3, adapter.data.len());
        adapter.cast()
    }

    fn lora(targets: &[&str]) -> LoraConfig {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        LoraConfig { rank: 2, alpha: 3.0, dropout: 0.25, rslora: true, targets }
    }

    fn base() -> AdapterBase {
        AdapterBase { name: "some/model".into(), revision: Some("main".into()) }
    }

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        let everything = Module::ALL.map(Module::name);
        for targets in [&["q_proj", "down_proj"][..], &everything[..]] {
            let folder = tempfile::tempdir().unwrap();
            let adapter = adapter(&lora(targets));
            save_adapter(&adapter, folder.path(), &base()).unwrap();
            assert!(is_adapter(folder.path()));
            assert_eq!(load_adapter(folder.path(), &adapter.model).unwrap(), adapter);
            let file = AdapterFile::read(folder.path()).unwrap();
            assert_eq!((file.config, file.base), (adapter.config.clone(), Some(base())));
            let critic = adapter.to_critic().unwrap();
            save_adapter(&critic, folder.path(), &base()).unwrap();
            assert_eq!(load_adapter(folder.path(), &adapter.model).unwrap(), critic);
        }
        let folder = tempfile::tempdir().unwrap();
        let all = adapter(&lora(&["all-linear"]));
        save_adapter(&all, folder.path(), &base()).unwrap();
        let read = load_adapter(folder.path(), &all.model).unwrap();
        assert_eq!((read.data, read.config.targets.len()), (all.data, 7));
    }

    #[test]
    fn names_are_those_of_peft() {
        let folder = tempfile::tempdir().unwrap();
        save_adapter(&adapter(&lora(&["v_proj", "up_proj"])), folder.path(), &base()).unwrap();
        let bytes = fs::read(folder.path().join(WEIGHTS)).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut names = tensors.names();
        names.sort_unstable();
        assert_eq!(names.len(), 8);
        assert_eq!(names[1], "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight");
        assert_eq!(names[6], "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight");
        assert_eq!(tensors.tensor(names[7]).unwrap().shape(), [8, 2]);
    }

    fn with_config(change: impl FnOnce(&mut Map<String, Value>)) -> Result<Adapter<f32>, ModelError> {
        let folder = tempfile::tempdir().unwrap();
        let adapter = adapter(&lora(&["q_proj", "o_proj"]));
        save_adapter(&adapter, folder.path(), &base()).unwrap();
        let path = folder.path().join(CONFIG);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(value.as_object_mut().unwrap());
        fs::write(&path, value.to_string()).unwrap();
        load_adapter(folder.path(), &adapter.model)
    }

    #[test]
    fn what_peft_writes_besides_is_passed_over() {
        let expected = adapter(&lora(&["q_proj", "o_proj"]));
        let loaded = with_config(|entries| {
            for key in ["corda_config", "exclude_modules", "layers_to_transform", "trainable_token_indices"] {
                entries.insert(key.into(), Value::Null);
            }
            entries.insert("init_lora_weights".into(), json!("gaussian"));
            entries.insert("rank_pattern".into(), json!({}));
            entries.insert("peft_version".into(), json!("0.99"));
            entries.insert("qalora_group_size".into(), json!(16));
            let names = (0..2).map(|layer| format!("model.layers.{layer}.self_attn.q_proj"));
            let names: Vec<String> = names.chain(["o_proj".into()]).collect();
            entries.insert("target_modules".into(), json!(names));
        });
        assert_eq!(loaded.unwrap(), expected);
        let pattern = with_config(|entries| {
            entries.insert("target_modules".into(), json!(".*self_attn.(q|o)_proj"));
        });
        assert_eq!(pattern.unwrap(), expected);
    }

    #[test]
    fn what_would_run_wrongly_is_refused() {
        for (key, value, expected) in [
            ("peft_type", json!("IA3"), "`IA3` is not supported"),
            ("bias", json!("all"), "bias: `all`"),
            ("use_dora", json!(true), "use_dora"),
            ("fan_in_fan_out", json!(true), "fan_in_fan_out"),
            ("modules_to_save", json!(["lm_head"]), "merge_and_unload"),
            ("rank_pattern", json!({ "q_proj": 3 }), "rank_pattern"),
            ("alpha_pattern", json!({ "q_proj": 3 }), "alpha_pattern"),
            ("layers_to_transform", json!([1]), "layers_to_transform"),
            ("alora_invocation_tokens", json!([1]), "alora_invocation_tokens"),
            ("init_lora_weights", json!("pissa_niter_4"), "init_lora_weights"),
            ("target_modules", json!(["lm_head"]), "`lm_head` cannot have an adapter"),
            ("target_modules", json!(["q_proj", "o_proj", "k_proj"]), "k_proj.lora_A.weight` is missing"),
            ("target_modules", json!(["q_proj"]), "o_proj.lora_A.weight` is not part"),
            ("target_modules", Value::Null, "target_modules: is missing"),
            ("r", json!(3), "has shape [2, 16], but the config asks for [3, 16]"),
            ("r", Value::Null, "r: is missing"),
            ("lora_alpha", json!(-1), "alpha"),
        ] {
            let error = with_config(|entries| {
                entries.insert(key.into(), value);
            });
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{key}: {error}");
        }
    }

    #[test]
    fn an_adapter_of_another_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let adapter = adapter(&lora(&["q_proj"]));
        save_adapter(&adapter, folder.path(), &base()).unwrap();
        let larger = ModelConfig { num_hidden_layers: 3, ..adapter.model.clone() };
        let error = load_adapter(folder.path(), &larger).unwrap_err().to_string();
        assert!(error.contains("layers.2.self_attn.q_proj.lora_A.weight` is missing"), "{error}");
        let smaller = ModelConfig { num_hidden_layers: 1, ..adapter.model.clone() };
        let error = load_adapter(folder.path(), &smaller).unwrap_err().to_string();
        assert!(error.contains("layers.1") && error.contains("is not part"), "{error}");
        fs::rename(folder.path().join(WEIGHTS), folder.path().join("adapter_model.bin")).unwrap();
        let error = load_adapter(folder.path(), &adapter.model).unwrap_err().to_string();
        assert!(error.contains("safe_serialization"), "{error}");
    }
}
