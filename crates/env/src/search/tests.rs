use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use turnwise_core::{Action, EnvError, Environment, Metric, PendingStep, Purpose, Seed, Snapshot, TaskSet};
use turnwise_retrieval::{Bm25Retriever, Hit, Passage, RetrievalError, Retriever};

use super::*;

fn passages() -> Vec<Passage> {
    let passage =
        |(id, contents): (usize, &str)| Passage { id: id.to_string(), contents: contents.to_owned() };
    [
        "\"Ada Fenn\"\nAda Fenn was born in Port Ellis.",
        "\"Port Ellis\"\nPort Ellis lies on the Sarn.",
        "\"Trap\"\nA page with <answer> Sarn </answer> in it.",
    ]
    .into_iter()
    .enumerate()
    .map(passage)
    .collect()
}

fn question(id: &str, text: &str, golden: &[&str]) -> Question {
    Question {
        id: id.into(),
        dataset: "own".into(),
        text: text.into(),
        golden: golden.iter().map(|text| (*text).to_owned()).collect(),
        ..Question::default()
    }
}

fn set_with(retriever: Arc<dyn Retriever>, options: SearchOptions) -> SearchSet {
    let questions = vec![
        question("river", "On which river was Ada Fenn born?", &["Sarn", "the river Sarn"]),
        question("river", "Which river?", &["Sarn"]),
    ];
    SearchSet::new([Vec::new(), Vec::new(), questions], retriever, options)
}

fn set(options: SearchOptions) -> SearchSet {
    set_with(Arc::new(Bm25Retriever::in_memory(passages()).unwrap()), SearchOptions { top_k: 1, ..options })
}

fn reset(set: &SearchSet) -> SearchEnv {
    let mut environment = set.search();
    environment.reset(&set.split("test").unwrap()[0], Seed::derive(0, Purpose::Environment, &[])).unwrap();
    environment
}

fn value(metrics: &[Metric], name: &str) -> Option<f64> {
    metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
}

#[test]
fn an_episode_searches_and_answers() {
    let set = set(SearchOptions::default());
    let tasks = set.tasks("test").unwrap();
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["test/own/river", "test/own/river-2"]);
    assert_ne!(tasks[0].digest, tasks[1].digest);
    let mut environment = set.environment().unwrap();
    let first = environment.reset(&tasks[0], Seed::derive(0, Purpose::Environment, &[])).unwrap();
    assert_eq!(first.text(), "On which river was Ada Fenn born?");
    let found = environment.step(&Action::from("<search> Ada Fenn </search>")).unwrap();
    let shown =
        "\n\n<information>Doc 1(Title: \"Ada Fenn\") Ada Fenn was born in Port Ellis.</information>\n\n";
    assert_eq!(found.observation.text(), shown);
    assert!(found.understood && !found.terminated && found.reward == 0.0);
    assert_eq!(value(&found.metrics, "searches"), Some(1.0));
    let wrong = environment.step(&Action::from("Port Ellis")).unwrap();
    assert_eq!(wrong.observation.text(), INVALID);
    assert!(!wrong.understood);
    let end = environment.step(&Action::from("answer[The river SARN.]")).unwrap();
    assert!(end.terminated && end.success && end.reward == 1.0 && end.observation.text().is_empty());
    for (name, expected) in [("exact_match", 1.0), ("f1", 1.0), ("cover_match", 1.0), ("answer_found", 0.0)] {
        assert_eq!(value(&end.metrics, name), Some(expected), "{name}");
    }
    let over = environment.step(&Action::from("again")).unwrap_err().to_string();
    assert!(over.contains("the episode is over after 3 steps"), "{over}");
    let unknown = turnwise_core::Task::new("x", "k", "g");
    assert!(environment.reset(&unknown, Seed::derive(0, Purpose::Environment, &[])).is_err());
}

#[test]
fn passages_come_with_the_question_if_it_is_searched_for_first() {
    let first = SearchOptions { search_first: true, ..SearchOptions::default() };
    let set = set(first).with_max_steps(1);
    let mut environment = set.search();
    let tasks = set.tasks("test").unwrap();
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    let shown = environment.reset(&tasks[0], seed).unwrap();
    let expected = "On which river was Ada Fenn born?\n\n<information>Doc 1(Title: \"Ada Fenn\") Ada Fenn was born in Port \
                    Ellis.</information>\n\n";
    assert_eq!(shown.text(), expected);
    assert_eq!(tasks[0].goal, "On which river was Ada Fenn born?");
    let end = environment.step(&Action::from("<answer>Sarn</answer>")).unwrap();
    assert!(end.terminated && end.success);
    assert_eq!(value(&end.metrics, "answer_found"), Some(0.0));
    let nothing = set.search().reset(&tasks[1], seed).unwrap();
    assert_eq!(nothing.text(), "Which river?\n\n<information></information>\n\n");
    assert_eq!(
        reset(&self::set(SearchOptions::default())).reset(&tasks[1], seed).unwrap().text(),
        "Which river?"
    );
}

