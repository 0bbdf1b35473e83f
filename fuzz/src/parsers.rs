//! Fuzz targets: each function parses untrusted bytes. Errors are expected, panics are bugs.
//!
//! The programs of `fuzz_targets/` call these with new bytes, and a test
//! (`crates/cli/tests/it/fuzz_seeds.rs`) with the committed seeds.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use turnwise_env::alfworld::Game;
use turnwise_env::bfcl::{LongContext, reply};
use turnwise_env::parse::{ActionParser, Blocks, CallFormat, ResponseRules, Style, offered};
use turnwise_env::process::protocol;
use turnwise_env::prompt::PromptTemplate;
use turnwise_env::python::values as python;
use turnwise_env::sokoban::level;
use turnwise_env::webshop::action::Action;
use turnwise_model::files::TensorFile;
use turnwise_model::vision::Image;
use turnwise_model::{OptimizerState, ParameterLayout, load_adapter, load_model, read_config};
use turnwise_policy::manifest::Manifest;
use turnwise_text::chat::{ChatTemplate, Message, RenderOptions, Tool};
use turnwise_text::{Tokenizer, WordPiece};
use turnwise_train::config::{ConfigSource, load};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::record::tensorboard;
use turnwise_trajectory_io::{Format, ReadOptions, read, read_conversations};

use super::seeds::Target;

/// Every target of this file.
pub const TARGETS: &[Target] = &[
    ("alfworld_game", alfworld_game),
    ("chat_message", chat_message),
    ("chat_template", chat_template),
    ("config", config),
    ("manifest", manifest),
    ("metrics", metrics),
    ("model_config", model_config),
    ("parquet", parquet),
    ("picture", picture),
    ("process_protocol", process_protocol),
    ("prompt_template", prompt_template),
    ("python_calls", python_calls),
    ("responses", responses),
    ("retrieval_http", retrieval_http),
    ("safetensors", safetensors),
    ("tensorboard", tensor_board),
    ("tokenizer", tokenizer),
    ("trajectories", trajectories),
    ("turnrd_replay", turnrd_replay),
    ("word_pieces", word_pieces),
    ("world_files", world_files),
];

/// Returns a folder of this process for parsers that read a path, in memory if possible.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("turnwise-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the inputs of parsers");
        folder
    })
}

/// Writes the bytes to a file and returns its path. Each thread has its own folder, because tests
/// run in threads.
fn file(name: &str, data: &[u8]) -> PathBuf {
    let folder = folder().join(format!("{:?}", std::thread::current().id()));
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap_or(&folder)).expect("a folder for the inputs of parsers");
    std::fs::write(&path, data).expect("a file for the inputs of parsers");
    path
}

/// Splits the input at the first byte 0xff, which neither JSON nor TOML contains, for parsers of two files.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == 0xff) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}

fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// Parses a `game.tw-pddl` file: JSON around PDDL facts, a goal and a grammar.
pub fn alfworld_game(data: &[u8]) {
    let _ = Game::parse("valid_seen/pick_and_place_simple-A-None-B-1/trial_T1/game.tw-pddl", &text(data));
    let _ = Game::parse("game.tw-pddl", &text(data));
}

/// Parses files of the other environments: levels, actions, tasks.
pub fn world_files(data: &[u8]) {
    let text = text(data);
    let _ = level::parse(&text);
    let _ = LongContext::read(&text);
    let _ = Action::parse(&text);
    let path = file("tasks.jsonl", data);
    let _ = turnwise_env::task_files::lines(&path);
    let _ = level::read(&path);
}

/// Parses Python calls in BFCL's answers and replies.
pub fn python_calls(data: &[u8]) {
    let text = text(data);
    let _ = python::parse(&text);
    let _ = python::calls(&text);
    let _ = python::assignments(&text);
    for call in reply::read_calls(&text) {
        let _ = python::parse(&call);
    }
}

/// Parses a prompt template (TOML) and its response rules.
pub fn prompt_template(data: &[u8]) {
    let _ = PromptTemplate::parse(&text(data), "fuzz");
}

