//! Reads passages as JSON lines with `id` and `contents`.

use std::borrow::Cow;
use std::fmt;
use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::{Passage, RetrievalError};

/// Approximate chunk size in bytes; chunks contain whole lines.
const PIECE: usize = 2 << 20;
/// Maximum line length in bytes; wiki-18's passages have a few hundred.
const LONGEST: usize = 64 << 20;

pub(super) struct Pieces {
    path: Arc<PathBuf>,
    reader: Box<dyn BufRead + Send>,
    position: Arc<AtomicU64>,
    length: u64,
    lines: u64,
}

pub(super) struct Piece {
    path: Arc<PathBuf>,
    first: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    pub(super) fn open(path: &Path) -> Result<Self, RetrievalError> {
        let file = turnwise_files::open_counted(path).map_err(|error| RetrievalError::file(path, &error))?;
        Ok(Self {
            path: Arc::new(path.to_owned()),
            reader: file.reader,
            position: file.position,
            length: file.length,
            lines: 0,
        })
    }

    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn next_piece(&mut self) -> Result<Option<Piece>, RetrievalError> {
        let first = self.lines + 1;
        let mut bytes = Vec::with_capacity(PIECE + (PIECE >> 4));
        while bytes.len() < PIECE {
            let start = bytes.len();
            loop {
                let at = |error: &std::io::Error| RetrievalError::Line {
                    path: (*self.path).clone(),
                    line: self.lines + 1,
                    reason: error.to_string(),
                };
                let buffer = match self.reader.fill_buf() {
                    Ok(buffer) => buffer,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(at(&error)),
                };
                let end = buffer.iter().position(|&byte| byte == b'\n');
                let taken = end.map_or(buffer.len(), |end| end + 1);
                bytes.extend_from_slice(&buffer[..taken]);
                self.reader.consume(taken);
                if end.is_some() || taken == 0 {
                    break;
                }
                if bytes.len() - start > LONGEST {
                    return Err(at(&std::io::Error::other(format!(
                        "the line has more than {LONGEST} bytes; write one passage a line"
                    ))));
                }
            }
            if bytes.len() == start {
                break;
            }
            self.lines += 1;
        }
        Ok((!bytes.is_empty()).then(|| Piece { path: Arc::clone(&self.path), first, bytes }))
    }
}

impl Piece {
    pub(super) fn lines(&self) -> Vec<(u64, Range<usize>)> {
        let mut lines = Vec::new();
        let mut start = 0;
        for (number, line) in (self.first..).zip(self.bytes.split_inclusive(|&byte| byte == b'\n')) {
            if !line.trim_ascii().is_empty() {
                lines.push((number, start..start + line.len()));
            }
            start += line.len();
        }
        lines
    }

    pub(super) fn parse(&self, number: u64, line: Range<usize>) -> Result<Passage, RetrievalError> {
        parse(self.bytes[line].trim_ascii()).map_err(|reason| RetrievalError::Line {
            path: (*self.path).clone(),
            line: number,
            reason,
        })
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    id: Id<'a>,
    #[serde(borrow)]
    contents: Cow<'a, str>,
}

struct Id<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Id<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or a whole number")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Id<'de>, E> {
                Ok(Id(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Id<'de>, E> {
                Ok(Id(Cow::Owned(text.to_owned())))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Id<'de>, E> {
                Ok(Id(Cow::Owned(number.to_string())))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Id<'de>, E> {
                Ok(Id(Cow::Owned(number.to_string())))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn parse(line: &[u8]) -> Result<Passage, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let Line { id: Id(id), contents } = serde_json::from_str(text).map_err(|error| {
        format!("{error}; every line is to be an object with `id` and `contents`, such as {EXAMPLE}")
    })?;
    Ok(Passage { id: id.into_owned(), contents: contents.into_owned() })
}

const EXAMPLE: &str = r#"{"id": "0", "contents": "\"Title\"\nText"}"#;

/// Reads passages from JSON lines (`{"id", "contents"}`, plain, gzip or zstd) into memory.
///
/// # Errors
///
/// Returns [`RetrievalError::Line`] for a line that is not a passage, and [`RetrievalError::File`]
/// if the file cannot be read.
pub fn read_passages(path: &Path) -> Result<Vec<Passage>, RetrievalError> {
    let mut pieces = Pieces::open(path)?;
    let mut passages = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        for (number, line) in piece.lines() {
            passages.push(piece.parse(number, line)?);
        }
    }
    Ok(passages)
}
