//! Names, row order and data types of the weights.

use std::io::{self, Write};

use half::f16;

use super::writer::Tensor;
use crate::config::rotary::RopeScaling;
use crate::{Family, ModelConfig, Parameters, TensorInfo};

/// Data type of a GGUF file's matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GgufType {
    /// Half precision.
    #[default]
    F16,
    /// Blocks of 32 integers from -127 to 127 with a half-precision scale. Matrices whose row
    /// length is not a multiple of 32 stay in half precision.
    Q8_0,
}

const BLOCK: usize = 32;

const F32: u32 = 0;
const F16: u32 = 1;
const Q8_0: u32 = 8;

impl GgufType {
    pub(super) fn file_type(self) -> u32 {
        match self {
            Self::F16 => 1,
            Self::Q8_0 => 7,
        }
    }
}

/// Names of a layer's tensors in `safetensors` files and in GGUF files.
const LAYER: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Returns a model's tensors, or an error if one cannot be written.
pub(super) fn of(parameters: &Parameters<f32>, number_type: GgufType) -> Result<Vec<Tensor<'_>>, String> {
    let config = &parameters.config;
    let mut found = Vec::new();
    if let RopeScaling::Llama3 { .. } = config.rope_scaling {
        found.push(factors(config));
    }
    for info in &parameters.layout.tensors {
        let name = name(&info.name).ok_or_else(|| format!("tensor {} has no place in GGUF", info.name))?;
        let values = &parameters.data[info.range.clone()];
        found.push(tensor(config, name, info, values, number_type)?);
    }
    Ok(found)
}

fn name(of: &str) -> Option<String> {
    let (stem, end) = of.rsplit_once('.')?;
    let stem = match stem {
        "model.embed_tokens" => "token_embd".to_owned(),
        "model.norm" => "output_norm".to_owned(),
        "lm_head" => "output".to_owned(),
        _ => {
            let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
            let (_, part) = LAYER.iter().find(|(ours, _)| *ours == part)?;
            format!("blk.{layer}.{part}")
        }
    };
    Some(format!("{stem}.{end}"))
}

fn tensor<'a>(
    config: &ModelConfig,
    name: String,
    info: &TensorInfo,
    values: &'a [f32],
    number_type: GgufType,
) -> Result<Tensor<'a>, String> {
    let width = info.shape.last().copied().unwrap_or(1);
    let kind = match number_type {
        _ if info.shape.len() == 1 => F32,
        GgufType::Q8_0 if width.is_multiple_of(BLOCK) => Q8_0,
        _ => F16,
    };
    // A block's scale has half precision, too.
    let most = f16::MAX.to_f32() * if kind == Q8_0 { 127.0 } else { 1.0 };
    if let Some(wrong) = values.iter().find(|value| kind != F32 && value.is_nan() | (value.abs() > most)) {
        return Err(format!(
            "tensor {} has the number {wrong}, which half precision does not hold",
            info.name
        ));
    }
    let heads = match info.name.rsplit_once('.').map(|(stem, _)| stem.rsplit('.').next().unwrap_or(stem)) {
        Some("q_proj") if config.model_type == Family::Llama => Some(config.num_attention_heads),
        Some("k_proj") if config.model_type == Family::Llama => Some(config.num_key_value_heads),
        _ => None,
    };
    let row = if info.shape.len() == 1 { 1 } else { width };
    let rows = values.len() / row;
    let bytes = match kind {
        F32 => 4 * values.len(),
        F16 => 2 * values.len(),
        _ => values.len() / BLOCK * (BLOCK + 2),
    };
    let encode = move |out: &mut dyn Write| -> io::Result<()> {
        let mut encoded = Vec::new();
        for place in 0..rows {
            let from = heads.map_or(place, |heads| interleaved(place, rows / heads));
            encoded.clear();
            put_row(&mut encoded, &values[from * row..][..row], kind);
            out.write_all(&encoded)?;
        }
        Ok(())
    };
    Ok(Tensor { name, shape: info.shape.clone(), kind, bytes: bytes as u64, encode: Box::new(encode) })
}

/// Returns the index of the source row to write as row `place`. The two rows of a rotary pair are
/// half a head apart in the source and adjacent in the GGUF file.
fn interleaved(place: usize, head: usize) -> usize {
    let (start, within) = (place / head * head, place % head);
    start + within % 2 * (head / 2) + within / 2
}

fn put_row(bytes: &mut Vec<u8>, row: &[f32], kind: u32) {
    match kind {
        F32 => row.iter().for_each(|value| bytes.extend(value.to_le_bytes())),
        F16 => row.iter().for_each(|&value| bytes.extend(f16::from_f32(value).to_le_bytes())),
        _ => row.chunks(BLOCK).for_each(|block| {
            let scale = block.iter().fold(0.0, |most: f32, value| most.max(value.abs())) / 127.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            bytes.extend(f16::from_f32(scale).to_le_bytes());
            bytes.extend(block.iter().map(|value| ((value * inverse).round() as i8).cast_unsigned()));
        }),
    }
}

fn factors(config: &ModelConfig) -> Tensor<'static> {
    let plain = ModelConfig { rope_scaling: RopeScaling::None, ..config.clone() }.rotary().frequencies;
    let scaled = config.rotary().frequencies;
    let factors: Vec<f32> =
        plain.iter().zip(&scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect();
    Tensor {
        name: "rope_freqs.weight".to_owned(),
        shape: vec![factors.len()],
        kind: F32,
        bytes: 4 * factors.len() as u64,
        encode: Box::new(move |out| {
            factors.iter().try_for_each(|factor| out.write_all(&factor.to_le_bytes()))
        }),
    }
}
