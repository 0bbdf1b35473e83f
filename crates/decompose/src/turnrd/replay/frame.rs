//! Finds complete records in a file that may be truncated or damaged.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;

pub(super) const HEADER: u64 = 16;
const MARKER: &[u8; 4] = b"TWRR";
/// Bytes per read when searching for a header.
const WINDOW: usize = 1 << 16;

pub(super) fn frame(payload: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER as usize + payload.len());
    bytes.extend_from_slice(MARKER);
    bytes.extend_from_slice(&u32::try_from(payload.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend_from_slice(payload);
    Some(bytes)
}

/// Returns payload length and checksum from a valid header.
fn announced(header: &[u8]) -> Option<(u32, u32)> {
    let (numbers, _) = header.get(..HEADER as usize)?.as_chunks::<4>();
    let number = |index: usize| u32::from_le_bytes(numbers[index]);
    let sound = &numbers[0] == MARKER && number(3) == crc32c::crc32c(&header[..12]);
    sound.then(|| (number(1), number(2)))
}

pub(super) fn payload(frame: &[u8]) -> Option<&[u8]> {
    let (length, checksum) = announced(frame)?;
    let payload = &frame[HEADER as usize..];
    (payload.len() == length as usize && crc32c::crc32c(payload) == checksum).then_some(payload)
}

pub(super) enum Found<'a> {
    /// A payload and its offset.
    Whole { offset: u64, payload: &'a [u8] },
    /// Bytes without a valid record.
    Corrupt(Range<u64>),
    /// An incomplete frame up to the end of the file.
    Torn(u64),
}

/// Reads frames, with one payload in memory at a time.
pub(super) struct Reader<'a> {
    file: &'a File,
    at: u64,
    size: u64,
    payload: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a File, at: u64, size: u64) -> Self {
        Self { file, at, size, payload: Vec::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Found<'_>>> {
        let start = self.at;
        if start >= self.size {
            return Ok(None);
        }
        let mut header = [0; HEADER as usize];
        let got = (self.size - start).min(HEADER) as usize;
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut header[..got])?;
        if let Some((length, checksum)) = announced(&header[..got]) {
            let end = start + HEADER + u64::from(length);
            if end > self.size {
                self.at = self.size;
                return Ok(Some(Found::Torn(start)));
            }
            self.payload.resize(length as usize, 0);
            self.file.read_exact(&mut self.payload)?;
            self.at = end;
            return Ok(Some(if crc32c::crc32c(&self.payload) == checksum {
                Found::Whole { offset: start + HEADER, payload: &self.payload }
            } else {
                Found::Corrupt(start..end)
            }));
        }
        let known = got.min(MARKER.len());
        if got < HEADER as usize && header[..known] == MARKER[..known] {
            self.at = self.size;
            return Ok(Some(Found::Torn(start)));
        }
        self.at = self.next_header(start + 1)?;
        Ok(Some(Found::Corrupt(start..self.at)))
    }

    /// Returns the offset of the next valid header, or the file's end.
    fn next_header(&mut self, from: u64) -> io::Result<u64> {
        let mut window = vec![0; WINDOW];
        let mut at = from;
        while at + HEADER <= self.size {
            let got = (self.size - at).min(WINDOW as u64) as usize;
            self.file.seek(SeekFrom::Start(at))?;
            self.file.read_exact(&mut window[..got])?;
            let mut windows = window[..got].windows(HEADER as usize);
            if let Some(index) = windows.position(|bytes| announced(bytes).is_some()) {
                return Ok(at + index as u64);
            }
            // Windows overlap by a header less one byte.
            at += (got as u64 + 1) - HEADER;
        }
        Ok(self.size)
    }
}
