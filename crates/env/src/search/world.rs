use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_retrieval::{Passage, RetrieverKind};
use turnwise_settings::Problem;

use super::environment::AnswerFrom;
use super::expert::{Expert, demonstrate};
use super::files::{self, TableReader};
use super::format::ObservationFormat;
use super::generator::{Generated, SearchGenerator, generate};
use super::phrases::phrases;
use super::question::{Question, SearchReward};
use super::replay::replay;
use super::retriever::{OpenRetriever, RetrieverSettings};
use super::set::{DEFAULT_MAX_STEPS, SearchOptions, SearchSet};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::replay::ReplayReport;
use crate::splits::SPLITS;
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The environment kind `search`.
///
/// Programs can add retrievers other than `bm25`, and readers for question files other than JSON:
///
/// ```
/// use std::sync::Arc;
///
/// use turnwise_env::registry::Registry;
/// use turnwise_env::search::SearchKind;
/// use turnwise_retrieval::RetrievalError;
///
/// let kind = SearchKind::default().with_retrievers(Arc::new(|settings| {
///     Err(RetrievalError::Setting { key: "url".into(), reason: format!("{:?} is not there", settings.url) })
/// }));
/// let registry = Registry::builtin().with(kind);
/// assert!(registry.kind("search").is_ok());
/// ```
#[derive(Clone, Default)]
pub struct SearchKind {
    retrievers: Option<OpenRetriever>,
    tables: Option<TableReader>,
}

impl SearchKind {
    /// Adds a function that opens retrievers other than `bm25`.
    #[must_use]
    pub fn with_retrievers(self, open: OpenRetriever) -> Self {
        Self { retrievers: Some(open), ..self }
    }

    /// Adds a function that reads tables, such as Parquet files.
    #[must_use]
    pub fn with_tables(self, read: TableReader) -> Self {
        Self { tables: Some(read), ..self }
    }
}

/// Question files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum SearchData {
    /// A file, whose questions become the split `test`, or a folder with files named `train`,
    /// `valid` or `dev`, and `test`. File names end in `.jsonl`, `.json` (or either with `.zst`),
    /// or `.parquet`.
    Path(PathBuf),
    /// Files by split.
    Splits(SearchFiles),
}

/// Files by split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchFiles {
    /// Files of `train`.
    pub train: Vec<PathBuf>,
    /// Files of `valid`.
    pub valid: Vec<PathBuf>,
    /// Files of `test`.
    pub test: Vec<PathBuf>,
}

/// Settings of the search environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSettings {
    /// Questions in JSON, optionally zstd-compressed, or Parquet. Default: a generated
    /// encyclopaedia.
    ///
    /// A path names a file, whose questions become the split `test`, or a folder with files named
    /// after the splits. A table lists files by split:
    /// `data = { train = ["nq.jsonl"], test = ["bamboogle.jsonl"] }`. Supported layouts: FlashRAG's
    /// JSON Lines (`question`, `golden_answers`), NQ, TriviaQA, PopQA, HotpotQA, 2WikiMultihopQA,
    /// MuSiQue, Bamboogle, MedQA, MedMCQA, PubMedQA, MMLU, MMLU-Pro, MedXpertQA and AlphaMed19K.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<SearchData>,
    /// Passages for `bm25`: JSON Lines with `id` and `contents` (as in wiki-18) or `title` and
    /// `text`. Default: the passages that come with the questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corpus: Option<PathBuf>,
    /// Retriever.
    pub retriever: RetrieverSettings,
    /// Passages per search.
    #[schemars(range(min = 1, max = 100))]
    pub top_k: usize,
    /// Observation format.
    pub format: ObservationFormat,
    /// Maximum number of tokens per observation. Longer observations are truncated, which may cut
    /// off the closing tag. Search-R1 uses 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub observation_tokens: Option<usize>,
    /// Show passages for the question (without options) before the first turn. With
    /// `max_turns = 1`, the episode is retrieval-augmented generation. The queries of different
    /// episodes are sent in separate calls.
    pub search_first: bool,
    /// Score used as the reward. Success always means an exact match.
    pub reward: SearchReward,
    /// Source of an episode's answer.
    pub answer_from: AnswerFrom,
    /// Settings of the generated encyclopaedia; ignored if `data` is set.
    pub generator: SearchGenerator,
    /// Demonstration expert.
    pub expert: SearchExpert,
}

