//! Parquet files as rows of JSON values.

use std::fs::File;
use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value};

use crate::DumpError;

/// A whole Parquet file.
pub(crate) struct Table {
    /// The name of each column, and whether it holds floating-point numbers.
    pub(crate) columns: Vec<(String, bool)>,
    /// The rows by column name.
    pub(crate) rows: Vec<Map<String, Value>>,
}

pub(crate) fn read(path: &Path) -> Result<Table, DumpError> {
    let file = File::open(path).map_err(|error| DumpError::io(path, error))?;
    table(file).map_err(|error| DumpError::file(path, format!("not a readable Parquet file: {error}")))
}

/// The rows of a Parquet file as JSON objects by column name: texts, numbers, lists and structs; dates and times as the
/// numbers they are stored as. Numbers that are not finite become null, and so do bytes that are not UTF-8.
///
/// # Errors
/// The file cannot be read, or is no Parquet file.
pub fn parquet_rows(path: &Path) -> Result<Vec<Value>, DumpError> {
    Ok(read(path)?.rows.into_iter().map(Value::Object).collect())
}

fn table(file: File) -> Result<Table, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let schema = reader.metadata().file_metadata().schema();
    let columns = schema.get_fields().iter().map(|field| {
        let floating =
            field.is_primitive() && matches!(field.get_physical_type(), Physical::FLOAT | Physical::DOUBLE);
        (field.name().to_owned(), floating)
    });
    let columns = columns.collect();
    let rows = reader.get_row_iter(None)?.map(|row| Ok(object(row?))).collect::<Result<_, ParquetError>>()?;
    Ok(Table { columns, rows })
}

fn object(row: Row) -> Map<String, Value> {
    row.into_columns().into_iter().map(|(name, field)| (name, value(&field))).collect()
}

/// Texts, numbers, lists and structs as JSON; dates and times as the numbers they are stored as.
/// Numbers that are not finite become null, bytes that are not UTF-8 too.
fn value(field: &Field) -> Value {
    match field {
        Field::Null | Field::Decimal(_) => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => (*value).into(),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float16(value) => f64::from(*value).into(),
        Field::Float(value) => f64::from(*value).into(),
        Field::Double(value) => (*value).into(),
        Field::Str(value) => value.as_str().into(),
        Field::Bytes(value) => value.as_utf8().map_or(Value::Null, Value::from),
        Field::Group(row) => row
            .get_column_iter()
            .map(|(name, field)| (name.clone(), value(field)))
            .collect::<Map<_, _>>()
            .into(),
        Field::ListInternal(list) => list.elements().iter().map(value).collect::<Vec<_>>().into(),
        Field::MapInternal(map) => {
            let key = |field: &Field| match value(field) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.entries().iter().map(|(name, field)| (key(name), value(field))).collect::<Map<_, _>>().into()
        }
    }
}
