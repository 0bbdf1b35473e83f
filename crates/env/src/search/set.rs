use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use turnwise_core::{EnvError, Environment, PendingStep, Step, Task, TaskLimits, TaskSet};
use turnwise_retrieval::Retriever;

use super::environment::{AnswerFrom, SearchEnv, step_many};
use super::format::ObservationFormat;
use super::question::{Question, SearchReward};
use crate::splits::{SPLITS, tasks_of};

/// Default step limit, as in verl-agent.
pub(super) const DEFAULT_MAX_STEPS: usize = 4;
/// Maximum number of queries per call to a slow retriever.
const BATCH: usize = 256;

/// Options of a [`SearchSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchOptions {
    /// Passages per search.
    pub top_k: usize,
    /// Observation format.
    pub format: ObservationFormat,
    /// Score used as the reward.
    pub reward: SearchReward,
    /// Source of an episode's answer.
    pub answer_from: AnswerFrom,
    /// Maximum tokens per observation.
    pub observation_tokens: Option<usize>,
    /// Whether the first observation contains passages found for the question.
    pub search_first: bool,
    /// Whether searches never wait for another process.
    pub instant: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            top_k: 3,
            format: ObservationFormat::default(),
            reward: SearchReward::default(),
            answer_from: AnswerFrom::default(),
            observation_tokens: None,
            search_first: false,
            instant: true,
        }
    }
}

pub(super) struct Shared {
    pub(super) retriever: Arc<dyn Retriever>,
    pub(super) options: SearchOptions,
    questions: Vec<Question>,
    places: HashMap<String, usize>,
    splits: [Vec<Task>; 3],
}

impl Shared {
    pub(super) fn question(&self, task: &str) -> Result<&Question, EnvError> {
        let place = self.places.get(task).ok_or_else(|| EnvError::UnknownTask(task.to_owned()))?;
        Ok(&self.questions[*place])
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let questions = self.questions.len();
        to.debug_struct("Shared")
            .field("options", &self.options)
            .field("questions", &questions)
            .finish_non_exhaustive()
    }
}

/// Questions as a task set.
///
/// A task's kind is the dataset of its question, or the question type if the question is generated.
/// A task's id consists of split, dataset and question id.
#[derive(Clone, Debug)]
pub struct SearchSet {
    shared: Arc<Shared>,
    max_steps: usize,
}

impl SearchSet {
    /// Creates a set from the questions of `train`, `valid` and `test`. If an id repeats, a number
    /// is added to make it unique.
    pub fn new(splits: [Vec<Question>; 3], retriever: Arc<dyn Retriever>, options: SearchOptions) -> Self {
        let mut questions = Vec::with_capacity(splits.iter().map(Vec::len).sum());
        let mut places = HashMap::new();
        let mut tasks: [Vec<Task>; 3] = Default::default();
        let limits = TaskLimits { observation_tokens: options.observation_tokens, ..TaskLimits::default() };
        for ((split, found), tasks) in SPLITS.into_iter().zip(splits).zip(&mut tasks) {
            for question in found {
                let name = format!("{split}/{}/{}", question.dataset, question.id);
                let mut id = name.clone();
                for number in 2.. {
                    if !places.contains_key(&id) {
                        break;
                    }
                    id = format!("{name}-{number}");
                }
                places.insert(id.clone(), questions.len());
                let task = Task::new(id, question.dataset.clone(), question.prompt());
                let answer = question.answer().map(|answer| (Task::ANSWER.to_owned(), answer.into()));
                let metadata = answer.into_iter().collect();
                tasks.push(Task { digest: question.digest(), limits, metadata, ..task });
                questions.push(question);
            }
        }
        let shared = Shared { retriever, options, questions, places, splits: tasks };
        Self { shared: Arc::new(shared), max_steps: DEFAULT_MAX_STEPS }
    }

    /// Sets the step limit.
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Returns the step limit.
    pub fn max_steps(&self) -> usize {
        self.max_steps
    }

    /// Returns the observation format.
    pub fn format(&self) -> ObservationFormat {
        self.shared.options.format
    }

    /// Returns a task's question.
    ///
    /// # Errors
    /// Fails if the task is unknown.
    pub fn question(&self, task: &str) -> Result<&Question, EnvError> {
        self.shared.question(task)
    }

    /// Returns a split's tasks without copying.
    ///
    /// # Errors
    /// Fails if the split is unknown.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        tasks_of(&self.shared.splits, split)
    }

    /// Creates an environment.
    pub fn search(&self) -> SearchEnv {
        SearchEnv::new(Arc::clone(&self.shared), self.max_steps)
    }
}

impl TaskSet for SearchSet {
    fn name(&self) -> &'static str {
        "search"
    }

    fn splits(&self) -> Vec<String> {
        SPLITS.map(str::to_owned).to_vec()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split).map(<[Task]>::to_vec)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.search()))
    }

    fn is_instant(&self) -> bool {
        self.shared.options.instant
    }

    fn batch_limit(&self) -> usize {
        BATCH
    }

    fn step_many(&self, pending: &mut [PendingStep<'_>]) -> Vec<Result<Step, EnvError>> {
        step_many(&self.shared, pending)
    }
}
