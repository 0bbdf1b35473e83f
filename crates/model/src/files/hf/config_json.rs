//! Reads and writes `config.json` of `transformers`.

use std::path::Path;

use serde_json::{Map, Value, json};
use turnwise_text::GenerationSampling;

use super::{GENERATION_CONFIG, PROCESSOR, vision_json};
use crate::config::rotary::RopeScaling;
use crate::files;
use crate::{Family, ModelConfig, ModelError, SpecialTokens};

pub(super) const CONFIG: &str = "config.json";

/// Reads `config.json` of a model folder; token ids in `generation_config.json` take precedence.
///
/// # Errors
/// Fails like [`read_config`], or if `generation_config.json` cannot be read or is not JSON.
pub fn load_config(folder: &Path) -> Result<ModelConfig, ModelError> {
    let mut config = read_config(&folder.join(CONFIG))?;
    if let Some(vision) = &mut config.vision {
        vision_json::read_processor(&folder.join(PROCESSOR), vision)?;
        let head_dim = config.head_dim;
        vision.check(head_dim).map_err(|error| ModelError::file(&folder.join(PROCESSOR), error))?;
    }
    let path = folder.join(GENERATION_CONFIG);
    if path.exists() {
        let value: Value =
            serde_json::from_slice(&files::read(&path)?).map_err(|error| ModelError::file(&path, error))?;
        let found = value.as_object().map(special_tokens).unwrap_or_default();
        let tokens = &mut config.special_tokens;
        tokens.bos = found.bos.or(tokens.bos);
        tokens.pad = found.pad.or(tokens.pad);
        if !found.eos.is_empty() {
            tokens.eos = found.eos;
        }
    }
    Ok(config)
}

/// Reads a model config in the format of `config.json`.
///
/// Accepts `rope_theta` with `rope_scaling`, or the `rope_parameters` of `transformers` 5. Ignores
/// keys that do not affect this crate.
///
/// # Errors
/// Fails if the file is unreadable or not JSON, a number is missing or has the wrong type, a
/// setting is unsupported, or [`ModelConfig::check`] fails. The error names the file and key.
pub fn read_config(path: &Path) -> Result<ModelConfig, ModelError> {
    let bytes = files::read(path)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| ModelError::file(path, error))?;
    config_from_json(&value).map_err(|error| match error {
        ModelError::Config { key, reason } => ModelError::file(path, format!("{key}: {reason}")),
        other => other,
    })
}

pub(crate) fn config_from_json(value: &Value) -> Result<ModelConfig, ModelError> {
    let Some(entries) = value.as_object() else {
        return Err(ModelError::Config { key: "all of it".into(), reason: "is not a JSON object".into() });
    };
    let config = parse(entries)?;
    config.check()?;
    Ok(config)
}

fn supported() -> String {
    Family::ALL.map(Family::name).join(", ")
}

