//! Reads the tokenizer files in a model folder.
//!
//! | file | what is read |
//! |---|---|
//! | `tokenizer.json` | the whole tokenizer |
//! | `vocab.json`, `merges.txt` | vocabulary and merges, if `tokenizer.json` is missing |
//! | `tokenizer_config.json` | added and named tokens (`eos_token` ..), chat template |
//! | `added_tokens.json`, `special_tokens_map.json` | added and named tokens in older folders |
//! | `generation_config.json`, `config.json` | end and padding token ids |
//! | `chat_template.jinja`, `additional_chat_templates/*.jinja` | chat templates |

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizers::AddedToken;

use super::generation::{GenerationSampling, end_and_padding};
use super::{MOST_IDS, Tokenizer, refused};
use crate::chat::{ChatTemplate, TemplateFile};
use crate::whole::{failed, read, write, wrong};
use crate::{TextError, parts};

const TOKENIZER: &str = "tokenizer.json";
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const SETTINGS: &str = "tokenizer_config.json";
const ADDED: &str = "added_tokens.json";
const NAMED: &str = "special_tokens_map.json";
pub(super) const GENERATION: &str = "generation_config.json";
pub(super) const MODEL: &str = "config.json";
const CHAT: &str = "chat_template.jinja";
const MORE_CHATS: &str = "additional_chat_templates";

const COMPANIONS: [&str; 7] = [SETTINGS, NAMED, ADDED, VOCABULARY, MERGES, GENERATION, CHAT];

const ROLES: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

const QWEN2_PIECES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Contents of the files other than `tokenizer.json`; empty for newly trained tokenizers.
#[derive(Clone, Debug, Default)]
pub(super) struct Companions {
    pub(super) end: Vec<u32>,
    pub(super) padding: Option<u32>,
    pub(super) chat: Option<Arc<ChatTemplate>>,
    /// Names and contents of the files that [`Tokenizer::save_folder`] adds.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Deserialize)]
struct Added {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

impl Tokenizer {
    /// Reads a model folder's tokenizer, end tokens and chat templates.
    ///
    /// # Errors
    /// Fails if the tokenizer is missing or unsupported, if added tokens would get ids other than
    /// the listed ones, or if end tokens or chat templates are invalid. The error names the file
    /// and key.
    pub fn load_folder(folder: &Path) -> Result<Self, TextError> {
        let settings = object(folder, SETTINGS)?.unwrap_or_default();
        let whole = folder.join(TOKENIZER);
        let mut library = if whole.is_file() {
            let json = read(&whole)?;
            let library = parts::library(&json).map_err(|reason| wrong(&whole, reason))?;
            check_ids(&whole, &json, &library)?;
            library
        } else {
            from_parts(folder, &settings)?
        };
        add_tokens(folder, &settings, &mut library)?;
        let mut tokenizer = Self::new(library).map_err(|error| match error {
            TextError::Tokenizer(reason) => wrong(folder, reason),
            other => other,
        })?;
        let named = named_tokens(folder, &settings)?;
        let (end, padding) = end_and_padding(folder, &named, &tokenizer)?;
        let named = named.into_iter().map(|(role, token)| (role.to_owned(), token.text)).collect();
        let files = COMPANIONS
            .iter()
            .filter(|name| folder.join(name).is_file())
            .map(|name| Ok(((*name).to_owned(), read(&folder.join(name))?)))
            .collect::<Result<_, TextError>>()?;
        let mut companions = Companions { end, padding, chat: None, files };
        let templates = chat_templates(folder, &settings, &mut companions.files)?;
        if !templates.is_empty() {
            companions.chat = Some(Arc::new(ChatTemplate::from_files(templates, named)?));
        }
        tokenizer.companions = Arc::new(companions);
        Ok(tokenizer)
    }

    /// Saves the tokenizer like [`Tokenizer::save_folder_sampled`], with temperature 1 and without
    /// top-k or top-p.
    ///
    /// # Errors
    /// Fails like [`Tokenizer::save_folder_sampled`].
    pub fn save_folder(&self, folder: &Path) -> Result<(), TextError> {
        self.save_folder_sampled(folder, GenerationSampling::default())
    }

    /// Writes `tokenizer.json` and its companion files atomically. `generation_config.json` gets
    /// the settings in `sampling`, so that servers sample as in training.
    ///
    /// # Errors
    /// Fails with the path that cannot be created, read or written.
    pub fn save_folder_sampled(&self, folder: &Path, sampling: GenerationSampling) -> Result<(), TextError> {
        turnwise_files::create_folders(folder).map_err(failed(folder))?;
        let generation = folder.join(GENERATION);
        if !self.companions.files.iter().any(|(name, _)| name == GENERATION) && generation.is_file() {
            write(&generation, &sampling.put_into(&read(&generation)?))?;
        }
        for (name, content) in &self.companions.files {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                turnwise_files::create_folders(parent).map_err(failed(parent))?;
            }
            if name == GENERATION {
                write(&path, &sampling.put_into(content))?;
            } else {
                write(&path, content)?;
            }
        }
        write(&folder.join(TOKENIZER), self.to_json()?.as_bytes())
    }