impl Default for SearchSettings {
    fn default() -> Self {
        let SearchOptions { top_k, format, reward, answer_from, observation_tokens, search_first, .. } =
            SearchOptions::default();
        Self {
            data: None,
            corpus: None,
            retriever: RetrieverSettings::default(),
            top_k,
            format,
            observation_tokens,
            search_first,
            reward,
            answer_from,
            generator: SearchGenerator::default(),
            expert: SearchExpert::default(),
        }
    }
}

/// Demonstration expert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchExpert {
    /// Probability that the expert guesses the answer of a generated question instead of making its
    /// last search. SFT imitates the guess even if it is wrong.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub early_answer_prob: f64,
}

/// Search environment with its loaded questions.
#[derive(Clone, Debug)]
pub struct SearchWorld {
    set: SearchSet,
    expert: SearchExpert,
    top_k: usize,
    generated: bool,
}

impl SearchWorld {
    /// Returns the task set.
    pub fn set(&self) -> &SearchSet {
        &self.set
    }
}

const TEMPLATES: [(&str, &str); 9] = [
    ("search-r1", include_str!("../../templates/search-r1.toml")),
    ("search-compact", include_str!("../../templates/search-compact.toml")),
    ("search-medical", include_str!("../../templates/search-medical.toml")),
    ("search-medical-cot", include_str!("../../templates/search-medical-cot.toml")),
    ("search-medical-direct", include_str!("../../templates/search-medical-direct.toml")),
    ("search-medical-rag", include_str!("../../templates/search-medical-rag.toml")),
    ("search-stapo", include_str!("../../templates/search-stapo.toml")),
    ("search-verl-agent", include_str!("../../templates/search-verl-agent.toml")),
    ("search", include_str!("../../templates/search.toml")),
];

const STEMS: [&[&str]; 3] = [&["train"], &["valid", "dev", "validation"], &["test"]];
const ENDS: [&str; 5] = ["jsonl", "jsonl.zst", "json", "json.zst", "parquet"];

impl SearchData {
    fn files(&self) -> Result<[Vec<PathBuf>; 3], EnvError> {
        let folder = match self {
            Self::Splits(SearchFiles { train, valid, test }) => {
                return Ok([train.clone(), valid.clone(), test.clone()]);
            }
            Self::Path(path) if !path.is_dir() => return Ok([Vec::new(), Vec::new(), vec![path.clone()]]),
            Self::Path(folder) => folder,
        };
        let names = |stems: &[&str]| -> Vec<PathBuf> {
            stems
                .iter()
                .flat_map(|stem| ENDS.iter().map(move |end| folder.join(format!("{stem}.{end}"))))
                .collect()
        };
        let found = STEMS.map(|stems| {
            names(stems).into_iter().find(|path| path.is_file()).into_iter().collect::<Vec<_>>()
        });
        if found.iter().all(Vec::is_empty) {
            return Err(EnvError::File {
                path: folder.display().to_string(),
                reason: "there is no file of questions called train, valid, dev or test (.jsonl, .json, .parquet); name the files: \
                         data = { test = [\"..\"] }"
                    .to_owned(),
            });
        }
        Ok(found)
    }
}

impl SearchKind {
    fn questions(
        &self,
        data: &SearchData,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<[Vec<Question>; 3], EnvError> {
        let mut found: [Vec<Question>; 3] = Default::default();
        for ((name, files), found) in SPLITS.iter().zip(data.files()?).zip(&mut found) {
            if !wanted(name) {
                continue;
            }
            for file in files {
                found.extend(files::questions(&file, self.tables.as_ref())?);
            }
        }
        Ok(found)
    }
}

/// Returns the distinct passages that come with the questions of all splits. Splits that are not
/// opened are included, so the passages do not depend on the choice of splits.
fn own_passages(opened: &[Vec<Question>; 3], others: &[Vec<Question>; 3]) -> Result<Vec<Passage>, EnvError> {
    let mut seen = HashSet::new();
    let questions = opened.iter().zip(others).flat_map(|(opened, others)| opened.iter().chain(others));
    let passages: Vec<Passage> = questions
        .flat_map(|question| &question.passages)
        .filter(|passage| seen.insert(passage.contents.as_str()))
        .map(|passage| (**passage).clone())
        .collect();
    if passages.is_empty() {
        return Err(EnvError::Other(
            "[env] corpus: these questions bring no passages along, so there is nothing to search in; name a file of passages \
             with corpus, or another retriever"
                .to_owned(),
        ));
    }
    Ok(passages)
}

impl WorldKind for SearchKind {
    type Settings = SearchSettings;

    fn name(&self) -> &'static str {
        "search"
    }

