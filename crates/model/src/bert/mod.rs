//! BERT, a bidirectional encoder: forward pass with Hugging Face weights. E5, MiniLM and other
//! sentence encoders use this architecture.
//!
//! ```text
//! x   = LayerNorm(word[token] + position[i] + type[0])
//! x   = LayerNorm(x + O softmax(Q K^T / sqrt(head)) V)       every layer, attention over the whole sequence
//! x   = LayerNorm(x + W2 act(W1 x))
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `config.rs` | `config.json` of a BERT |
//! | `forward.rs` | forward pass from tokens to hidden states |
//! | `load.rs` | weights from `model.safetensors` |
//! | `sentence.rs` | [`SentenceEncoder`]: tokenizer, model, pooling and normalization |
//!
//! Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019),
//! post-norm, learned absolute positions. Weights and activations are f32. Matrix products run in
//! bf16 if requested ([`crate::Compute`]).

mod config;
mod forward;
mod load;
mod sentence;
#[cfg(test)]
mod tests;

pub use config::{Activation, BertConfig};
pub use forward::Bert;
pub use sentence::{Pooling, SentenceEncoder, SentenceOptions};
