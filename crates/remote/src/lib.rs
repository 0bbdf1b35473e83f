//! Sampling on inference servers ([`engines`]), training on services with the Tinker API
//! ([`tinker`]), and environments on servers (the feature `environments`). Only this crate uses an
//! async runtime; all public functions block.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! A policy source creates a run's policy. `EngineSource` wraps another source and samples on
//! servers if the config has a `rollout.engine` table:
//!
//! ```
//! use std::sync::Arc;
//!
//! use turnwise_remote::engines::EngineSource;
//! use turnwise_train::config::{ConfigSource, load};
//! use turnwise_train::run::source::PolicySource as _;
//! use turnwise_train::{NoopObserver, Run};
//!
//! let set = |text: &str| text.to_owned();
//! let mut source = ConfigSource { preset: Some(set("quickstart")), ..ConfigSource::default() };
//! let policies = Arc::new(EngineSource::default());
//! policies.check(&load(&source)?)?;
//!
//! let folder = tempfile::tempdir()?;
//! source.overrides = vec![
//!     set("policy.lora.rank=8"),
//!     set("rollout.engine.urls=[\"http://127.0.0.1:9\"]"),
//!     format!("rollout.engine.adapter_dir={:?}", folder.path().join("adapters")),
//! ];
//! // Nothing listens there, so the run fails before anything else is done.
//! let run = Run::builder(load(&source)?).policies(policies).directory(folder.path().join("run"));
//! let refused = run.start(&mut NoopObserver);
//! assert!(refused.is_err_and(|error| error.to_string().contains("is the server up?")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(hidden)]
pub mod engines;
#[cfg(feature = "environments")]
#[doc(hidden)]
pub mod environments;
mod http;
mod thread;
#[doc(hidden)]
pub mod tinker;
