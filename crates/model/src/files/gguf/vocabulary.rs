//! Metadata of the tokenizer.

use serde_json::Value as Json;
use turnwise_text::Tokenizer;

use super::writer::Value;
use crate::ModelConfig;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Regexes that split text before BPE, with llama.cpp's names.
const PATTERNS: [(&str, &str); 2] = [
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "qwen2",
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "llama-bpe",
    ),
];

/// Returns the keys `tokenizer.*`, or an error if llama.cpp cannot reproduce the tokenizer.
pub(super) fn of(config: &ModelConfig, tokenizer: &Tokenizer) -> Result<Vec<(String, Value)>, String> {
    let json = tokenizer.to_json().map_err(|error| error.to_string())?;
    let json: Json = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let split = split_name(&json)?;
    let (tokens, kinds) = tokens(&json, config.vocab_size)?;
    let key = |key: &str| format!("tokenizer.{key}");
    let mut found = vec![
        (key("ggml.model"), Value::Text("gpt2".to_owned())),
        (key("ggml.pre"), Value::Text(split.to_owned())),
        (key("ggml.tokens"), Value::Texts(tokens)),
        (key("ggml.token_type"), Value::Integers(kinds)),
        (key("ggml.merges"), Value::Texts(merges(&json)?)),
        (key("ggml.add_bos_token"), Value::Bool(!tokenizer.text_prefix().is_empty())),
    ];
    let of_config = &config.special_tokens;
    let end = tokenizer.end_tokens().first().copied().or(of_config.eos.first().copied());
    let padding = tokenizer.padding_token().or(of_config.pad);
    for (name, id) in [("bos", of_config.bos), ("eos", end), ("padding", padding)] {
        if let Some(id) = id {
            found.push((key(&format!("ggml.{name}_token_id")), Value::U32(id)));
        }
    }
    if let Some(template) = tokenizer.chat_template() {
        found.push((key("chat_template"), Value::Text(template.source().to_owned())));
    }
    Ok(found)
}

fn split_name(json: &Json) -> Result<&'static str, String> {
    let parts = match json["pre_tokenizer"]["type"].as_str() {
        Some("Sequence") => json["pre_tokenizer"]["pretokenizers"].as_array().cloned().unwrap_or_default(),
        _ => vec![json["pre_tokenizer"].clone()],
    };
    let kinds: Vec<&str> = parts.iter().filter_map(|part| part["type"].as_str()).collect();
    let plain = |part: &Json| part["use_regex"] == Json::Bool(false);
    let found = match kinds.as_slice() {
        ["ByteLevel"] if !plain(&parts[0]) => Some("gpt-2"),
        ["Digits", "ByteLevel"] if parts[0]["individual_digits"] == Json::Bool(true) && !plain(&parts[1]) => {
            Some("smollm")
        }
        ["Split", "ByteLevel"] if plain(&parts[1]) => {
            let pattern = parts[0]["pattern"]["Regex"].as_str();
            PATTERNS.iter().find(|(known, _)| Some(*known) == pattern).map(|&(_, name)| name)
        }
        _ => None,
    };
    found.filter(|_| json["model"]["type"] == "BPE").ok_or_else(|| {
        "the tokenizer cannot be written as GGUF: it is not byte-level BPE with the splitting of GPT-2, SmolLM2, Qwen2, Qwen3 or \
         Llama 3"
            .to_owned()
    })
}

/// Returns every token's text and type. Embedding rows without a token get the type "unused".
fn tokens(json: &Json, vocab_size: usize) -> Result<(Vec<String>, Vec<i32>), String> {
    let mut tokens: Vec<String> = (0..vocab_size).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![UNUSED; vocab_size];
    let mut put = |text: &str, id: Option<u64>, kind: i32| {
        let place = id.and_then(|id| usize::try_from(id).ok()).filter(|&id| id < vocab_size);
        let place =
            place.ok_or_else(|| format!("token {text:?} has no row in the embedding of {vocab_size}"))?;
        text.clone_into(&mut tokens[place]);
        kinds[place] = kind;
        Ok::<(), String>(())
    };
    for (text, id) in json["model"]["vocab"].as_object().into_iter().flatten() {
        put(text, id.as_u64(), NORMAL)?;
    }
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let kind = if added["special"] == Json::Bool(true) { CONTROL } else { USER_DEFINED };
        put(added["content"].as_str().unwrap_or_default(), added["id"].as_u64(), kind)?;
    }
    Ok((tokens, kinds))
}

fn merges(json: &Json) -> Result<Vec<String>, String> {
    let merges = json["model"]["merges"].as_array().ok_or("the tokenizer has no merges")?;
    let joined = |merge: &Json| match merge {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => Some(format!("{} {}", parts.first()?.as_str()?, parts.get(1)?.as_str()?)),
        _ => None,
    };
    merges
        .iter()
        .map(|merge| joined(merge).ok_or_else(|| format!("merge {merge} of the tokenizer is not a pair")))
        .collect()
}
