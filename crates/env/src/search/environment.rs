use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{
    Action, EnvError, Environment, Metric, Observation, PendingStep, Seed, Snapshot, Step, Task,
};
use turnwise_retrieval::{Hit, RetrievalError};

use super::action::{ADMISSIBLE, Request};
use super::answer::{Scores, last_answer};
use super::retriever::search_failed;
use super::set::Shared;
use crate::saved::SavedEpisode;

/// Source of an episode's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFrom {
    /// The answer action only.
    #[default]
    Action,
    /// The last `<answer>` block of the whole episode, as in Search-R1 and verl-agent. The block
    /// may be in a retrieved passage, and it counts even if the agent took no answer action.
    Transcript,
}

/// Environment for the questions of a [`super::SearchSet`].
///
/// An episode ends with an answer (`terminated`) or at the step limit (`truncated`). A search in
/// the last step is not executed, because no turn is left to use its passages. Invalid output gets
/// the format's error message and uses up a turn.
pub struct SearchEnv {
    shared: Arc<Shared>,
    max_steps: usize,
    episode: Option<Episode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Episode {
    task: String,
    steps: usize,
    searches: usize,
    found: bool,
    over: bool,
    transcript: String,
}

impl SavedEpisode for Episode {
    const WORLD: &'static str = "search";
    const FORMAT: &'static str = "turnwise.search.episode";
    const VERSION: u32 = 1;
}

impl SearchEnv {
    pub(super) fn new(shared: Arc<Shared>, max_steps: usize) -> Self {
        Self { shared, max_steps, episode: None }
    }

    fn playing(&self) -> Result<&Episode, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::Other(format!(
                "{}: the episode is over after {} steps; call `reset` before the next `step`",
                episode.task, episode.steps
            )));
        }
        Ok(episode)
    }

    fn query<'a>(&self, action: &'a Action) -> Result<Option<&'a str>, EnvError> {
        let last = self.playing()?.steps + 1 >= self.max_steps;
        Ok(match Request::of(action) {
            Request::Search(query) if !last => Some(query),
            _ => None,
        })
    }

    /// Executes an action, given the passages that its search found. The episode is not modified
    /// before this call, so a failed search can be retried.
    fn carry_out(&mut self, action: &Action, hits: Option<&[Hit]>) -> Result<Step, EnvError> {
        let shared = Arc::clone(&self.shared);
        let Some(episode) = self.episode.as_mut() else { return Err(EnvError::NotReset) };
        let question = shared.question(&episode.task)?;
        episode.steps += 1;
        let request = Request::of(action);
        let terminated = matches!(request, Request::Answer(_));
        let truncated = !terminated && episode.steps >= self.max_steps;
        episode.over = terminated || truncated;
        let text = match (request, hits) {
            (_, Some(hits)) => {
                episode.searches += 1;
                // Slow, so it stops after the first match.
                episode.found =
                    episode.found || hits.iter().any(|hit| question.is_answered_in(&hit.passage.contents));
                shared.options.format.information(hits)
            }
            // The last step has no observation.
            (Request::Unknown, None) if !episode.over => shared.options.format.invalid().to_owned(),
            (_, None) => String::new(),
        };
        let whole = shared.options.answer_from == AnswerFrom::Transcript;
        if whole {
            episode.transcript.push_str(&request.text());
            episode.transcript.push_str(&text);
        }
        let mut metrics = Vec::new();
        if hits.is_some() {
            metrics.push(Metric::sum("searches", 1.0));
        }
        let mut scores = Scores::default();
        if episode.over {
            let answer = match request {
                _ if whole => last_answer(&episode.transcript, 1),
                Request::Answer(answer) => Some(answer),
                _ => None,
            };
            scores = answer.map(|answer| question.scores(answer)).unwrap_or_default();
            metrics.extend(measured(&scores, episode.found));
        }
        let mut observation = Observation::new(text);
        if !episode.over {
            observation.admissible = ADMISSIBLE.map(str::to_owned).to_vec();
        }
        Ok(Step {
            observation,
            reward: if episode.over { shared.options.reward.of(&scores) } else { 0.0 },
            progress: None,
            terminated,
            truncated,
            success: scores.exact,
            understood: request != Request::Unknown,
            metrics,
            rewards: Vec::new(),
        })
    }
}

