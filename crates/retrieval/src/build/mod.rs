//! Builds a passage index from files of any size.
//!
//! ```text
//! DIR/passages/   the passages themselves (`store`)
//! DIR/bm25/       terms and their postings (`lucene`)
//! DIR/dense/      vectors (`dense`)
//! ```
//!
//! One thread reads, all cores parse and analyze, one thread writes. The next build deletes
//! unfinished files in `DIR/.building`.

mod lines;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rayon::prelude::*;
use turnwise_files::{Lock, try_lock};

use self::lines::Pieces;
pub use self::lines::read_passages;
use crate::lucene::{Analyzer, BuildOptions, IndexBuilder, Terms};
use crate::store::{PassageStore, StoreWriter};
use crate::{Passage, RetrievalError};

/// Subfolder of passages.
pub const PASSAGES: &str = "passages";
/// Subfolder of the term index.
pub const BM25: &str = "bm25";
/// Subfolder of vectors.
pub const DENSE: &str = "dense";
const UNFINISHED: &str = ".building";
const LOCK: &str = "build.lock";

const WAITING: usize = 2;
const STORED: usize = 2048;

/// A build's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildProgress {
    /// Passages processed.
    pub passages: u64,
    /// Bytes of ids and contents.
    pub bytes: u64,
    /// Progress through the input: bytes read from the files as stored on disk or, for a build from
    /// a folder's passages, the number of passages read.
    pub read: u64,
    /// Final value of `read`.
    pub length: u64,
    /// True while temporary files are merged.
    pub joining: bool,
}

/// Called between chunks; [`ControlFlow::Break`] stops the build.
pub type Watch<'a> = &'a mut dyn FnMut(BuildProgress) -> ControlFlow<()>;

/// Lock on a folder for one building process.
#[derive(Debug)]
pub struct BuildFolder {
    folder: PathBuf,
    unfinished: PathBuf,
    _lock: File,
}

impl BuildFolder {
    /// Opens or creates a folder for building.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if another process builds there or the folder is not
    /// writable.
    pub fn open(folder: &Path) -> Result<Self, RetrievalError> {
        let failed = |error: std::io::Error| RetrievalError::file(folder, &error);
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(LOCK);
        let lock = File::options().create(true).append(true).open(&path).map_err(failed)?;
        if try_lock(&lock).map_err(|error| RetrievalError::file(&path, &error))? == Lock::Busy {
            return Err(RetrievalError::File {
                path: folder.to_owned(),
                reason: "another process builds here; wait until it has ended".to_owned(),
            });
        }
        let unfinished = folder.join(UNFINISHED);
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::create_dir(&unfinished).map_err(failed)?;
        Ok(Self { folder: folder.to_owned(), unfinished, _lock: lock })
    }

    pub(crate) fn unfinished(&self, part: &str) -> PathBuf {
        self.unfinished.join(part)
    }

