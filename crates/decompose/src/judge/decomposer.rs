//! The decomposer: questions to the judge, credits from its answers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerTurn, Trajectory};

use super::cache::{Cache, Hit, Key};
use super::client::{Client, Failure};
use super::scores::{parse, rescale, uniform};
use super::{JudgeConfig, JudgeError, Template};

/// Questions that the share of failed ones is taken of.
const WINDOW: usize = 20;
/// Questions before a share means anything.
const FEWEST: usize = 8;

/// Counts of a judge since it was made, or since the run began that it continues with ([`Judge::resume_counts`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JudgeMetrics {
    /// Trajectories that were given credits.
    pub trajectories: u64,
    /// Those of a return of 0: credits are 0 whatever the scores, so nothing was asked.
    pub zero_returns: u64,
    /// Questions that the cache answered.
    pub cache_hits: u64,
    /// Cache files that could not be used, or written.
    pub cache_errors: u64,
    /// Requests sent, repetitions included.
    pub calls: u64,
    /// Repetitions among them.
    pub retries: u64,
    /// Requests without an answer in time.
    pub timeouts: u64,
    /// Requests whose connection failed or broke off.
    pub transport_errors: u64,
    /// Requests answered with another status than 200.
    pub status_errors: u64,
    /// Answers that were not scores.
    pub malformed: u64,
    /// Questions that were not asked because the budget was used up.
    pub over_budget: u64,
    /// Trajectories given `R / T` because there was no answer.
    pub fallbacks: u64,
    /// Trajectories given `R / T` because their scores sum to nearly 0.
    pub zero_scores: u64,
}

impl JudgeMetrics {
    /// Names and values for a run's metrics.
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

/// A language model as a decomposer of returns.
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
    /// Of the last [`WINDOW`] questions that were asked: whether they stayed without an answer.
    recent: VecDeque<bool>,
    /// Questions of the present batch that the cache answered.
    cached: usize,
    /// Those of it that were asked.
    asked: usize,
    /// Those of the asked ones that stayed without an answer.
    unanswered: usize,
    /// Too many did.
    dead: bool,
}

impl State {
    /// Begins a batch, of which the cache answered some.
    fn begin(&mut self, cached: usize) {
        self.metrics.cache_hits += cached as u64;
        (self.cached, self.asked, self.unanswered) = (cached, 0, 0);
    }

    /// Notes how a question ended that was asked. A run that continues has its good answers from the
    /// cache and asks what failed before alone, which makes no good judge a dead one: what the cache
    /// answered of the batch counts too.
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

/// A question and the turns of the batch that wait for its answer.
struct Question {
    key: Key,
    user: String,
    turns: usize,
}

impl Judge {
    /// Creates a judge; `seed` decides the jitter between repetitions.
    ///
    /// # Errors
    /// Fails on an invalid setting, a template that cannot be read, a cache folder that cannot be made,
    /// an API key that is not in the environment.
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

    /// Goes on from the counts of a judge before it, whose requests count against the budget.
    pub fn resume_counts(&mut self, counts: JudgeMetrics) {
        *self.calls.get_mut() = counts.calls;
        self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).metrics = counts;
    }

    /// Counts so far.
    pub fn metrics(&self) -> JudgeMetrics {
        self.with(|state| state.metrics)
    }

    /// Reason why the last request failed, for people; never holds the API key.
    pub fn last_failure(&self) -> Option<String> {
        self.with(|state| state.last_failure.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // Counters stay meaningful even where a thread panicked between two of them.
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
            // Two turns may read as one whose text has a line break.
            parts.push(&count);
        }
        Question { key: Key::of(&parts), user, turns }
    }

    /// Returns the scores that the cache has for a question.
    fn cached(&self, question: &Question) -> Option<Vec<f64>> {
        match self.cache.get(&question.key, question.turns) {
            Hit::Scores(scores) => return Some(scores),
            Hit::Broken => self.with(|state| state.metrics.cache_errors += 1),
            Hit::Nothing => {}
        }
        None
    }

    /// Returns the scores that the judge gives; `None` if there are none to be had. Every failed request
    /// is reported.
    fn scores(&self, question: &Question, failures: &mpsc::Sender<String>) -> Option<Vec<f64>> {
        let once = || {
            let answer = self.client.ask(&self.config, &self.template.system, &question.user)?;
            parse(&answer, question.turns).map_err(Failure::Malformed)
        };
        // Whoever listens may have gone.
        let scores = self.tries(&question.key, once, &mut |reason| drop(failures.send(reason))).ok();
        if let Some(scores) = &scores
            && self.cache.put(&question.key, &self.config.model, scores).is_err()
        {
            self.with(|state| state.metrics.cache_errors += 1);
        }
        self.with(|state| state.note(scores.is_none(), self.config.max_failed_share));
        scores
    }

    /// Returns a request and its repetitions, counted; `failed` hears of every one that fails, `Err`
    /// holds the last one's reason.
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

    /// Asks the service for a few tokens, so that a wrong address, model or key is an error before a run begins and not
    /// after its warm start. What the answer says does not matter. The request and its repetitions count as all others.
    /// With a `call_budget` of 0, nothing is asked.
    ///
    /// # Errors
    /// Fails if the service does not answer, or rejects the request.
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

    /// Takes one request from the budget, if there is one left.
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

    /// Answers all questions, from the cache or `concurrency` at a time; `failed` hears of failed
    /// requests while that continues. A judge that is dead is asked no more.
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

    /// Returns the credit of every turn of a batch; what has no answer gets `R / T`, which
    /// [`Judge::metrics`] counts.
    ///
    /// `warn` takes a line for people at the first failed request, while the others are still under way, and one that
    /// counts the trajectories without scores at the end.
    ///
    /// # Errors
    /// Fails if more than `max_failed_share` of the last questions stayed without an answer: the judge is
    /// dead, or nearly so, and credits would be a uniform split under the judge's name.
    pub fn credits(&self, batch: &Batch, warn: &mut dyn FnMut(String)) -> Result<PerTurn<f64>, JudgeError> {
        let mut questions: Vec<Question> = Vec::new();
        let mut known: HashMap<Key, usize> = HashMap::new();
        // The question of each trajectory; none where there is nothing to share out.
        let mut asked: Vec<Option<usize>> = Vec::new();
        for trajectory in batch.trajectories() {
            // By what the environment gave: a KL in the reward makes no failure worth a question.
            let size: f64 = trajectory.turns.iter().map(|turn| turn.reward.abs()).sum();
            // Rewards that cancel out may leave their last digits.
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

    /// Rejects to continue where too many questions stayed without an answer.
    fn check_alive(&self) -> Result<(), JudgeError> {
        self.with(|state| {
            if !state.dead {
                return Ok(());
            }
            // Somebody may start the service and try again.
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
