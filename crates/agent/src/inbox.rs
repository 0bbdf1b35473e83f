//! One episode's requests, replies, retries and reports.
//!
//! Concurrent requests are answered one at a time, in order of arrival. A retry gets the reply to
//! the original request and is not another turn. A request is a retry if it has the
//! `Idempotency-Key` of an earlier one. A request without this key is a retry if it has the body of
//! an earlier one, unless its header `x-stainless-retry-count` (sent by OpenAI's clients) is 0.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turnwise_core::{ChatMessage, Conversation, Reply, Tool};

use crate::joining::{Answered, continued};
use crate::rewards::{Report, Rewards, report_of_line};

/// A chat completion request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// All messages.
    pub messages: Vec<ChatMessage>,
    /// Available tools.
    pub tools: Vec<Tool>,
    /// Name of the requesting agent.
    pub agent: String,
    /// Maximum reply tokens.
    pub max_tokens: Option<usize>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Name of the current state, if the request gives one.
    pub state: Option<String>,
}

/// A reply to a request, with its completion id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Completion id, to which reward reports can refer.
    pub id: String,
    /// The reply.
    pub reply: Reply,
}

/// A client waiting for a reply.
pub trait Client: Send {
    /// Returns true if the client disconnected.
    fn is_gone(&self) -> bool;

    /// Sends the reply to the client. `answer` is `None` if the episode ended without a reply.
    fn finish(self: Box<Self>, answer: Option<&Answer>);
}

/// Data that identifies the retries of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryMark {
    /// Idempotency key, or digest of the body.
    pub digest: String,
    /// True if an earlier request with the same digest makes this one a retry.
    pub may_repeat: bool,
}

struct Pending {
    asked: Asked,
    mark: RetryMark,
    clients: Vec<Box<dyn Client>>,
}

impl Pending {
    fn is_wanted(&self) -> bool {
        self.clients.iter().any(|client| !client.is_gone())
    }
}

/// Event that ends a wait for the agent.
#[derive(Debug)]
pub enum Event {
    /// The agent sent a request.
    Request(Box<Conversation>),
    /// The agent printed the line that ends its episode.
    Finished,
    /// The agent closed its stdout.
    Exited,
    /// The deadline passed.
    Timeout,
}

#[derive(Default)]
struct State {
    open: bool,
    pending: VecDeque<Pending>,
    current: Option<Pending>,
    answered: Vec<Answered>,
    answers: Vec<(RetryMark, Answer)>,
    rewards: Rewards,
    finished: bool,
    exited: bool,
    last_line: String,
    last_report: Option<Report>,
}

impl State {
    fn add(&mut self, report: Report, source: &'static str) -> Result<(), String> {
        let Self { answers, rewards, .. } = self;
        rewards.add(report, source, |id| answers.iter().position(|(_, answer)| answer.id == id))
    }
}

/// Requests and reports of a program that plays one episode at a time.
pub struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    reused: bool,
}

const ID: &str = "chatcmpl-";

