//! Tests of the search environment: settings, files, and recordings and data sets of others.
//!
//! Some tests read the folder in `TURNWISE_DATA`; without it, they print that they are skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Table;
use turnwise_core::{Action, ContextMask, EnvError, Purpose, Seed, TaskSet as _};
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView};
use turnwise_env::registry::Registry;
use turnwise_env::replay::ReplayReport;
use turnwise_env::search::{SearchKind, SearchWorld};
use turnwise_env::world::{OpenOptions, ReplayRequest, World};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA");
    if folder.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    folder.map(|folder| PathBuf::from(folder).join("qa"))
}

fn open(settings: &str) -> Result<Box<dyn World>, EnvError> {
    open_for(settings, &[])
}

fn open_for(settings: &str, splits: &[&str]) -> Result<Box<dyn World>, EnvError> {
    let settings: Table = settings.parse().unwrap();
    let mut notes = |note: String| panic!("{note}");
    let mut options = OpenOptions { splits, max_turns: 4, note: &mut notes };
    Registry::builtin().kind("search").unwrap().open(&settings, &mut options)
}

fn open_file(file: &Path) -> Box<dyn World> {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    std::fs::write(&corpus, "{\"id\": \"0\", \"contents\": \"\\\"T\\\"\\ntext\"}\n").unwrap();
    let settings =
        format!("data = {:?}\ncorpus = {:?}", file.display().to_string(), corpus.display().to_string());
    open(&settings).unwrap()
}

fn search(world: &dyn World) -> &SearchWorld {
    let any: &dyn Any = world;
    any.downcast_ref::<SearchWorld>().unwrap()
}

#[test]
fn every_data_set_is_read() {
    let Some(folder) = data() else { return };
    for (file, count, dataset, id, first, golden) in [
        (
            "flashrag_subsample/nq.jsonl.zst",
            1000,
            "nq",
            "test_3283",
            "who told the story of the prodigal son?",
            "Jesus Christ",
        ),
        (
            "flashrag_subsample/popqa.jsonl.zst",
            1000,
            "popqa",
            "test_10207",
            "Who was the composer of Easy Living?",
            "Ralph Rainger",
        ),
        ("flashrag_subsample/triviaqa.jsonl.zst", 1000, "triviaqa", "test_6233", "", "Mark Twain"),
        ("flashrag_subsample/bamboogle.jsonl.zst", 125, "bamboogle", "test_0", "", "james madison"),
        (
            "multihop/2wiki_dev_questions.json.zst",
            12576,
            "2wiki_dev_questions",
            "0",
            "",
            "Małgorzata Braunek",
        ),
        ("multihop/hotpot_dev_v1_simplified.json.zst", 7405, "hotpot_dev_v1_simplified", "0", "", "yes"),
        ("multihop/musique_dev_2417.json.zst", 2417, "musique_dev_2417", "0", "", "Miquette Giraudy"),
        ("multihop/nq_open_test_3610.json.zst", 3610, "nq_open_test_3610", "0", "", "14 December 1972 UTC"),
        ("medical/ori_pqal.json.zst", 1000, "ori_pqal", "", "", ""),
        ("medical/phrases_no_exclude_test.jsonl.zst", 1273, "phrases_no_exclude_test", "0", "", "B"),
        (
            "medical/medmcqa_dev.json.zst",
            4183,
            "medmcqa_dev",
            "45258d3d-b974-44dd-a161-c3fccbdadd88",
            "",
            "A",
        ),
    ] {
        let world = open_file(&folder.join(file));
        let tasks = world.task_set().tasks("test").unwrap();
        assert_eq!(tasks.len(), count, "{file}");
        assert!(tasks.iter().all(|task| task.kind == dataset && !task.goal.is_empty()), "{file}");
        let question = search(&*world).set().question(&tasks[0].id).unwrap();
        if !golden.is_empty() {
            assert_eq!((question.id.as_str(), question.golden[0].as_str()), (id, golden), "{file}");
        }
        if !first.is_empty() {
            assert_eq!(question.text, first);
        }
        // Its own golden answer is right, another question's is not.
        for task in tasks.iter().step_by(97) {
            let question = search(&*world).set().question(&task.id).unwrap();
            assert!(question.scores(&question.golden[0]).exact, "{task:?}");
            assert!(!question.scores("no such answer").exact, "{task:?}");
        }
    }
    let pubmed = open_file(&folder.join("medical/ori_pqal.json.zst"));
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for task in pubmed.task_set().tasks("test").unwrap() {
        *answers.entry(search(&*pubmed).set().question(&task.id).unwrap().golden[0].clone()).or_default() +=
            1;
    }
    // The counts published by the data set's authors.
    let counts: Vec<(&str, usize)> =
        answers.iter().map(|(answer, count)| (answer.as_str(), *count)).collect();
    assert_eq!(counts, [("maybe", 110), ("no", 338), ("yes", 552)]);
}