    /// Returns the ids that end a response; empty if no file lists any.
    pub fn end_tokens(&self) -> &[u32] {
        &self.companions.end
    }

    /// Returns the padding token's id, if a file lists one; unused in this crate.
    pub fn padding_token(&self) -> Option<u32> {
        self.companions.padding
    }

    /// Returns the folder's chat template, if any.
    pub fn chat_template(&self) -> Option<&Arc<ChatTemplate>> {
        self.companions.chat.as_ref()
    }

    /// Sets the chat template and the tokens that end a response.
    pub fn with_chat(mut self, template: ChatTemplate, end: Vec<u32>) -> Self {
        let source = template.source().as_bytes().to_vec();
        let mut companions = Companions::clone(&self.companions);
        companions.files.retain(|(name, _)| name != CHAT && name != GENERATION);
        companions.files.push((CHAT.to_owned(), source));
        companions
            .files
            .push((GENERATION.to_owned(), json!({ "eos_token_id": end }).to_string().into_bytes()));
        companions.chat = Some(Arc::new(template));
        companions.end = end;
        self.companions = Arc::new(companions);
        self
    }
}

pub(super) fn object(folder: &Path, name: &str) -> Result<Option<Map<String, Value>>, TextError> {
    let path = folder.join(name);
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_slice(&read(&path)?).map(Some).map_err(|error| wrong(&path, error))
}

/// Rejects a file whose added tokens would get ids that differ from the ids in the file.
fn check_ids(path: &Path, json: &[u8], library: &tokenizers::Tokenizer) -> Result<(), TextError> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        added_tokens: Vec<Token>,
    }
    #[derive(Deserialize)]
    struct Token {
        id: u32,
        content: String,
    }
    let file: File = serde_json::from_slice(json).map_err(|error| wrong(path, error))?;
    for token in file.added_tokens {
        let given = library.token_to_id(&token.content);
        if given != Some(token.id) {
            let given = given.map_or_else(|| "none".to_owned(), |id| id.to_string());
            return Err(wrong(
                path,
                format!(
                    "added_tokens: `{}` is to have id {}, but the vocabulary leaves it {given}; ids of added tokens \
                     must follow the vocabulary without gaps",
                    token.content, token.id
                ),
            ));
        }
    }
    Ok(())
}

fn from_parts(folder: &Path, settings: &Map<String, Value>) -> Result<tokenizers::Tokenizer, TextError> {
    let (vocabulary, merges) = (folder.join(VOCABULARY), folder.join(MERGES));
    if !vocabulary.is_file() || !merges.is_file() {
        return Err(wrong(
            folder,
            "has no tokenizer: expected tokenizer.json, or vocab.json with merges.txt (a SentencePiece \
             `tokenizer.model` alone is not supported; `AutoTokenizer.from_pretrained(..).save_pretrained(..)` \
             writes tokenizer.json)",
        ));
    }
    let kind = match settings.get("tokenizer_class").and_then(Value::as_str) {
        Some(kind) => kind.strip_suffix("Fast").unwrap_or(kind).to_owned(),
        None => match object(folder, MODEL)?.as_ref().and_then(|model| model.get("model_type")?.as_str()) {
            Some("qwen2" | "qwen3") => "Qwen2Tokenizer".to_owned(),
            _ => String::new(),
        },
    };
    let prefix = settings.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(false);
    let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex});
    let (normalizer, cut) = match kind.as_str() {
        "Qwen2Tokenizer" => {
            let split = json!({
                "type": "Split", "pattern": {"Regex": QWEN2_PIECES}, "behavior": "Isolated", "invert": false,
            });
            (json!({"type": "NFC"}), json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]}))
        }
        "GPT2Tokenizer" => (Value::Null, bytes(true)),
        _ => {
            return Err(wrong(
                &folder.join(SETTINGS),
                format!(
                    "tokenizer_class: `{kind}` says nothing about how vocab.json and merges.txt are to be used; \
                     supported are Qwen2Tokenizer and GPT2Tokenizer (or give the folder a tokenizer.json)"
                ),
            ));
        }
    };
    let table: BTreeMap<String, u32> =
        serde_json::from_slice(&read(&vocabulary)?).map_err(|error| wrong(&vocabulary, error))?;
    let text = String::from_utf8(read(&merges)?).map_err(|error| wrong(&merges, error))?;
    let mut pairs = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || (number == 0 && line.starts_with("#version")) {
            continue;
        }
        let Some((left, right)) = line.split_once(' ') else {
            return Err(wrong(
                &merges,
                format!("line {}: a merge is two pieces with one space between", number + 1),
            ));
        };
        pairs.push([left, right]);
    }
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": cut,
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": table, "merges": pairs,
        },
    });
    tokenizers::Tokenizer::from_bytes(file.to_string()).map_err(|error| wrong(&merges, error.to_string()))
}

