//! Tests of the search world: recordings, questions from Parquet files, games played by following
//! the expert's hints.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::turnwise;

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Questions as the hub's files have them: each has a list of golden answers.
fn write_questions(path: &Path, questions: &[(&str, &[&str])]) {
    let schema = "message schema { optional binary question (utf8); optional group golden_answers (list) { repeated group \
                  list { optional binary element (utf8); } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = |texts: &[&str]| texts.iter().map(|&text| ByteArray::from(text)).collect::<Vec<_>>();
    let asked: Vec<&str> = questions.iter().map(|(question, _)| *question).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts(&asked), Some(&vec![1; asked.len()]), None).unwrap();
    column.close().unwrap();
    let answers: Vec<&str> = questions.iter().flat_map(|(_, answers)| answers.iter().copied()).collect();
    let repeated: Vec<i16> = questions
        .iter()
        .flat_map(|(_, answers)| (0..answers.len()).map(|index| i16::from(index > 0)))
        .collect();
    let mut column = group.next_column().unwrap().unwrap();
    let defined = vec![3; answers.len()];
    column.typed::<ByteArrayType>().write_batch(&texts(&answers), Some(&defined), Some(&repeated)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn questions_of_a_parquet_file_are_played() {
    let folder = tempfile::tempdir().unwrap();
    let (questions, corpus) = (folder.path().join("towns.parquet"), folder.path().join("corpus.jsonl"));
    write_questions(&questions, &[("Where was Ada born", &["Oslo", "Port Ellis"])]);
    fs::write(&corpus, "{\"id\": \"0\", \"contents\": \"\\\"Ada\\\"\\nAda was born in Port Ellis.\"}\n")
        .unwrap();
    let data = format!("data={}", questions.display());
    let corpus = format!("corpus={}", corpus.display());
    let play = |input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .args(["play", "search", &data, &corpus])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        stdout(&child.wait_with_output().unwrap())
    };
    let said = play("hint\nsearch[Ada born]\nhint\nanswer[the port, Ellis]\n");
    for expected in [
        "Where was Ada born?",
        "the expert would: <search> Where was Ada born? </search>",
        "Doc 1(Title: \"Ada\") Ada was born in Port Ellis.",
        "the expert would: <answer> Port Ellis </answer>",
        "Solved in 2 steps.",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let said = play("answer[Ellis]\n");
    assert!(said.contains("cover_match 0.000") && said.contains("the task is not solved"), "{said}");
}

#[test]
fn recorded_episodes_replay_and_doctored_ones_fail() {
    let Some(data) = std::env::var_os("TURNWISE_DATA") else {
        println!("skipped: TURNWISE_DATA not set");
        return;
    };
    let folder = Path::new(&data).join("qa");
    let file = folder.join("search_r1_full_transcripts_nq_base_200.json");
    let collection = folder.join("wiki18");
    let (file, collection) = (file.to_str().unwrap(), collection.to_str().unwrap());
    let output = turnwise(&["env", "replay", "search", file]);
    assert_eq!(stdout(&output), "66 episodes, 65 searches, 0 differences\n");
    let output = turnwise(&["env", "replay", "search", file, "--data", collection]);
    let counts = "66 episodes, 65 searches, 0 differences (65 blocks made from the collection)\n";
    assert_eq!(stdout(&output), counts);
    let recording = fs::read_to_string(file).unwrap();
    let place = tempfile::tempdir().unwrap();
    let doctored = place.path().join("doctored.json");
    for (from, to, field) in [
        ("\"em\": 1.0", "\"em\": 0.0", ", exact match ("),
        ("Doc 2(Title", "Doc 4(Title", ", observation ("),
        ("Answer the given question. You", "Answer a question. You", ", prompt ("),
    ] {
        fs::write(&doctored, recording.replacen(from, to, 1)).unwrap();
        let output = turnwise(&["env", "replay", "search", doctored.to_str().unwrap()]);
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(field), "{said}");
    }
    // Words of a passage are compared where the collection is there.
    let (from, to) = ("may annul the laws and rules", "may annul the rules and laws");
    assert!(recording.contains(from));
    fs::write(&doctored, recording.replacen(from, to, 1)).unwrap();
    let output = turnwise(&["env", "replay", "search", doctored.to_str().unwrap(), "--data", collection]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}
