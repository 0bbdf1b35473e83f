//! Protobuf messages of the package `tinker_public`.

use std::collections::BTreeMap;

/// Code of the element type `float32`.
pub const FLOAT32: i32 = 1;
/// Code of the element type `int64`.
pub const INT64: i32 = 2;

/// Body of a `forward_backward` or forward request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardBackwardRequest {
    /// Model id.
    #[prost(string, tag = "1")]
    pub model_id: String,
    /// Number of this request among the model's, from 1; 0 if not numbered.
    #[prost(int32, tag = "2")]
    pub seq_id: i32,
    /// Sequences.
    #[prost(message, repeated, tag = "3")]
    pub data: Vec<Datum>,
    /// Loss name.
    #[prost(string, tag = "4")]
    pub loss_fn: String,
    /// Loss settings.
    #[prost(btree_map = "string, double", tag = "5")]
    pub loss_fn_config: BTreeMap<String, f64>,
    /// True for a forward pass without gradients.
    #[prost(bool, tag = "6")]
    pub forward_only: bool,
}

/// One sequence.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Datum {
    /// All tokens but the last.
    #[prost(message, repeated, tag = "1")]
    pub model_input: Vec<Chunk>,
    /// Arrays by name: the targets, and the arrays of the loss, with one entry per target.
    #[prost(btree_map = "string, message", tag = "2")]
    pub loss_fn_inputs: BTreeMap<String, Tensor>,
}

/// Part of a prompt.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chunk {
    /// Token ids; images are not supported.
    #[prost(message, optional, tag = "1")]
    pub encoded_text: Option<EncodedText>,
}

/// Token ids.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EncodedText {
    /// `int32`, little-endian.
    #[prost(bytes = "vec", tag = "1")]
    pub tokens: Vec<u8>,
}

/// Sent tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tensor {
    /// Little-endian elements.
    #[prost(bytes = "vec", tag = "1")]
    pub dense: Vec<u8>,
    /// [`FLOAT32`] or [`INT64`].
    #[prost(int32, tag = "3")]
    pub dtype: i32,
    /// Tensor shape.
    #[prost(int64, repeated, tag = "4")]
    pub shape: Vec<i64>,
}

/// Result of a pass.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardBackwardOutput {
    /// Output type.
    #[prost(string, tag = "1")]
    pub loss_fn_output_type: String,
    /// Outputs in the order of the sequences.
    #[prost(message, repeated, tag = "2")]
    pub loss_fn_outputs: Vec<ArrayRecord>,
    /// Metrics.
    #[prost(btree_map = "string, double", tag = "3")]
    pub metrics: BTreeMap<String, f64>,
}

/// Arrays of several sequences.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArrayRecord {
    /// Record type.
    #[prost(string, tag = "1")]
    pub type_tag: String,
    /// Arrays by name.
    #[prost(btree_map = "string, message", tag = "2")]
    pub fields: BTreeMap<String, BatchedTensor>,
    /// Number of sequences.
    #[prost(int64, tag = "3")]
    pub num_datums: i64,
}

/// Concatenated values of all sequences.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchedTensor {
    /// Little-endian elements.
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
    /// Byte offsets into `data` as little-endian `int64`: the start of each sequence's values, and
    /// the end of the last.
    #[prost(bytes = "vec", tag = "2")]
    pub offsets: Vec<u8>,
    /// Element type.
    #[prost(int32, tag = "3")]
    pub dtype: i32,
    /// Shape of each sequence's array without its first dimension.
    #[prost(int64, repeated, tag = "4")]
    pub trailing_shape: Vec<i64>,
}

/// Result of `asample`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SampleResponse {
    /// Responses.
    #[prost(message, repeated, tag = "1")]
    pub sequences: Vec<SampledSequence>,
}

/// A response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SampledSequence {
    /// 0 for a stop token or string, 1 for the token limit.
    #[prost(int32, tag = "1")]
    pub stop_reason: i32,
    /// Little-endian `int32` token ids.
    #[prost(bytes = "vec", tag = "2")]
    pub tokens: Vec<u8>,
    /// Little-endian `float32` log-probs.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub logprobs: Option<Vec<u8>>,
}

impl Tensor {
    /// Creates a `float32` vector.
    pub fn floats(values: &[f32]) -> Self {
        let dense = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dense, dtype: FLOAT32, shape: vec![values.len() as i64] }
    }

    /// Creates an `int64` vector.
    pub fn integers(values: &[u32]) -> Self {
        let dense = values.iter().flat_map(|&value| i64::from(value).to_le_bytes()).collect();
        Self { dense, dtype: INT64, shape: vec![values.len() as i64] }
    }
}

/// Encodes little-endian `int32` ids.
pub fn token_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|&token| (token as i32).to_le_bytes()).collect()
}

/// Decodes `float32` elements.
///
/// # Errors
/// Fails for lengths not divisible by 4.
pub fn read_floats(bytes: &[u8]) -> Result<Vec<f32>, String> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!("{} bytes are not a whole number of float32 values", bytes.len()));
    }
    Ok(chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
}

/// Decodes token ids.
///
/// # Errors
/// Fails for lengths not divisible by 4, and for negative ids.
pub fn read_tokens(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!("{} bytes are not a whole number of int32 values", bytes.len()));
    }
    let token = |chunk: &[u8; 4]| {
        let id = i32::from_le_bytes(*chunk);
        u32::try_from(id).map_err(|_| format!("{id} is not a token id"))
    };
    chunks.iter().map(token).collect()
}

impl BatchedTensor {
    /// Returns each sequence's array.
    ///
    /// # Errors
    /// Fails for invalid offsets, and for types other than `float32`.
    pub fn rows(&self) -> Result<Vec<Vec<f32>>, String> {
        if self.dtype != FLOAT32 {
            return Err(format!("element type {} where float32 ({FLOAT32}) is expected", self.dtype));
        }
        let (chunks, rest) = self.offsets.as_chunks::<8>();
        if !rest.is_empty() || chunks.is_empty() {
            return Err(format!("{} bytes of offsets", self.offsets.len()));
        }
        let offsets: Vec<i64> = chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect();
        let row = |pair: &[i64]| {
            let range = usize::try_from(pair[0]).ok().zip(usize::try_from(pair[1]).ok());
            let bytes = range.and_then(|(start, end)| self.data.get(start..end));
            read_floats(
                bytes.ok_or_else(|| format!("offsets {} to {} of {}", pair[0], pair[1], self.data.len()))?,
            )
        };
        offsets.windows(2).map(row).collect()
    }
}
