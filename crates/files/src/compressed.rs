//! Files that may be compressed with zstd or (feature `gzip`) gzip, with a limit on their
//! expansion.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[cfg(feature = "gzip")]
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Base-2 logarithm of the largest accepted zstd window, for files written with `--long=31`.
const WINDOW_LOG_MAX: u32 = 31;

/// Expanded size in bytes that is always accepted.
const FREE_EXPANSION: u64 = 64 << 20;

/// Further expanded bytes accepted for each stored byte; episodes expand 5 to 30 times, a
/// decompression bomb 30,000 times.
const MOST_TIMES: u64 = 256;

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Returns the largest expanded size that is accepted for a compressed file of `stored` bytes;
/// larger ones are rejected as decompression bombs.
pub fn most_expanded(stored: u64) -> u64 {
    FREE_EXPANSION.saturating_add(stored.saturating_mul(MOST_TIMES))
}

/// Opens a file or pipe, detects zstd and gzip by their first bytes, and skips a byte order mark.
///
/// # Errors
/// Opening fails with the operating system's error. Reading fails on a damaged frame, or after more
/// than [`most_expanded`] bytes ([`ErrorKind::FileTooLarge`]).
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(open_counted(path)?.reader)
}

/// An open file that counts the bytes read.
pub struct Counted {
    /// Decompressed contents.
    pub reader: Box<dyn BufRead + Send>,
    /// Bytes read so far, before decompression.
    pub position: Arc<AtomicU64>,
    /// Number of bytes in the file; 0 for a pipe.
    pub length: u64,
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Counted").field("length", &self.length).finish_non_exhaustive()
    }
}

struct Counting {
    file: Chain<Cursor<Vec<u8>>, File>,
    position: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.position.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

struct Bounded<R> {
    reader: R,
    position: Arc<AtomicU64>,
    expanded: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.expanded += read as u64;
        let stored = self.position.load(Ordering::Relaxed);
        if self.expanded > most_expanded(stored) {
            let reason = format!(
                "{stored} compressed bytes expand to more than {} bytes ({} MiB and {MOST_TIMES} times the file), as a \
                 decompression bomb does; if you trust the file, decompress it with zstd or gzip first",
                most_expanded(stored),
                FREE_EXPANSION >> 20
            );
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        Ok(read)
    }
}

struct Unmarked<R> {
    reader: R,
    /// Bytes that were read to detect a byte order mark and not yet returned.
    start: Option<Cursor<Vec<u8>>>,
}

impl<R: Read> Read for Unmarked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.start.is_none() {
            let mut start = Vec::with_capacity(BYTE_ORDER_MARK.len());
            self.reader.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut start)?;
            if start == BYTE_ORDER_MARK {
                start.clear();
            }
            self.start = Some(Cursor::new(start));
        }
        let start = self.start.as_mut().map_or(Ok(0), |start| start.read(buffer))?;
        if start > 0 { Ok(start) } else { self.reader.read(buffer) }
    }
}

fn unmarked(reader: impl Read + Send + 'static, capacity: usize) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(capacity, Unmarked { reader, start: None }))
}

/// Returns the buffer size for plain text. A small file gets a small buffer, because zeroing a
/// large one takes time.
fn piece(metadata: &Metadata) -> usize {
    let most = 1 << 20;
    if metadata.is_file() { metadata.len().clamp(1 << 12, most) as usize } else { most as usize }
}

/// Opens a file like [`open`], but counts the bytes read.
///
/// # Errors
/// Fails like [`open`].
pub fn open_counted(path: &Path) -> io::Result<Counted> {
    let mut file = File::open(path)?;
    let mut start = Vec::with_capacity(MAGIC.len());
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut start)?;
    let metadata = file.metadata()?;
    let (length, position) = (metadata.len(), Arc::new(AtomicU64::new(0)));
    let file = Counting { file: Cursor::new(start.clone()).chain(file), position: Arc::clone(&position) };
    let reader = if start == MAGIC {
        let mut decoder = zstd::Decoder::new(file)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        unmarked(Bounded { reader: decoder, position: Arc::clone(&position), expanded: 0 }, 1 << 18)
    } else {
        plain_or_gzip(&start, file, piece(&metadata))
    };
    Ok(Counted { reader, position, length })
}

