//! Tokenizers and templates against the same files and texts in other programs. One binary with a module per subject,
//! because every test binary costs a link of all crates.

mod chat_template;
mod hub_tokenizer;
mod tokenizer_file;
mod tool_calls;
