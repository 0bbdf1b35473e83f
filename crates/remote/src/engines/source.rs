//! Policies that sample on inference servers.

use std::sync::Arc;

use turnwise_train::config::{Config, Registries, ServersConfig};
use turnwise_train::record::checkpoint::Checkpoint;
use turnwise_train::run::source::{NativeSource, NewRun, PolicySource, SourcedPolicy};
use turnwise_train::{Event, Observer, TrainError};

use super::error::EngineError;
use super::policy::EnginePolicy;
use super::server_pool::ServerPool;
use super::versions::VersionFolder;
use crate::thread::RequestThread;

/// Creates policies with remote sampling for configs with a `rollout.engine` table; for other
/// configs, the inner source creates the policy.
#[derive(Clone, Copy, Debug)]
pub struct EngineSource<S = NativeSource> {
    inner: S,
}

impl Default for EngineSource {
    /// Wraps the source of local policies.
    fn default() -> Self {
        Self::over(NativeSource)
    }
}

impl<S: PolicySource> EngineSource<S> {
    /// Wraps a source whose policies have their weights in this process.
    pub fn over(inner: S) -> Self {
        Self { inner }
    }
}

fn with_servers(
    config: &Config,
    servers: &ServersConfig,
    (learner, tokenizer): SourcedPolicy,
) -> Result<(SourcedPolicy, Vec<String>), TrainError> {
    let (policy, notes) = EnginePolicy::open(config, servers, learner, Arc::clone(&tokenizer))?;
    Ok(((Box::new(policy), tokenizer), notes))
}

impl<S: PolicySource> PolicySource for EngineSource<S> {
    /// Checks the config and contacts the servers, so that server problems appear before the warm
    /// start.
    fn check(&self, config: &Config) -> Result<(), TrainError> {
        let mut here = config.clone();
        let Some(servers) = here.rollout.engine.take() else { return self.inner.check(config) };
        self.inner.check(&here)?;
        let pool = Arc::new(ServerPool::new(&servers, 0)?);
        VersionFolder::open(&servers.adapter_dir, &servers.server_adapter_dir, &config.name)?;
        let max_model_len = config.rollout.max_model_len;
        RequestThread::start()
            .map_err(|error| EngineError::no_thread(&error))?
            .try_wait(async move { pool.check_up(max_model_len).await })?;
        Ok(())
    }

    fn start(&self, run: &NewRun<'_>, observer: &mut dyn Observer) -> Result<SourcedPolicy, TrainError> {
        let policy = self.inner.start(run, observer)?;
        let Some(servers) = &run.config.rollout.engine else { return Ok(policy) };
        observer.event(Event::Stage("checking the inference servers"));
        let (policy, notes) = with_servers(run.config, servers, policy)?;
        for note in notes {
            observer.event(Event::Note(note));
        }
        Ok(policy)
    }

    fn resume(
        &self,
        config: &Config,
        registries: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<SourcedPolicy, TrainError> {
        let policy = self.inner.resume(config, registries, checkpoint)?;
        let Some(servers) = &config.rollout.engine else { return Ok(policy) };
        Ok(with_servers(config, servers, policy)?.0)
    }
}