fn parse(entries: &Map<String, Value>) -> Result<ModelConfig, ModelError> {
    let root = Entries { within: "", entries };
    let family = family(&root)?;
    // `transformers` 5 nests the decoder's keys in `text_config`; older files do not.
    let of = if family.tower().is_some() { root.object("text_config")? } else { None };
    let of = of.unwrap_or(Entries { within: "", entries });
    check_computation(&of)?;
    let heads = of.need_whole("num_attention_heads")?;
    let hidden = of.need_whole("hidden_size")?;
    let head_dim = match (of.whole("head_dim")?, family) {
        (Some(width), _) => width,
        (None, Family::Qwen3) => 128,
        (None, _) if heads == 0 || !hidden.is_multiple_of(heads) => {
            let reason = format!("{hidden} is not a multiple of num_attention_heads = {heads}");
            return Err(of.error("hidden_size", reason));
        }
        (None, _) => hidden / heads,
    };
    let context = of.whole("max_position_embeddings")?;
    let context = context.unwrap_or(if family == Family::Llama { 2048 } else { 32_768 });
    let (rotary, older) = (of.object("rope_parameters")?, of.object("rope_scaling")?);
    let rotary = rotary.or(older);
    let inner_theta = rotary.as_ref().map_or(Ok(None), |rotary| rotary.number("rope_theta"))?;
    let rope_theta = inner_theta.or(of.number("rope_theta")?);
    let rope_scaling = rotary.map_or(Ok(RopeScaling::None), |rotary| scaling(&rotary, context))?;
    let base = match family.tower() {
        Some(_) => ModelConfig { rms_norm_eps: 1e-5, rope_theta: 1e6, ..ModelConfig::default() },
        None => ModelConfig::default(),
    };
    let vision = family.tower().map(|kind| vision_json::parse(kind, &root, &of, hidden)).transpose()?;
    let found = special_tokens(entries);
    let inner = special_tokens(of.entries);
    let special_tokens = SpecialTokens {
        bos: found.bos.or(inner.bos),
        eos: if found.eos.is_empty() { inner.eos } else { found.eos },
        pad: found.pad.or(inner.pad),
    };
    Ok(ModelConfig {
        model_type: family,
        vocab_size: of.need_whole("vocab_size")?,
        hidden_size: hidden,
        intermediate_size: of.need_whole("intermediate_size")?,
        num_hidden_layers: of.need_whole("num_hidden_layers")?,
        num_attention_heads: heads,
        num_key_value_heads: of.whole("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        max_position_embeddings: context,
        rms_norm_eps: of.number("rms_norm_eps")?.unwrap_or(base.rms_norm_eps),
        rope_theta: rope_theta.unwrap_or(base.rope_theta),
        rope_scaling,
        tie_word_embeddings: of.flag("tie_word_embeddings")? || root.flag("tie_word_embeddings")?,
        // Other families ignore these keys in `transformers`, too.
        attention_bias: matches!(family, Family::Qwen3 | Family::Llama) && of.flag("attention_bias")?,
        mlp_bias: family == Family::Llama && of.flag("mlp_bias")?,
        initializer_range: of.number("initializer_range")?.unwrap_or(base.initializer_range),
        special_tokens,
        vision,
    })
}

/// Parses token ids: a number, a list, or null. Some old files use -1 for a missing token.
fn special_tokens(entries: &Map<String, Value>) -> SpecialTokens {
    let token = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let one = |key: &str| entries.get(key).and_then(token);
    let eos = match entries.get("eos_token_id") {
        Some(Value::Array(list)) => list.iter().filter_map(token).collect(),
        Some(value) => token(value).into_iter().collect(),
        None => Vec::new(),
    };
    SpecialTokens { bos: one("bos_token_id"), eos, pad: one("pad_token_id") }
}

fn eos_json(tokens: &SpecialTokens) -> Value {
    match tokens.eos.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}

/// Returns generation settings with which `transformers` samples from the full distribution. A
/// training run replaces these settings when it saves the tokenizer
/// ([`turnwise_text::Tokenizer::save_folder_sampled`]).
pub(super) fn generation_json(config: &ModelConfig) -> Value {
    let entries = GenerationSampling::default().entries();
    let mut value: Value = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let tokens = &config.special_tokens;
    for (key, token) in [("bos_token_id", tokens.bos), ("pad_token_id", tokens.pad)] {
        if let Some(token) = token {
            value[key] = json!(token);
        }
    }
    if !tokens.eos.is_empty() {
        value["eos_token_id"] = eos_json(tokens);
    }
    value
}

fn family(of: &Entries<'_>) -> Result<Family, ModelError> {
    let supported = supported();
    let name = match of.get("model_type") {
        Some(name) => name.as_str().unwrap_or_default(),
        None => return Err(of.error("model_type", format!("is missing; supported: {supported}"))),
    };
    if let Some(family) = Family::from_name(name) {
        return Ok(family);
    }
    let what = if of.get("num_experts").or_else(|| of.get("num_local_experts")).is_some() {
        " (a mixture of experts)"
    } else if of.get("vision_config").is_some() {
        " (a model with vision)"
    } else {
        ""
    };
    let reason = format!("`{name}`{what} is not supported; supported are dense text decoders: {supported}");
    Err(of.error("model_type", reason))
}

fn check_computation(of: &Entries<'_>) -> Result<(), ModelError> {
    if let Some(act) = of.get("hidden_act").filter(|act| *act != "silu") {
        return Err(of.error("hidden_act", format!("`{act}` is not supported; supported: silu")));
    }
    let layers = of.get("layer_types").and_then(Value::as_array);
    let sliding = layers.is_some_and(|layers| layers.iter().any(|kind| kind != "full_attention"));
    if of.flag("use_sliding_window")? || sliding {
        let key = if sliding { "layer_types" } else { "use_sliding_window" };
        return Err(of.error(key, "sliding windows are not supported; set use_sliding_window to false"));
    }
    if let Some(quantization) = of.get("quantization_config") {
        let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
        let reason = format!("weights quantized by `{method}` are not supported; take the unquantized model");
        return Err(of.error("quantization_config", reason));
    }
    Ok(())
}

fn scaling(of: &Entries<'_>, context: usize) -> Result<RopeScaling, ModelError> {
    if of.number("partial_rotary_factor")?.is_some_and(|share| share != 1.0) {
        return Err(of.error("partial_rotary_factor", "heads that are turned in part are not supported"));
    }
    if let Some((kind, _)) = of.entries.iter().find(|(_, value)| value.is_object()) {
        return Err(of.error(kind, "positions that differ between layers are not supported"));
    }
    let original = || Ok(of.whole("original_max_position_embeddings")?.unwrap_or(context));
    let kind = of.get("rope_type").or_else(|| of.get("type"));
    match kind.map(|kind| kind.as_str().unwrap_or_default()) {
        // With vision, `mrope_section` divides a head.
        None | Some("default" | "mrope") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: of.need("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: of.need("factor")?,
            low_freq_factor: of.need("low_freq_factor")?,
            high_freq_factor: of.need("high_freq_factor")?,
            original_max_position_embeddings: original()?,
        }),
        Some("yarn") => {
            let original = original()?;
            let factor = of.number("factor")?.unwrap_or(context as f64 / original.max(1) as f64);
            let sharper = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
            let given = |name: &str| Ok(of.number(name)?.filter(|&value| value != 0.0));
            let attention_factor =
                match (of.number("attention_factor")?, given("mscale")?, given("mscale_all_dim")?) {
                    (Some(factor), ..) => factor,
                    (None, Some(scale), Some(all)) => sharper(scale) / sharper(all),
                    (None, ..) => sharper(1.0),
                };
            Ok(RopeScaling::Yarn {
                factor,
                attention_factor,
                beta_fast: given("beta_fast")?.unwrap_or(32.0),
                beta_slow: given("beta_slow")?.unwrap_or(1.0),
                original_max_position_embeddings: original,
                truncate: of.read("truncate", "true or false", Value::as_bool)?.unwrap_or(true),
            })
        }
        Some(other) => {
            let supported = "default, linear, llama3, yarn";
            let reason = format!("rotary scaling `{other}` is not supported; supported: {supported}");
            Err(of.error("rope_type", reason))
        }
    }
}