#[cfg(feature = "gzip")]
fn plain_or_gzip(start: &[u8], file: Counting, piece: usize) -> Box<dyn BufRead + Send> {
    if start.starts_with(&GZIP) {
        let position = Arc::clone(&file.position);
        let decoder = flate2::read::MultiGzDecoder::new(file);
        return unmarked(Bounded { reader: decoder, position, expanded: 0 }, 1 << 18);
    }
    unmarked(file, piece)
}

#[cfg(not(feature = "gzip"))]
fn plain_or_gzip(_: &[u8], file: Counting, piece: usize) -> Box<dyn BufRead + Send> {
    unmarked(file, piece)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_first_bytes_decide_and_not_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let read = |path: &Path| {
            let mut text = String::new();
            open(path).unwrap().read_to_string(&mut text).map(|_| text)
        };
        for text in ["one\ntwo\n", "x", ""] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap(), text);
            let packed = zstd::encode_all(text.as_bytes(), 3).unwrap();
            fs::write(&path, &packed).unwrap();
            assert_eq!(read(&path).unwrap(), text);
            fs::write(&path, &packed[..packed.len() - 1]).unwrap();
            assert!(read(&path).is_err());
        }
        #[cfg(feature = "gzip")]
        {
            use std::io::Write as _;
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(b"one\ntwo\n").unwrap();
            let packed = packed.finish().unwrap();
            fs::write(&path, [packed.as_slice(), &packed].concat()).unwrap();
            assert_eq!(read(&path).unwrap(), "one\ntwo\none\ntwo\n");
            let counted = open_counted(&path).unwrap();
            assert_eq!(counted.length, 2 * packed.len() as u64);
            std::io::read_to_string(counted.reader).unwrap();
            assert_eq!(counted.position.load(Ordering::Relaxed), counted.length);
            fs::write(&path, &packed[..packed.len() - 1]).unwrap();
            assert!(read(&path).is_err());
        }
        assert!(open(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        for (text, read) in [
            ("\u{feff}{}\n", "{}\n"),
            ("\u{feff}", ""),
            ("\u{feff}\u{feff}", "\u{feff}"),
            ("a\u{feff}", "a\u{feff}"),
            ("é", "é"),
        ] {
            for bytes in [text.as_bytes().to_vec(), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
                fs::write(&path, &bytes).unwrap();
                let counted = open_counted(&path).unwrap();
                assert_eq!(io::read_to_string(counted.reader).unwrap(), read, "{text:?}");
                assert_eq!(counted.position.load(Ordering::Relaxed), bytes.len() as u64);
            }
        }
    }

    #[test]
    fn a_bomb_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.jsonl");
        let text = |length: u64| io::repeat(b' ').take(length);
        let pack = |length: u64| zstd::encode_all(text(length), 1).unwrap();
        let read = |path: &Path| io::copy(&mut open(path).unwrap(), &mut io::sink());
        let bomb = pack(1 << 30);
        assert!(most_expanded(bomb.len() as u64) < 1 << 30);
        fs::write(&path, &bomb).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("decompress it with zstd"), "{error}");
        fs::write(&path, pack(FREE_EXPANSION)).unwrap();
        assert_eq!(read(&path).unwrap(), FREE_EXPANSION);
        #[cfg(feature = "gzip")]
        {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            io::copy(&mut text(1 << 27), &mut encoder).unwrap();
            fs::write(&path, encoder.finish().unwrap()).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::FileTooLarge);
        }
    }

    #[cfg(unix)]
    #[test]
    fn pipes_are_read_from_their_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("pipe"), folder.path().join("file"));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for text in ["one\ntwo\n", "x", ""] {
            for bytes in [text.as_bytes().to_vec(), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
                fs::write(&file, &bytes).unwrap();
                let command = format!("cat '{}' > '{}'", file.display(), path.display());
                let mut writer = std::process::Command::new("sh").args(["-c", &command]).spawn().unwrap();
                let counted = open_counted(&path).unwrap();
                assert_eq!(counted.length, 0);
                assert_eq!(io::read_to_string(counted.reader).unwrap(), text);
                assert_eq!(counted.position.load(Ordering::Relaxed), bytes.len() as u64);
                assert!(writer.wait().unwrap().success());
            }
        }
    }
}
