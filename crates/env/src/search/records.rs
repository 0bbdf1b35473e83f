//! Parses questions of existing datasets.
//!
//! | part | keys |
//! |---|---|
//! | question | `question`, `QUESTION`, `Question` |
//! | answers | `golden_answers`, `answer`, `answers` or `Answer` (text, list, or object with `value` and `aliases`), `answer_aliases`, `possible_answers` (list or its JSON text), `reward_model.ground_truth.target`, `final_decision` |
//! | options | see `options.rs` |
//! | passages | `passages`, `paragraphs` (objects with `title` and `text` or `paragraph_text`), `context` or `CONTEXTS` (pairs of title and sentences, lists `title` and `sentences`, or texts) |
//! | name | `id`, `_id`, `question_id`, `QuestionId`, `pubid` |
//! | data set | `dataset`, `data_source` |

use std::sync::Arc;

use serde_json::{Map, Value};
use turnwise_retrieval::Passage;

use super::choice::Choices;
use super::options::{Asked, asked};
use super::question::{Question, with_mark};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedFrom {
    Zero,
    One,
}

impl CountedFrom {
    /// Determines whether MedMCQA's `cop` counts options from 0, as in Hugging Face's Parquet
    /// files, or from 1, as in the original JSON. If `cop` is 0 in any record, all records count
    /// from 0.
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a Value>) -> Self {
        let zero = records.into_iter().any(|record| record.get("cop").and_then(Value::as_i64) == Some(0));
        if zero { Self::Zero } else { Self::One }
    }
}

/// Parses a question. `number` and `dataset` are used if the record lacks an id or a dataset name.
pub(super) fn question(
    record: &Value,
    number: usize,
    dataset: &str,
    counted: CountedFrom,
) -> Result<Question, String> {
    let Value::Object(record) = record else {
        return Err(
            "this is no JSON object; a question is one, with `question` and `golden_answers`".to_owned()
        );
    };
    let text = ["question", "QUESTION", "Question"].iter().find_map(|key| record.get(*key)?.as_str());
    let text = text.ok_or("there is no `question`; name a file of questions")?;
    let Asked { text, choices } = asked(record, text, counted)?;
    let golden = answers(record, choices.as_ref());
    if golden.is_empty() && choices.is_none() {
        return Err(
            "there is no answer (`golden_answers` or one of the keys of a known data set), so nothing can be judged; name a \
             split with answers"
                .to_owned(),
        );
    }
    let name = ["id", "_id", "question_id", "QuestionId", "pubid"];
    let id = name.iter().find_map(|key| text_of(record.get(*key)?)).unwrap_or_else(|| number.to_string());
    let dataset =
        ["dataset", "data_source"].iter().find_map(|key| record.get(*key)?.as_str()).unwrap_or(dataset);
    // Medical cases need no question mark.
    let text = if choices.is_some() { text.trim().to_owned() } else { with_mark(text) };
    let passages = passages(record, &id);
    Ok(Question { id, dataset: dataset.to_owned(), text, golden, choices, passages, plan: Vec::new() })
}

pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the texts in a value, including those of a JSON list inside a text (PopQA's
/// `possible_answers`).
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter_map(text_of).collect(),
        Value::String(text) if text.starts_with('[') => match serde_json::from_str::<Vec<String>>(text) {
            Ok(items) => items,
            Err(_) => vec![text.clone()],
        },
        Value::Object(fields) => {
            let named = ["value", "Value", "aliases", "Aliases"].iter().filter_map(|key| fields.get(*key));
            named.flat_map(texts).collect()
        }
        other => text_of(other).into_iter().collect(),
    }
}

