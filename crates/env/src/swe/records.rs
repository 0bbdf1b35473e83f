//! Reads published SWE-bench and R2E-Gym records in JSON lines or Parquet.

use std::path::{Path, PathBuf};

use turnwise_core::EnvError;

use super::instance::{self, SweInstance};
use crate::search::TableReader;
use crate::search::files::records;

pub(super) fn read(
    path: &Path,
    rule: &str,
    tables: Option<&TableReader>,
) -> Result<Vec<SweInstance>, EnvError> {
    let mut instances = Vec::new();
    for file in files(path)? {
        for (number, record) in records(&file, tables)?.iter().enumerate() {
            let keys = record.as_object().ok_or_else(|| "is not a JSON object".to_owned());
            let instance = keys.and_then(|keys| instance::read(keys, rule));
            let at = |reason| EnvError::file(&file, format!("record {}: {reason}", number + 1));
            instances.push(instance.map_err(at)?);
        }
    }
    if instances.is_empty() {
        return Err(EnvError::file(path, "there are no instances in it"));
    }
    Ok(instances)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn json_lines_and_tables_give_the_same_instances() {
        let folder = tempfile::tempdir().unwrap();
        let record = json!({"docker_image": "a/b:c", "repo_name": "numpy", "problem_statement": "It fails.",
            "expected_output_json": "{\"t\": \"PASSED\"}"});
        let lines = folder.path().join("a.jsonl");
        std::fs::write(&lines, format!("{record}\n\n")).unwrap();
        let rows = folder.path().join("b.parquet");
        std::fs::write(&rows, "PAR1").unwrap();
        let row = record.clone();
        let tables: TableReader = Arc::new(move |_: &Path| Ok(vec![row.clone()]));
        let instances = read(folder.path(), "", Some(&tables)).unwrap();
        assert_eq!(instances.len(), 2);
        assert_eq!(instances[0], instances[1]);
        for (wrong, said) in
            [("{\"expected_output_json\": 1}", "a.jsonl: record 2: "), ("7", "a.jsonl: record 2: is not a")]
        {
            std::fs::write(&lines, format!("{record}\n{wrong}")).unwrap();
            let error = read(&lines, "", None).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = read(&rows, "", None).unwrap_err().to_string();
        assert!(error.contains("b.parquet: Parquet cannot be read here"), "{error}");
        assert!(read(&folder.path().join("none"), "", None).is_err());
        std::fs::write(&lines, "").unwrap();
        assert!(read(&lines, "", None).unwrap_err().to_string().contains("no instances"));
    }
}
