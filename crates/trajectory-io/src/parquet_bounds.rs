//! Limits the memory used to read a Parquet file, whose encodings can repeat a value millions of
//! times in a few bytes.

use parquet::basic::Type as Physical;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader};
use serde_json::Value;

/// Approximate bytes of a value without its text.
const VALUE: u64 = 64;
const RECORDS: usize = 256;

#[derive(Debug)]
pub(crate) struct Budget {
    stored: u64,
    left: u64,
}

impl Budget {
    /// Returns the memory budget for a file of `stored` bytes, equal to that for compressed JSON
    /// lines.
    pub(crate) fn of(stored: u64) -> Self {
        Self { stored, left: turnwise_files::most_expanded(stored) }
    }

    pub(crate) fn take_row(&mut self, row: &serde_json::Map<String, Value>) -> Result<(), ParquetError> {
        let bytes: u64 = row.iter().map(|(name, value)| name.len() as u64 + bytes_of(value)).sum();
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.exceeded("its rows take"))?;
        Ok(())
    }

    fn exceeded(&self, what: &str) -> ParquetError {
        let limit = turnwise_files::most_expanded(self.stored);
        ParquetError::General(format!(
            "{what} more than {limit} bytes of memory, the most for a file of {} bytes; if you trust the file, split it, or \
             write it without compression and dictionaries",
            self.stored
        ))
    }

    fn check(&self, bytes: u64, what: &str) -> Result<(), ParquetError> {
        if bytes <= self.left { Ok(()) } else { Err(self.exceeded(what)) }
    }

    /// Checks metadata and pages before reading, because one row may already be too large.
    pub(crate) fn check_file(&self, file: &dyn FileReader) -> Result<(), ParquetError> {
        let (mut values, mut bytes) = (0_u64, 0_u64);
        for group in file.metadata().row_groups() {
            values = values.saturating_add(count(group.num_rows(), "rows")?);
            for column in group.columns() {
                values = values.saturating_add(count(column.num_values(), "values")?);
                bytes = bytes.saturating_add(count(column.uncompressed_size(), "bytes")?);
                // The library panics at negative numbers.
                let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
                count(start, "as the place of a column")?;
                count(column.compressed_size(), "compressed bytes")?;
            }
        }
        self.check(values.saturating_mul(VALUE), &format!("its {values} values take"))?;
        self.check(bytes, "its columns take")?;
        for index in 0..file.num_row_groups() {
            let group = file.get_row_group(index)?;
            for column in 0..group.num_columns() {
                self.check_pages(&*group, column)?;
                self.check_texts(&*group, column)?;
            }
        }
        Ok(())
    }

    /// Checks that pages contain the declared number of values.
    fn check_pages(&self, group: &dyn RowGroupReader, index: usize) -> Result<(), ParquetError> {
        let column = group.metadata().column(index);
        let declared = count(column.num_values(), "values")?;
        let mut held = 0_u64;
        let mut pages = group.get_column_page_reader(index)?;
        while let Some(page) = pages.peek_next_page()? {
            if page.is_dict {
                let Some(dictionary) = pages.get_next_page()? else { break };
                let values = u64::from(dictionary.num_values());
                self.check(values.saturating_mul(VALUE), "a dictionary takes")?;
            } else {
                held = held.saturating_add(page.num_levels.unwrap_or_default() as u64);
                pages.skip_next_page()?;
            }
            if held > declared {
                return Err(ParquetError::General(format!(
                    "the column `{}` declares {declared} values and holds more; write the file again",
                    column.column_path().string()
                )));
            }
        }
        Ok(())
    }

    /// Checks columns with several values per row, because a dictionary can repeat a long text in
    /// them.
    fn check_texts(&self, group: &dyn RowGroupReader, index: usize) -> Result<(), ParquetError> {
        let column = group.metadata().schema_descr().column(index);
        if column.max_rep_level() == 0 || column.physical_type() != Physical::BYTE_ARRAY {
            return Ok(());
        }
        let mut reader = get_typed_column_reader::<ByteArrayType>(group.get_column_reader(index)?);
        let (mut texts, mut defined, mut repeated) = (Vec::<ByteArray>::new(), Vec::new(), Vec::new());
        let mut bytes = 0_u64;
        loop {
            texts.clear();
            defined.clear();
            repeated.clear();
            let (records, _, levels) =
                reader.read_records(RECORDS, Some(&mut defined), Some(&mut repeated), &mut texts)?;
            if records == 0 && levels == 0 {
                return Ok(());
            }
            bytes = texts.iter().fold(bytes, |sum, text| sum.saturating_add(text.len() as u64));
            self.check(bytes, &format!("the texts of its column `{}` take", column.path().string()))?;
        }
    }
}

