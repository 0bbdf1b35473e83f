//! Compares this environment with recorded episodes of Search-R1's models.
//!
//! A recording is a JSON list or JSON Lines:
//!
//! ```text
//! {"id", "question", "golden_answers": [..],
//!  "output": {"query": the prompt, "final_response": everything after it, "pred": the answer,
//!             "metric_score": {"em", "acc", "f1"}}}
//! ```
//!
//! Prompt, action types, observations, answer, exact match, cover match (`acc`) and F1 must be
//! equal. If a folder with `passages.jsonl` (`id`, `contents`) and `retrievals.jsonl` (`qid`,
//! `query`, `topk_doc_ids`) is given, the passages must be equal too, except for quotation marks
//! around titles.

use std::collections::{HashMap, VecDeque};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use turnwise_core::{Action, EnvError, Environment as _, Purpose, Seed, Step, TaskSet as _};
use turnwise_retrieval::{Hit, Passage, RetrievalError, Retriever};

use super::action::Request;
use super::files::json_values;
use super::question::{Question, with_mark};
use super::set::{SearchOptions, SearchSet};
use crate::parse::ActionParser;
use crate::prompt::{PromptTemplate, PromptView};
use crate::replay::{Checker, ReplayReport};
use crate::world::ReplayRequest;

const TEMPLATE: &str = "search-r1";
const SEARCHED: &str = "</search>";
const SHOWN: &str = "</information>";

#[derive(Deserialize)]
struct Recording {
    id: String,
    question: String,
    golden_answers: Vec<String>,
    output: Output,
}

#[derive(Deserialize)]
struct Output {
    query: String,
    final_response: String,
    pred: String,
    metric_score: MetricScore,
}

#[derive(Deserialize)]
struct MetricScore {
    em: f64,
    acc: f64,
    f1: f64,
}

#[derive(Default)]
struct Collection {
    passages: HashMap<String, Arc<Passage>>,
    found: HashMap<(String, String), Vec<String>>,
}

#[derive(Deserialize)]
struct Retrieval {
    qid: String,
    query: String,
    topk_doc_ids: Vec<Value>,
}

#[derive(Deserialize)]
struct Contents {
    id: Value,
    contents: String,
}

impl Collection {
    fn read(folder: &Path) -> Result<Self, EnvError> {
        let name = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let passages =
            json_values::<Contents>(&existing(folder, "passages.jsonl"))?.into_iter().map(|passage| {
                let id = name(&passage.id);
                (id.clone(), Arc::new(Passage { id, contents: passage.contents }))
            });
        let found =
            json_values::<Retrieval>(&existing(folder, "retrievals.jsonl"))?.into_iter().map(|retrieval| {
                let ids = retrieval.topk_doc_ids.iter().map(name).collect();
                ((retrieval.qid, retrieval.query), ids)
            });
        Ok(Self { passages: passages.collect(), found: found.collect() })
    }

    /// Returns the recorded passages. Quotation marks around titles are changed to those of the
    /// observation, because passage collections differ in these marks.
    fn hits(&self, question: &str, query: &str, shown: &[Hit]) -> Option<Vec<Hit>> {
        let ids = self.found.get(&(question.to_owned(), query.to_owned()))?;
        let passage = |(place, id): (usize, &String)| {
            let passage = self.passages.get(id)?;
            let recorded = shown.get(place).map(|hit| hit.passage.title());
            let alike = recorded.filter(|title| title.trim_matches('"') == passage.title().trim_matches('"'));
            let contents = format!("{}\n{}", alike.unwrap_or(passage.title()), passage.text());
            Some(hit(Arc::new(Passage { id: id.clone(), contents })))
        };
        ids.iter().enumerate().map(passage).collect()
    }
}

fn existing(folder: &Path, name: &str) -> PathBuf {
    let packed = folder.join(format!("{name}.zst"));
    if packed.exists() { packed } else { folder.join(name) }
}

fn hit(passage: Arc<Passage>) -> Hit {
    Hit { passage, score: 0.0 }
}

#[derive(Default)]
struct Queued(Mutex<VecDeque<Vec<Hit>>>);

impl Retriever for Queued {
    fn search(&self, queries: &[&str], _: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(queries.iter().map(|_| lists.pop_front().unwrap_or_default()).collect())
    }
}

/// Parses passages; each starts with a line that contains `Doc`, a number and `(Title: `.
fn passages(block: &str) -> Vec<Hit> {
    let body = block.trim_start_matches('\n').strip_prefix("<information>").unwrap_or(block);
    let body = body.trim_end_matches('\n').strip_suffix(SHOWN).unwrap_or(body);
    let mut found: Vec<String> = Vec::new();
    for line in body.split('\n') {
        let numbered = line.strip_prefix("Doc ").and_then(|rest| rest.split_once("(Title: "));
        match (numbered, found.last_mut()) {
            (Some((number, rest)), _) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                found.push(rest.replacen(") ", "\n", 1));
            }
            (_, Some(last)) => {
                last.push('\n');
                last.push_str(line);
            }
            (_, None) => found.push(line.to_owned()),
        }
    }
    let passage = |contents: String| hit(Arc::new(Passage { id: String::new(), contents }));
    found.into_iter().map(passage).collect()
}

