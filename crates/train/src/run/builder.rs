//! Building a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwise_env::registry::Registry;

use crate::config::{Config, Methods, Registries};
use crate::record::directory::Position;
use crate::run::Run;
use crate::run::source::{NativeSource, PolicySource};

/// Builds a run from its config. Finish with [`RunBuilder::start`], [`RunBuilder::start_from`] or
/// [`RunBuilder::resume`].
///
/// ```no_run
/// use std::sync::atomic::AtomicBool;
/// use turnwise_train::config::{ConfigSource, load};
/// use turnwise_train::{NoopObserver, Run};
///
/// let config = load(&ConfigSource { preset: Some("quickstart".into()), ..ConfigSource::default() })?;
/// let mut run = Run::builder(config).directory("runs/first").start(&mut NoopObserver)?;
/// run.train(&mut NoopObserver, &AtomicBool::new(false))?;
/// # Ok::<(), turnwise_train::TrainError>(())
/// ```
#[derive(Clone)]
pub struct RunBuilder {
    pub(super) config: Config,
    pub(super) root: PathBuf,
    pub(super) registries: Registries,
    pub(super) policies: Arc<dyn PolicySource>,
    pub(super) ignore_memory: bool,
    pub(super) from: Option<Position>,
}

impl RunBuilder {
    pub(super) fn new(config: Config) -> Self {
        let root = Path::new("runs").join(&config.name);
        let (registries, policies) = (Registries::builtin(), Arc::new(NativeSource));
        Self { config, root, registries, policies, ignore_memory: false, from: None }
    }

    /// Sets the run directory; default: `runs/<name>`.
    #[must_use]
    pub fn directory(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Sets the known environments; default: the built-in ones.
    #[must_use]
    pub fn environments(mut self, environments: Registry) -> Self {
        self.registries.environments = environments;
        self
    }

    /// Sets the known methods; default: the built-in ones.
    #[must_use]
    pub fn methods(mut self, methods: Methods) -> Self {
        self.registries.methods = methods;
        self
    }

    /// Sets the source of the policy; default: [`NativeSource`].
    #[must_use]
    pub fn policies(mut self, policies: Arc<dyn PolicySource>) -> Self {
        self.policies = policies;
        self
    }

    /// Starts even if the memory plan exceeds the available memory.
    #[must_use]
    pub fn ignore_memory(mut self, ignore: bool) -> Self {
        self.ignore_memory = ignore;
        self
    }

    /// Sets the checkpoint that [`RunBuilder::resume`] continues from; default: the newest complete
    /// one. The run's later results are moved aside, not deleted.
    #[must_use]
    pub fn checkpoint(mut self, position: Position) -> Self {
        self.from = Some(position);
        self
    }
}

impl Run {
    /// Returns a builder for a run with this config.
    pub fn builder(config: Config) -> RunBuilder {
        RunBuilder::new(config)
    }
}