    fn summary(&self) -> &'static str {
        "answering questions with what a search engine finds"
    }

    fn has_progress(&self) -> bool {
        false
    }

    fn rules(&self, settings: &SearchSettings) -> Vec<Problem> {
        let problems = settings.retriever.problems(settings.corpus.as_deref());
        let mut found: Vec<Problem> =
            problems.into_iter().map(|(key, reason)| Problem::new(key, reason)).collect();
        if settings.corpus.is_some() && settings.data.is_none() {
            let reason = "is set, and the generated questions are about the generated encyclopaedia; name questions with data";
            found.push(Problem::new("corpus", reason));
        }
        found
    }

    fn open(
        &self,
        settings: &SearchSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let generated = settings.data.is_none();
        let is_asked_for = |split: &str| options.splits.is_empty() || options.splits.contains(&split);
        let (splits, passages) = match &settings.data {
            None => {
                let Generated { passages, splits } = generate(&settings.generator)?;
                (splits, passages)
            }
            Some(data) => (self.questions(data, is_asked_for)?, Vec::new()),
        };
        let collection = || match (&settings.data, &settings.corpus) {
            (None, _) => Ok(passages),
            (Some(_), Some(path)) => files::passages(path, self.tables.as_ref()),
            (Some(data), None) => own_passages(&splits, &self.questions(data, |split| !is_asked_for(split))?),
        };
        let searches = options.max_turns > 1 || settings.search_first;
        let retriever = if searches {
            settings.retriever.open(self.retrievers.as_ref(), collection)?
        } else {
            RetrieverSettings::default().open(None, || Ok(Vec::new()))?
        };
        let mut splits = splits;
        // The retriever has them, or they are not used.
        splits.iter_mut().flatten().for_each(|question| question.passages = Vec::new());
        let search_options = SearchOptions {
            top_k: settings.top_k,
            format: settings.format,
            reward: settings.reward,
            answer_from: settings.answer_from,
            observation_tokens: settings.observation_tokens,
            search_first: settings.search_first,
            instant: settings.retriever.is_instant(),
        };
        if !searches {
            (options.note)(
                "env.max_turns = 1 leaves no step to search in: nothing is searched at the last one".into(),
            );
        }
        let set = SearchSet::new(splits, retriever, search_options).with_max_steps(options.max_turns);
        Ok(Box::new(SearchWorld { set, expert: settings.expert.clone(), top_k: settings.top_k, generated }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_STEPS,
            splits: &["test"],
            template: "search",
            react_template: None,
        }
    }

    fn play_settings(&self, seed: u64, _: bool) -> SearchSettings {
        let generator =
            SearchGenerator { seed, train: 1000, valid: 100, test: 100, ..SearchGenerator::default() };
        SearchSettings { generator, ..SearchSettings::default() }
    }

    fn play_help(&self) -> &'static str {
        "  search[words] shows passages; answer[words] ends the episode"
    }

    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        let file = |name: &str| folder.join(name).display().to_string();
        vec![format!("data.test=[{:?}]", file("test.jsonl")), format!("corpus={}", file("passages.jsonl"))]
    }

    fn write_files(&self, settings: &SearchSettings, folder: &Path) -> Result<usize, EnvError> {
        if settings.data.is_some() || settings.retriever.kind != RetrieverKind::Bm25 {
            return Err(EnvError::Unsupported(
                "to be written as files with data or another retriever than bm25",
            ));
        }
        let Generated { passages, splits } = generate(&settings.generator)?;
        let failed = |path: &Path, source| EnvError::io(path, source);
        std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let write = |name: &str, lines: String| {
            let path = folder.join(name);
            turnwise_files::write_atomically(&path, lines.as_bytes()).map_err(|source| failed(&path, source))
        };
        let line =
            |passage: &Passage| format!("{}\n", json!({"id": passage.id, "contents": passage.contents}));
        write("passages.jsonl", passages.iter().map(line).collect())?;
        for (split, questions) in SPLITS.iter().zip(&splits) {
            let line = |question: &Question| {
                let Question { id, dataset, text, golden, .. } = question;
                let record =
                    json!({"id": id, "dataset": dataset, "question": text, "golden_answers": golden});
                format!("{record}\n")
            };
            write(&format!("{split}.jsonl"), questions.iter().map(line).collect())?;
        }
        Ok(splits.iter().map(Vec::len).sum())
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        if request.dump.is_some() {
            return Err(EnvError::Other("recordings of search cannot be written, only replayed".into()));
        }
        replay(request)
    }
}

impl World for SearchWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert.early_answer_prob).map(Some)
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(phrases(self.set.format(), self.top_k, self.generated))
    }

    fn split_numbers(&self) -> bool {
        true
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(Expert::new(self.set.question(&task.id)?.clone()))))
    }
}
