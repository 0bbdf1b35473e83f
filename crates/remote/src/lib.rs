//! The parts of a run that are remote: sampling on inference servers, training on services, and
//! environments on servers. This is the only crate that uses an async runtime, but all its public
//! functions block.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
//!
//! | folder | subject |
//! |---|---|
//! | [`engines`] | rollouts on vLLM and SGLang servers |
//! | [`tinker`] | training and sampling on services with the Tinker API |
//! | `environments` | environments on servers (feature `environments`) |
//! | `thread.rs`, `http.rs` | shared code: the request thread, and HTTP requests with a limited reply size |
//!
//! A source creates the policy of a run. This source wraps another one, and moves sampling to
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
