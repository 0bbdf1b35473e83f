use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use turnwise_core::EnvError;

use super::question::Question;
use super::records::{self, CountedFrom};
use turnwise_retrieval::Passage;

/// Function that reads a table, such as a Parquet file, and returns each row as an object keyed by
/// column ([`super::SearchKind::with_tables`]).
pub type TableReader = Arc<dyn Fn(&Path) -> Result<Vec<Value>, String> + Send + Sync>;

const PARQUET: &[u8] = b"PAR1";

/// Reads the records of a file: JSON objects in sequence, a JSON list, a table, or a JSON object of
/// objects, whose keys become the records' `id`. JSON may be zstd-compressed.
pub(crate) fn records(path: &Path, tables: Option<&TableReader>) -> Result<Vec<Value>, EnvError> {
    let mut start = [0; 4];
    let mut file = std::fs::File::open(path).map_err(|source| EnvError::io(path, source))?;
    let found = file.read(&mut start).map_err(|source| EnvError::io(path, source))?;
    if &start[..found] == PARQUET {
        let read = tables.ok_or_else(|| {
            EnvError::file(
                path,
                "Parquet cannot be read here; write the records as JSON lines, one object a line",
            )
        })?;
        return read(path).map_err(|reason| EnvError::file(path, reason));
    }
    let values: Vec<Value> = json_values(path)?;
    Ok(match <[Value; 1]>::try_from(values) {
        Ok([Value::Array(items)]) => items,
        Ok([Value::Object(fields)]) if !fields.is_empty() && fields.values().all(Value::is_object) => fields
            .into_iter()
            .map(|(name, mut record)| {
                if let Some(fields) = record.as_object_mut() {
                    fields.entry("id").or_insert(Value::String(name));
                }
                record
            })
            .collect(),
        Ok([single]) => vec![single],
        Err(values) => values,
    })
}

pub(super) fn json_values<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, EnvError> {
    let file = turnwise_files::open(path).map_err(|source| EnvError::io(path, source))?;
    let values = serde_json::Deserializer::from_reader(file).into_iter::<T>();
    let read: Result<Vec<T>, _> = values.collect();
    read.map_err(|error| EnvError::file(path, format!("this cannot be read as JSON: {error}")))
}

/// Reads questions. The default dataset name is the file's name or, if the file is named after a
/// split (`nq/test.jsonl`), the folder's name.
pub(super) fn questions(path: &Path, tables: Option<&TableReader>) -> Result<Vec<Question>, EnvError> {
    let records = records(path, tables)?;
    let counted = CountedFrom::of(&records);
    let dataset = dataset(path);
    let read = |(number, record): (usize, &Value)| {
        records::question(record, number, &dataset, counted)
            .map_err(|reason| EnvError::file(path, format!("record {}: {reason}", number + 1)))
    };
    let questions: Vec<Question> = records.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    if questions.is_empty() {
        return Err(EnvError::file(path, "there are no questions in this file"));
    }
    Ok(questions)
}

pub(super) fn passages(path: &Path, tables: Option<&TableReader>) -> Result<Vec<Passage>, EnvError> {
    let read = |(number, record): (usize, &Value)| {
        records::passage(record, number).ok_or_else(|| {
            let reason = format!("record {}: a passage has `contents`, or `title` and `text`", number + 1);
            EnvError::file(path, reason)
        })
    };
    records(path, tables)?.iter().enumerate().map(read).collect()
}

fn dataset(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    // Hugging Face shards are named `test-00000-of-00001`.
    let part = stem.split_once('-').filter(|(_, part)| part.contains("-of-")).map(|(split, _)| split);
    let stem = part.unwrap_or(stem).to_owned();
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match (stem.as_str(), folder) {
        ("train" | "dev" | "test" | "valid" | "validation", Some(folder)) => folder,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn read(name: &str, text: &[u8]) -> Result<Vec<Question>, EnvError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nq").join(name);
        fs::create_dir(folder.path().join("nq")).unwrap();
        fs::write(&path, text).unwrap();
        questions(&path, None)
    }

    #[test]
    fn lines_lists_and_objects_are_read_compressed_or_not() {
        let line =
            |id: &str| format!("{{\"id\": \"{id}\", \"question\": \"q\", \"golden_answers\": [\"a\"]}}");
        let lines = format!("{}\n\n{}\n", line("x"), line("y"));
        let list = format!("[{},\n{}]", line("x"), line("y"));
        let object = "{\"x\": {\"QUESTION\": \"q\", \"final_decision\": \"a\"}, \"y\": {\"QUESTION\": \"q\", \"final_decision\": \"a\"}}";
        let packed = zstd::encode_all(lines.as_bytes(), 3).unwrap();
        for text in [lines.as_bytes(), list.as_bytes(), object.as_bytes(), packed.as_slice()] {
            let found = read("dev.jsonl", text).unwrap();
            let names: Vec<(&str, &str)> =
                found.iter().map(|question| (question.id.as_str(), question.dataset.as_str())).collect();
            assert_eq!(names, [("x", "nq"), ("y", "nq")]);
        }
        assert_eq!(read("hard.jsonl", lines.as_bytes()).unwrap()[0].dataset, "hard");
        assert_eq!(read("test-00000-of-00001.jsonl", lines.as_bytes()).unwrap()[0].dataset, "nq");
        assert_eq!(read("one-of-many.jsonl", lines.as_bytes()).unwrap()[0].dataset, "one-of-many");
        assert_eq!(read("test.json", line("x").as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn errors_name_file_and_record() {
        for (text, expected) in [
            (
                "{\"question\": \"q\", \"answer\": \"a\"}\n{\"question\": \"q\"}",
                "record 2: there is no answer",
            ),
            ("{\"question\": ", "cannot be read as JSON"),
            ("[]", "no questions"),
            ("PAR1rest", "Parquet cannot be read here"),
        ] {
            let error = read("test.jsonl", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("test.jsonl") && error.contains(expected), "{error}");
        }
        assert!(questions(Path::new("no/such/file"), None).unwrap_err().to_string().contains("no/such/file"));
    }

    #[test]
    fn tables_are_read_by_whoever_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.parquet");
        fs::write(&path, b"PAR1").unwrap();
        let reader: TableReader = Arc::new(|_: &Path| Ok(vec![json!({"question": "q", "answer": "a"})]));
        assert_eq!(questions(&path, Some(&reader)).unwrap()[0].golden, ["a"]);
        let broken: TableReader = Arc::new(|_: &Path| Err("page 3 is damaged".to_owned()));
        let error = questions(&path, Some(&broken)).unwrap_err().to_string();
        assert!(error.contains("train.parquet: page 3"), "{error}");
    }
}