#[test]
fn the_last_step_searches_no_more() {
    let set = set(SearchOptions::default()).with_max_steps(2);
    let mut environment = reset(&set);
    assert!(
        !environment
            .step(&Action::from("<search>Port Ellis</search>"))
            .unwrap()
            .observation
            .text()
            .is_empty()
    );
    let end = environment.step(&Action::from("<search>Ada Fenn</search>")).unwrap();
    assert!(end.truncated && !end.terminated && !end.success && end.observation.text().is_empty());
    assert_eq!(value(&end.metrics, "searches"), None);
    assert_eq!(
        (value(&end.metrics, "exact_match"), value(&end.metrics, "answer_found")),
        (Some(0.0), Some(1.0))
    );
    let mut environment = reset(&set);
    environment.step(&Action::from("what")).unwrap();
    let end = environment.step(&Action::from("<answer>Sarn</answer>")).unwrap();
    assert!(end.terminated && !end.truncated && end.success);
}

#[test]
fn an_answer_in_a_passage_counts_where_the_whole_text_is_read() {
    for (answer_from, reward) in [(AnswerFrom::Action, 0.0), (AnswerFrom::Transcript, 1.0)] {
        let set = set(SearchOptions { answer_from, ..SearchOptions::default() }).with_max_steps(2);
        let mut environment = reset(&set);
        environment.step(&Action::from("<search>a page trap</search>")).unwrap();
        assert_eq!(environment.step(&Action::from("")).unwrap().reward, reward, "{answer_from:?}");
        let mut environment = reset(&set);
        environment.step(&Action::from("<search>a page trap</search>")).unwrap();
        assert_eq!(environment.step(&Action::from("<answer>Port Ellis</answer>")).unwrap().reward, 0.0);
    }
}

#[test]
fn rewards_are_those_of_the_setting() {
    for (reward, expected) in
        [(SearchReward::ExactMatch, 0.0), (SearchReward::F1, 0.5), (SearchReward::CoverMatch, 1.0)]
    {
        let set = set(SearchOptions { reward, ..SearchOptions::default() });
        let end = reset(&set).step(&Action::from("<answer>the Sarn and more words</answer>")).unwrap();
        // Four words, of which `Sarn` is golden: 2 * 1/4 * 1 / (1/4 + 1) = 0.4.
        if reward == SearchReward::F1 {
            assert!((end.reward - 0.4).abs() < 1e-12, "{}", end.reward);
        } else {
            assert_eq!(end.reward, expected);
        }
        assert!(!end.success);
    }
}

#[test]
fn a_saved_episode_goes_on_as_it_would_have() {
    let set = set(SearchOptions { answer_from: AnswerFrom::Transcript, ..SearchOptions::default() });
    let mut environment = reset(&set);
    environment.step(&Action::from("<search>Port Ellis</search>")).unwrap();
    let saved = environment.snapshot().unwrap().unwrap();
    let mut other = set.search();
    assert!(matches!(other.snapshot(), Err(EnvError::NotReset)));
    other.restore(&saved).unwrap();
    let end = Action::from("<answer>Sarn</answer>");
    assert_eq!(environment.step(&end).unwrap(), other.step(&end).unwrap());
    let foreign = String::from_utf8(saved.0).unwrap().replace("test/own/river", "test/own/sea");
    assert!(matches!(other.restore(&Snapshot(foreign.into_bytes())), Err(EnvError::UnknownTask(_))));
    assert!(other.restore(&Snapshot(b"{}".to_vec())).is_err());
}

#[derive(Default)]
struct Counting {
    calls: AtomicUsize,
    queries: Mutex<Vec<String>>,
    failures: AtomicUsize,
    fatal: bool,
}

impl Retriever for Counting {
    fn search(&self, queries: &[&str], _: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self
            .failures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(if self.fatal {
                RetrievalError::Index { reason: "broken".into() }
            } else {
                RetrievalError::Unreachable { server: "s".into(), reason: "refused".into() }
            });
        }
        self.queries.lock().unwrap().extend(queries.iter().map(|query| (*query).to_owned()));
        let hit = |query: &&str| {
            let passage = Passage { id: String::new(), contents: format!("\"{query}\"\ntext of {query}") };
            vec![Hit { passage: Arc::new(passage), score: 1.0 }]
        };
        Ok(queries.iter().map(hit).collect())
    }
}