/// Parses a policy's response with each style, number of blocks and call format.
pub fn responses(data: &[u8]) {
    const BLOCKS: [Blocks; 3] = [Blocks::One, Blocks::Any, Blocks::First];
    const CALLS: [CallFormat; 3] = [CallFormat::Hermes, CallFormat::Llama, CallFormat::Python];
    thread_local! {
        static PARSERS: OnceCell<Vec<ActionParser>> = const { OnceCell::new() };
    }
    let made = || {
        let single = [Style::Line, Style::Label].map(ResponseRules::new);
        let blocks = [Style::Tags, Style::Named, Style::Json]
            .into_iter()
            .flat_map(|style| BLOCKS.map(|blocks| ResponseRules { blocks, ..ResponseRules::new(style) }));
        let calls = CALLS.map(|calls| ResponseRules { calls, ..ResponseRules::new(Style::Call) });
        let all = single.into_iter().chain(blocks).chain(calls);
        all.map(|rules| ActionParser::new(rules, true)).collect()
    };
    let text = text(data);
    let admissible = ["search[<query>]".to_owned(), "look".to_owned(), "f(<..>)".to_owned()];
    PARSERS.with(|parsers| {
        for parser in parsers.get_or_init(made) {
            let parsed = parser.parse(&text, &admissible);
            let _ = offered(&admissible, &parsed.action);
            let _ = parsed.into_actions("id");
        }
    });
}

/// Loads a config file. Overrides may follow a byte 0xff, one per line.
pub fn config(data: &[u8]) {
    let (config, overrides) = halves(data);
    let overrides = text(overrides).lines().map(str::to_owned).collect();
    let source =
        ConfigSource { files: vec![file("config.toml", config)], overrides, ..ConfigSource::default() };
    let _ = load(&source);
}

/// Renders a chat template with a conversation.
pub fn chat_template(data: &[u8]) {
    let Ok(template) = ChatTemplate::from_source(&text(data)) else { return };
    let messages = [Message::system("a"), Message::user("b"), Message::assistant("c"), Message::user("d")];
    let _ = template
        .render(&messages, &RenderOptions { add_generation_prompt: true, ..RenderOptions::default() });
}

/// Parses a message and a tool (JSON), and renders them with a template that reads every field.
pub fn chat_message(data: &[u8]) {
    const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}\
                            {% endfor %}{% endfor %}{{ tools | tojson }}";
    thread_local! {
        static TEMPLATES: OnceCell<Option<ChatTemplate>> = const { OnceCell::new() };
    }
    let (message, tool) = halves(data);
    let message = Message::from_json(&text(message));
    let tool = Tool::from_json(&text(tool));
    TEMPLATES.with(|template| {
        let template = template.get_or_init(|| ChatTemplate::from_source(TEMPLATE).ok());
        if let (Some(template), Ok(message)) = (template, message) {
            let tools = tool.into_iter().collect();
            let _ = template.render(&[message], &RenderOptions { tools, ..RenderOptions::default() });
        }
    });
}

/// Loads a `tokenizer.json`, then encodes and decodes with it.
pub fn tokenizer(data: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_json(data) {
        let ids = tokenizer.encode("Hello, wörld 123");
        let _ = tokenizer.decode(&ids);
        let _ = tokenizer.decode(&[0, 1, u32::MAX]);
    }
}

/// Loads a folder with `vocab.txt` and, after a byte 0xff, `tokenizer_config.json`.
pub fn word_pieces(data: &[u8]) {
    let (vocabulary, settings) = halves(data);
    let path = file("pieces/vocab.txt", vocabulary);
    file("pieces/tokenizer_config.json", settings);
    let Some(folder) = path.parent() else { return };
    if let Ok(pieces) = WordPiece::load_folder(folder, 16) {
        let _ = pieces.encode("Hello, wörld 123");
    }
    let _ = Tokenizer::load_folder(folder);
}

