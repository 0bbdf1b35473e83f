//! A model for runs with agents.

use std::path::Path;

use turnwise_core::{Purpose, Seed};
use turnwise_model::{Parameters, save_model};
use turnwise_text::chat::ChatTemplate;
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::ScratchConfig;

/// A chat template without tools.
pub(crate) const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes a small model with random weights of this standard deviation and a chat template.
pub(crate) fn write_model(folder: &Path, initializer_range: f64) {
    let special = ["<|im_start|>", "<|im_end|>"].map(String::from).to_vec();
    let config = TokenizerConfig { special_tokens: special, ..TokenizerConfig::default() };
    let tokenizer = Tokenizer::train(std::iter::empty(), &config).unwrap();
    let end = vec![tokenizer.token_id("<|im_end|>").unwrap()];
    let tokenizer = tokenizer.with_chat(ChatTemplate::from_source(TEMPLATE).unwrap(), end);
    let scratch = ScratchConfig {
        hidden_size: 16,
        layers: 1,
        heads: 2,
        key_value_heads: 1,
        intermediate_size: 32,
        initializer_range,
        ..ScratchConfig::default()
    };
    let shape = scratch.model_config(tokenizer.vocab_size(), 1024);
    let weights = Parameters::init(shape, Seed::derive(1, Purpose::Init, &[])).unwrap();
    save_model(&weights, folder).unwrap();
    tokenizer.save_folder(folder).unwrap();
}
