//! TensorBoard event files, scalars only.
//!
//! A file is a sequence of records
//! `u64 length | u32 masked crc of the length | data | u32 masked crc of the data` (little-endian,
//! CRC-32C); data is a protobuf `Event` message.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::TrainError;

const PREFIX: &str = "events.out.tfevents.";

/// Appends scalars to an event file.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// Creates a file in `directory`; `wall_time` is Unix time in seconds.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn create(directory: &Path, wall_time: f64) -> Result<Self, TrainError> {
        let (seconds, process) = (wall_time as u64, std::process::id());
        // Two starts within a second need different files.
        let mut count = 0;
        let (path, file) = loop {
            let path = directory.join(format!("{PREFIX}{seconds:010}.turnwise.{process}.{count}"));
            match File::create_new(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => count += 1,
                Err(error) => return Err(TrainError::io(&path, error)),
            }
        };
        let mut writer = Self { file: BufWriter::new(file), path };
        let mut event = Vec::new();
        put_double(&mut event, 1, wall_time);
        put_bytes(&mut event, 3, b"brain.Event:2");
        let written = writer.record(&event).and_then(|()| writer.file.flush());
        written.map_err(|error| TrainError::io(&writer.path, error))?;
        Ok(writer)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the scalars of a step.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn scalars<'a>(
        &mut self,
        wall_time: f64,
        step: u64,
        scalars: impl Iterator<Item = (&'a str, f64)>,
    ) -> std::io::Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, tag.as_bytes());
            put_float(&mut entry, 2, value as f32);
            put_bytes(&mut summary, 1, &entry);
        }
        let mut event = Vec::new();
        put_double(&mut event, 1, wall_time);
        put_varint_field(&mut event, 2, step);
        put_bytes(&mut event, 5, &summary);
        self.record(&event)?;
        self.file.flush()
    }

    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.file.get_ref().sync_data()
    }

    fn record(&mut self, data: &[u8]) -> std::io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        self.file.write_all(&length)?;
        self.file.write_all(&masked_crc(&length).to_le_bytes())?;
        self.file.write_all(data)?;
        self.file.write_all(&masked_crc(data).to_le_bytes())
    }
}

/// Scalars of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepScalars {
    /// Unix time in seconds.
    pub wall_time: f64,
    /// Step on TensorBoard's axis.
    pub step: u64,
    /// Values by tag.
    pub scalars: Vec<(String, f32)>,
}

/// Reads all event files of a folder, each up to its first damaged record.
///
/// # Errors
/// Fails on I/O errors.
pub fn read_scalars(directory: &Path) -> std::io::Result<Vec<StepScalars>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let bytes = fs::read(entry.path())?;
            found.extend(Records { rest: &bytes }.filter_map(step_scalars));
        }
    }
    Ok(found)
}

/// Parses bytes as an event file, and also as a single message without checksums, for `fuzz/`.
#[doc(hidden)]
pub fn parse(bytes: &[u8]) {
    Records { rest: bytes }.for_each(|event| drop(step_scalars(event)));
    step_scalars(bytes);
}

struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first_chunk::<8>()?;
        let (length_crc, rest) = rest.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*length_crc) != masked_crc(length) {
            return None;
        }
        let (data, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let (data_crc, rest) = rest.split_first_chunk::<4>()?;
        self.rest = rest;
        (u32::from_le_bytes(*data_crc) == masked_crc(data)).then_some(data)
    }
}

fn step_scalars(event: &[u8]) -> Option<StepScalars> {
    let mut found = StepScalars::default();
    for (field, value) in fields(event)? {
        match (field, value) {
            (1, Wire::Double(time)) => found.wall_time = time,
            (2, Wire::Varint(step)) => found.step = step,
            (5, Wire::Bytes(summary)) => {
                for (_, entry) in fields(summary)?.into_iter().filter(|(field, _)| *field == 1) {
                    let Wire::Bytes(entry) = entry else { return None };
                    let (mut tag, mut value) = (None, None);
                    for part in fields(entry)? {
                        match part {
                            (1, Wire::Bytes(text)) => tag = Some(String::from_utf8(text.to_vec()).ok()?),
                            (2, Wire::Float(number)) => value = Some(number),
                            _ => {}
                        }
                    }
                    found.scalars.extend(tag.zip(value));
                }
            }
            _ => {}
        }
    }
    (!found.scalars.is_empty()).then_some(found)
}

