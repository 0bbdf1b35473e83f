//! Splits returns according to the judge's scores.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerTurn, Trajectory};

use super::cache::{Cache, Hit, Key};
use super::client::{Client, Failure};
use super::scores::{parse, rescale, uniform};
use super::{JudgeConfig, JudgeError, Template};

/// Number of recent questions over which the failure rate is computed.
const WINDOW: usize = 20;
/// Minimum number of questions before the failure rate is checked.
const FEWEST: usize = 8;

/// Usage counters of a judge. [`Judge::resume_counts`] carries the counters into a resumed run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JudgeMetrics {
    /// Number of trajectories with credits.
    pub trajectories: u64,
    /// Number of trajectories with return 0, which need no scores.
    pub zero_returns: u64,
    /// Number of questions answered from the cache.
    pub cache_hits: u64,
    /// Number of cache files that could not be read or written.
    pub cache_errors: u64,
    /// Number of requests, retries included.
    pub calls: u64,
    /// Number of retries.
    pub retries: u64,
    /// Number of requests that timed out.
    pub timeouts: u64,
    /// Number of failed connections.
    pub transport_errors: u64,
    /// Number of responses with a status other than 200.
    pub status_errors: u64,
    /// Number of responses without valid scores.
    pub malformed: u64,
    /// Number of requests not sent because the budget was used up.
    pub over_budget: u64,
    /// Number of trajectories that got equal credits `R / T` because they have no scores.
    pub fallbacks: u64,
    /// Number of trajectories that got equal credits `R / T` because their credit weights sum to
    /// about 0.
    pub zero_scores: u64,
}

impl JudgeMetrics {
    /// Returns the counters by metric name.
    pub fn entries(&self) -> [(&'static str, f64); 13] {
        [
            ("judge/trajectories", self.trajectories),
            ("judge/zero_returns", self.zero_returns),
            ("judge/cache_hits", self.cache_hits),
            ("judge/cache_errors", self.cache_errors),
            ("judge/calls", self.calls),
            ("judge/retries", self.retries),
            ("judge/timeouts", self.timeouts),
            ("judge/transport_errors", self.transport_errors),
            ("judge/status_errors", self.status_errors),
            ("judge/malformed", self.malformed),
            ("judge/over_budget", self.over_budget),
            ("judge/fallbacks", self.fallbacks),
            ("judge/zero_scores", self.zero_scores),
        ]
        .map(|(name, value)| (name, value as f64))
    }
}

/// Splits returns with a language model.
#[derive(Debug)]
pub struct Judge {
    config: JudgeConfig,
    template: Template,
    client: Client,
    cache: Cache,
    calls: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: JudgeMetrics,
    last_failure: Option<String>,
    /// For each of the last [`WINDOW`] questions sent, whether it failed.
    recent: VecDeque<bool>,
    /// Number of this batch's questions that were answered from the cache.
    cached: usize,
    asked: usize,
    unanswered: usize,
    dead: bool,
}

impl State {
    fn begin(&mut self, cached: usize) {
        self.metrics.cache_hits += cached as u64;
        (self.cached, self.asked, self.unanswered) = (cached, 0, 0);
    }

    /// Records a sent question. The batch's cache hits count as answered: a resumed run sends only
    /// the questions that failed before, and could otherwise mistake a working judge for a dead
    /// one.
    fn note(&mut self, failed: bool, most: f64) {
        self.asked += 1;
        self.unanswered += usize::from(failed);
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(failed);
        let above = |failed: usize, all: usize| failed as f64 > most * all as f64;
        self.dead |= self.recent.len() >= FEWEST
            && above(self.failed(), self.recent.len())
            && above(self.unanswered, self.cached + self.asked);
    }

    fn failed(&self) -> usize {
        self.recent.iter().filter(|failed| **failed).count()
    }
}

struct Question {
    key: Key,
    user: String,
    turns: usize,
}

impl Judge {
    /// Creates a judge; `seed` determines retry jitter.
    ///
    /// # Errors
    /// Fails on an invalid setting, template or cache folder, or without an API key.
    pub fn new(config: JudgeConfig, seed: u64) -> Result<Self, JudgeError> {
        config.check()?;
        Ok(Self {
            template: Template::load(&config.template)?,
            client: Client::new(&config, seed)?,
            cache: Cache::open(&config.cache)?,
            calls: AtomicU64::new(0),
            state: Mutex::default(),
            config,
        })
    }