/// Returns the metrics. `answer_found` means that a retrieved passage contained a golden answer.
fn measured(scores: &Scores, found: bool) -> [Metric; 4] {
    let number = |yes: bool| f64::from(u8::from(yes));
    [
        Metric::last("exact_match", number(scores.exact)),
        Metric::last("f1", scores.f1),
        Metric::last("cover_match", number(scores.cover)),
        Metric::last("answer_found", number(found)),
    ]
}

fn search(shared: &Shared, queries: &[&str]) -> Result<Vec<Vec<Hit>>, RetrievalError> {
    let found = shared.retriever.search(queries, shared.options.top_k)?;
    if found.len() != queries.len() {
        return Err(RetrievalError::Index {
            reason: format!(
                "the retriever gave {} lists of passages for {} queries",
                found.len(),
                queries.len()
            ),
        });
    }
    Ok(found)
}

/// Sends all queries in one call. If the call fails and a query may be the cause, sends each query
/// separately.
fn search_each(shared: &Shared, queries: &[&str]) -> Vec<Result<Vec<Hit>, RetrievalError>> {
    match search(shared, queries) {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(error) if queries.len() > 1 && error.may_lie_in_a_query() => {
            let alone = |query: &&str| search(shared, &[*query]).map(|mut found| found.swap_remove(0));
            queries.iter().map(alone).collect()
        }
        Err(error) => vec![Err(error); queries.len()],
    }
}

fn of_this_set(environment: &mut dyn Environment) -> Result<&mut SearchEnv, EnvError> {
    let any: &mut dyn Any = environment;
    any.downcast_mut().ok_or(EnvError::Unsupported("to be stepped with those of this set"))
}

pub(super) fn step_many(shared: &Shared, pending: &mut [PendingStep<'_>]) -> Vec<Result<Step, EnvError>> {
    let mut queries = Vec::new();
    let mut asked: Vec<Result<Option<usize>, EnvError>> = Vec::with_capacity(pending.len());
    for PendingStep { environment, action } in pending.iter_mut() {
        let query = of_this_set(&mut **environment).and_then(|played| played.query(action));
        asked.push(query.map(|query| {
            query.map(|query| {
                queries.push(query);
                queries.len() - 1
            })
        }));
    }
    let found = if queries.is_empty() { Vec::new() } else { search_each(shared, &queries) };
    let steps = pending.iter_mut().zip(asked);
    let step = |(PendingStep { environment, action }, asked): (
        &mut PendingStep<'_>,
        Result<Option<usize>, EnvError>,
    )| {
        let hits = match asked?.map(|place| &found[place]) {
            None => None,
            Some(Ok(hits)) => Some(hits.as_slice()),
            Some(Err(error)) => return Err(search_failed(error)),
        };
        of_this_set(&mut **environment)?.carry_out(action, hits)
    };
    steps.map(step).collect()
}

impl Environment for SearchEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.episode = None;
        let question = self.shared.question(&task.id)?;
        let mut prompt = question.prompt();
        let mut found = false;
        let first = self.shared.options.search_first;
        if first {
            let hits = search(&self.shared, &[&question.text]).map_err(|error| search_failed(&error))?;
            found = hits[0].iter().any(|hit| question.is_answered_in(&hit.passage.contents));
            prompt.push_str(&self.shared.options.format.information(&hits[0]));
        }
        self.episode = Some(Episode {
            task: task.id.clone(),
            steps: 0,
            searches: usize::from(first),
            found,
            over: false,
            transcript: String::new(),
        });
        Ok(Observation::new(prompt).with_admissible(ADMISSIBLE.map(str::to_owned).to_vec()))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let found = match self.query(action)? {
            Some(query) => Some(search(&self.shared, &[query]).map_err(|error| search_failed(&error))?),
            None => None,
        };
        self.carry_out(action, found.as_ref().map(|found| found[0].as_slice()))
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        self.episode.as_ref().ok_or(EnvError::NotReset)?.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Episode::read(snapshot)?;
        self.shared.question(&saved.task)?;
        self.episode = Some(saved);
        Ok(())
    }
}