fn turns(response: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), response);
    while let Some(at) = rest.find(SEARCHED) {
        let (written, after) = rest.split_at(at + SEARCHED.len());
        let end = after
            .find(SHOWN)
            .filter(|end| after[..*end].trim_start().starts_with("<information>") || *end == 0);
        let Some(end) = end.map(|end| end + SHOWN.len()) else { break };
        let newlines = after[end..].bytes().take(2).take_while(|byte| *byte == b'\n').count();
        found.push((written, &after[..end + newlines]));
        rest = &after[end + newlines..];
    }
    found.push((rest, ""));
    found
}

/// Returns the user message of a prompt in Qwen's chat format, or else the whole prompt.
fn user_words(prompt: &str) -> &str {
    let inside = || prompt.split_once("<|im_start|>user\n")?.1.split_once("<|im_end|>");
    inside().map_or(prompt, |(words, _)| words)
}

/// Replays a recording. Differences from the recording are not errors.
pub(super) fn replay(request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
    let ReplayRequest { name, mut recording, data, .. } = request;
    let collection = data.map(Collection::read).transpose()?;
    let mut text = String::new();
    recording.read_to_string(&mut text).map_err(|source| EnvError::Io { path: name.to_owned(), source })?;
    let unreadable = |error: serde_json::Error| EnvError::File {
        path: name.to_owned(),
        reason: format!("this is no recording of search episodes: {error}"),
    };
    let recordings: Vec<Recording> = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text).map_err(unreadable)?
    } else {
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().map_err(unreadable)?
    };
    let template = PromptTemplate::named(TEMPLATE)?;
    let mut differences = Vec::new();
    let mut counts = Counts::default();
    for (episode, recording) in (1..).zip(&recordings) {
        let mut checker =
            Checker::new(&mut differences, episode, format!("{}: {}", recording.id, recording.question));
        check(recording, &template, collection.as_ref(), &mut checker, &mut counts)?;
    }
    let mut text = format!(
        "{} episodes, {} searches, {} differences",
        recordings.len(),
        counts.searches,
        differences.len()
    );
    if collection.is_some() {
        text.push_str(&format!(" ({} blocks made from the collection)", counts.from_collection));
    }
    Ok(ReplayReport { counts: text, unit: "episode", differences })
}

#[derive(Default)]
struct Counts {
    searches: usize,
    from_collection: usize,
}

