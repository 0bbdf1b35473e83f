//! A tiny model for tests.

use turnwise_model::ModelConfig;

/// One layer of width 4 with `vocab_size` rows.
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
