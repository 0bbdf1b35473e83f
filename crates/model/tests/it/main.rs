//! Files of models, and the same numbers as other programs. One binary with a module per subject, because every test
//! binary costs a link of all crates.

#[cfg(feature = "cuda")]
mod cuda;
mod hf_configs;
mod peft;
mod transformers;
mod vision_peers;
