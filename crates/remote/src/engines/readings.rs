//! Server load (`/metrics`), which decides when and where requests run. The load never affects
//! which tokens are sampled, because each request has its own seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;
use turnwise_train::config::ServerKind;

use super::concurrency_limit::ConcurrencyLimit;
use super::dialect::Dialect;
use super::server_pool::ServerPool;

const SHORT: Duration = Duration::from_secs(2);

const PAGE: usize = 4 << 20;

const FRESH: Duration = Duration::from_secs(5);

/// Used fraction from which a server's cache counts as full. Above it, vLLM soon evicts and
/// recomputes requests.
const NEARLY_FULL: f64 = 0.95;

/// Number of polling intervals after which a server that returned no metrics is polled again.
const SILENT: u32 = 30;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) cache: Option<f64>,
}

struct Names {
    running: &'static str,
    waiting: &'static str,
    cache: &'static [&'static str],
}

const VLLM: Names = Names {
    running: "vllm:num_requests_running",
    waiting: "vllm:num_requests_waiting",
    cache: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
};

const SGLANG: Names = Names {
    running: "sglang:num_running_reqs",
    waiting: "sglang:num_queue_reqs",
    cache: &["sglang:token_usage"],
};

impl Load {
    /// Parses the Prometheus text format; `None` if it has no queue metrics. For a server with
    /// several data-parallel engines, adds up their requests and uses the fullest of their caches.
    pub(crate) fn parse(page: &[u8], dialect: Dialect) -> Option<Self> {
        let names = match dialect {
            Dialect::Generate | Dialect::Completions => VLLM,
            Dialect::Sglang => SGLANG,
        };
        let page = std::str::from_utf8(page).ok()?;
        let values = |name: &str| -> Vec<f64> {
            let of = |line: &str| {
                let rest = line.strip_prefix(name)?;
                let rest = match rest.strip_prefix('{') {
                    Some(labels) => labels.rsplit_once('}')?.1,
                    None => rest.strip_prefix(' ')?,
                };
                rest.split_whitespace()
                    .next()?
                    .parse()
                    .ok()
                    .filter(|value: &f64| value.is_finite() && *value >= 0.0)
            };
            page.lines().filter_map(of).collect()
        };
        let sum = |name: &str| {
            let values = values(name);
            (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
        };
        let fullest = |name: &&str| values(name).into_iter().reduce(f64::max);
        Some(Self {
            running: sum(names.running)?,
            waiting: sum(names.waiting)?,
            cache: names.cache.iter().find_map(fullest),
        })
    }

    fn nearly_full(&self) -> bool {
        self.cache.is_some_and(|used| used >= NEARLY_FULL)
    }
}

#[derive(Default)]
pub(crate) struct Reports {
    last: Mutex<Option<Report>>,
    silent: AtomicBool,
    noted: AtomicBool,
}

struct Report {
    load: Load,
    /// Other clients' requests.
    foreign: u64,
    at: Instant,
}

impl Reports {
    fn last(&self) -> MutexGuard<'_, Option<Report>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many requests count as ahead of a new session: all requests of other clients
    /// plus all waiting requests.
    pub(crate) fn before_a_session(&self, every: Duration) -> u64 {
        let last = self.last();
        let fresh = last.as_ref().filter(|report| report.at.elapsed() <= (5 * every).max(FRESH));
        fresh.map_or(0, |report| report.foreign + report.load.waiting)
    }

