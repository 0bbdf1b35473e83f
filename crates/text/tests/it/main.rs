//! Compares tokenizers and templates with other programs on the same files and texts. One binary
//! with a module per subject, because every test binary links all crates.

mod chat_template;
mod hub_tokenizer;
mod tokenizer_file;
mod tool_calls;
