//! Caches the order, hash and content digests of a split's tasks, so that runs create only the
//! tasks they play.
//!
//! A file starts with a JSON line about the source. Little-endian numbers follow: the task indices
//! in panel order (u32), the sorted first 64 bits of the tasks' digests, and the task index of each
//! digest (u32). The file is rebuilt if it is damaged or the catalogue's size or modification time
//! changes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::{EnvError, Task, TaskList, digest, hexadecimal};

use super::WebshopSet;
use super::goal_file::Source;
use crate::panel::rank;

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) folder: PathBuf,
    pub(super) source: Source,
    pub(super) catalogue: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    bytes: u64,
    /// Modification time in nanoseconds since 1970.
    changed: u64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Self { bytes: metadata.len(), changed: changed.as_nanos() as u64 })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// Format version; increase it if equal goals yield a different file than before.
    version: u32,
    source: Source,
    catalogue: Stamp,
    split: String,
    tasks: usize,
    hash: String,
    /// SHA-256 of the file's numbers.
    numbers: String,
}

const VERSION: u32 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TaskIndex {
    hash: String,
    order: Vec<u32>,
    /// First 64 bits of each digest with its task index, sorted.
    contents: Vec<(u64, u32)>,
}

fn prefix(digest: &str) -> u64 {
    digest.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

impl TaskIndex {
    pub(super) fn of(set: &WebshopSet, split: &str, kept: &Kept) -> Result<Self, EnvError> {
        let path = kept.folder.join(kept.source.file_name(&format!("tasks-{split}")));
        let places = set.split(split)?;
        if let Some(found) = Self::load(&path, split, kept, places.len()) {
            return Ok(found);
        }
        let made = Self::make(set, places)?;
        // Without the cache, the next start only takes longer.
        let _ = made.save(&path, split, kept);
        Ok(made)
    }

    fn make(set: &WebshopSet, places: &[u32]) -> Result<Self, EnvError> {
        let entry = |(at, place): (usize, &u32)| {
            let task = set.task(*place as usize)?;
            let content = task.content_digest();
            let mut bytes = [0; 32];
            for (byte, digits) in bytes.iter_mut().zip(content.as_bytes().chunks_exact(2)) {
                let digits = std::str::from_utf8(digits).unwrap_or_default();
                *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
            }
            Ok((rank(&task), bytes, at as u32))
        };
        let mut entries: Vec<([u8; 32], [u8; 32], u32)> =
            places.par_iter().enumerate().map(entry).collect::<Result<_, EnvError>>()?;
        // Names are unique within a split, so ranks are too.
        entries.par_sort_unstable();
        let named = |(_, content, at): &([u8; 32], [u8; 32], u32)| {
            Ok([set.id(places[*at as usize] as usize)?, hexadecimal(content)])
        };
        let names: Vec<[String; 2]> = entries.par_iter().map(named).collect::<Result<_, EnvError>>()?;
        let hash = digest(names.iter().flatten());
        let order = entries.iter().map(|(_, _, at)| *at).collect();
        let first = |(_, content, at): &([u8; 32], [u8; 32], u32)| {
            (content.first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk)), *at)
        };
        let mut contents: Vec<(u64, u32)> = entries.iter().map(first).collect();
        contents.sort_unstable();
        Ok(Self { hash, order, contents })
    }

    fn load(path: &Path, split: &str, kept: &Kept, tasks: usize) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let line = bytes.iter().position(|byte| *byte == b'\n')?;
        let header: Header = serde_json::from_slice(&bytes[..line]).ok()?;
        let numbers = &bytes[line + 1..];
        let same = (header.version, &header.source, header.catalogue, header.split.as_str(), header.tasks)
            == (VERSION, &kept.source, kept.catalogue, split, tasks);
        let whole = numbers.len() == 16 * tasks && hexadecimal(&Sha256::digest(numbers)) == header.numbers;
        if !same || !whole {
            return None;
        }
        let (order, rest) = numbers.split_at(4 * tasks);
        let (firsts, places) = rest.split_at(8 * tasks);
        let halves = |bytes: &[u8]| -> Vec<u32> {
            bytes.as_chunks::<4>().0.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect()
        };
        let firsts = firsts.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk));
        let contents = firsts.zip(halves(places)).collect();
        Some(Self { hash: header.hash, order: halves(order), contents })
    }

    fn save(&self, path: &Path, split: &str, kept: &Kept) -> std::io::Result<()> {
        let mut numbers: Vec<u8> = self.order.iter().flat_map(|place| place.to_le_bytes()).collect();
        numbers.extend(self.contents.iter().flat_map(|(first, _)| first.to_le_bytes()));
        numbers.extend(self.contents.iter().flat_map(|(_, place)| place.to_le_bytes()));
        let header = Header {
            version: VERSION,
            source: kept.source.clone(),
            catalogue: kept.catalogue,
            split: split.to_owned(),
            tasks: self.order.len(),
            hash: self.hash.clone(),
            numbers: hexadecimal(&Sha256::digest(&numbers)),
        };
        let mut bytes = serde_json::to_vec(&header)?;
        bytes.push(b'\n');
        bytes.extend(numbers);
        turnwise_files::write_shared(path, |file| file.write_all(&bytes))
    }
}

pub(super) struct IndexedTasks {
    pub(super) set: WebshopSet,
    pub(super) split: &'static str,
    pub(super) index: Arc<TaskIndex>,
}

impl TaskList for IndexedTasks {
    fn len(&self) -> usize {
        self.index.order.len()
    }

    fn task(&self, place: usize) -> Result<Task, EnvError> {
        let places = self.set.split(self.split)?;
        let goal = places.get(place).ok_or_else(|| {
            EnvError::Other(format!("the split `{}` has no task at place {place}", self.split))
        })?;
        self.set.task(*goal as usize)
    }

    fn find(&self, id: &str) -> Result<Option<Task>, EnvError> {
        let Some(goal) = self.set.position(id) else { return Ok(None) };
        let inside = self.set.split(self.split)?.binary_search(&(goal as u32)).is_ok();
        inside.then(|| self.set.task(goal)).transpose()
    }

    fn panel_order(&self) -> &[u32] {
        &self.index.order
    }

    fn hash(&self) -> &str {
        &self.index.hash
    }

    fn places_of(&self, content_digest: &str) -> Vec<usize> {
        let wanted = prefix(content_digest);
        let contents = &self.index.contents;
        let start = contents.partition_point(|(first, _)| *first < wanted);
        let found = contents[start..].iter().take_while(|(first, _)| *first == wanted);
        found.map(|(_, place)| *place as usize).collect()
    }
}
