//! The replay buffer: an append-only file with the trajectories of all rounds.
//!
//! After the bytes `TWREPLY1` come frames of a 16-byte little-endian header and a payload:
//!
//! ```text
//! marker "TWRR" | payload length u32 | CRC-32C of the payload | CRC-32C of these first twelve bytes
//! ```
//!
//! Opening skips and counts an unfinished last frame, which the next append removes. Frames with a
//! wrong payload checksum are skipped and reported; after a damaged header, reading continues at
//! the next valid one. The index takes 32 bytes per record in memory; turn vectors stay on disk,
//! and every read verifies their checksum.

mod frame;
mod record;

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use self::frame::Found;
pub use self::record::ReplayRecord;
use super::config::setting;
use super::pass::weight_at;
use super::{Sample, SampleSource};
use turnwise_files::{Lock, try_lock};
use turnwise_model::ModelError;

const MAGIC: &[u8; 8] = b"TWREPLY1";

/// Damage found on opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayHealth {
    /// Number of bytes of an unfinished last record.
    pub torn_bytes: u64,
    /// Damaged byte ranges, whose records are lost.
    pub corrupt: Vec<Range<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u64,
    length: u32,
    round: u32,
    id: u64,
}

/// A file of training records.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    file: File,
    writable: bool,
    index: Vec<Entry>,
    known: HashSet<(u32, u64)>,
    health: ReplayHealth,
    end: u64,
}

