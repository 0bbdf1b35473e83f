//! Errors from training.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error that stops a run. Messages name the fix.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A config file or override is invalid.
    #[error("{origin}: {reason}")]
    Config {
        /// The file, or the override as written.
        origin: String,
        /// The problem with its key and fix.
        reason: String,
    },
    /// Invalid settings.
    #[error(transparent)]
    Settings(#[from] turnwise_settings::SettingsError),
    /// A file or folder could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file of the run directory is invalid.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The problem and its fix.
        reason: String,
    },
    /// The environment could not be set up.
    #[error(transparent)]
    Env(#[from] turnwise_core::EnvError),
    /// The policy could not be sampled.
    #[error(transparent)]
    Sample(#[from] turnwise_core::SampleError),
    /// The policy could not be trained.
    #[error(transparent)]
    Learn(#[from] turnwise_core::LearnError),
    /// The objective is invalid.
    #[error(transparent)]
    Objective(#[from] turnwise_core::ObjectiveError),
    /// Credit could not be assigned.
    #[error(transparent)]
    Credit(#[from] turnwise_credit::CreditError),
    /// The model could not be created, read or written.
    #[error(transparent)]
    Model(#[from] turnwise_model::ModelError),
    /// The tokenizer or chat template could not be created, read or used.
    #[error(transparent)]
    Text(#[from] turnwise_text::TextError),
    /// The policy could not be found or loaded.
    #[error(transparent)]
    Policy(#[from] turnwise_policy::PolicyError),
    /// The judge could not be set up.
    #[error(transparent)]
    Judge(#[from] turnwise_decompose::JudgeError),
    /// An observer (such as the evaluation) failed.
    #[error("{0}")]
    Observer(String),
    /// The run needs more memory than available.
    #[error("{0}; change the config, or pass --ignore-memory to start it anyway")]
    Memory(String),
    /// The run produced NaN or infinity.
    #[error(
        "{position}: {source}. The weights were not kept and the batch is in {batch}; go on from a checkpoint with \
         other settings, for example `turnwise train --resume {run} train.learning_rate=...`, or with \
         `--from step-N` from an earlier one"
    )]
    Diverged {
        /// Position in the run.
        position: String,
        /// The number that was NaN or infinite.
        source: Box<TrainError>,
        /// File with the step's trajectories.
        batch: String,
        /// The run directory.
        run: String,
    },
    /// All trajectories of a step failed for reasons other than the policy.
    #[error(
        "{failed} of {sampled} trajectories of this step failed and none is left to train on; the first reason: {reason}"
    )]
    Rollout {
        /// Number of failed trajectories.
        failed: usize,
        /// Number of sampled trajectories.
        sampled: usize,
        /// Reason why the first of these trajectories failed.
        reason: String,
    },
    /// A worker thread ended unexpectedly.
    #[error("a rollout thread ended unexpectedly; the log above says why")]
    Thread,
    /// The system could not start a rollout thread.
    #[error("cannot start a thread for a rollout: {0}; lower rollout.num_workers or rollout.env_threads")]
    ThreadStart(std::io::Error),
}

impl TrainError {
    /// Creates an I/O error with its path.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io(PathError::new(path, source))
    }

    /// Creates an error about a file's content.
    pub fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }
}