/// Loads a model's `config.json` and, after a byte 0xff, its `tokenizer_config.json`.
pub fn model_config(data: &[u8]) {
    let (config, rest) = halves(data);
    if let Ok(config) = read_config(&file("model/config.json", config)) {
        let _ = config.check();
    }
    let path = file("model/tokenizer_config.json", rest);
    if let Some(folder) = path.parent() {
        let _ = Tokenizer::load_folder(folder);
    }
}

/// Loads a `safetensors` file as tensors, a model, an optimizer's state and an adapter.
pub fn safetensors(data: &[u8]) {
    const CONFIG: &[u8] =
        br#"{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 4,
        "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": 8, "max_position_embeddings": 8, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": true, "hidden_act": "silu"}"#;
    const ADAPTER: &[u8] = br#"{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
        "base_model_name_or_path": "x"}"#;
    let path = file("weights/model.safetensors", data);
    if let Ok(tensors) = TensorFile::read(&path) {
        let _ = tensors.header("step");
        let _ = tensors.copy("model.norm.weight", &[4], &mut [0.0; 4]);
    }
    let config = file("weights/config.json", CONFIG);
    let Some(folder) = config.parent() else { return };
    let _ = load_model(folder);
    if let Ok(config) = read_config(&config) {
        let layout = ParameterLayout::new(&config);
        let _ = OptimizerState::load(&path, &layout.tensors);
        let adapter = file("weights/adapter/adapter_model.safetensors", data);
        file("weights/adapter/adapter_config.json", ADAPTER);
        if let Some(folder) = adapter.parent() {
            let _ = load_adapter(folder, &config);
        }
    }
}

/// Decodes a picture.
pub fn picture(data: &[u8]) {
    let _ = Image::decode(data);
    let _ = turnwise_env::pictures::png::read(&file("picture.png", data));
}

/// Parses an event file of TensorBoard.
pub fn tensor_board(data: &[u8]) {
    tensorboard::parse(data);
}

/// Reads `metrics.jsonl` and the trajectories of a run.
pub fn metrics(data: &[u8]) {
    let path = file("metrics.jsonl", data);
    let _ = read_metrics(&path);
    let _ = read_trajectories(&path);
}

/// Reads trajectories and conversations as JSON lines or JSON, in every format.
pub fn trajectories(data: &[u8]) {
    let path = file("trajectories.jsonl", data);
    let _ = read(&path, &ReadOptions::default());
    let _ = read_conversations(&path, &ReadOptions::default());
    for format in Format::ALL {
        let _ = read(&path, &ReadOptions { format: Some(format), ..ReadOptions::default() });
    }
}

/// Reads trajectories and conversations as Parquet.
pub fn parquet(data: &[u8]) {
    // Other inputs would be read as JSON lines.
    if data.starts_with(b"PAR1") {
        let path = file("trajectories.parquet", data);
        let _ = read(&path, &ReadOptions::default());
        let _ = read_conversations(&path, &ReadOptions::default());
    }
}

/// Parses a line of an environment's program.
pub fn process_protocol(data: &[u8]) {
    protocol::parse(data);
}

/// Reads a checkpoint's manifest (`COMPLETE`) and checks the folder against it.
pub fn manifest(data: &[u8]) {
    let path = file("checkpoint/COMPLETE", data);
    let Some(folder) = path.parent() else { return };
    if let Ok(manifest) = Manifest::read(folder) {
        let _ = manifest.check(folder, "", turnwise_policy::manifest::Check::Contents);
    }
}

/// Parses a request to the retrieval server, and one of its replies.
pub fn retrieval_http(data: &[u8]) {
    turnwise_retrieval_service::parse_request(data);
    let _ = turnwise_retrieval_service::protocol::read_answer(data, 2, 3);
}

/// Reads every record of TurnRD's replay file.
pub fn turnrd_replay(data: &[u8]) {
    use turnwise_decompose::turnrd::Replay;
    if let Ok(mut replay) = Replay::open(&file("turnrd.replay", data)) {
        for index in 0..replay.len() {
            let _ = replay.read(index);
        }
    }
}