fn answers(record: &Map<String, Value>, choices: Option<&Choices>) -> Vec<String> {
    if let Some(Choices { options, right }) = choices {
        let (label, text) = &options[*right];
        return vec![label.clone(), text.clone()];
    }
    let lists = ["golden_answers", "answers", "answer", "Answer", "possible_answers", "final_decision"];
    let target = || record.get("reward_model")?.get("ground_truth")?.get("target");
    let said = |value: &&Value| texts(value).iter().any(|text| !text.trim().is_empty());
    let first = lists.iter().filter_map(|key| record.get(*key)).find(said).or_else(target);
    let aliases = record.get("answer_aliases");
    let mut found: Vec<String> = Vec::new();
    for text in first.into_iter().chain(aliases).flat_map(texts) {
        if !text.trim().is_empty() && !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

fn passages(record: &Map<String, Value>, id: &str) -> Vec<Arc<Passage>> {
    let mut found: Vec<(String, String)> = Vec::new();
    for value in ["passages", "paragraphs", "context", "CONTEXTS"].iter().filter_map(|key| record.get(*key)) {
        match value {
            Value::Array(items) => found.extend(items.iter().filter_map(titled)),
            Value::Object(columns) => {
                let list = |key: &str| columns.get(key).and_then(Value::as_array);
                if let (Some(titles), Some(sentences)) = (list("title"), list("sentences")) {
                    let pairs = titles.iter().zip(sentences);
                    found.extend(
                        pairs.filter_map(|(title, text)| Some((title.as_str()?.to_owned(), joined(text)?))),
                    );
                } else if let Some(contexts) = list("contexts") {
                    found.extend(contexts.iter().filter_map(titled));
                }
            }
            _ => {}
        }
    }
    let number = |(number, (title, text)): (usize, (String, String))| {
        let contents = if title.is_empty() { format!("\n{text}") } else { format!("\"{title}\"\n{text}") };
        Arc::new(Passage { id: format!("{id}-{number}"), contents })
    };
    found.into_iter().enumerate().map(number).collect()
}

fn titled(value: &Value) -> Option<(String, String)> {
    match value {
        Value::String(text) => Some((String::new(), text.clone())),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(title), text] => Some((title.clone(), joined(text)?)),
            _ => None,
        },
        Value::Object(fields) => {
            let text = fields.get("text").or_else(|| fields.get("paragraph_text"))?.as_str()?;
            let title = fields.get("title").and_then(Value::as_str).unwrap_or_default();
            Some((title.to_owned(), text.to_owned()))
        }
        _ => None,
    }
}

/// Joins sentences without adding spaces, because HotpotQA's sentences already start with a space.
fn joined(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(sentences) => {
            let sentences: Vec<&str> = sentences.iter().filter_map(Value::as_str).collect();
            Some(sentences.concat().trim().to_owned())
        }
        _ => None,
    }
}

