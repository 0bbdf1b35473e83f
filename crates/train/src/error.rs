//! Errors of training.

use std::path::Path;

use thiserror::Error;

/// Error that stops a run. Every message names what to change.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A config file or override is wrong.
    #[error("{origin}: {reason}")]
    Config {
        /// The file, or the override as it was written.
        origin: String,
        /// The problem, with the key and how to fix it.
        reason: String,
    },
    /// Settings that cannot be used.
    #[error(transparent)]
    Settings(#[from] turnwise_settings::SettingsError),
    /// A file or folder could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file of the run directory is invalid.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The problem and how to fix it.
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
    /// The objective rejected.
    #[error(transparent)]
    Objective(#[from] turnwise_core::ObjectiveError),
    /// Credit could not be assigned.
    #[error(transparent)]
    Credit(#[from] turnwise_credit::CreditError),
    /// The model could not be made, read or written.
    #[error(transparent)]
    Model(#[from] turnwise_model::ModelError),
    /// The tokenizer or the chat template could not be made, read or used.
    #[error(transparent)]
    Text(#[from] turnwise_text::TextError),
    /// The policy could not be found or loaded.
    #[error(transparent)]
    Policy(#[from] turnwise_policy::PolicyError),
    /// The judge could not be set up.
    #[error(transparent)]
    Judge(#[from] turnwise_decompose::JudgeError),
    /// The observer (evaluation, for example) failed.
    #[error("{0}")]
    Observer(String),
    /// The run needs more memory than there is.
    #[error("{0}; change the config, or pass --ignore-memory to start it anyway")]
    Memory(String),
    /// The numbers of a run are not finite any more.
    #[error(
        "{position}: {source}. The weights were not kept and the batch is in {batch}; go on from a checkpoint with \
         other settings, for example `turnwise train --resume {run} train.learning_rate=...`, or with \
         `--from step-N` from an earlier one"
    )]
    Diverged {
        /// Position in the run.
        position: String,
        /// The quantity that was not finite.
        source: Box<TrainError>,
        /// The trajectories of the step.
        batch: String,
        /// The run directory.
        run: String,
    },
    /// Every trajectory of a step ended through no fault of the policy.
    #[error(
        "{failed} of {sampled} trajectories of this step failed and none is left to train on; the first reason: {reason}"
    )]
    Rollout {
        /// Trajectories that failed.
        failed: usize,
        /// All that were sampled.
        sampled: usize,
        /// Reason why the first of them failed.
        reason: String,
    },
    /// A worker thread ended unexpectedly.
    #[error("a rollout thread ended unexpectedly; the log above says why")]
    Thread,
    /// The system has no thread left for a rollout.
    #[error("cannot start a thread for a rollout: {0}; lower rollout.lanes or rollout.env_threads")]
    ThreadStart(std::io::Error),
}

impl TrainError {
    /// Returns an I/O error with the path it happened at.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }

    /// Returns a file with wrong content.
    pub fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }
}