fn scaling_json(scaling: RopeScaling) -> Value {
    match scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original_max_position_embeddings,
            })
        }
        RopeScaling::Yarn {
            factor,
            attention_factor,
            beta_fast,
            beta_slow,
            original_max_position_embeddings,
            truncate,
        } => {
            let mut value = json!({
                "rope_type": "yarn",
                "factor": factor,
                "attention_factor": attention_factor,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "original_max_position_embeddings": original_max_position_embeddings,
            });
            if !truncate {
                value["truncate"] = json!(false);
            }
            value
        }
    }
}

/// Returns a `config.json` with all keys that `transformers` needs. `dtype` is PyTorch's name for
/// the weights' type.
pub(super) fn config_json(config: &ModelConfig, critic: bool, dtype: &str) -> Value {
    let tokens = &config.special_tokens;
    let class = config.model_type.class();
    let head = match config.model_type {
        _ if critic => "ForTokenClassification",
        Family::Qwen2Vl | Family::Qwen25Vl => "ForConditionalGeneration",
        _ => "ForCausalLM",
    };
    let mut value = json!({
        "architectures": [format!("{class}{head}")],
        "attention_dropout": 0.0,
        "bos_token_id": tokens.bos,
        "eos_token_id": eos_json(tokens),
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "model_type": config.model_type.name(),
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": scaling_json(config.rope_scaling),
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": dtype,
        "use_cache": true,
        "vocab_size": config.vocab_size,
    });
    match config.model_type {
        Family::Qwen2 => value["use_sliding_window"] = json!(false),
        Family::Qwen3 => {
            value["use_sliding_window"] = json!(false);
            value["attention_bias"] = json!(config.attention_bias);
        }
        Family::Llama => {
            value["attention_bias"] = json!(config.attention_bias);
            value["mlp_bias"] = json!(config.mlp_bias);
        }
        Family::Qwen2Vl | Family::Qwen25Vl => {
            value["use_sliding_window"] = json!(false);
            if let Some(vision) = &config.vision {
                vision_json::write(vision, config.hidden_size, &mut value);
            }
        }
    }
    if let Some(pad) = tokens.pad {
        value["pad_token_id"] = json!(pad);
    }
    if critic {
        value["num_labels"] = json!(1);
        value["id2label"] = json!({ "0": "value" });
    }
    value
}

/// A JSON object with its location for error messages; null means missing.
pub(super) struct Entries<'a> {
    within: &'a str,
    entries: &'a Map<String, Value>,
}

impl Entries<'_> {
    pub(super) fn error(&self, key: &str, reason: impl Into<String>) -> ModelError {
        let key = if self.within.is_empty() { key.into() } else { format!("{}.{key}", self.within) };
        ModelError::Config { key, reason: reason.into() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        key: &str,
        what: &str,
        as_type: fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        as_type(value).map(Some).ok_or_else(|| self.error(key, format!("{value} is not {what}")))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.read(key, "a number", Value::as_f64)
    }

    pub(super) fn whole(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let as_usize = |value: &Value| value.as_u64().and_then(|value| usize::try_from(value).ok());
        self.read(key, "a whole number", as_usize)
    }

    fn flag(&self, key: &str) -> Result<bool, ModelError> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    pub(super) fn object<'b>(&'b self, key: &'b str) -> Result<Option<Entries<'b>>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_object() {
            Some(entries) => Ok(Some(Entries { within: key, entries })),
            None => Err(self.error(key, format!("{value} is not an object"))),
        }
    }

    fn need(&self, key: &str) -> Result<f64, ModelError> {
        self.number(key)?.ok_or_else(|| self.error(key, "is missing"))
    }

    pub(super) fn need_whole(&self, key: &str) -> Result<usize, ModelError> {
        self.whole(key)?.ok_or_else(|| self.error(key, "is missing"))
    }
}