    fn take(&self, load: Load, limit: &ConcurrencyLimit) {
        limit.reported(load.waiting, load.nearly_full());
        let foreign = (load.running + load.waiting).saturating_sub(limit.in_flight() as u64);
        *self.last() = Some(Report { load, foreign, at: Instant::now() });
        self.silent.store(false, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Highest {
    readings: AtomicU64,
    waiting: AtomicU64,
    cache: AtomicU64,
}

impl Highest {
    fn take(&self, load: &Load) {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_max(load.waiting, Ordering::Relaxed);
        self.cache.fetch_max((1e6 * load.cache.unwrap_or(0.0)) as u64, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> Vec<(&'static str, f64)> {
        let swap = |number: &AtomicU64| number.swap(0, Ordering::Relaxed) as f64;
        let (readings, waiting, cache) = (swap(&self.readings), swap(&self.waiting), swap(&self.cache));
        if readings == 0.0 {
            return Vec::new();
        }
        vec![("rollout/engine/waiting", waiting), ("rollout/engine/cache", cache / 1e6)]
    }
}

impl ServerPool {
    /// Reads a server's load. A server whose load cannot be read is treated as idle; the user is
    /// warned once.
    async fn read_load(&self, index: usize) {
        let server = &self.servers[index];
        let page = self.http.get(&format!("{}/metrics", server.url), SHORT, PAGE).await;
        let load = page.ok().filter(|page| page.status == 200);
        if let Some(load) = load.and_then(|page| Load::parse(&page.body, self.dialect)) {
            self.highest.take(&load);
            server.reports.take(load, &server.limit);
            return;
        }
        server.reports.silent.store(true, Ordering::Relaxed);
        if !server.reports.noted.swap(true, Ordering::Relaxed) {
            let hint = match self.dialect.kind() {
                ServerKind::Vllm => "start vLLM without --disable-log-stats",
                ServerKind::Sglang => "start SGLang with --enable-metrics",
            };
            self.note(format!(
                "inference server {index} reports no load (/metrics): its queue is not watched; {hint}, or set \
                 rollout.engine.load_every_s = 0"
            ));
        }
    }

    pub(crate) async fn read_loads(self: Arc<Self>) {
        if self.load_every.is_zero() {
            return;
        }
        let mut all = JoinSet::new();
        for index in 0..self.servers.len() {
            if !self.servers[index].reports.silent.load(Ordering::Relaxed) {
                let pool = Arc::clone(&self);
                all.spawn(async move { pool.read_load(index).await });
            }
        }
        while all.join_next().await.is_some() {}
    }
}

/// Reads loads while requests are in flight, until the pool is dropped.
pub(crate) fn watch(pool: &Arc<ServerPool>, handle: &Handle) {
    let every = pool.load_every;
    if every.is_zero() {
        return;
    }
    for index in 0..pool.servers.len() {
        let pool = Arc::downgrade(pool);
        handle.spawn(async move {
            loop {
                let Some(pool) = pool.upgrade() else { return };
                if pool.under_way() > 0 {
                    pool.read_load(index).await;
                }
                let silent = pool.servers[index].reports.silent.load(Ordering::Relaxed);
                drop(pool);
                tokio::time::sleep(if silent { SILENT * every } else { every }).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_both_programs_are_read() {
        let vllm = "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
                    # TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a {b}\"} 3.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"a {b}\"} 4.0\n\
                    vllm:num_requests_waiting{engine=\"0\"} 2.0\n\
                    vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 90.0\n\
                    vllm:num_requests_waiting{engine=\"1\"} 0.0\n\
                    vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
                    vllm:kv_cache_usage_perc{engine=\"1\"} 0.97\n";
        let load = Load { running: 7, waiting: 2, cache: Some(0.97) };
        assert_eq!(Load::parse(vllm.as_bytes(), Dialect::Generate), Some(load));
        assert!(load.nearly_full());
        let older = vllm.replace("kv_cache", "gpu_cache");
        assert_eq!(Load::parse(older.as_bytes(), Dialect::Completions), Some(load));
        let sglang = "sglang:num_running_reqs{model_name=\"m\"} 5.0\nsglang:num_queue_reqs 12 1700000000\n\
                      sglang:token_usage{model_name=\"m\"} 0.5\n";
        let load = Load { running: 5, waiting: 12, cache: Some(0.5) };
        assert_eq!(Load::parse(sglang.as_bytes(), Dialect::Sglang), Some(load));
        assert_eq!(Load::parse(sglang.as_bytes(), Dialect::Generate), None);
        let unknown = "vllm:num_requests_running 1\nvllm:num_requests_waiting NaN\n";
        assert_eq!(Load::parse(unknown.as_bytes(), Dialect::Generate), None);
        assert_eq!(Load::parse(b"\xff{}", Dialect::Generate), None);
    }

    #[test]
    fn what_waits_counts_twice_and_what_is_this_runs_own_once() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (limit, reports) = (ConcurrencyLimit::new(8), Reports::default());
            assert_eq!(reports.before_a_session(Duration::ZERO), 0);
            let _own = [limit.acquire().await, limit.acquire().await];
            reports.take(Load { running: 2, waiting: 0, cache: None }, &limit);
            assert_eq!(reports.before_a_session(Duration::ZERO), 0);
            reports.take(Load { running: 4, waiting: 3, cache: None }, &limit);
            assert_eq!(reports.before_a_session(Duration::ZERO), 5 + 3);
        });
    }
}
