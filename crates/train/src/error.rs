//! Errors from training.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error that stops a run; messages name the fix.
#[derive(Debug, Error)]
pub enum TrainError {
    /// Invalid config file or override.
    #[error("{origin}: {reason}")]
    Config {
        /// File, or override as written.
        origin: String,
        /// What is wrong, with the key and the fix.
        reason: String,
    },
    /// Invalid settings.
    #[error(transparent)]
    Settings(#[from] turnwise_settings::SettingsError),
    /// A file or folder could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Invalid file of the run directory.
    #[error("{path}: {reason}")]
    File {
        /// File path.
        path: String,
        /// What is wrong and how to fix it.
        reason: String,
    },
    /// Environment setup failed.
    #[error(transparent)]
    Env(#[from] turnwise_core::EnvError),
    /// Sampling failed.
    #[error(transparent)]
    Sample(#[from] turnwise_core::SampleError),
    /// Policy update failed.
    #[error(transparent)]
    Learn(#[from] turnwise_core::LearnError),
    /// Invalid objective.
    #[error(transparent)]
    Objective(#[from] turnwise_core::ObjectiveError),
    /// Credit assignment failed.
    #[error(transparent)]
    Credit(#[from] turnwise_credit::CreditError),
    /// Model could not be created, read or written.
    #[error(transparent)]
    Model(#[from] turnwise_model::ModelError),
    /// Tokenizer or chat template failed.
    #[error(transparent)]
    Text(#[from] turnwise_text::TextError),
    /// Policy not found or not loadable.
    #[error(transparent)]
    Policy(#[from] turnwise_policy::PolicyError),
    /// Judge setup failed.
    #[error(transparent)]
    Judge(#[from] turnwise_decompose::JudgeError),
    /// An observer (such as the evaluation) failed.
    #[error("{0}")]
    Observer(String),
    /// The run needs more memory than available.
    #[error("{0}; change the config, or pass --ignore-memory to start it anyway")]
    Memory(String),
    /// A number became NaN or infinite.
    #[error(
        "{position}: {source}. The weights were not kept and the batch is in {batch}; go on from a checkpoint with \
         other settings, for example `turnwise train --resume {run} train.learning_rate=...`, or with \
         `--from step-N` from an earlier one"
    )]
    Diverged {
        /// Position in the run.
        position: String,
        /// Error that states which number is NaN or infinite.
        source: Box<TrainError>,
        /// File with the step's trajectories.
        batch: String,
        /// Run directory.
        run: String,
    },
    /// All trajectories of a step failed for reasons other than the policy.
    #[error(
        "{failed} of {sampled} trajectories of this step failed and none is left to train on; the first reason: {reason}"
    )]
    Rollout {
        /// Failed trajectories.
        failed: usize,
        /// Sampled trajectories.
        sampled: usize,
        /// Reason of the first failure.
        reason: String,
    },
    /// A worker thread ended unexpectedly.
    #[error("a rollout thread ended unexpectedly; the log above says why")]
    Thread,
    /// A rollout thread could not start.
    #[error("cannot start a thread for a rollout: {0}; lower rollout.num_workers or rollout.env_threads")]
    ThreadStart(std::io::Error),
}

impl TrainError {
    /// Creates an I/O error for a path.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io(PathError::new(path, source))
    }

    /// Creates an error about a file's content.
    pub fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }
}
