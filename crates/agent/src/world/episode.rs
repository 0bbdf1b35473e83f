//! One episode of an agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Map, Value, json};
use turnwise_core::{
    Action, ChatMessage, Conversation, EnvError, FinishReason, Metric, Observation, Part, Reply, Seed, Step,
    Task, Tool, TurnReward,
};

use super::{RewardRule, Shared};
use crate::inbox::{Event, Inbox};
use crate::program::Program;
use crate::rewards::Rewards;

/// Name of the metric that marks episodes with the reward `env.failure_reward`.
const FAILED: &str = "agent_failed";

pub(super) struct Episode {
    shared: Arc<Shared>,
    /// The running program; `None` once it has been returned for reuse.
    program: Option<Program>,
    inbox: Arc<Inbox>,
    key: String,
    pub(super) tools: Vec<Tool>,
    turns: usize,
    max_turns: usize,
}

impl Drop for Episode {
    fn drop(&mut self) {
        self.shared.gateway.close(&self.key);
        self.program = None;
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Episode {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        task: &Task,
        seed: Seed,
    ) -> Result<(Self, Observation), EnvError> {
        shared.running.fetch_add(1, Ordering::Relaxed);
        let idle = shared.take_idle();
        let inbox = idle.as_ref().map_or_else(
            || Arc::new(Inbox::new(shared.program.reused)),
            |program| Arc::clone(&program.inbox),
        );
        inbox.begin();
        let key = shared.gateway.open(Arc::clone(&inbox));
        let max_turns = task.limits.turns_within(shared.max_turns);
        let mut episode = Self {
            shared: Arc::clone(shared),
            program: idle,
            inbox,
            key,
            tools: Vec::new(),
            turns: 0,
            max_turns,
        };
        episode.send(task, seed)?;
        match episode.wait(shared.start_timeout()) {
            Event::Request(asked) => {
                episode.tools.clone_from(&asked.tools);
                Ok((episode, observation(*asked)))
            }
            Event::Finished => Err(episode.error("the agent ended the episode without a request")),
            Event::Exited => {
                let how = episode.exit();
                Err(episode.error(&format!("the agent ended without a request ({how})")))
            }
            Event::Timeout => {
                let limit = shared.config.start_timeout_s;
                Err(episode.error(&format!(
                    "the agent made no request within {limit} s (env.start_timeout_s) and was killed"
                )))
            }
        }
    }

    fn send(&mut self, task: &Task, seed: Seed) -> Result<(), EnvError> {
        let mut shown: Map<String, Value> = task.metadata.clone();
        for (key, value) in [("id", &task.id), ("kind", &task.kind), ("goal", &task.goal)] {
            shown.insert(key.to_owned(), value.as_str().into());
        }
        let base_url = self.shared.gateway.base_url();
        // JSON parsers keep 53 bits exactly.
        let seed = seed.rng().bits() >> 11;
        let shown = Value::Object(shown);
        let line =
            json!({"base_url": base_url, "api_key": self.key, "task": shown, "seed": seed}).to_string();
        let settings = &self.shared.program;
        let program = match &mut self.program {
            Some(program) => program,
            none => {
                let (task, seed) = (shown.to_string(), seed.to_string());
                let variables = [
                    ("OPENAI_BASE_URL", base_url.as_str()),
                    ("OPENAI_API_KEY", self.key.as_str()),
                    ("TURNWISE_TASK", task.as_str()),
                    ("TURNWISE_SEED", seed.as_str()),
                ];
                let started =
                    Program::start(settings, Arc::clone(&self.inbox), &variables).map_err(EnvError::Other)?;
                none.insert(started)
            }
        };
        program.send(&line, !settings.reused);
        Ok(())
    }

    fn wait(&mut self, limit: std::time::Duration) -> Event {
        let program = &mut self.program;
        self.inbox.wait(Instant::now() + limit, || program.as_mut().is_none_or(Program::has_ended))
    }

    pub(super) fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        match action {
            Action::Reply(reply) => self.inbox.answer(reply),
            other => self.inbox.answer(&Reply {
                content: other.text().into_owned(),
                calls: Vec::new(),
                finish: FinishReason::Stop,
                prompt_tokens: 0,
                response_tokens: 0,
            }),
        }
        self.turns += 1;
        match self.wait(self.shared.timeout()) {
            Event::Request(_) if self.turns >= self.max_turns => {
                let (observation, rewards) = self.rewards().map_err(EnvError::Other)?;
                let given = self.given(&rewards);
                let (success, metrics) = (self.success(&rewards), metrics(&rewards));
                Ok(Step {
                    observation,
                    truncated: true,
                    success,
                    understood: true,
                    metrics,
                    rewards: given,
                    ..Step::default()
                })
            }
            Event::Request(asked) => {
                Ok(Step { observation: observation(*asked), understood: true, ..Step::default() })
            }
            Event::Finished => self.finished(None),
            Event::Exited => {
                let how = self.exit();
                self.finished(Some(&how))
            }
            Event::Timeout => {
                let limit = self.shared.config.timeout_s;
                self.failed(&format!(
                    "the agent neither asked nor ended within {limit} s (env.timeout_s) and was killed"
                ))
            }
        }
    }

