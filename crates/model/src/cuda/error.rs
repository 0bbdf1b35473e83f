//! Errors on the device's side.

use thiserror::Error;
use turnwise_core::{LearnError, SampleError};

use crate::ModelError;

/// Errors of the CUDA backend.
#[derive(Clone, Debug, Error)]
pub enum CudaError {
    /// A library of CUDA could not be loaded.
    #[error("cuda: {library} could not be loaded ({reason}); {hint}")]
    Library {
        /// Name of the library, with its file.
        library: &'static str,
        /// The loader's reason.
        reason: String,
        /// The remedy.
        hint: &'static str,
    },
    /// There is no device to run on.
    #[error("cuda: {0}; set policy.device = \"cpu\" to run on the CPU")]
    Device(String),
    /// A call failed.
    #[error("cuda: {call}: {reason}")]
    Call {
        /// The call.
        call: &'static str,
        /// The library's reason.
        reason: String,
    },
    /// There is not enough memory.
    #[error(
        "cuda: {wanted} MiB more were wanted and {free} of {total} MiB are free; lower train.micro_batch_tokens, \
         rollout.max_num_seqs or rollout.max_context, or set train.recompute_layers = true"
    )]
    Memory {
        /// Requested memory, in MiB.
        wanted: usize,
        /// Free memory, in MiB.
        free: usize,
        /// The device's memory, in MiB.
        total: usize,
    },
    /// The kernels could not be compiled.
    #[error("cuda: the kernels do not compile for {architecture} ({status}): {log}")]
    Compile {
        /// For example `sm_90`.
        architecture: String,
        /// The compiler's status.
        status: String,
        /// The compiler's log.
        log: String,
    },
    /// The model has a shape or part that the kernels cannot run.
    #[error("cuda: {key}: {reason}")]
    Unsupported {
        /// The key of `config.json` or of the run's config.
        key: &'static str,
        /// The reason, and a value that would do.
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
    /// Converts to an error of the settings, for setup.
    pub(crate) fn into_setting(self) -> ModelError {
        match self {
            Self::Unsupported { key, reason } => {
                ModelError::Setting { key: format!("policy.device = \"cuda\": {key}"), reason }
            }
            other => ModelError::Setting { key: "policy.device".into(), reason: other.to_string() },
        }
    }
}
