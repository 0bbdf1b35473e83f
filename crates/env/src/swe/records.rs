//! Records in JSON lines and Parquet files, as data sets are published.

use std::fs::File;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Value};
use turnwise_core::EnvError;

use super::instance::{self, SweInstance};

/// Maximum number of elements of a list in a Parquet file.
const MOST_ELEMENTS: usize = 1 << 20;

/// Reads the instances of a file, or of all `.jsonl` and `.parquet` files of a folder.
pub(super) fn read(path: &Path, rule: &str) -> Result<Vec<SweInstance>, EnvError> {
    let mut instances = Vec::new();
    for file in files(path)? {
        let is_parquet = file.extension().is_some_and(|end| end == "parquet");
        let records = if is_parquet { of_parquet(&file)? } else { of_lines(&file)? };
        for (number, keys) in records {
            let what = if is_parquet { "row" } else { "line" };
            let at = |reason| wrong(&file, format!("{what} {number}: {reason}"));
            instances.push(instance::read(&keys, rule).map_err(at)?);
        }
    }
    if instances.is_empty() {
        return Err(wrong(path, "there are no instances in it".to_owned()));
    }
    Ok(instances)
}

fn wrong(path: &Path, reason: String) -> EnvError {
    EnvError::File { path: path.display().to_string(), reason }
}

fn files(path: &Path) -> Result<Vec<PathBuf>, EnvError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let io = |source| EnvError::io(path, source);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        if file.extension().is_some_and(|end| end == "jsonl" || end == "parquet") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

type Records = Vec<(usize, Map<String, Value>)>;

fn of_lines(path: &Path) -> Result<Records, EnvError> {
    let io = |source| EnvError::io(path, source);
    let mut records = Vec::new();
    for (number, line) in turnwise_files::open(path).map_err(io)?.lines().enumerate() {
        let line = line.map_err(io)?;
        if !line.trim().is_empty() {
            let keys = serde_json::from_str(&line)
                .map_err(|error| wrong(path, format!("line {}: {error}", number + 1)))?;
            records.push((number + 1, keys));
        }
    }
    Ok(records)
}

fn of_parquet(path: &Path) -> Result<Records, EnvError> {
    let file = File::open(path).map_err(|source| EnvError::io(path, source))?;
    let failed = |error: parquet::errors::ParquetError| wrong(path, error.to_string());
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let mut records = Vec::new();
    for (number, row) in reader.get_row_iter(None).map_err(failed)?.enumerate() {
        let row = row.map_err(failed)?;
        let keys = row.get_column_iter().map(|(name, field)| (name.clone(), value(field)));
        records.push((number + 1, keys.collect()));
    }
    Ok(records)
}

/// Converts texts, numbers and lists of them; other fields become null.
fn value(field: &Field) -> Value {
    match field {
        Field::Str(text) => Value::from(text.as_str()),
        Field::Bool(flag) => Value::from(*flag),
        Field::Int(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::ListInternal(list) => list.elements().iter().take(MOST_ELEMENTS).map(value).collect(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    const COLUMNS: [(&str, &str); 4] = [
        ("docker_image", "a/b:c"),
        ("repo_name", "numpy"),
        ("problem_statement", "It fails."),
        ("expected_output_json", "{\"t\": \"PASSED\"}"),
    ];

    fn write_parquet(path: &Path) {
        let fields = COLUMNS.map(|(name, _)| format!("required binary {name} (UTF8);")).concat();
        let schema = Arc::new(parse_message_type(&format!("message rows {{ {fields} }}")).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for (_, text) in COLUMNS {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&[ByteArray::from(text)], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn json_lines_and_parquet_give_the_same_instances() {
        let folder = tempfile::tempdir().unwrap();
        let keys: Map<String, Value> =
            COLUMNS.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect();
        let line = serde_json::to_string(&keys).unwrap();
        let lines = folder.path().join("a.jsonl");
        std::fs::write(&lines, format!("{line}\n\n")).unwrap();
        let rows = folder.path().join("b.parquet");
        write_parquet(&rows);
        let instances = read(folder.path(), "").unwrap();
        assert_eq!(instances.len(), 2);
        assert_eq!(instances[0], instances[1]);
        std::fs::write(&lines, format!("{line}\n{{\"expected_output_json\": 1}}")).unwrap();
        let error = read(&lines, "").unwrap_err().to_string();
        assert!(error.contains("a.jsonl: line 2"), "{error}");
        std::fs::write(&rows, "PAR1").unwrap();
        assert!(read(&rows, "").unwrap_err().to_string().contains("b.parquet"));
        assert!(read(&folder.path().join("none"), "").is_err());
        std::fs::write(&lines, "").unwrap();
        assert!(read(&lines, "").unwrap_err().to_string().contains("no instances"));
    }
}
