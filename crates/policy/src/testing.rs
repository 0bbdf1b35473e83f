//! A model small enough to be written in a test.

use turnwise_model::ModelConfig;

/// Returns one layer of width 4 with this many rows of the vocabulary.
pub(crate) fn tiny_config(vocab_size: usize) -> ModelConfig {
    ModelConfig {
        vocab_size,
        hidden_size: 4,
        intermediate_size: 4,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 4,
        max_position_embeddings: 8,
        ..ModelConfig::default()
    }
}