#[test]
fn medical_questions_are_answered_without_a_search_or_with_one_before_the_first_turn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test-00000-of-00001.jsonl");
    std::fs::write(
        &file,
        r#"{"question": "Which bone is in the leg?", "subject": "anatomy", "choices": ["ulna", "tibia"], "answer": 1}"#,
    )
    .unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    std::fs::write(
        &corpus,
        "{\"id\": \"0\", \"contents\": \"\\\"Leg\\\"\\nThe tibia is a bone in the leg.\"}\n",
    )
    .unwrap();
    let data = format!("data = {:?}\n", file.display().to_string());
    let opened = |more: &str, notes: &mut Vec<String>| {
        let settings: Table = format!("{data}{more}").parse().unwrap();
        let mut note = |text: String| notes.push(text);
        let mut options = OpenOptions { splits: &[], max_turns: 1, note: &mut note };
        Registry::builtin().kind("search").unwrap().open(&settings, &mut options)
    };
    let first = |world: &dyn World| {
        let task = world.task_set().tasks("test").unwrap().remove(0);
        let mut environment = world.task_set().environment().unwrap();
        let shown = environment.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        let end = environment.step(&Action::from("<answer>B</answer>")).unwrap();
        assert!(end.terminated && end.success, "{task:?}");
        let found = end.metrics.iter().find(|metric| metric.name == "answer_found").unwrap().value;
        (shown.text().into_owned(), task, found)
    };
    let question = "Which bone is in the leg?\nA: ulna\nB: tibia";
    let mut notes = Vec::new();
    // Without any step to search in, no passages are needed.
    let (shown, task, found) = first(&*opened("", &mut notes).unwrap());
    assert_eq!((shown.as_str(), task.answer(), found), (question, Some("tibia"), 0.0));
    assert!(notes[0].contains("leaves no step to search in"), "{notes:?}");
    notes.clear();
    let rag = format!("search_first = true\ncorpus = {:?}", corpus.display().to_string());
    let (shown, task, found) = first(&*opened(&rag, &mut notes).unwrap());
    assert!(shown.starts_with(question) && shown.contains("Doc 1(Title: \"Leg\") The tibia is"), "{shown}");
    assert_eq!((task.goal.as_str(), notes.len(), found), (question, 0, 1.0));
    let error = opened("search_first = true", &mut notes).err().unwrap().to_string();
    assert!(error.contains("bring no passages along"), "{error}");
}

#[test]
fn questions_with_passages_are_searched_in_their_own() {
    let Some(folder) = data() else { return };
    let file = folder.join("with_passages.jsonl.zst");
    let world = open(&format!("data = {:?}", file.display().to_string())).unwrap();
    let set = search(&*world).set();
    let tasks = set.tasks("test").unwrap();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for task in &tasks {
        *kinds.entry(&task.kind).or_default() += 1;
    }
    assert!(kinds.len() == 3 && tasks.len() >= 300, "{kinds:?}");
    // The expert searches for the question itself, so the passages are about it.
    let request = turnwise_env::demonstration::DemonstrationRequest {
        split: "test",
        count: 100,
        max_turns: 4,
        ..Default::default()
    };
    let made = world.demonstrations(&request).unwrap().unwrap();
    assert!(made.episodes.len() > 40, "{}", made.episodes.len());
    assert!(made.episodes.iter().all(|episode| episode.turns.last().unwrap().reward == 1.0));
}

#[test]
fn a_task_searches_the_same_passages_whichever_splits_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let names = [("train", "Ada Fenn"), ("valid", "Bo Lind"), ("test", "Cy Wyl")];
    for (split, name) in names {
        // Of two passages with equal scores, the first of the collection is shown first.
        let line = format!(
            r#"{{"id": "{split}", "question": "Who is {name}?", "answer": "{name}",
            "context": [["{name}", ["{name} lives in {split}."]], ["Twin", ["The same twin of {split}."]]]}}"#
        );
        std::fs::write(folder.path().join(format!("{split}.jsonl")), line.replace('\n', " ")).unwrap();
    }
    let settings = format!("data = {:?}\ntop_k = 9", folder.path().display().to_string());
    let found = |opened: &[&str], split: &str| {
        let world = open_for(&settings, opened).unwrap();
        let set = world.task_set();
        for (other, _) in names {
            let count = usize::from(opened.is_empty() || opened.contains(&other));
            assert_eq!(set.tasks(other).unwrap().len(), count, "{other} of {opened:?}");
        }
        let mut environment = set.environment().unwrap();
        environment.reset(&set.tasks(split).unwrap()[0], Seed::derive(0, Purpose::Environment, &[])).unwrap();
        ["Ada Fenn", "Cy Wyl", "twin"].map(|query| {
            let search = Action::from(format!("<search>{query}</search>"));
            environment.step(&search).unwrap().observation.into_text()
        })
    };
    let all = found(&[], "test");
    assert!(all[0].contains("lives in train") && all[1].contains("lives in test"), "{all:?}");
    assert_eq!(all[2].matches("Doc ").count(), 3, "{all:?}");
    assert_eq!(found(&["test"], "test"), all);
    assert_eq!(found(&["valid", "test"], "test"), all);
    assert_eq!(found(&["train"], "train"), all);
}

