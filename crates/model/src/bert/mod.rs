//! BERT, a bidirectional encoder, with Hugging Face weights. E5, MiniLM and other sentence encoders
//! use this architecture.
//!
//! ```text
//! x   = LayerNorm(word[token] + position[i] + type[0])
//! x   = LayerNorm(x + O softmax(Q K^T / sqrt(head)) V)       every layer, attention over the whole sequence
//! x   = LayerNorm(x + W2 act(W1 x))
//! ```
//!
//! Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019). Weights
//! and activations are f32; matrix products run in bf16 if requested ([`crate::Compute`]).

mod config;
mod forward;
mod load;
mod sentence;
#[cfg(test)]
mod tests;

pub use config::{Activation, BertConfig};
pub use forward::Bert;
pub use sentence::{Pooling, SentenceEncoder, SentenceOptions};
