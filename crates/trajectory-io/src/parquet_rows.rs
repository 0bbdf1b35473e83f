//! Reads Parquet files as rows of JSON values.

use std::fs::File;
use std::path::Path;

use parquet::basic::{ConvertedType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::ColumnDescriptor;
use serde_json::{Map, Value};
use turnwise_files::catch_panic;

use crate::parquet_bounds::Budget;
use crate::{DumpError, lines};

pub(crate) struct Table {
    /// Column names, and whether they contain floating-point numbers.
    pub(crate) columns: Vec<(String, bool)>,
    pub(crate) rows: Vec<Map<String, Value>>,
}

pub(crate) fn read(path: &Path) -> Result<Table, DumpError> {
    if !lines::is_file(path)? {
        lines::is_parquet(path)?;
    }
    let file = File::open(path).map_err(|error| DumpError::io(path, error))?;
    let stored = file.metadata().map_err(|error| DumpError::io(path, error))?.len();
    caught(|| table(file, Budget::of(stored))).map_err(|error| DumpError::file(path, reason(&error)))
}

pub(crate) fn column_names(path: &Path) -> Result<Vec<String>, DumpError> {
    let file = File::open(path).map_err(|error| DumpError::io(path, error))?;
    let reader =
        caught(|| SerializedFileReader::new(file)).map_err(|error| DumpError::file(path, reason(&error)))?;
    let schema = reader.metadata().file_metadata().schema();
    Ok(schema.get_fields().iter().map(|field| field.name().to_owned()).collect())
}

/// Calls the `parquet` library, which panics on some malformed files.
fn caught<T>(call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_panic(call).unwrap_or_else(|panic| {
        Err(ParquetError::General(format!("the `parquet` library failed on it: {panic}")))
    })
}

fn reason(error: &ParquetError) -> String {
    let text = error.to_string();
    let remedy = if text.contains("Disabled feature") {
        "; its columns are compressed in a way that this program does not read (gzip, brotli or lz4): write it with \
         compression=\"zstd\", or \"snappy\", which is pandas' own"
    } else {
        ""
    };
    format!("not a readable Parquet file: {text}{remedy}")
}

/// Reads Parquet rows as JSON objects. Dates and times stay integers; non-finite numbers, decimals
/// and non-UTF-8 bytes become null.
///
/// # Errors
/// Fails if the file cannot be read, is not Parquet, or needs far more memory than its size
/// suggests. Also fails if a text is not UTF-8, or if a column's type has no JSON equivalent
/// (INTERVAL).
pub fn parquet_rows(path: &Path) -> Result<Vec<Value>, DumpError> {
    Ok(read(path)?.rows.into_iter().map(Value::Object).collect())
}

fn table(file: File, mut budget: Budget) -> Result<Table, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let metadata = reader.metadata().file_metadata();
    if let Some(column) = metadata.schema_descr().columns().iter().find(|column| !is_known(column)) {
        return Err(ParquetError::General(format!(
            "the column `{}` is of type {} ({}), which is not read here; write the file without it",
            column.path().string(),
            column.converted_type(),
            column.physical_type()
        )));
    }
    let schema = metadata.schema();
    let columns = schema.get_fields().iter().map(|field| {
        let floating =
            field.is_primitive() && matches!(field.get_physical_type(), Physical::FLOAT | Physical::DOUBLE);
        (field.name().to_owned(), floating)
    });
    let columns = columns.collect();
    budget.check_file(&reader)?;
    let rows = reader.get_row_iter(None)?.map(|row| {
        let row = object(row?);
        budget.take_row(&row)?;
        Ok(row)
    });
    let rows = rows.collect::<Result<_, ParquetError>>()?;
    Ok(Table { columns, rows })
}

/// Returns true if the `parquet` library can read the column; on other columns, it panics.
fn is_known(column: &ColumnDescriptor) -> bool {
    use ConvertedType as As;
    let kind = column.converted_type();
    match column.physical_type() {
        Physical::INT32 => matches!(
            kind,
            As::NONE
                | As::INT_8
                | As::INT_16
                | As::INT_32
                | As::UINT_8
                | As::UINT_16
                | As::UINT_32
                | As::DATE
                | As::TIME_MILLIS
                | As::DECIMAL
        ),
        Physical::INT64 => matches!(
            kind,
            As::NONE
                | As::INT_64
                | As::UINT_64
                | As::TIME_MICROS
                | As::TIMESTAMP_MILLIS
                | As::TIMESTAMP_MICROS
                | As::DECIMAL
        ),
        Physical::BYTE_ARRAY => {
            matches!(kind, As::NONE | As::UTF8 | As::ENUM | As::JSON | As::BSON | As::DECIMAL)
        }
        Physical::FIXED_LEN_BYTE_ARRAY => matches!(kind, As::NONE | As::DECIMAL),
        Physical::BOOLEAN | Physical::INT96 | Physical::FLOAT | Physical::DOUBLE => true,
    }
}

fn object(row: Row) -> Map<String, Value> {
    row.into_columns().into_iter().map(|(name, field)| (name, value(&field))).collect()
}

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn file(path: &Path, schema: &str, fixed: Option<&[u8]>, bytes: &[u8]) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer =
            SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        if let Some(fixed) = fixed {
            let mut column = group.next_column().unwrap().unwrap();
            let value = FixedLenByteArray::from(ByteArray::from(fixed.to_vec()));
            column.typed::<FixedLenByteArrayType>().write_batch(&[value], None, None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&[ByteArray::from(bytes.to_vec())], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn a_column_that_json_has_nothing_for_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let schema = "message m { required group of { required fixed_len_byte_array(12) span (interval); } required binary text (utf8); }";
        file(&path, schema, Some(&[0; 12]), b"x");
        let error = parquet_rows(&path).unwrap_err().to_string();
        assert!(
            error.contains("the column `of.span` is of type INTERVAL") && error.contains("without it"),
            "{error}"
        );
        let plain = schema.replace(" (interval)", "");
        file(&path, &plain, Some(&[b'a'; 12]), b"x");
        let row = serde_json::json!({"of": {"span": "aaaaaaaaaaaa"}, "text": "x"});
        assert_eq!(parquet_rows(&path).unwrap(), [row]);
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/parquet/page-without-header");
        let error = parquet_rows(&path).unwrap_err().to_string();
        let said = ["page-without-header: not a readable Parquet file", "the `parquet` library failed on it"];
        assert!(said.iter().all(|said| error.contains(said)), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("a.parquet");
        file(&plain, "message m { required binary text (utf8); }", None, b"x");
        assert_eq!(parquet_rows(&plain).unwrap(), [serde_json::json!({ "text": "x" })]);
    }

    #[test]
    fn bytes_that_are_no_text_are_null_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        file(&path, "message m { required binary data; }", None, &[0xff]);
        assert_eq!(parquet_rows(&path).unwrap(), [serde_json::json!({ "data": null })]);
        file(&path, "message m { required binary data (utf8); }", None, &[0xff]);
        let error = parquet_rows(&path).unwrap_err().to_string();
        assert!(error.contains("a.parquet: not a readable Parquet file"), "{error}");
    }

    #[test]
    fn a_compression_that_is_not_built_in_has_a_way_out() {
        let error = ParquetError::General("Disabled feature at compile time: flate2".into());
        assert!(reason(&error).contains("compression=\"zstd\""));
        assert!(!reason(&ParquetError::EOF("end".into())).contains("compression"));
    }
}