impl Replay {
    /// Opens a file for reading; [`Replay::health`] reports damage.
    ///
    /// # Errors
    /// Fails on an unreadable file or another format.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let file = File::open(path).map_err(ModelError::io(path))?;
        Self::scan(path, file, false)
    }

    /// Opens or creates a file for appending, and truncates an unfinished record.
    ///
    /// # Errors
    /// Fails if the file is inaccessible, not a replay, or already open for appending.
    pub fn append_to(path: &Path) -> Result<Self, ModelError> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(ModelError::io(path))?;
        if try_lock(&file).map_err(ModelError::io(path))? == Lock::Busy {
            return Err(ModelError::file(path, "is being written by another process; wait for it to end"));
        }
        let mut replay = Self::scan(path, file, true)?;
        replay.file.set_len(replay.end).map_err(ModelError::io(path))?;
        if replay.end == 0 {
            replay.file.seek(SeekFrom::Start(0)).map_err(ModelError::io(path))?;
            replay.file.write_all(MAGIC).map_err(ModelError::io(path))?;
            replay.end = MAGIC.len() as u64;
            // Records are synced later, so the file must exist after a power cut.
            let folder = path.parent().unwrap_or(Path::new(""));
            turnwise_files::sync_folder(folder).map_err(ModelError::io(folder))?;
        }
        Ok(replay)
    }

    fn scan(path: &Path, file: File, writable: bool) -> Result<Self, ModelError> {
        let mut replay = Self {
            path: path.to_owned(),
            file,
            writable,
            index: Vec::new(),
            known: HashSet::new(),
            health: ReplayHealth::default(),
            end: 0,
        };
        let size = replay.file.metadata().map_err(ModelError::io(path))?.len();
        let mut start = Vec::new();
        (&replay.file).take(MAGIC.len() as u64).read_to_end(&mut start).map_err(ModelError::io(path))?;
        if start.len() < MAGIC.len() && MAGIC.starts_with(&start) {
            replay.health.torn_bytes = size;
            return Ok(replay);
        }
        if start != MAGIC {
            return Err(ModelError::file(path, "is not a replay (its first bytes are not `TWREPLY1`)"));
        }
        let mut reader = frame::Reader::new(&replay.file, MAGIC.len() as u64, size);
        replay.end = size;
        while let Some(found) = reader.next().map_err(ModelError::io(path))? {
            match found {
                Found::Whole { offset, payload } => match ReplayRecord::key(payload) {
                    Some((round, id)) => {
                        // The first of equal records counts, as in appending.
                        if replay.known.insert((round, id)) {
                            let length = payload.len() as u32;
                            replay.index.push(Entry { offset, length, round, id });
                        }
                    }
                    None => {
                        replay.health.corrupt.push(offset - frame::HEADER..offset + payload.len() as u64);
                    }
                },
                Found::Corrupt(range) => replay.health.corrupt.push(range),
                Found::Torn(start) => {
                    replay.health.torn_bytes = size - start;
                    replay.end = start;
                }
            }
        }
        Ok(replay)
    }

    /// Returns the damage found on opening.
    pub fn health(&self) -> &ReplayHealth {
        &self.health
    }

    /// Returns the number of complete records.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the number of records by round.
    pub fn rounds(&self) -> BTreeMap<u32, usize> {
        let mut rounds = BTreeMap::new();
        for entry in &self.index {
            *rounds.entry(entry.round).or_default() += 1;
        }
        rounds
    }

    /// Appends a record. Returns false without appending if the replay has a record of the same
    /// (round, id), so a round can be repeated.
    ///
    /// # Errors
    /// Fails if the replay was opened for reading, on an inconsistent record, or on a failed write.
    pub fn append(&mut self, record: &ReplayRecord) -> Result<bool, ModelError> {
        if !self.writable {
            return Err(ModelError::file(&self.path, "was opened to read; open it with `Replay::append_to`"));
        }
        if self.known.contains(&(record.round, record.id)) {
            return Ok(false);
        }
        let payload = record.encode().map_err(|reason| ModelError::file(&self.path, reason))?;
        let bytes =
            frame::frame(&payload).ok_or_else(|| ModelError::file(&self.path, "a record exceeds 4 GiB"))?;
        self.file.seek(SeekFrom::Start(self.end)).map_err(ModelError::io(&self.path))?;
        if let Err(error) = self.file.write_all(&bytes) {
            // A full disk must not leave half a record between complete ones.
            let _ = self.file.set_len(self.end);
            return Err(ModelError::io(&self.path)(error));
        }
        let entry = Entry {
            offset: self.end + frame::HEADER,
            length: payload.len() as u32,
            round: record.round,
            id: record.id,
        };
        self.end += bytes.len() as u64;
        self.index.push(entry);
        self.known.insert((record.round, record.id));
        Ok(true)
    }

    /// Removes the first record for which `gone` (round, id) is true and all records after it; a
    /// run that restarts from an earlier step appends them again. Returns the number of removed
    /// records.
    ///
    /// # Errors
    /// Fails if the replay was opened for reading, or on a failed write.
    pub fn cut(&mut self, gone: impl Fn(u32, u64) -> bool) -> Result<usize, ModelError> {
        let Some(first) = self.index.iter().position(|entry| gone(entry.round, entry.id)) else {
            return Ok(0);
        };
        if !self.writable {
            return Err(ModelError::file(&self.path, "was opened to read; open it with `Replay::append_to`"));
        }
        let removed = self.index.split_off(first);
        for entry in &removed {
            self.known.remove(&(entry.round, entry.id));
        }
        self.end = removed[0].offset - frame::HEADER;
        self.file.set_len(self.end).map_err(ModelError::io(&self.path))?;
        self.sync()?;
        Ok(removed.len())
    }

    /// Syncs the file to disk.
    ///
    /// # Errors
    /// Fails on a failed write.
    pub fn sync(&self) -> Result<(), ModelError> {
        self.file.sync_data().map_err(ModelError::io(&self.path))
    }

    /// Reads a record by its index in `0..len()`.
    ///
    /// # Errors
    /// Fails on an invalid index, a failed read, or a record damaged since opening.
    pub fn read(&mut self, index: usize) -> Result<ReplayRecord, ModelError> {
        let Some(entry) = self.index.get(index).copied() else {
            return Err(ModelError::file(
                &self.path,
                format!("has {} records, not a record {index}", self.len()),
            ));
        };
        let mut bytes = vec![0; frame::HEADER as usize + entry.length as usize];
        self.file.seek(SeekFrom::Start(entry.offset - frame::HEADER)).map_err(ModelError::io(&self.path))?;
        self.file.read_exact(&mut bytes).map_err(ModelError::io(&self.path))?;
        frame::payload(&bytes).and_then(ReplayRecord::decode).ok_or_else(|| {
            ModelError::file(
                &self.path,
                format!("record {index} at byte {} is damaged", entry.offset - frame::HEADER),
            )
        })
    }

    /// Returns the round of a record.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn round(&self, index: usize) -> u32 {
        self.index[index].round
    }

    /// Returns a record's id within its round.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn id(&self, index: usize) -> u64 {
        self.index[index].id
    }

    /// Splits record indices into training and held-out ones. One in `every` records is held out,
    /// or none if `every` is 0. The split depends only on hashes of (round, id), so records keep it
    /// as the replay grows.
    pub fn split(&self, every: u64) -> (Vec<usize>, Vec<usize>) {
        (0..self.len()).partition(|&index| {
            let Entry { round, id, .. } = self.index[index];
            let mut key = [0; 12];
            key[..4].copy_from_slice(&round.to_le_bytes());
            key[4..].copy_from_slice(&id.to_le_bytes());
            every == 0 || !u64::from(crc32c::crc32c(&key)).is_multiple_of(every)
        })
    }

    /// Returns records as samples for training after round `now`, weighted by
    /// `0.5^((now - round) / half_life)`.
    ///
    /// # Errors
    /// Fails on an invalid index or half-life.
    pub fn view(
        &mut self,
        indices: Vec<usize>,
        now: u32,
        half_life: f64,
    ) -> Result<ReplayView<'_>, ModelError> {
        if !(half_life > 0.0 && half_life.is_finite()) {
            return Err(setting("half_life", format!("is {half_life}; must be finite and above 0")));
        }
        if let Some(index) = indices.iter().find(|&&index| index >= self.len()) {
            return Err(ModelError::file(
                &self.path,
                format!("has {} records, not a record {index}", self.len()),
            ));
        }
        Ok(ReplayView { replay: self, indices, now, half_life })
    }
}

/// Records as weighted samples, read on demand.
#[derive(Debug)]
pub struct ReplayView<'a> {
    replay: &'a mut Replay,
    indices: Vec<usize>,
    now: u32,
    half_life: f64,
}

impl ReplayView<'_> {
    /// Returns the view's record indices.
    pub fn into_indices(self) -> Vec<usize> {
        self.indices
    }
}

impl SampleSource for ReplayView<'_> {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn age(&self, index: usize) -> u32 {
        self.indices.get(index).map_or(0, |&record| self.now.saturating_sub(self.replay.round(record)))
    }

    fn sample(&mut self, index: usize) -> Result<Sample, ModelError> {
        let Some(&record) = self.indices.get(index) else {
            return Err(setting("sample", format!("there is no sample {index}")));
        };
        let record = self.replay.read(record)?;
        let age = self.now.saturating_sub(record.round);
        Ok(Sample {
            turns: record.turns,
            goal: record.goal,
            ret: record.ret,
            progress: record.progress,
            weight: weight_at(age, self.half_life),
        })
    }
}

#[cfg(test)]
mod tests;
