//! Files of models, tokenizers and templates, and the same numbers as other programs. One binary with a module per subject, because every test binary costs a link of all crates.

mod chat_template;
#[cfg(feature = "cuda")]
mod cuda;
mod hf_configs;
mod hub_tokenizer;
mod peft;
mod tokenizer_file;
mod transformers;