fn replay(file: &Path, data: Option<&Path>) -> ReplayReport {
    let request = ReplayRequest {
        name: "recording",
        recording: turnwise_files::open(file).unwrap(),
        data,
        unanswered: &[],
        dump: None,
    };
    Registry::builtin().kind("search").unwrap().replay(request).unwrap()
}

#[test]
fn the_recorded_episodes_replay_without_a_difference() {
    let Some(folder) = data() else { return };
    let collection = folder.join("wiki18");
    for (file, counts) in [
        ("search_r1_full_transcripts_bamboogle_instruct_125.json", "41 episodes, 78 searches, 0 differences"),
        ("search_r1_full_transcripts_nq_base_200.json", "66 episodes, 65 searches, 0 differences"),
    ] {
        let report = replay(&folder.join(file), None);
        assert_eq!(report.counts, counts, "{:?}", report.differences.first());
        let report = replay(&folder.join(file), Some(&collection));
        assert!(report.differences.is_empty(), "{}: {:?}", report.counts, report.differences.first());
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let place = tempfile::tempdir().unwrap();
        let doctored = place.path().join("doctored.json");
        for (from, to) in
            [("<information>Doc 1(Title: ", "<information>Doc 2(Title: "), ("\"em\": 1.0", "\"em\": 0.0")]
        {
            assert!(text.contains(from), "{from}");
            std::fs::write(&doctored, text.replacen(from, to, 1)).unwrap();
            assert!(!replay(&doctored, None).differences.is_empty(), "{from}");
        }
    }
}

#[test]
fn the_world_opens_from_nothing_and_writes_its_files() {
    let small =
        "generator = { people = 400, towns = 40, works = 80, events = 40, train = 60, valid = 8, test = 8 }";
    let world = open(small).unwrap();
    let sizes = ["train", "valid", "test"].map(|split| world.task_set().tasks(split).unwrap().len());
    assert_eq!(sizes, [60, 8, 8]);
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::builtin();
    let written =
        registry.kind("search").unwrap().write_files(&small.parse().unwrap(), folder.path()).unwrap();
    assert_eq!(written, 76);
    // The files give the same environment except for the expert's plan.
    let path = |name: &str| folder.path().join(name).display().to_string();
    let read = open(&format!("data = {:?}\ncorpus = {:?}", path(""), path("passages.jsonl"))).unwrap();
    for split in ["train", "valid", "test"] {
        assert_eq!(read.task_set().tasks(split).unwrap(), world.task_set().tasks(split).unwrap(), "{split}");
    }
    let one = open(&format!(
        "data = {{ test = [{:?}] }}\ncorpus = {:?}",
        path("valid.jsonl"),
        path("passages.jsonl")
    ));
    assert_eq!(one.unwrap().task_set().tasks("test").unwrap().len(), 8);
}

#[test]
fn settings_that_cannot_work_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().display().to_string();
    let questions = folder.path().join("q.jsonl");
    std::fs::write(&questions, "{\"question\": \"q\", \"answer\": \"a\"}").unwrap();
    let questions = questions.display().to_string();
    for (settings, expected) in [
        ("retriever.kind = \"http\"".to_owned(), "retriever.url"),
        (
            "retriever = { kind = \"http\", url = \"http://x\" }".to_owned(),
            "cannot be opened by this program",
        ),
        ("corpus = \"c.jsonl\"".to_owned(), "name questions with data"),
        (format!("data = {empty:?}"), "no file of questions called train"),
        (format!("data = {questions:?}"), "bring no passages along"),
        ("data = \"no/such/file\"".to_owned(), "no/such/file"),
        ("top_k = 0".to_owned(), "top_k"),
        ("generator.kinds = []".to_owned(), "generator.kinds"),
        ("generator.kinds = [\"four-hop\"]".to_owned(), "generator.kinds"),
        ("data = 3".to_owned(), "data"),
    ] {
        let error = open(&settings).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{settings}: {error}");
    }
}

