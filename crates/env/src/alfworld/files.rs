use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use rayon::iter::{IntoParallelRefIterator as _, ParallelBridge as _, ParallelIterator as _};
use turnwise_core::EnvError;

use super::game::Game;
use super::parse;

pub(super) const GAME_FILE: &str = "game.tw-pddl";

const ARCHIVE: &str = ".tar.zst";

/// Maximum size of a game file; official ones have about 100 kB.
const MAX_BYTES: u64 = 32 << 20;

const WAITING: usize = 64;

#[derive(Default)]
pub(super) struct Found {
    pub(super) games: Vec<Game>,
    pub(super) errors: Vec<EnvError>,
    pub(super) unsolvable: usize,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.games.is_empty() && self.errors.is_empty() && self.unsolvable == 0
    }

    fn with(mut self, parsed: impl IntoIterator<Item = Result<Option<Game>, EnvError>>) -> Self {
        for game in parsed {
            match game {
                Ok(Some(game)) => self.games.push(game),
                Ok(None) => self.unsolvable += 1,
                Err(error) => self.errors.push(error),
            }
        }
        self
    }
}

pub(super) fn read(path: &Path, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<Found, EnvError> {
    let metadata = std::fs::metadata(path).map_err(|source| EnvError::io(path, source))?;
    if metadata.is_file() {
        return if is_archive(path) {
            read_archive(path, wanted)
        } else {
            Ok(read_files(&[path.to_owned()], wanted))
        };
    }
    let mut archives: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|source| EnvError::io(path, source))? {
        let entry = entry.map_err(|source| EnvError::io(path, source))?.path();
        if entry.is_file() && is_archive(&entry) {
            archives.push(entry);
        }
    }
    // An archive holds the whole set.
    if archives.is_empty() {
        let mut files = Vec::new();
        walk(path, &mut files)?;
        return Ok(read_files(&files, wanted));
    }
    archives.sort();
    let mut all = Found::default();
    for archive in &archives {
        let mut found = read_archive(archive, wanted)?;
        all.games.append(&mut found.games);
        all.errors.append(&mut found.errors);
        all.unsolvable += found.unsolvable;
    }
    Ok(all)
}

fn is_archive(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(ARCHIVE))
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), EnvError> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|source| EnvError::io(&folder, source))? {
            let entry = entry.map_err(|source| EnvError::io(&folder, source))?;
            // Folder links may form a cycle.
            let kind = entry.file_type().map_err(|source| EnvError::io(&entry.path(), source))?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if entry.file_name() == GAME_FILE {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(())
}

fn read_files(files: &[PathBuf], wanted: &(dyn Fn(&str) -> bool + Sync)) -> Found {
    let parsed: Vec<_> = files
        .par_iter()
        .map(|path| (path, path.to_string_lossy()))
        .filter(|(_, name)| wanted(&parse::id_of(name)))
        .map(|(path, name)| {
            let bytes = std::fs::read(path).map_err(|source| EnvError::io(path, source));
            bytes.and_then(|bytes| parse_bytes(&name, &name, &bytes))
        })
        .collect();
    Found::default().with(parsed)
}

/// Parses a game file; returns `None` if the game is unsolvable. `shown` is the file's name in
/// error messages, and `name` is the path from which the game's id is made.
fn parse_bytes(shown: &str, name: &str, bytes: &[u8]) -> Result<Option<Game>, EnvError> {
    let broken = |reason: String| EnvError::File { path: shown.to_owned(), reason };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| broken(format!("not UTF-8 text ({error}); unpack the game files again")))?;
    parse::parse(name, text).map_err(broken)
}

/// Index, path and content of an archived file.
type Entry = (usize, String, Result<Vec<u8>, EnvError>);

fn read_archive(path: &Path, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<Found, EnvError> {
    let (sender, receiver) = sync_channel::<Entry>(WAITING);
    let (mut parsed, unpacked) = std::thread::scope(|scope| {
        let unpacker = scope.spawn(move || unpack(path, wanted, &sender));
        let parsed: Vec<_> = receiver
            .into_iter()
            .par_bridge()
            .map(|(number, name, bytes)| {
                let shown = format!("{}:{name}", path.display());
                (number, bytes.and_then(|bytes| parse_bytes(&shown, &name, &bytes)))
            })
            .collect();
        (parsed, unpacker.join())
    });
    unpacked.map_err(|_| EnvError::Other(format!("{}: the unpacking thread panicked", path.display())))??;
    parsed.sort_unstable_by_key(|&(number, _)| number);
    Ok(Found::default().with(parsed.into_iter().map(|(_, game)| game)))
}

fn unpack(
    path: &Path,
    wanted: &(dyn Fn(&str) -> bool + Sync),
    sender: &SyncSender<Entry>,
) -> Result<(), EnvError> {
    let broken = |error: std::io::Error| EnvError::File {
        path: path.display().to_string(),
        reason: format!("not a readable .tar.zst archive ({error}); fetch or pack it again"),
    };
    let mut archive =
        tar::Archive::new(turnwise_files::open(path).map_err(|source| EnvError::io(path, source))?);
    for (number, entry) in archive.entries().map_err(broken)?.enumerate() {
        let mut entry = entry.map_err(broken)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_game = entry.header().entry_type().is_file() && name.rsplit('/').next() == Some(GAME_FILE);
        if !is_game || !wanted(&parse::id_of(&name)) {
            continue;
        }
        let bytes = if entry.size() > MAX_BYTES {
            let path = format!("{}:{name}", path.display());
            let reason = format!("{} bytes are too many for a game ({MAX_BYTES} at most)", entry.size());
            Err(EnvError::File { path, reason })
        } else {
            let mut bytes = Vec::with_capacity(entry.size() as usize);
            entry.read_to_end(&mut bytes).map_err(broken)?;
            Ok(bytes)
        };
        // The receiver stopped early.
        if sender.send((number, name, bytes)).is_err() {
            break;
        }
    }
    Ok(())
}