impl Inbox {
    /// Creates an inbox without an episode. If `reused` is set, a line of output with a report ends
    /// an episode; otherwise, the program's exit ends it.
    pub fn new(reused: bool) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), reused }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an episode.
    pub fn begin(&self) {
        *self.lock() = State { open: true, ..State::default() };
    }

    /// Ends the episode and rejects waiting requests.
    pub fn end(&self) {
        let mut state = self.lock();
        let ended = std::mem::take(&mut *state);
        state.exited = ended.exited;
        drop(state);
        for client in ended.current.into_iter().chain(ended.pending).flat_map(|pending| pending.clients) {
            client.finish(None);
        }
    }

    /// Queues a request for `client`.
    pub fn submit(&self, asked: Asked, mark: RetryMark, client: Box<dyn Client>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !state.open {
            return client.finish(None);
        }
        let repeats = |earlier: &RetryMark| mark.may_repeat && earlier.digest == mark.digest;
        let mut waiting = state.current.iter_mut().chain(&mut state.pending);
        if let Some(first) = waiting.find(|pending| repeats(&pending.mark)) {
            first.clients.push(client);
        } else if let Some((_, answer)) = state.answers.iter().rev().find(|(earlier, _)| repeats(earlier)) {
            client.finish(Some(answer));
        } else {
            state.pending.push_back(Pending { asked, mark, clients: vec![client] });
            self.changed.notify_all();
        }
    }

    /// Adds a report.
    ///
    /// # Errors
    /// Fails if the episode has ended or the report is invalid.
    pub fn report(&self, report: Report, source: &'static str) -> Result<(), String> {
        let mut state = self.lock();
        if !state.open {
            return Err("the episode has ended".into());
        }
        state.add(report, source)
    }

    /// Handles a line of stdout.
    pub fn line(&self, line: &str) {
        let line = line.trim();
        let mut state = self.lock();
        if line.is_empty() || !state.open || state.finished {
            return;
        }
        line.clone_into(&mut state.last_line);
        state.last_report = report_of_line(line);
        if self.reused && state.last_report.is_some() {
            state.finished = true;
            self.changed.notify_all();
        }
    }

    /// Records that stdout was closed.
    pub fn exited(&self) {
        self.lock().exited = true;
        self.changed.notify_all();
    }

    /// Replies to the current request's clients.
    pub fn answer(&self, reply: &Reply) {
        let mut state = self.lock();
        let Some(current) = state.current.take() else { return };
        let answer = Answer { id: format!("{ID}{}", state.answers.len()), reply: reply.clone() };
        for client in current.clients {
            client.finish(Some(&answer));
        }
        state.answers.push((current.mark, answer));
        let Asked { messages, tools, agent, .. } = current.asked;
        let given = ChatMessage {
            calls: reply.calls.clone(),
            ..ChatMessage::new("assistant", reply.content.clone())
        };
        state.answered.push(Answered { messages, tools, reply: given, agent });
    }

    /// Waits for the next event until `deadline`. Polls `has_ended`, because a child process may
    /// keep the pipe open after the program has exited.
    pub fn wait(&self, deadline: Instant, mut has_ended: impl FnMut() -> bool) -> Event {
        const LOOK: Duration = Duration::from_millis(200);
        // Time to read a program's last output.
        const GRACE: Duration = Duration::from_secs(1);
        let mut ended: Option<Instant> = None;
        let mut state = self.lock();
        loop {
            if state.finished {
                return Event::Finished;
            }
            while let Some(next) = state.pending.pop_front() {
                // A request whose client left is not a turn; a repeated one is new.
                if next.is_wanted() {
                    let asked = conversation(&state.answered, &next.asked);
                    state.current = Some(next);
                    return Event::Request(Box::new(asked));
                }
            }
            if state.exited {
                return Event::Exited;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Event::Timeout;
            }
            state =
                self.changed.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
            if !state.exited {
                drop(state);
                if ended.is_none() && has_ended() {
                    ended = Some(Instant::now());
                }
                state = self.lock();
                state.exited |= ended.is_some_and(|ended| ended.elapsed() >= GRACE);
            }
        }
    }

    /// Returns the reported rewards and the last line of output, whose report is included in the
    /// rewards.
    ///
    /// # Errors
    /// Fails if the last line's report is invalid.
    pub fn outcome(&self) -> Result<(Rewards, String), String> {
        let mut state = self.lock();
        if let Some(report) = state.last_report.take() {
            state.add(report, "last line").map_err(|reason| format!("its last line: {reason}"))?;
        }
        Ok((state.rewards.clone(), state.last_line.clone()))
    }

    /// Returns the names of the agents that made the turns, one per turn.
    pub fn agents(&self) -> Vec<String> {
        self.lock().answered.iter().map(|answered| answered.agent.clone()).collect()
    }
}