    /// Continues the counts of an earlier judge, whose requests count against the budget too.
    pub fn resume_counts(&mut self, counts: JudgeMetrics) {
        *self.calls.get_mut() = counts.calls;
        self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).metrics = counts;
    }

    /// Returns the counters.
    pub fn metrics(&self) -> JudgeMetrics {
        self.with(|state| state.metrics)
    }

    /// Returns why the last request failed, without the API key.
    pub fn last_failure(&self) -> Option<String> {
        self.with(|state| state.last_failure.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // Counters stay meaningful if a thread panicked.
        work(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn question(&self, trajectory: &Trajectory) -> Question {
        let user = self.template.render(trajectory);
        let (temperature, max_tokens) =
            (self.config.temperature.to_string(), self.config.max_tokens.to_string());
        let Template { system, user: template, turn } = &self.template;
        let turns = trajectory.turns.len();
        let count = turns.to_string();
        let mut parts =
            vec![self.config.model.as_str(), &temperature, &max_tokens, system, template, turn, &user];
        if !self.template.counts_turns() {
            // Distinguishes two turns from one with a line break.
            parts.push(&count);
        }
        Question { key: Key::of(&parts), user, turns }
    }

    fn cached(&self, question: &Question) -> Option<Vec<f64>> {
        match self.cache.get(&question.key, question.turns) {
            Hit::Scores(scores) => return Some(scores),
            Hit::Broken => self.with(|state| state.metrics.cache_errors += 1),
            Hit::Nothing => {}
        }
        None
    }

    fn scores(&self, question: &Question, failures: &mpsc::Sender<String>) -> Option<Vec<f64>> {
        let once = || {
            let answer = self.client.ask(&self.config, &self.template.system, &question.user)?;
            parse(&answer, question.turns).map_err(Failure::Malformed)
        };
        // The receiver may be gone.
        let scores = self.tries(&question.key, once, &mut |reason| drop(failures.send(reason))).ok();
        if let Some(scores) = &scores
            && self.cache.put(&question.key, &self.config.model, scores).is_err()
        {
            self.with(|state| state.metrics.cache_errors += 1);
        }
        self.with(|state| state.note(scores.is_none(), self.config.max_failed_share));
        scores
    }

    /// Sends a request with retries, calling `failed` on each failure; `Err` has the reason of the
    /// last failure.
    fn tries<T>(
        &self,
        key: &Key,
        once: impl Fn() -> Result<T, Failure>,
        failed: &mut dyn FnMut(String),
    ) -> Result<T, String> {
        let mut attempt = 0;
        loop {
            let failure = match self.permit(attempt).and_then(|()| once()) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let reason = failure.to_string();
            self.with(|state| {
                let counter = match failure {
                    Failure::Budget => &mut state.metrics.over_budget,
                    Failure::Timeout => &mut state.metrics.timeouts,
                    Failure::Transport(_) => &mut state.metrics.transport_errors,
                    Failure::Status(..) => &mut state.metrics.status_errors,
                    Failure::Malformed(_) => &mut state.metrics.malformed,
                };
                *counter += 1;
                state.last_failure = Some(reason.clone());
            });
            failed(reason.clone());
            if !failure.is_passing() || self.is_dead() || attempt == self.config.retries {
                return Err(reason);
            }
            attempt += 1;
            std::thread::sleep(self.client.pause(&self.config, key, attempt));
        }
    }

    /// Sends a short request, unless `call_budget` is 0, to detect a wrong URL, model or key.
    ///
    /// # Errors
    /// Fails if the service does not respond or rejects the request.
    pub fn check_service(&self) -> Result<(), JudgeError> {
        if self.config.call_budget == 0 {
            return Ok(());
        }
        let once = || self.client.probe(&self.config, &self.template.system);
        self.tries(&Key::of(&["is there a service"]), once, &mut |_| ()).map_err(|reason| {
            JudgeError::Unready {
                endpoint: self.config.endpoint.clone(),
                model: self.config.model.clone(),
                reason,
            }
        })
    }

    fn is_dead(&self) -> bool {
        self.with(|state| state.dead)
    }

    fn permit(&self, attempt: u32) -> Result<(), Failure> {
        let budget = self.config.call_budget;
        let more = |calls| (calls < budget).then_some(calls + 1);
        self.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Failure::Budget)?;
        self.with(|state| {
            state.metrics.calls += 1;
            state.metrics.retries += u64::from(attempt > 0);
        });
        Ok(())
    }

    /// Answers questions from the cache or with up to `concurrency` parallel requests; stops
    /// sending once too many requests have failed.
    fn answers(&self, questions: &[Question], failed: &mut dyn FnMut(String)) -> Vec<Option<Vec<f64>>> {
        let cached: Vec<Option<Vec<f64>>> = questions.iter().map(|question| self.cached(question)).collect();
        self.with(|state| state.begin(cached.iter().flatten().count()));
        let (answers, open): (Vec<_>, Vec<_>) = cached
            .into_iter()
            .zip(questions)
            .enumerate()
            .map(|(index, (cached, question))| {
                let open = cached.is_none().then_some((index, question));
                (Mutex::new(cached), open)
            })
            .unzip();
        let open: Vec<(usize, &Question)> = open.into_iter().flatten().collect();
        let next = AtomicUsize::new(0);
        let (sender, failures) = mpsc::channel();
        let work = |sender: mpsc::Sender<String>| {
            while let Some(&(index, question)) =
                open.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !self.is_dead())
            {
                let scores = self.scores(question, &sender);
                *answers[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = scores;
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.config.concurrency.min(open.len()) {
                let sender = sender.clone();
                scope.spawn(|| work(sender));
            }
            drop(sender);
            failures.iter().for_each(&mut *failed);
        });
        answers
            .into_iter()
            .map(|answer| answer.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
            .collect()
    }

    /// Returns each turn's credit, or `R / T` for trajectories without scores ([`Judge::metrics`]
    /// counts them).
    ///
    /// Calls `warn` for the first failed request and, if any trajectories have no scores, once more
    /// with their number.
    ///
    /// # Errors
    /// Fails if more than `max_failed_share` of the questions were not answered.
    pub fn credits(&self, batch: &Batch, warn: &mut dyn FnMut(String)) -> Result<PerTurn<f64>, JudgeError> {
        let mut questions: Vec<Question> = Vec::new();
        let mut known: HashMap<Key, usize> = HashMap::new();
        // `None` if the trajectory's return is 0.
        let mut asked: Vec<Option<usize>> = Vec::new();
        for trajectory in batch.trajectories() {
            // A KL penalty does not make a failure worth asking about.
            let size: f64 = trajectory.turns.iter().map(|turn| turn.reward.abs()).sum();
            // Rewards that cancel out may leave rounding errors.
            let worth_asking = trajectory.environment_return(1.0).abs() > 1e-12 * size;
            asked.push(worth_asking.then(|| {
                let question = self.question(trajectory);
                *known.entry(question.key).or_insert_with(|| {
                    questions.push(question);
                    questions.len() - 1
                })
            }));
        }
        let mut first = true;
        let answers = self.answers(&questions, &mut |reason| {
            if std::mem::take(&mut first) {
                let endpoint = &self.config.endpoint;
                warn(format!("warning: the judge at {endpoint} gave no scores: {reason}"));
            }
        });
        self.check_alive()?;
        let before = self.metrics().fallbacks;
        let mut asked = asked.into_iter();
        let mut share = |trajectory: &Trajectory| {
            let (turns, ret) = (trajectory.turns.len(), trajectory.outcome_return());
            self.with(|state| {
                let metrics = &mut state.metrics;
                metrics.trajectories += 1;
                let Some(question) = asked.next().flatten() else {
                    metrics.zero_returns += 1;
                    return vec![0.0; turns];
                };
                let credits = answers[question].as_ref().map(|scores| rescale(scores, ret));
                match credits {
                    Some(Some(credits)) => return credits,
                    Some(None) => metrics.zero_scores += 1,
                    None => metrics.fallbacks += 1,
                }
                uniform(turns, ret)
            })
        };
        let credits =
            batch.groups.iter().map(|group| group.trajectories.iter().map(&mut share).collect()).collect();
        let fallbacks = self.metrics().fallbacks - before;
        if fallbacks > 0 {
            warn(format!(
                "warning: {fallbacks} of {} trajectories have no scores of the judge; their return is split evenly",
                batch.trajectories().count()
            ));
        }
        Ok(credits)
    }

    fn check_alive(&self) -> Result<(), JudgeError> {
        self.with(|state| {
            if !state.dead {
                return Ok(());
            }
            // The user may start the service and retry.
            state.dead = false;
            let (failed, asked) = (state.failed(), state.recent.len());
            state.recent.clear();
            Err(JudgeError::Unanswered {
                endpoint: self.config.endpoint.clone(),
                failed,
                asked,
                reason: state.last_failure.clone().unwrap_or_default(),
            })
        })
    }
}
