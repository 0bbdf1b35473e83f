//! Writes advantages.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde::Serialize;
use serde_json::Value;
use turnwise_core::StageRecord;

use crate::DumpError;

/// The advantages of a trajectory, and its location in the input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Input line or Parquet row, from 1.
    pub line: usize,
    /// Training step.
    pub step: u64,
    /// Group name in the input.
    pub group: Value,
    /// Index in the group.
    pub sample: usize,
    /// Task goal.
    pub task: String,
    /// Sum of rewards.
    #[serde(rename = "return")]
    pub outcome: f64,
    /// Whether the task was solved, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// Advantages per turn.
    pub advantages: Vec<f64>,
    /// Turns with unusual entropy, if the method detects them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outliers: Option<Vec<bool>>,
    /// Records of pipeline stages, as `[turn][stage]`, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Vec<Vec<StageRecord>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Lines,
    Zstd,
    Parquet,
}

pub(crate) fn form_of(path: &Path) -> Result<Form, DumpError> {
    let extension = |path: &Path| path.extension().map(|text| text.to_string_lossy().to_lowercase());
    match extension(path).unwrap_or_default().as_str() {
        "parquet" => Ok(Form::Parquet),
        "jsonl" => Ok(Form::Lines),
        "zst" if extension(&path.with_extension("")).is_some_and(|inner| inner == "jsonl") => Ok(Form::Zstd),
        _ => Err(DumpError::file(path, "the name must end in .jsonl, .jsonl.zst or .parquet")),
    }
}

/// Rejects file names that [`write_rows`] would reject.
///
/// # Errors
/// Fails if the extension is not supported.
pub fn check_rows_name(path: &Path) -> Result<(), DumpError> {
    form_of(path).map(|_| ())
}

/// Writes rows atomically as JSON lines (`.jsonl`, `.jsonl.zst`) or Parquet (`.parquet`).
///
/// The Parquet columns are `line`, `step`, `group`, `sample`, `task`, `return`, `success`
/// (nullable), `advantages`, `outliers` (nullable) and `explanation` (nullable JSON text).
///
/// # Errors
/// Fails if the extension is not supported or writing fails.
pub fn write_rows(path: &Path, rows: &[Row]) -> Result<(), DumpError> {
    let form = form_of(path)?;
    if form == Form::Parquet {
        return save_table(path, table(SCHEMA, |columns| row_columns(columns, rows)));
    }
    let mut lines = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut lines, row)
            .map_err(|error| DumpError::file(path, format!("cannot be written: {error}")))?;
        lines.push(b'\n');
    }
    save_lines(path, form, &lines)
}

pub(crate) fn save_table(path: &Path, table: Result<Vec<u8>, ParquetError>) -> Result<(), DumpError> {
    let bytes = table.map_err(|error| DumpError::file(path, format!("cannot be written: {error}")))?;
    save(path, &bytes)
}

pub(crate) fn save_lines(path: &Path, form: Form, lines: &[u8]) -> Result<(), DumpError> {
    if form == Form::Zstd {
        let bytes = zstd::encode_all(lines, 3).map_err(|error| DumpError::io(path, error))?;
        return save(path, &bytes);
    }
    save(path, lines)
}

pub(crate) fn save(path: &Path, bytes: &[u8]) -> Result<(), DumpError> {
    turnwise_files::write_shared(path, |file| file.write_all(bytes))
        .map_err(|error| DumpError::io(path, error))
}

const SCHEMA: &str = "message trajectories {
    required int64 line;
    required int64 step;
    required binary group (utf8);
    required int64 sample;
    required binary task (utf8);
    required double return;
    optional boolean success;
    required group advantages (list) { repeated group list { required double element; } }
    optional group outliers (list) { repeated group list { required boolean element; } }
    optional binary explanation (utf8);
}";

pub(crate) type Columns<'a, 'b> = SerializedRowGroupWriter<'a, &'b mut Vec<u8>>;

pub(crate) fn table(
    schema: &str,
    fill: impl FnOnce(&mut Columns<'_, '_>) -> Result<(), ParquetError>,
) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(schema)?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    fill(&mut group)?;
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

fn row_columns(group: &mut Columns<'_, '_>, rows: &[Row]) -> Result<(), ParquetError> {
    let integers = |of: &dyn Fn(&Row) -> u64| rows.iter().map(|row| of(row) as i64).collect::<Vec<_>>();
    let texts = |of: &dyn Fn(&Row) -> String| {
        rows.iter().map(|row| ByteArray::from(of(row).as_str())).collect::<Vec<ByteArray>>()
    };
    let name = |row: &Row| row.group.as_str().map_or_else(|| row.group.to_string(), str::to_owned);
    column::<Int64Type>(group, &integers(&|row| row.line as u64), None, None)?;
    column::<Int64Type>(group, &integers(&|row| row.step), None, None)?;
    column::<ByteArrayType>(group, &texts(&name), None, None)?;
    column::<Int64Type>(group, &integers(&|row| row.sample as u64), None, None)?;
    column::<ByteArrayType>(group, &texts(&|row| row.task.clone()), None, None)?;
    let returns: Vec<f64> = rows.iter().map(|row| row.outcome).collect();
    column::<DoubleType>(group, &returns, None, None)?;
    let (solved, defined): (Vec<bool>, Vec<i16>) = optional(rows.iter().map(|row| row.success));
    column::<BoolType>(group, &solved, Some(&defined), None)?;
    let (values, defined, repeated) = list(rows.iter().map(|row| Some(row.advantages.as_slice())), 0);
    column::<DoubleType>(group, &values, Some(&defined), Some(&repeated))?;
    let (values, defined, repeated) = list(rows.iter().map(|row| row.outliers.as_deref()), 1);
    column::<BoolType>(group, &values, Some(&defined), Some(&repeated))?;
    let explanations = rows.iter().map(|row| row.explanation.as_ref().map(serde_json::to_string).transpose());
    let explanations: Vec<Option<String>> =
        explanations.collect::<Result<_, _>>().map_err(|error| ParquetError::External(Box::new(error)))?;
    let (values, defined) =
        optional(explanations.into_iter().map(|explanation| Some(ByteArray::from(explanation?.as_str()))));
    column::<ByteArrayType>(group, &values, Some(&defined), None)
}

pub(crate) fn column<T: DataType>(
    group: &mut Columns<'_, '_>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than are written".into());
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    writer.typed::<T>().write_batch(values, defined, repeated)?;
    writer.close()
}

pub(crate) fn optional<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut present, mut defined) = (Vec::new(), Vec::new());
    for value in values {
        defined.push(i16::from(value.is_some()));
        present.extend(value);
    }
    (present, defined)
}

/// Returns the values, definition levels and repetition levels of a list column. `empty` is the
/// definition level of an empty list: 1 if the list may be missing, otherwise 0.
pub(crate) fn list<'a, T: Copy + 'a>(
    rows: impl Iterator<Item = Option<&'a [T]>>,
    empty: i16,
) -> (Vec<T>, Vec<i16>, Vec<i16>) {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let row = row.map(|row| {
            values.extend_from_slice(row);
            row.len()
        });
        match row {
            None => {
                defined.push(0);
                repeated.push(0);
            }
            Some(0) => {
                defined.push(empty);
                repeated.push(0);
            }
            Some(count) => {
                defined.extend(std::iter::repeat_n(empty + 1, count));
                repeated.extend((0..count).map(|index| i16::from(index > 0)));
            }
        }
    }
    (values, defined, repeated)
}