fn check(
    recording: &Recording,
    template: &PromptTemplate,
    collection: Option<&Collection>,
    checker: &mut Checker<'_>,
    counts: &mut Counts,
) -> Result<(), EnvError> {
    let question = Question {
        id: recording.id.clone(),
        text: with_mark(&recording.question),
        golden: recording.golden_answers.clone(),
        ..Question::default()
    };
    let view = PromptView {
        goal: &question.text,
        history: &[],
        window: 0,
        observation: &question.text,
        admissible: &[],
        step: 0,
    };
    checker.add("prompt", user_words(&recording.output.query), &template.render_concatenated_first(&view));
    let retriever = Arc::new(Queued::default());
    let queued = Arc::clone(&retriever);
    let set =
        SearchSet::new([Vec::new(), Vec::new(), vec![question.clone()]], retriever, SearchOptions::default());
    let turns = turns(&recording.output.final_response);
    let set = set.with_max_steps(turns.len() + 1);
    let mut environment = set.search();
    let task = &set.tasks("test")?[0];
    environment.reset(task, Seed::derive(0, Purpose::Environment, &[]))?;
    let parser = ActionParser::new(template.rules().clone(), false);
    let mut last = Step::default();
    let mut answer = String::new();
    for (number, (written, shown)) in (1..).zip(&turns) {
        checker.at(number);
        let action = Action::from(parser.parse(written, &[]).action);
        let request = Request::of(&action);
        let kind =
            if shown.is_empty() { written.contains("</answer>").then_some("answer") } else { Some("search") };
        let found = match request {
            Request::Search(_) => Some("search"),
            Request::Answer(_) => Some("answer"),
            Request::Unknown => None,
        };
        checker.add("action", kind.unwrap_or("none"), found.unwrap_or("none"));
        if let Request::Search(query) = request {
            counts.searches += 1;
            let shown = passages(shown);
            let known = collection.map(|collection| collection.hits(&recording.id, query, &shown));
            if let Some(None) = known {
                checker.add("query", "one that the recorded retriever was asked", query);
            }
            let known = known.flatten();
            counts.from_collection += usize::from(known.is_some());
            let hits = known.unwrap_or(shown);
            queued.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(hits);
        }
        if let Request::Answer(text) = request {
            text.clone_into(&mut answer);
        }
        last = environment.step(&action)?;
        if !shown.is_empty() {
            checker.add("observation", *shown, &*last.observation.text());
        }
    }
    let Output { pred, metric_score, .. } = &recording.output;
    checker.add("answer", pred.as_str(), answer.as_str());
    let measured = |name: &str| {
        last.metrics.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value)
    };
    checker.add("exact match", &metric_score.em, &measured("exact_match"));
    checker.add("cover match", &metric_score.acc, &measured("cover_match"));
    checker.add("F1", &metric_score.f1, &measured("f1"));
    checker.add("reward", &metric_score.em, &last.reward);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recording() -> Value {
        let block = "\n\n<information>Doc 1(Title: \"Ada Fenn\") Ada Fenn built it.\nDoc 2(Title: A (film)) It was won.</information>\n\n";
        json!([{
            "id": "test_1",
            "question": "who built the theatre",
            "golden_answers": ["Ada Fenn", "Fenn"],
            "output": {
                "query": "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nAnswer the given question. You must conduct reasoning inside <think> and </think> first every time you get new information. After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query </search> and it will return the top searched results between <information> and </information>. You can search as many times as your want. If you find no further external knowledge needed, you can directly provide the answer inside <answer> and </answer>, without detailed illustrations. For example, <answer> Beijing </answer>. Question: who built the theatre?\n<|im_end|>\n<|im_start|>assistant\n",
                "final_response": format!("<think>I look.</think> <search> theatre </search>{block}<answer> Ada Fenn, builder </answer>"),
                "pred": "Ada Fenn, builder",
                "metric_score": {"em": 0.0, "acc": 1.0, "f1": 0.8}
            }
        }])
    }

    fn report(text: &str, data: Option<&Path>) -> Result<ReplayReport, EnvError> {
        let recording = Box::new(std::io::Cursor::new(text.to_owned()));
        replay(ReplayRequest { name: "episodes.json", recording, data, unanswered: &[], dump: None })
    }

    #[test]
    fn every_change_of_a_recording_is_found() {
        let text = recording().to_string();
        assert_eq!(report(&text, None).unwrap().counts, "1 episodes, 1 searches, 0 differences");
        for (from, to, fields) in [
            ("Doc 2(Title", "Doc 3(Title", &["observation"][..]),
            ("Doc 1(Title: ", "Doc 1 (Title: ", &["observation"]),
            ("</information>\\n\\n<answer>", "</information>\\n<answer>", &["observation"]),
            ("<search> theatre </search>", "theatre </search>", &["action", "observation"]),
            (
                "<answer> Ada Fenn, builder </answer>",
                "<answer> Ada Fenn, builder",
                &["answer", "cover match", "F1"],
            ),
            (
                "<answer> Ada Fenn, builder </answer>",
                "<answer> Fenn </answer>",
                &["answer", "exact match", "F1", "reward"],
            ),
            ("\"f1\":0.8", "\"f1\":0.9", &["F1"]),
            ("\"em\":0.0", "\"em\":1.0", &["exact match", "reward"]),
            ("\"acc\":1.0", "\"acc\":0.0", &["cover match"]),
            ("\"pred\":\"Ada", "\"pred\":\"A", &["answer"]),
            ("Question: who built the theatre?", "Question: who built the theatre", &["prompt"]),
            ("[\"Ada Fenn\"", "[\"Ada\"", &["F1"]),
        ] {
            assert!(text.contains(from), "{from}");
            let report = report(&text.replacen(from, to, 1), None).unwrap();
            let found: Vec<&str> = report.differences.iter().map(|difference| difference.field).collect();
            assert_eq!(found, fields, "{from}: {:?}", report.differences);
        }
    }

    #[test]
    fn with_the_collection_the_words_of_passages_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, lines: &[Value]| {
            let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
            std::fs::write(folder.path().join(name), lines.join("\n")).unwrap();
        };
        write(
            "passages.jsonl",
            &[
                json!({"id": "7", "contents": "\"Ada Fenn\"\nAda Fenn built it."}),
                json!({"id": "8", "contents": "A (film)\nIt was won."}),
            ],
        );
        write("retrievals.jsonl", &[json!({"qid": "test_1", "query": "theatre", "topk_doc_ids": [7, 8]})]);
        let text = recording().to_string();
        let counts = "1 episodes, 1 searches, 0 differences (1 blocks made from the collection)";
        assert_eq!(report(&text, Some(folder.path())).unwrap().counts, counts);
        for (from, to, field) in [
            ("Fenn built it.", "Fenn burnt it.", "observation"),
            ("<search> theatre </search>", "<search> theatres </search>", "query"),
        ] {
            let report = report(&text.replacen(from, to, 1), Some(folder.path())).unwrap();
            let found: Vec<&str> = report.differences.iter().map(|difference| difference.field).collect();
            assert_eq!(found, [field]);
        }
    }

    #[test]
    fn what_is_no_recording_is_named() {
        for text in ["[{\"id\": 1}]", "{}", "[", "no JSON"] {
            let error = report(text, None).unwrap_err().to_string();
            assert!(error.starts_with("episodes.json: this is no recording"), "{error}");
        }
        let error = report(&recording().to_string(), Some(Path::new("no/folder"))).unwrap_err().to_string();
        assert!(error.contains("passages.jsonl"), "{error}");
    }
}