fn add_tokens(
    folder: &Path,
    settings: &Map<String, Value>,
    library: &mut tokenizers::Tokenizer,
) -> Result<(), TextError> {
    let mut tokens: BTreeMap<u32, AddedToken> = BTreeMap::new();
    let mut origin = folder.join(SETTINGS);
    if let Some(Value::Object(table)) = settings.get("added_tokens_decoder") {
        for (id, token) in table {
            let fail = |reason: String| wrong(&origin, format!("added_tokens_decoder.{id}: {reason}"));
            let number: u32 = id.parse().map_err(|_| fail("the key is not an id".into()))?;
            let added: Added =
                serde_json::from_value(token.clone()).map_err(|error| fail(error.to_string()))?;
            let token = AddedToken::from(added.content, added.special)
                .single_word(added.single_word)
                .lstrip(added.lstrip)
                .rstrip(added.rstrip)
                .normalized(added.normalized.unwrap_or(!added.special));
            tokens.insert(number, token);
        }
    } else if let Some(table) = object(folder, ADDED)? {
        origin = folder.join(ADDED);
        let special = object(folder, NAMED)?.unwrap_or_default();
        let special: Vec<&str> = special.values().flat_map(texts).collect();
        for (content, id) in table {
            let id = id
                .as_u64()
                .filter(|&id| id < MOST_IDS as u64)
                .ok_or_else(|| wrong(&origin, format!("`{content}` has no id")))?;
            let special = special.contains(&content.as_str());
            tokens.insert(id as u32, AddedToken::from(content, special));
        }
    }
    let known = library.get_added_tokens_decoder();
    for (id, token) in tokens {
        // `tokenizer.json` defines how its own added tokens match.
        if known.get(&id).is_some_and(|known| known.content == token.content) {
            continue;
        }
        let content = token.content.clone();
        library.add_tokens([token]).map_err(refused)?;
        let given = library.token_to_id(&content);
        if given != Some(id) {
            let given = given.map_or_else(|| "none".to_owned(), |id| id.to_string());
            let reason = format!(
                "`{content}` is to have id {id}, but the tokenizer leaves it {given}; do these files belong together?"
            );
            return Err(wrong(&origin, reason));
        }
    }
    Ok(())
}

/// Returns the strings in a value of `special_tokens_map.json`: a text, an object with `content`,
/// or a list.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Object(token) => token.get("content").and_then(Value::as_str).into_iter().collect(),
        Value::Array(tokens) => tokens.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

pub(super) struct NamedToken {
    pub(super) text: String,
    pub(super) file: &'static str,
}

/// Returns named tokens by role; `tokenizer_config.json` takes precedence.
fn named_tokens(
    folder: &Path,
    settings: &Map<String, Value>,
) -> Result<BTreeMap<&'static str, NamedToken>, TextError> {
    let older = object(folder, NAMED)?.unwrap_or_default();
    let mut named = BTreeMap::new();
    for role in ROLES {
        let token = |table: &Map<String, Value>, file: &'static str| {
            let text =
                table.get(role).map(texts).unwrap_or_default().first().map(|text| (*text).to_owned())?;
            Some(NamedToken { text, file })
        };
        if let Some(token) = token(settings, SETTINGS).or_else(|| token(&older, NAMED)) {
            named.insert(role, token);
        }
    }
    Ok(named)
}

/// Returns the folder's chat templates by name; the main one is `default`. Template files take
/// precedence, as in `transformers`, and are added to `files`.
fn chat_templates(
    folder: &Path,
    settings: &Map<String, Value>,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<BTreeMap<String, TemplateFile>, TextError> {
    let mut templates = BTreeMap::new();
    let read_text = |path: &Path| String::from_utf8(read(path)?).map_err(|error| wrong(path, error));
    let plain = folder.join(CHAT);
    if plain.is_file() {
        let source = read_text(&plain)?;
        templates.insert("default".to_owned(), TemplateFile { path: plain, source });
    }
    let more = folder.join(MORE_CHATS);
    if more.is_dir() {
        for entry in std::fs::read_dir(&more).map_err(failed(&more))? {
            let path = entry.map_err(failed(&more))?.path();
            let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
            if let (Some(name), Some("jinja")) = (name, path.extension().and_then(|end| end.to_str())) {
                let source = read_text(&path)?;
                files.push((format!("{MORE_CHATS}/{name}.jinja"), source.clone().into_bytes()));
                templates.insert(name, TemplateFile { path, source });
            }
        }
    }
    if !templates.is_empty() {
        return Ok(templates);
    }
    let origin = folder.join(SETTINGS);
    let mut add = |name: &str, source: &str| {
        let file = TemplateFile { path: origin.clone(), source: source.to_owned() };
        templates.insert(name.to_owned(), file);
    };
    match settings.get("chat_template") {
        None | Some(Value::Null) => {}
        Some(Value::String(source)) => add("default", source),
        Some(Value::Array(list)) => {
            for entry in list {
                let text = |key: &str| entry.get(key).and_then(Value::as_str);
                let (Some(name), Some(source)) = (text("name"), text("template")) else {
                    let reason = "chat_template: an entry of a list of templates has `name` and `template`";
                    return Err(wrong(&origin, reason));
                };
                add(name, source);
            }
        }
        Some(_) => return Err(wrong(&origin, "chat_template: expected a text or a list of named templates")),
    }
    Ok(templates)
}