/// Parses a passage from `contents`, as in wiki-18, or from `title` and `text`.
pub(super) fn passage(record: &Value, number: usize) -> Option<Passage> {
    let id = record.get("id").and_then(text_of).unwrap_or_else(|| number.to_string());
    let contents = if let Some(contents) = record.get("contents") {
        contents.as_str()?.to_owned()
    } else {
        let (title, text) = titled(record)?;
        format!("\"{title}\"\n{text}")
    };
    Some(Passage { id, contents })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(record: &Value) -> Question {
        question(record, 7, "file", CountedFrom::of([record])).unwrap()
    }

    #[test]
    fn answers_are_found_in_every_layout() {
        for (record, golden) in [
            (json!({"question": "q", "golden_answers": ["a", "b", "a"]}), &["a", "b"][..]),
            (json!({"question": "q", "answer": "a"}), &["a"]),
            (json!({"question": "q", "answer": "a", "answer_aliases": ["b"]}), &["a", "b"]),
            (json!({"question": "q", "answer": {"value": "a", "aliases": ["a", "b"]}}), &["a", "b"]),
            (json!({"Question": "q", "Answer": {"Value": "a", "Aliases": ["b"]}}), &["a", "b"]),
            (json!({"question": "q", "possible_answers": "[\"a\", \"b\"]"}), &["a", "b"]),
            (json!({"question": "q", "reward_model": {"ground_truth": {"target": ["a"]}}}), &["a"]),
            (json!({"QUESTION": "q", "final_decision": "yes"}), &["yes"]),
            (json!({"question": "q", "answer": 1912}), &["1912"]),
            (json!({"question": "q", "answers": null, "answer": "a"}), &["a"]),
            (json!({"question": "q", "golden_answers": [], "answer": "a"}), &["a"]),
        ] {
            let found = read(&record);
            assert_eq!(found.golden, golden, "{record}");
            assert_eq!((found.text.as_str(), found.id.as_str(), found.dataset.as_str()), ("q?", "7", "file"));
        }
        let named = read(&json!({"question": "q", "answer": "a", "_id": "x", "data_source": "nq"}));
        assert_eq!((named.id.as_str(), named.dataset.as_str()), ("x", "nq"));
    }

    #[test]
    fn options_are_read_and_counted_as_the_file_counts() {
        let numbers = json!({"question": "Case.", "options": {"A": 5, "B": "7 mg"}, "answer_idx": "A"});
        assert_eq!(read(&numbers).golden, ["A", "5"]);
        let wrong = json!({"question": "Case.", "options": {"A": "5 mg", "B": [1]}, "answer_idx": "A"});
        let error = question(&wrong, 0, "f", CountedFrom::Zero).err().unwrap();
        assert!(error.contains("no text for \"B\""), "{error}");
        let medqa = json!({"question": "Case.", "options": {"B": "no", "A": "yes"}, "answer_idx": "B", "answer": "no"});
        let found = read(&medqa);
        assert_eq!(found.prompt(), "Case.\nA: yes\nB: no");
        assert_eq!(
            (found.golden.as_slice(), found.choices.unwrap().right),
            (&["B".to_owned(), "no".into()][..], 1)
        );
        let medmcqa =
            |cop: i64| json!({"question": "q", "opa": "w", "opb": "x", "opc": "y", "opd": "z", "cop": cop});
        let right = |cop: i64, others: &[i64]| {
            let all: Vec<Value> = others.iter().chain([&cop]).map(|cop| medmcqa(*cop)).collect();
            question(&medmcqa(cop), 0, "f", CountedFrom::of(&all)).map(|found| found.choices.unwrap().right)
        };
        assert_eq!(right(1, &[4, 2]), Ok(0));
        assert_eq!(right(1, &[0, 2]), Ok(1));
        assert!(right(-1, &[]).unwrap_err().contains("none of the four options"));
        let wrong = json!({"question": "q", "options": {"A": "yes"}, "answer_idx": "C"});
        assert!(question(&wrong, 0, "f", CountedFrom::One).unwrap_err().contains("\"C\""));
    }

    #[test]
    fn passages_are_found_in_every_layout() {
        let two = ["\"T\"\nOne. Two.", "\"U\"\nThree."];
        for record in [
            json!({"passages": [{"title": "T", "text": "One. Two."}, {"title": "U", "text": "Three."}]}),
            json!({"paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "One. Two."}, {"title": "U", "paragraph_text": "Three."}]}),
            json!({"context": [["T", ["One.", " Two."]], ["U", ["Three."]]]}),
            json!({"context": {"title": ["T", "U"], "sentences": [["One.", " Two."], ["Three."]]}}),
        ] {
            let mut record = record;
            record["question"] = "q".into();
            record["answer"] = "a".into();
            let found = read(&record);
            let contents: Vec<&str> =
                found.passages.iter().map(|passage| passage.contents.as_str()).collect();
            assert_eq!(contents, two, "{record}");
            assert_eq!(found.passages[1].id, "7-1");
        }
        let pubmed = read(&json!({"QUESTION": "q", "final_decision": "no", "CONTEXTS": ["One."]}));
        assert_eq!((pubmed.passages[0].title(), pubmed.passages[0].text()), ("", "One."));
    }

    #[test]
    fn what_is_no_question_says_why() {
        for (record, expected) in [
            (json!([1]), "no JSON object"),
            (json!({"text": "q"}), "no `question`"),
            (json!({"question": "q"}), "no answer"),
            (json!({"question": "q", "golden_answers": []}), "no answer"),
        ] {
            let reason = question(&record, 0, "f", CountedFrom::One).unwrap_err();
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn passages_of_collections_have_contents_or_a_title() {
        let wiki = passage(&json!({"id": "5", "contents": "\"T\"\ntext"}), 1).unwrap();
        assert_eq!((wiki.id.as_str(), wiki.title(), wiki.text()), ("5", "\"T\"", "text"));
        let other = passage(&json!({"title": "T", "text": "text"}), 1).unwrap();
        assert_eq!((other.id.as_str(), other.contents.as_str()), ("1", "\"T\"\ntext"));
        assert_eq!(passage(&json!({"id": "5"}), 1), None);
    }
}
