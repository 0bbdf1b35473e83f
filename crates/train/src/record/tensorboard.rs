//! TensorBoard event files, scalars only.
//!
//! A file is a sequence of records `u64 length | u32 masked crc of the length | data | u32 masked
//! crc of the data` (little-endian, CRC-32C). The data is a protobuf `Event` message.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Appends scalars to one event file.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// Starts a new file in `directory`. `wall_time` is in seconds since 1970.
    ///
    /// # Errors
    /// Fails if the file cannot be made in `directory`, or its first record cannot be written.
    pub fn create(directory: &Path, wall_time: f64) -> std::io::Result<Self> {
        let (seconds, process) = (wall_time as u64, std::process::id());
        // Two starts of one process within a second have files of their own.
        let mut count = 0;
        let (path, file) = loop {
            let path =
                directory.join(format!("events.out.tfevents.{seconds:010}.turnwise.{process}.{count}"));
            match File::create_new(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => count += 1,
                Err(error) => return Err(error),
            }
        };
        let mut writer = Self { file: BufWriter::new(file), path };
        let mut event = Vec::new();
        put_double(&mut event, 1, wall_time);
        put_bytes(&mut event, 3, b"brain.Event:2");
        writer.record(&event)?;
        writer.file.flush()?;
        Ok(writer)
    }

    /// Returns the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes scalars of one step.
    ///
    /// # Errors
    /// Fails if the file cannot be written, for example on a full disk.
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

    fn record(&mut self, data: &[u8]) -> std::io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        self.file.write_all(&length)?;
        self.file.write_all(&masked_crc(&length).to_le_bytes())?;
        self.file.write_all(data)?;
        self.file.write_all(&masked_crc(data).to_le_bytes())
    }
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
        // CRC-32C of "123456789" is the published check value 0xe3069283; the mask rotates it right by 15
        // bits and adds 0xa282ead8.
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
