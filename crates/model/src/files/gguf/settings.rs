//! Metadata of the architecture.

use super::tensors::GgufType;
use super::writer::Value;
use crate::config::rotary::RopeScaling;
use crate::{Family, ModelConfig};

/// Returns the keys `general.*` and the architecture's keys, or an error if llama.cpp cannot run
/// the model.
pub(super) fn of(
    config: &ModelConfig,
    name: &str,
    number_type: GgufType,
) -> Result<Vec<(String, Value)>, String> {
    let family = match config.model_type {
        Family::Qwen2 | Family::Qwen3 | Family::Llama => config.model_type.name(),
        other @ (Family::Qwen2Vl | Family::Qwen25Vl) => {
            return Err(format!(
                "models of family {other} cannot be written as GGUF; supported: qwen2, qwen3, llama"
            ));
        }
    };
    let scaling = match config.rope_scaling {
        // Llama 3's rule is stored as a tensor of factors.
        RopeScaling::None | RopeScaling::Llama3 { .. } => None,
        RopeScaling::Linear { factor } => Some(factor),
        RopeScaling::Yarn { .. } => {
            return Err(
                "positions scaled by YaRN cannot be written as GGUF; take `rope_scaling` out of config.json"
                    .to_owned(),
            );
        }
    };
    let general = |key: &str| format!("general.{key}");
    let own = |key: &str| format!("{family}.{key}");
    let whole = |number: usize| Value::U32(u32::try_from(number).unwrap_or(u32::MAX));
    let mut found = vec![
        (general("architecture"), Value::Text(family.to_owned())),
        (general("name"), Value::Text(name.to_owned())),
        (general("file_type"), Value::U32(number_type.file_type())),
        (general("quantization_version"), Value::U32(2)),
        (own("vocab_size"), whole(config.vocab_size)),
        (own("context_length"), whole(config.max_position_embeddings)),
        (own("embedding_length"), whole(config.hidden_size)),
        (own("block_count"), whole(config.num_hidden_layers)),
        (own("feed_forward_length"), whole(config.intermediate_size)),
        (own("attention.head_count"), whole(config.num_attention_heads)),
        (own("attention.head_count_kv"), whole(config.num_key_value_heads)),
        (own("attention.key_length"), whole(config.head_dim)),
        (own("attention.value_length"), whole(config.head_dim)),
        (own("attention.layer_norm_rms_epsilon"), Value::F32(config.rms_norm_eps as f32)),
        (own("rope.dimension_count"), whole(config.head_dim)),
        (own("rope.freq_base"), Value::F32(config.rope_theta as f32)),
    ];
    if let Some(factor) = scaling {
        found.push((own("rope.scaling.type"), Value::Text("linear".to_owned())));
        found.push((own("rope.scaling.factor"), Value::F32(factor as f32)));
    }
    Ok(found)
}