#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
    Float(f32),
}

fn fields(mut message: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let value = match key & 7 {
            0 => Wire::Varint(take_varint(&mut message)?),
            1 => {
                let (bytes, rest) = message.split_first_chunk::<8>()?;
                message = rest;
                Wire::Double(f64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Wire::Bytes(bytes)
            }
            5 => {
                let (bytes, rest) = message.split_first_chunk::<4>()?;
                message = rest;
                Wire::Float(f32::from_le_bytes(*bytes))
            }
            _ => return None,
        };
        found.push((key >> 3, value));
    }
    Some(found)
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_varint_field(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_varint(out, field << 3 | 1);
    out.extend(value.to_le_bytes());
}

fn put_float(out: &mut Vec<u8>, field: u64, value: f32) {
    put_varint(out, field << 3 | 5);
    out.extend(value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, value.len() as u64);
    out.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_masked_as_tensorboard_masks_it() {
        // CRC-32C of "123456789" is 0xe3069283; the mask rotates right by 15 bits and adds
        // 0xa282ead8.
        let expected = 0xc78a_b0e5;
        assert_eq!(masked_crc(b"123456789"), expected);
        assert_ne!(masked_crc(b"123456780"), expected);
    }

    #[test]
    fn two_starts_within_a_second_have_a_file_each() {
        let folder = tempfile::tempdir().unwrap();
        let paths =
            [0.25, 0.75].map(|time| EventWriter::create(folder.path(), time).unwrap().path().to_owned());
        assert_ne!(paths[0], paths[1]);
        assert!(paths.iter().all(|path| path.metadata().unwrap().len() > 0));
    }

    #[test]
    fn what_was_written_is_read_up_to_the_first_damaged_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path(), 1.0).unwrap();
        let written: Vec<StepScalars> = [1, 300, 1 << 40]
            .map(|step| {
                let scalars = vec![("a".to_owned(), 0.5), ("loss/é".to_owned(), f32::INFINITY)];
                StepScalars { wall_time: step as f64 + 0.25, step, scalars }
            })
            .into();
        for StepScalars { wall_time, step, scalars } in &written {
            let scalars = scalars.iter().map(|(tag, value)| (tag.as_str(), f64::from(*value)));
            writer.scalars(*wall_time, *step, scalars).unwrap();
        }
        fs::write(folder.path().join("other.json"), b"{}").unwrap();
        assert_eq!(read_scalars(folder.path()).unwrap(), written);
        let whole = fs::read(writer.path()).unwrap();
        for cut in [1, 5, 20] {
            fs::write(writer.path(), &whole[..whole.len() - cut]).unwrap();
            assert_eq!(read_scalars(folder.path()).unwrap(), written[..2], "cut by {cut}");
        }
        for at in (0..whole.len()).step_by(3) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(writer.path(), &damaged).unwrap();
            let read = read_scalars(folder.path()).unwrap();
            assert!(read.len() < written.len() && written.starts_with(&read), "byte {at}");
        }
    }

    #[test]
    fn a_malformed_message_is_no_step() {
        for event in [&[0x2a, 0x7f][..], &[0x2a, 0x02, 0x0a, 0x05], &[0xff; 12], &[0x0b], &[0x2a]] {
            assert_eq!(step_scalars(event), None, "{event:?}");
        }
    }

    #[test]
    fn records_have_the_documented_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path(), 1.0).unwrap();
        writer.scalars(2.0, 300, [("a", 0.5)].into_iter()).unwrap();
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = std::fs::read(path).unwrap();
        let first = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let second = &bytes[8 + 4 + first + 4..];
        let length = u64::from_le_bytes(second[..8].try_into().unwrap()) as usize;
        let event = &second[12..12 + length];
        // wall_time = 2.0, step = 300, summary { value { tag "a" simple_value 0.5 } }
        let expected = [
            &[0x09][..],
            &2.0f64.to_le_bytes(),
            &[0x10, 0xac, 0x02, 0x2a, 0x0a, 0x0a, 0x08, 0x0a, 0x01, b'a', 0x15],
            &0.5f32.to_le_bytes(),
        ]
        .concat();
        assert_eq!(event, expected);
        assert_eq!(second[12 + length..], masked_crc(event).to_le_bytes());
    }
}
