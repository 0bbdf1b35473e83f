//! The protobuf messages that Turnwise uses (package `tinker_public`).

use std::collections::BTreeMap;

/// Element type `float32` in sent tensors.
pub const FLOAT32: i32 = 1;
/// Element type `int64` in sent tensors.
pub const INT64: i32 = 2;

/// Body of a `forward_backward` or forward request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardBackwardRequest {
    /// Id of the model.
    #[prost(string, tag = "1")]
    pub model_id: String,
    /// Sequence number of the request for this model, starting at 1; 0 if not numbered.
    #[prost(int32, tag = "2")]
    pub seq_id: i32,
    /// The sequences.
    #[prost(message, repeated, tag = "3")]
    pub data: Vec<Datum>,
    /// Name of the loss.
    #[prost(string, tag = "4")]
    pub loss_fn: String,
    /// Settings of the loss.
    #[prost(btree_map = "string, double", tag = "5")]
    pub loss_fn_config: BTreeMap<String, f64>,
    /// True for a forward pass without gradients.
    #[prost(bool, tag = "6")]
    pub forward_only: bool,
}

/// One sequence.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Datum {
    /// All tokens of the sequence except the last.
    #[prost(message, repeated, tag = "1")]
    pub model_input: Vec<Chunk>,
    /// Targets and loss arrays, with one entry per target.
    #[prost(btree_map = "string, message", tag = "2")]
    pub loss_fn_inputs: BTreeMap<String, Tensor>,
}

/// A part of a prompt.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chunk {
    /// Token ids. Images are not supported.
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

/// A sent tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tensor {
    /// Little-endian elements.
    #[prost(bytes = "vec", tag = "1")]
    pub dense: Vec<u8>,
    /// [`FLOAT32`] or [`INT64`].
    #[prost(int32, tag = "3")]
    pub dtype: i32,
    /// Shape of the tensor.
    #[prost(int64, repeated, tag = "4")]
    pub shape: Vec<i64>,
}

/// Result of a pass.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardBackwardOutput {
    /// Type of the outputs.
    #[prost(string, tag = "1")]
    pub loss_fn_output_type: String,
    /// Outputs by sequence.
    #[prost(message, repeated, tag = "2")]
    pub loss_fn_outputs: Vec<ArrayRecord>,
    /// Metrics of the pass.
    #[prost(btree_map = "string, double", tag = "3")]
    pub metrics: BTreeMap<String, f64>,
}

/// Arrays that hold several sequences.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArrayRecord {
    /// Type tag of the record.
    #[prost(string, tag = "1")]
    pub type_tag: String,
    /// Arrays by name.
    #[prost(btree_map = "string, message", tag = "2")]
    pub fields: BTreeMap<String, BatchedTensor>,
    /// Number of sequences.
    #[prost(int64, tag = "3")]
    pub num_datums: i64,
}

/// The array's values for all sequences, concatenated.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchedTensor {
    /// Little-endian elements.
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
    /// Byte offsets into `data`, as little-endian `int64`; there is one more offset than sequences.
    #[prost(bytes = "vec", tag = "2")]
    pub offsets: Vec<u8>,
    /// Element type.
    #[prost(int32, tag = "3")]
    pub dtype: i32,
    /// Shape of each sequence's array after the first dimension.
    #[prost(int64, repeated, tag = "4")]
    pub trailing_shape: Vec<i64>,
}

/// Result of `asample`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SampleResponse {
    /// The responses.
    #[prost(message, repeated, tag = "1")]
    pub sequences: Vec<SampledSequence>,
}

/// One response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SampledSequence {
    /// 0 if the response ended at a stop token or string, 1 if it reached the token limit.
    #[prost(int32, tag = "1")]
    pub stop_reason: i32,
    /// Token ids as little-endian `int32`.
    #[prost(bytes = "vec", tag = "2")]
    pub tokens: Vec<u8>,
    /// Log-probs as little-endian `float32`.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub logprobs: Option<Vec<u8>>,
}

impl Tensor {
    /// Creates a vector of `float32`.
    pub fn floats(values: &[f32]) -> Self {
        let dense = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dense, dtype: FLOAT32, shape: vec![values.len() as i64] }
    }

    /// Creates a vector of `int64`.
    pub fn integers(values: &[u32]) -> Self {
        let dense = values.iter().flat_map(|&value| i64::from(value).to_le_bytes()).collect();
        Self { dense, dtype: INT64, shape: vec![values.len() as i64] }
    }
}

/// Encodes token ids as little-endian `int32`.
pub fn token_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|&token| (token as i32).to_le_bytes()).collect()
}

/// Decodes `float32` elements.
///
/// # Errors
/// Fails if the length is not a multiple of 4.
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
/// Fails if the length is not a multiple of 4, or if an id is negative.
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
    /// Returns the array of each sequence.
    ///
    /// # Errors
    /// Fails if the offsets do not match the data, or if the element type is not `float32`.
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