fn step_all(
    set: &SearchSet,
    environments: &mut [SearchEnv],
    actions: &[&str],
) -> Vec<Result<String, EnvError>> {
    let actions: Vec<Action> = actions.iter().map(|text| Action::from(*text)).collect();
    let mut pending: Vec<PendingStep<'_>> = environments
        .iter_mut()
        .zip(&actions)
        .map(|(environment, action)| PendingStep { environment, action })
        .collect();
    set.step_many(&mut pending)
        .into_iter()
        .map(|step| step.map(|step| step.observation.into_text()))
        .collect()
}

#[test]
fn the_queries_of_many_go_to_the_retriever_in_one_call() {
    let retriever = Arc::new(Counting::default());
    let set = set_with(retriever.clone(), SearchOptions { instant: false, ..SearchOptions::default() });
    assert!(!set.is_instant() && set.batch_limit() > 1);
    let mut environments = [reset(&set), reset(&set), reset(&set), reset(&set)];
    let actions = ["<search>a</search>", "<answer>b</answer>", "<search>c</search>", "d"];
    let texts: Vec<String> =
        step_all(&set, &mut environments, &actions).into_iter().map(Result::unwrap).collect();
    assert!(texts[0].contains("text of a") && texts[2].contains("text of c"), "{texts:?}");
    assert_eq!((texts[1].as_str(), texts[3].as_str()), ("", INVALID));
    assert_eq!(retriever.calls.load(Ordering::Relaxed), 1);
    assert_eq!(*retriever.queries.lock().unwrap(), ["a", "c"]);
    let again = step_all(&set, &mut environments, &["e", "<search>f</search>", "g", "h"]);
    assert!(again[1].is_err() && again[0].is_ok() && again[2].is_ok());
    assert_eq!(retriever.calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_search_that_fails_changes_nothing_and_fails_for_those_who_asked() {
    for fatal in [false, true] {
        let retriever = Arc::new(Counting { failures: 1.into(), fatal, ..Counting::default() });
        let set = set_with(retriever.clone(), SearchOptions::default()).with_max_steps(2);
        let mut environments = [reset(&set), reset(&set)];
        let results = step_all(&set, &mut environments, &["<search>a</search>", "what"]);
        let error = results[0].as_ref().unwrap_err();
        assert_eq!(error.is_transient(), !fatal, "{error}");
        assert!(error.to_string().contains("the search failed"), "{error}");
        assert!(results[1].is_ok());
        let step = environments[0].step(&Action::from("<search>a</search>")).unwrap();
        assert!(step.observation.text().contains("text of a") && !step.truncated);
    }
}

#[test]
fn a_query_that_cannot_be_answered_fails_alone() {
    struct Picky {
        calls: AtomicUsize,
        error: RetrievalError,
    }
    impl Retriever for Picky {
        fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if queries.contains(&"bad") {
                return Err(self.error.clone());
            }
            Counting::default().search(queries, top_k)
        }
    }
    let status = |status| RetrievalError::Status { server: "s".into(), status, body: String::new() };
    // Queries are retried alone only if one may be the cause.
    for (error, calls) in [
        (RetrievalError::Encoder { reason: "no vector".into() }, 4),
        (status(500), 4),
        (status(503), 1),
        (RetrievalError::Timeout { server: "s".into(), seconds: "1".into() }, 1),
    ] {
        let retriever = Arc::new(Picky { calls: 0.into(), error: error.clone() });
        let set = set_with(retriever.clone(), SearchOptions::default());
        let mut environments = [reset(&set), reset(&set), reset(&set), reset(&set)];
        let actions = ["<search>a</search>", "<search>bad</search>", "what", "<search>c</search>"];
        let results = step_all(&set, &mut environments, &actions);
        assert_eq!(retriever.calls.load(Ordering::Relaxed), calls, "{error}");
        assert_eq!(results[0].is_ok() && results[3].is_ok(), calls > 1, "{error}");
        assert!(results[2].is_ok());
        let failed = results[1].as_ref().unwrap_err();
        assert_eq!(failed.is_transient(), error.is_transient(), "{failed}");
    }
}

#[test]
fn a_retriever_that_forgets_a_query_is_an_error_and_no_panic() {
    struct Short;
    impl Retriever for Short {
        fn search(&self, _: &[&str], _: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
            Ok(Vec::new())
        }
    }
    let set = set_with(Arc::new(Short), SearchOptions::default());
    let error = reset(&set).step(&Action::from("<search>a</search>")).unwrap_err().to_string();
    assert!(error.contains("0 lists of passages for 1 queries"), "{error}");
}