fn count(declared: i64, what: &str) -> Result<u64, ParquetError> {
    u64::try_from(declared).map_err(|_| ParquetError::General(format!("it declares {declared} {what}")))
}

fn bytes_of(value: &Value) -> u64 {
    VALUE
        + match value {
            Value::String(text) => text.len() as u64,
            Value::Array(values) => values.iter().map(bytes_of).sum(),
            Value::Object(entries) => {
                entries.iter().map(|(name, value)| name.len() as u64 + bytes_of(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::Int32Type;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::{ByteArray, ByteArrayType};
    use crate::parquet_rows;

    fn write(
        path: &Path,
        schema: &str,
        fill: impl FnOnce(&mut parquet::file::writer::SerializedColumnWriter<'_>),
    ) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties =
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        fill(&mut column);
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    fn refusal(path: &Path) -> String {
        assert!(path.metadata().unwrap().len() < 1 << 20, "{} bytes", path.metadata().unwrap().len());
        let started = Instant::now();
        let error = parquet_rows(path).unwrap_err().to_string();
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert!(error.contains("bomb.parquet") && error.contains("if you trust the file"), "{error}");
        error
    }

    #[test]
    fn a_column_at_a_negative_place_is_an_error() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/parquet/negative-place");
        let error = parquet_rows(&path).unwrap_err().to_string();
        assert!(error.contains("negative-place") && error.contains("it declares -"), "{error}");
    }

    #[test]
    fn millions_of_rows_in_a_few_bytes_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.parquet");
        let rows = |count: usize| {
            write(&path, "message m { required int32 step; }", |column| {
                let zeros = vec![0; 1 << 16];
                for _ in 0..count >> 16 {
                    column.typed::<Int32Type>().write_batch(&zeros, None, None).unwrap();
                }
            });
        };
        rows(1 << 24);
        let error = refusal(&path);
        assert!(error.contains("its 33554432 values take more than"), "{error}");
        rows(1 << 17);
        assert_eq!(parquet_rows(&path).unwrap().len(), 1 << 17);
    }

    #[test]
    fn a_long_text_that_a_dictionary_repeats_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.parquet");
        let text = ByteArray::from("x".repeat(100_000).into_bytes());
        let texts = |count: usize| vec![text.clone(); count];
        let rows = "message m { required binary text (utf8); }";
        write(&path, rows, |column| {
            column.typed::<ByteArrayType>().write_batch(&texts(5000), None, None).unwrap();
        });
        assert!(refusal(&path).contains("its rows take"));
        let list = "message m { required group texts (list) { repeated group list { required binary element (utf8); } } }";
        let row = |count: usize| {
            write(&path, list, |column| {
                let defined = vec![1; count];
                let repeated: Vec<i16> = (0..count).map(|index| i16::from(index > 0)).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&texts(count), Some(&defined), Some(&repeated))
                    .unwrap();
            });
        };
        row(5000);
        assert!(refusal(&path).contains("the texts of its column `texts.list.element` take"));
        row(50);
        assert_eq!(parquet_rows(&path).unwrap()[0]["texts"].as_array().unwrap().len(), 50);
    }
}
