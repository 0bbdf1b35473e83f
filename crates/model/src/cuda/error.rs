use thiserror::Error;
use turnwise_core::{LearnError, SampleError};

use crate::ModelError;

/// Error from the CUDA backend.
#[derive(Clone, Debug, Error)]
pub enum CudaError {
    /// A CUDA library could not be loaded.
    #[error("cuda: {library} could not be loaded ({reason}); {hint}")]
    Library {
        /// Name and file name of the library.
        library: &'static str,
        /// The loader's message.
        reason: String,
        /// Suggested fix.
        hint: &'static str,
    },
    /// No usable device.
    #[error("cuda: {0}; set policy.device = \"cpu\" to run on the CPU")]
    Device(String),
    /// A library call failed.
    #[error("cuda: {call}: {reason}")]
    Call {
        /// Name of the function that failed.
        call: &'static str,
        /// The library's message.
        reason: String,
    },
    /// Not enough free device memory.
    #[error(
        "cuda: {wanted} MiB more were wanted and {free} of {total} MiB are free; lower train.micro_batch_tokens, \
         rollout.max_num_seqs or rollout.max_model_len, or set train.recompute_layers = true"
    )]
    Memory {
        /// Requested memory in MiB.
        wanted: usize,
        /// Free memory in MiB.
        free: usize,
        /// Total memory in MiB.
        total: usize,
    },
    /// The kernels do not compile.
    #[error("cuda: the kernels do not compile for {architecture} ({status}): {log}")]
    Compile {
        /// Architecture, such as `sm_90`.
        architecture: String,
        /// Status code of the compiler.
        status: String,
        /// Compiler log.
        log: String,
    },
    /// The kernels do not support this model.
    #[error("cuda: {key}: {reason}")]
    Unsupported {
        /// Key of `config.json` or of the run's config.
        key: &'static str,
        /// Cause, and a valid value.
        reason: String,
    },
}

impl From<CudaError> for LearnError {
    fn from(error: CudaError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<CudaError> for SampleError {
    fn from(error: CudaError) -> Self {
        Self::Backend(error.to_string())
    }
}

impl CudaError {
    pub(crate) fn into_setting(self) -> ModelError {
        match self {
            Self::Unsupported { key, reason } => {
                ModelError::Setting { key: format!("policy.device = \"cuda\": {key}"), reason }
            }
            other => ModelError::Setting { key: "policy.device".into(), reason: other.to_string() },
        }
    }
}