    /// Ends an episode with its rewards. `exit` is `None` if the program is still running.
    fn finished(&mut self, exit: Option<&Exit>) -> Result<Step, EnvError> {
        let config = &self.shared.config;
        let (observation, rewards) = match self.rewards() {
            Ok(found) => found,
            Err(reason) => return self.failed(&format!("the agent's report cannot be used: {reason}")),
        };
        if let Some(reason) = &rewards.error {
            return self.failed(&format!("the agent reported an error: {reason}"));
        }
        let by_code = config.reward == RewardRule::ExitCode;
        let mut given = self.given(&rewards);
        let mut total = rewards.total();
        match exit {
            // A signal does not tell whether the task was solved.
            Some(Exit { code: Some(code), .. }) if by_code => {
                let reward = if *code == 0 { 1.0 } else { 0.0 };
                total += reward;
                given.push(TurnReward {
                    turn: self.turns - 1,
                    reward,
                    rule: format!("episode, exit code {code}"),
                });
            }
            Some(exit) if exit.code != Some(0) => return self.failed(&format!("the agent crashed ({exit})")),
            _ if rewards.is_empty() && !by_code => {
                return self.failed(
                    "the agent ended without a reward; print a number or {\"reward\": 1.0} as its last line, post it to \
                     /v1/reward, or set env.reward = \"exit_code\"",
                );
            }
            _ => {}
        }
        let success = rewards.success.unwrap_or(total >= config.success_return);
        if exit.is_none()
            && let Some(program) = self.program.take()
        {
            self.shared.keep(program);
        }
        Ok(Step {
            observation,
            terminated: true,
            success,
            understood: true,
            metrics: metrics(&rewards),
            rewards: given,
            ..Step::default()
        })
    }

    /// Ends a failed episode, with an error unless `env.failure_reward` is set.
    fn failed(&mut self, reason: &str) -> Result<Step, EnvError> {
        let error = self.error(reason);
        let Some(reward) = self.shared.config.failure_reward else { return Err(error) };
        let rule = "failure, env.failure_reward".to_owned();
        Ok(Step {
            observation: Observation::new(error.to_string()).with_state_key("failure"),
            terminated: true,
            understood: true,
            metrics: vec![Metric::last(FAILED, 1.0)],
            rewards: vec![TurnReward { turn: self.turns - 1, reward, rule }],
            ..Step::default()
        })
    }

    fn error(&mut self, reason: &str) -> EnvError {
        let stderr = self.program.as_ref().map(Program::stderr).unwrap_or_default();
        EnvError::Other(format!("{reason}{stderr}"))
    }

    fn exit(&mut self) -> Exit {
        let status = self.program.as_mut().and_then(Program::exit);
        Exit {
            code: status.and_then(|status| status.code()),
            text: status.map_or_else(|| "its exit is not known".to_owned(), |status| status.to_string()),
        }
    }

    fn rewards(&self) -> Result<(Observation, Rewards), String> {
        let (rewards, last_line) = self.inbox.outcome()?;
        // Ends with equal rewards are the same state.
        let end = format!("end with {}", rewards.total());
        Ok((Observation::new(last_line).with_state_key(end), rewards))
    }

    fn given(&self, rewards: &Rewards) -> Vec<TurnReward> {
        let agents = self.inbox.agents();
        rewards.by_turn(&agents.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn success(&self, rewards: &Rewards) -> bool {
        rewards.success.unwrap_or(!rewards.is_empty() && rewards.total() >= self.shared.config.success_return)
    }
}

struct Exit {
    /// Exit code; `None` if a signal ended the program.
    code: Option<i32>,
    text: String,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.text)
    }
}

fn metrics(rewards: &Rewards) -> Vec<Metric> {
    rewards.metrics.iter().map(|(name, value)| Metric::last(name.clone(), *value)).collect()
}

/// Converts a request to an observation whose parts are the new messages.
pub fn observation(asked: Conversation) -> Observation {
    let new = &asked.messages[asked.continues.map_or(0, |earlier| earlier.messages)..];
    let part = |message: &ChatMessage| match (message.role.as_str(), &message.call_id) {
        ("tool", Some(id)) => Part::ToolResult { call_id: id.clone(), text: message.content.clone() },
        ("user", _) => Part::Text { text: message.content.clone() },
        (role, _) => Part::Message { role: role.to_owned(), text: message.content.clone() },
    };
    let parts = new.iter().map(part).collect();
    let state_key = Some(asked.state_key());
    Observation { parts, state_key, conversation: Some(Box::new(asked)), ..Observation::default() }
}