#[test]
fn retrievers_are_handed_in() {
    struct Nothing;
    impl turnwise_retrieval::Retriever for Nothing {
        fn search(
            &self,
            queries: &[&str],
            _: usize,
        ) -> Result<Vec<Vec<turnwise_retrieval::Hit>>, turnwise_retrieval::RetrievalError> {
            Ok(queries.iter().map(|_| Vec::new()).collect())
        }
    }
    let kind = SearchKind::default().with_retrievers(Arc::new(|settings| {
        assert_eq!(settings.url.as_deref(), Some("http://x"));
        Ok(Arc::new(Nothing))
    }));
    let registry = Registry::builtin().with(kind);
    let settings: Table = "retriever = { kind = \"http\", url = \"http://x\" }".parse().unwrap();
    let mut options = OpenOptions { splits: &[], max_turns: 4, note: &mut |_| {} };
    let world = registry.kind("search").unwrap().open(&settings, &mut options).unwrap();
    assert!(!world.task_set().is_instant());
}

#[test]
fn prompts_are_those_of_the_originals() {
    let history: Vec<(String, String)> = [
        ("Who?", "<search>a</search>"),
        ("<information>{\"result\": \"A\"}</information>", "<search>b</search>"),
    ]
    .map(|(seen, done)| (seen.to_owned(), done.to_owned()))
    .to_vec();
    let view = PromptView {
        goal: "Who?",
        history: &history,
        window: 4,
        observation: "<information>{\"result\": \"B\"}</information>",
        admissible: &[],
        step: 2,
    };
    let turn = "Now it's your turn to respond for the current step.\nYou should first conduct reasoning process. This process MUST be enclosed within <think> </think> tags. \nAfter completing your reasoning, choose only one of the following actions (do not perform both):\n(1) If you find you lack some knowledge, you can call a search engine to get more external information using format: <search> your query </search>.\n(2) If you have enough knowledge to answer the question confidently, provide your final answer within <answer> </answer> tags, without detailed illustrations. For example, <answer>Beijing</answer>.\n";
    let head = "\nYou are an expert agent tasked with answering the given question step-by-step.\n";
    let verl = PromptTemplate::named("search-verl-agent").unwrap();
    let later = format!(
        "{head}Your question: Who?\n\nPrior to this step, you have already taken 2 step(s). Below is the interaction history where <search> </search> wrapped your past search queries and <information> </information> wrapped the corresponding search results returned by the external search engine. History:\nStep 1:<search>a</search> <information>{{\"result\": \"A\"}}</information>\n\nStep 2:<search>b</search> <information>{{\"result\": \"B\"}}</information>\n\n\n{turn}"
    );
    assert_eq!(verl.render(&view, PromptKind::Full), later);
    let first = PromptView { history: &[], observation: "Who?", step: 0, ..view };
    assert_eq!(verl.render(&first, PromptKind::Full), format!("{head}Your question: Who?\n\n{turn}"));
    // A window of one shows the last search with its own number.
    let narrow = PromptView { window: 1, ..view };
    let shown = verl.render(&narrow, PromptKind::Full);
    assert!(shown.contains("History:\nStep 2:<search>b</search> ") && !shown.contains("Step 1:"), "{shown}");
    let own = PromptTemplate::named("search").unwrap().render(&view, PromptKind::Full);
    assert!(own.contains("So far you have taken 2 step(s):\n<search>a</search>"), "{own}");
    for name in [
        "search",
        "search-r1",
        "search-compact",
        "search-medical",
        "search-medical-cot",
        "search-medical-direct",
        "search-medical-rag",
        "search-stapo",
        "search-verl-agent",
    ] {
        let template = PromptTemplate::named(name).unwrap();
        let blind = template.render(&view, PromptKind::Masked(ContextMask::GoalAndHistory));
        assert!(!blind.is_empty(), "{name}: the selective term has nothing to score a response after");
        assert!(
            !blind.contains("Who?") && !blind.contains("<search>a") && !blind.contains("\"B\""),
            "{name}: {blind}"
        );
        let goal = template.render(&view, PromptKind::Masked(ContextMask::Goal));
        assert!(
            !goal.contains("Who?") && goal.contains("<search>a</search>") && goal.contains("\"B\""),
            "{name}: {goal}"
        );
        let history = template.render(&view, PromptKind::Masked(ContextMask::History));
        assert!(history.contains("Who?") && !history.contains("<search>a"), "{name}: {history}");
        let full = template.render(&view, PromptKind::Full);
        assert!(full.contains("Who?") && full.contains("\"A\"") && full.contains("\"B\""), "{name}: {full}");
    }
}