fn conversation(answered: &[Answered], asked: &Asked) -> Conversation {
    let Asked { messages, tools, agent, max_tokens, stop, state } = asked.clone();
    let continues = continued(answered, &messages, &tools);
    Conversation { messages, tools, continues, agent, max_tokens, stop, state }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use turnwise_core::FinishReason;

    use super::*;

    fn ask(text: &str) -> Asked {
        Asked { messages: vec![ChatMessage::new("user", text)], ..Asked::default() }
    }

    #[derive(Clone, Default)]
    struct Waiting(Arc<Mutex<Vec<Option<Answer>>>>, Arc<AtomicBool>);

    impl Client for Waiting {
        fn is_gone(&self) -> bool {
            self.1.load(Ordering::Relaxed)
        }

        fn finish(self: Box<Self>, answer: Option<&Answer>) {
            self.0.lock().unwrap().push(answer.cloned());
        }
    }

    impl Waiting {
        fn answer(&self) -> Option<String> {
            self.0.lock().unwrap().last().cloned().expect("it waits").map(|answer| answer.reply.content)
        }
    }

    fn submit(inbox: &Inbox, text: &str, mark: RetryMark) -> Waiting {
        let waiting = Waiting::default();
        inbox.submit(ask(text), mark, Box::new(waiting.clone()));
        waiting
    }

    fn mark(digest: &str, may_repeat: bool) -> RetryMark {
        RetryMark { digest: digest.into(), may_repeat }
    }

    fn reply(text: &str) -> Reply {
        Reply {
            content: text.into(),
            calls: Vec::new(),
            finish: FinishReason::Stop,
            prompt_tokens: 1,
            response_tokens: 1,
        }
    }

    fn next(inbox: &Inbox) -> Option<String> {
        match inbox.wait(Instant::now() + Duration::from_millis(20), || false) {
            Event::Request(asked) => Some(asked.messages.last().unwrap().content.clone()),
            _ => None,
        }
    }

    #[test]
    fn a_retry_gets_the_answer_of_the_first_and_no_turn() {
        let inbox = Inbox::new(false);
        inbox.begin();
        let first = submit(&inbox, "a", mark("x", false));
        let waiting = submit(&inbox, "a", mark("x", true));
        assert_eq!(next(&inbox).as_deref(), Some("a"));
        let running = submit(&inbox, "a", mark("x", true));
        inbox.answer(&reply("b"));
        let late = submit(&inbox, "a", mark("x", true));
        for answer in [first, waiting, running, late] {
            assert_eq!(answer.answer().as_deref(), Some("b"));
        }
        assert_eq!((next(&inbox), inbox.agents().len()), (None, 1));
        let again = submit(&inbox, "a", mark("x", false));
        assert_eq!(next(&inbox).as_deref(), Some("a"));
        inbox.answer(&reply("c"));
        assert_eq!(again.answer().as_deref(), Some("c"));
    }

    #[test]
    fn requests_that_come_at_once_are_answered_in_turn_and_those_of_nobody_are_left_out() {
        let inbox = Inbox::new(false);
        inbox.begin();
        let one = submit(&inbox, "one", mark("1", true));
        submit(&inbox, "gone", mark("g", true)).1.store(true, Ordering::Relaxed);
        let two = submit(&inbox, "two", mark("2", true));
        assert_eq!(next(&inbox).as_deref(), Some("one"));
        inbox.answer(&reply("1"));
        assert_eq!(next(&inbox).as_deref(), Some("two"));
        inbox.end();
        assert_eq!(one.answer().as_deref(), Some("1"));
        assert_eq!(two.answer(), None);
        assert_eq!(submit(&inbox, "late", mark("3", true)).answer(), None);
        assert!(inbox.report(Report::default(), "posted").is_err());
    }

    #[test]
    fn an_episode_ends_with_a_report_or_with_the_output() {
        let inbox = Inbox::new(true);
        inbox.begin();
        inbox.line("loading");
        assert_eq!(next(&inbox), None);
        inbox.line(r#"{"reward": 1}"#);
        let soon = || Instant::now() + Duration::from_millis(20);
        assert!(matches!(inbox.wait(soon(), || false), Event::Finished));
        assert_eq!(inbox.outcome().unwrap().0.total(), 1.0);
        let inbox = Inbox::new(false);
        inbox.begin();
        inbox.line("0.25");
        assert!(matches!(inbox.wait(soon(), || false), Event::Timeout));
        inbox.exited();
        assert!(matches!(inbox.wait(soon(), || false), Event::Exited));
        assert_eq!(inbox.outcome().unwrap().0.total(), 0.25);
    }
}