    pub(crate) fn finished(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    pub(crate) fn publish(&self, part: &str) -> Result<(), RetrievalError> {
        let path = self.finished(part);
        turnwise_files::rename_into_place(&self.unfinished(part), &path)
            .map_err(|error| RetrievalError::file(&path, &error))
    }

    pub(crate) fn refuse_existing(&self, part: &str) -> Result<(), RetrievalError> {
        let path = self.finished(part);
        if path.exists() {
            return Err(RetrievalError::File {
                path,
                reason: "it is there already; name another folder, or delete this one to build it anew"
                    .to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn passages(&self) -> Result<Option<PassageStore>, RetrievalError> {
        let path = self.finished(PASSAGES);
        path.exists().then(|| PassageStore::open(&path)).transpose()
    }
}

impl Drop for BuildFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

enum Source<'a> {
    Files(&'a [PathBuf]),
    Store(PassageStore),
}

enum Piece {
    Lines(lines::Piece),
    Passages(Vec<Arc<Passage>>),
}

struct Prepared {
    id: String,
    contents: String,
    terms: Option<Terms>,
}

/// Parts of an index to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Passages only, for a vector index.
    Passages,
    /// Passages and terms.
    Bm25,
}

/// Stores passages from JSON lines (`{"id", "contents"}`, plain, gzip or zstd) and indexes their
/// terms. Without files, indexes the passages that are already in the folder. Peak memory is
/// `options.memory` plus about 30 bytes per passage.
///
/// # Errors
///
/// Returns [`RetrievalError::Line`] for invalid lines, [`RetrievalError::File`] for file errors,
/// [`RetrievalError::Setting`] if there is no input or nothing to build, and
/// [`RetrievalError::Interrupted`] if `watch` stopped the build.
pub fn build(
    folder: &BuildFolder,
    files: &[PathBuf],
    parts: Parts,
    options: BuildOptions,
    watch: Watch<'_>,
) -> Result<BuildProgress, RetrievalError> {
    let existing = folder.passages()?;
    let source = match (existing, files.is_empty()) {
        (Some(store), true) => Source::Store(store),
        (Some(_), false) => {
            return Err(RetrievalError::Setting {
                key: "passages".to_owned(),
                reason: format!(
                    "{} has passages already: name no file to index those, or another folder",
                    folder.folder.display()
                ),
            });
        }
        (None, false) => Source::Files(files),
        (None, true) => {
            return Err(RetrievalError::Setting {
                key: "passages".to_owned(),
                reason: format!("{} has no passages yet: name a file of them", folder.folder.display()),
            });
        }
    };
    let mut index = None;
    if parts == Parts::Bm25 {
        folder.refuse_existing(BM25)?;
        index = Some(IndexBuilder::create(&folder.unfinished(BM25), options)?);
    }
    let mut store = match source {
        Source::Files(_) => Some(StoreWriter::create(&folder.unfinished(PASSAGES))?),
        Source::Store(_) => None,
    };
    let progress = fill(&source, store.as_mut(), index.as_mut(), watch)?;
    let _ = watch(BuildProgress { joining: true, ..progress });
    if let Some(index) = index {
        drop(index.finish()?);
    }
    if let Some(store) = store {
        store.finish()?;
        folder.publish(PASSAGES)?;
    }
    if parts == Parts::Bm25 {
        folder.publish(BM25)?;
    }
    Ok(progress)
}

fn fill(
    source: &Source<'_>,
    store: Option<&mut StoreWriter>,
    index: Option<&mut IndexBuilder>,
    watch: Watch<'_>,
) -> Result<BuildProgress, RetrievalError> {
    let analyzer = Analyzer::new()?;
    let analyse = index.is_some();
    let (read, length) = (AtomicU64::new(0), AtomicU64::new(0));
    let (done, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (send_piece, pieces) = sync_channel(WAITING);
        let (send_prepared, prepared) = sync_channel(WAITING);
        let reader = scope.spawn(|| read_all(source, send_piece, &read, &length));
        let writer = {
            let (done, written) = (&done, &written);
            std::thread::Builder::new()
                .spawn_scoped(scope, move || write_all(prepared, store, index, done, written))
                .map_err(|error| RetrievalError::Index { reason: format!("no thread: {error}") })?
        };
        let progress = || BuildProgress {
            passages: done.load(Ordering::Relaxed),
            bytes: written.load(Ordering::Relaxed),
            read: read.load(Ordering::Relaxed),
            length: length.load(Ordering::Relaxed),
            joining: false,
        };
        let mut outcome = Ok(());
        for piece in pieces {
            if watch(progress()).is_break() {
                outcome = Err(RetrievalError::Interrupted);
                break;
            }
            match prepare(piece, &analyzer, analyse) {
                Ok(passages) => {
                    if send_prepared.send(passages).is_err() {
                        // The writer's error is returned below.
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        drop(send_prepared);
        let writer = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let reader = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcome.and(writer).and(reader).map(|()| progress())
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the others end when this channel is dropped")]
fn read_all(
    source: &Source<'_>,
    pieces: SyncSender<Piece>,
    read: &AtomicU64,
    length: &AtomicU64,
) -> Result<(), RetrievalError> {
    match source {
        Source::Files(files) => {
            let sizes = files.iter().filter_map(|path| fs::metadata(path).ok()).map(|data| data.len());
            length.store(sizes.sum(), Ordering::Relaxed);
            let mut before = 0;
            for path in *files {
                let mut lines = Pieces::open(path)?;
                while let Some(piece) = lines.next_piece()? {
                    read.store(before + lines.position(), Ordering::Relaxed);
                    if pieces.send(Piece::Lines(piece)).is_err() {
                        return Ok(());
                    }
                }
                before += lines.length();
            }
        }
        Source::Store(store) => {
            length.store(store.len() as u64, Ordering::Relaxed);
            for start in (0..store.len()).step_by(STORED) {
                let range = start..(start + STORED).min(store.len());
                read.store(range.end as u64, Ordering::Relaxed);
                let passages = range.map(|position| store.get(position as u32)).collect::<Result<_, _>>()?;
                if pieces.send(Piece::Passages(passages)).is_err() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn prepare(piece: Piece, analyzer: &Analyzer, analyse: bool) -> Result<Vec<Prepared>, RetrievalError> {
    let terms = |contents: &str| analyse.then(|| Terms::of(analyzer, contents));
    match piece {
        Piece::Lines(piece) => piece
            .lines()
            .into_par_iter()
            .with_min_len(16)
            .map(|(number, line)| {
                let Passage { id, contents } = piece.parse(number, line)?;
                Ok(Prepared { terms: terms(&contents), id, contents })
            })
            .collect(),
        Piece::Passages(passages) => Ok(passages
            .into_par_iter()
            .with_min_len(16)
            .map(|passage| {
                let Passage { id, contents } = Arc::unwrap_or_clone(passage);
                Prepared { terms: terms(&contents), id, contents }
            })
            .collect()),
    }
}

fn write_all(
    prepared: Receiver<Vec<Prepared>>,
    mut store: Option<&mut StoreWriter>,
    mut index: Option<&mut IndexBuilder>,
    done: &AtomicU64,
    written: &AtomicU64,
) -> Result<(), RetrievalError> {
    for passages in prepared {
        for Prepared { id, contents, terms } in &passages {
            if let Some(store) = &mut store {
                store.add(id, contents)?;
            }
            if let (Some(index), Some(terms)) = (&mut index, terms) {
                index.add_analysed(id, contents, terms)?;
            }
            written.fetch_add((id.len() + contents.len()) as u64, Ordering::Relaxed);
        }
        done.fetch_add(passages.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}
