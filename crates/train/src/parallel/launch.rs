//! How a process learns which of its run it is: the environment variables that `torchrun`, `srun`
//! wrappers and job controllers set.

use std::sync::Arc;
use std::time::Duration;

use turnwise_core::Collective;

use super::TcpCollective;
use crate::TrainError;

/// Seconds of silence after which a process counts as gone.
const TIMEOUT: f64 = 60.0;

/// Which process of its run this is, and where rank 0 is to be found.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// `RANK`.
    pub rank: usize,
    /// `WORLD_SIZE`, at least 2.
    pub world_size: usize,
    /// `LOCAL_RANK`; without it `RANK`.
    pub local_rank: usize,
    /// `MASTER_ADDR`.
    pub host: String,
    /// `MASTER_PORT`, or one more where the launcher itself listens there, or `TURNWISE_PORT`.
    pub port: u16,
    /// `TURNWISE_TIMEOUT`: how long a process may be silent before it counts as gone.
    pub timeout: Duration,
}

impl Launch {
    /// What the environment says; `None` for a run of one process.
    ///
    /// # Errors
    /// A variable that is missing or no number, a rank outside the world.
    pub fn from_environment() -> Result<Option<Self>, TrainError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// What these variables say.
    ///
    /// # Errors
    /// As [`Launch::from_environment`].
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TrainError> {
        let fail = |name: &str, reason: String| TrainError::Config {
            origin: format!("environment variable {name}"),
            reason,
        };
        let number = |name: &str, text: &str| {
            text.trim().parse::<usize>().map_err(|_| fail(name, format!("is `{text}`, not a whole number")))
        };
        let needed = |name: &str| {
            get(name).ok_or_else(|| {
                fail(name, "is missing, and WORLD_SIZE asks for several processes; torchrun sets it".into())
            })
        };
        let Some(text) = get("WORLD_SIZE") else { return Ok(None) };
        let world_size = number("WORLD_SIZE", &text)?;
        if world_size == 0 {
            return Err(fail("WORLD_SIZE", "is 0; it must be at least 1".into()));
        }
        if world_size == 1 {
            return Ok(None);
        }
        let rank = number("RANK", &needed("RANK")?)?;
        if rank >= world_size {
            return Err(fail("RANK", format!("is {rank}, and ranks go from 0 to {}", world_size - 1)));
        }
        let local_rank = get("LOCAL_RANK").map_or(Ok(rank), |text| number("LOCAL_RANK", &text))?;
        let (name, port) = if let Some(text) = get("TURNWISE_PORT") {
            ("TURNWISE_PORT", number("TURNWISE_PORT", &text)?)
        } else {
            // torchrun keeps its own store on MASTER_PORT.
            let taken = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text == "True");
            ("MASTER_PORT", number("MASTER_PORT", &needed("MASTER_PORT")?)? + usize::from(taken))
        };
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| fail(name, "is not a port from 1 to 65535".into()))?;
        let timeout = get("TURNWISE_TIMEOUT").map_or(Ok(TIMEOUT), |text| {
            let seconds = text.trim().parse::<f64>().ok();
            seconds
                .filter(|seconds| *seconds > 0.0 && *seconds <= 1e6)
                .ok_or_else(|| fail("TURNWISE_TIMEOUT", format!("is `{text}`, not a number of seconds")))
        })?;
        Ok(Some(Self {
            rank,
            world_size,
            local_rank,
            host: needed("MASTER_ADDR")?,
            port,
            timeout: Duration::from_secs_f64(timeout),
        }))
    }

    /// Finds the other processes.
    ///
    /// # Errors
    /// A port that is taken, or processes that do not come within the timeout.
    pub fn connect(&self) -> Result<Arc<dyn Collective>, TrainError> {
        let place = (self.rank, self.world_size, self.local_rank);
        Ok(Arc::new(TcpCollective::connect(place, (self.host.as_str(), self.port), self.timeout)?))
    }
}
