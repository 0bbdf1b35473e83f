//! File format of an index.
//!
//! ```text
//! magic (8)
//! postings of every term, one behind the other
//! texts of the terms, ascending by their bytes
//! entry of 16 bytes a term: start of its postings u64, end of its text u32, documents that have it u32
//! norm u8 a document
//! rank u32 a document: the rank of its identifier among those below
//! end u32 of every identifier
//! identifiers, ascending
//! starts of the six parts after the postings, numbers of terms, documents and identifiers (9 u64), magic (8)
//! ```
//!
//! A term's postings are blocks of 128 documents; if there are several, a table of each block's
//! last document and end (both u32) comes first. A posting is a variable-length integer: `2 d + 1`
//! if the term occurs once, otherwise `2 d` and its count; `d` is the distance from the previous
//! document. All numbers are little-endian and checked before use.

use std::ops::Range;
use std::path::{Path, PathBuf};

use turnwise_files::PathError;

use super::SearchError;
use crate::bytes::Bytes;

pub(super) const HEAD: &[u8; 8] = b"TWFIND2\n";
pub(super) const TAIL: &[u8; 8] = b"\nTWFIND2";
pub(super) const BLOCK: usize = 128;
pub(super) const ENTRY: usize = 16;
/// Number of integers between the last part of the file and the magic bytes at its end.
pub(super) const FOOTER: usize = 9;
/// Document index of a cursor that has passed the last document.
pub(super) const END: u32 = u32::MAX;

pub(super) struct Postings {
    bytes: Bytes,
    path: PathBuf,
    texts: usize,
    entries: usize,
    norms: usize,
    ranks: usize,
    ends: usize,
    names: usize,
    terms: usize,
    documents: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// Number of documents that contain the term.
    pub(super) documents: u32,
    /// Offset at which the postings start, which also identifies the term.
    pub(super) start: usize,
    end: usize,
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

fn short(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

impl Postings {
    pub(super) fn open(path: &Path) -> Result<Self, SearchError> {
        let bytes = Bytes::map(path).map_err(|source| PathError::new(path, source))?;
        Self::over(bytes, path)
    }

    pub(super) fn in_memory(bytes: Vec<u8>) -> Result<Self, SearchError> {
        Self::over(Bytes::Memory(bytes), Path::new("index in memory"))
    }

    fn over(bytes: Bytes, path: &Path) -> Result<Self, SearchError> {
        let damaged =
            |reason: &str| SearchError::Damaged { path: path.to_owned(), reason: reason.to_owned() };
        let footer = bytes
            .len()
            .checked_sub(FOOTER * 8 + TAIL.len())
            .filter(|_| bytes.starts_with(HEAD) && bytes.ends_with(TAIL))
            .ok_or_else(|| damaged("it is not a whole file of postings"))?;
        let number = |index: usize| long(&bytes, footer + index * 8) as usize;
        let [texts, entries, norms, ranks, ends, names] = [0, 1, 2, 3, 4, 5].map(number);
        let [terms, documents, identifiers] = [6, 7, 8].map(number);
        let follows = |start: usize, count: usize, size: usize, next: usize| {
            count.checked_mul(size).and_then(|bytes| bytes.checked_add(start)) == Some(next)
        };
        let sound = HEAD.len() <= texts
            && texts <= entries
            && follows(entries, terms, ENTRY, norms)
            && follows(norms, documents, 1, ranks)
            && follows(ranks, documents, 4, ends)
            && follows(ends, identifiers, 4, names)
            && names <= footer;
        if !sound {
            return Err(damaged("its parts have other lengths than it says"));
        }
        let mut before = 0;
        for index in 0..identifiers {
            let end = short(&bytes, ends + index * 4);
            let name = bytes[names..footer].get(before as usize..end as usize);
            if name.is_none_or(|name| std::str::from_utf8(name).is_err()) {
                return Err(damaged("an identifier is no text"));
            }
            before = end;
        }
        if (0..documents).any(|document| short(&bytes, ranks + document * 4) as usize >= identifiers) {
            return Err(damaged("a document has no identifier"));
        }
        Ok(Self { path: path.to_owned(), texts, entries, norms, ranks, ends, names, terms, documents, bytes })
    }

    pub(super) fn documents(&self) -> usize {
        self.documents
    }

    pub(super) fn norms(&self) -> &[u8] {
        &self.bytes[self.norms..self.ranks]
    }

    pub(super) fn rank(&self, document: u32) -> u32 {
        short(&self.bytes, self.ranks + document as usize * 4)
    }

    pub(super) fn name(&self, rank: u32) -> &str {
        let end = |index: usize| short(&self.bytes, self.ends + index * 4) as usize;
        let start = (rank as usize).checked_sub(1).map_or(0, end);
        let name = &self.bytes[self.names + start..self.names + end(rank as usize)];
        std::str::from_utf8(name).unwrap_or_default()
    }

    fn text(&self, term: usize) -> &[u8] {
        let end = |term: usize| short(&self.bytes, self.entries + term * ENTRY + 8) as usize;
        let start = term.checked_sub(1).map_or(0, end);
        self.bytes[self.texts..self.entries].get(start..end(term)).unwrap_or_default()
    }

    pub(super) fn find(&self, term: &str) -> Option<List> {
        let (mut low, mut high) = (0, self.terms);
        while low < high {
            let middle = low.midpoint(high);
            match self.text(middle).cmp(term.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let start = |term: usize| long(&self.bytes, self.entries + term * ENTRY) as usize;
                    let next = middle + 1;
                    return Some(List {
                        documents: short(&self.bytes, self.entries + middle * ENTRY + 12),
                        start: start(middle),
                        end: if next < self.terms { start(next) } else { self.texts },
                    });
                }
            }
        }
        None
    }

    pub(super) fn cursor(&self, list: List) -> Result<Cursor<'_>, SearchError> {
        let blocks = (list.documents as usize).div_ceil(BLOCK);
        let table = if blocks > 1 { blocks * 8 } else { 0 };
        let bytes = self.bytes.get(list.start..list.end).filter(|bytes| bytes.len() >= table);
        let (table, bytes) = bytes.ok_or_else(|| self.damaged())?.split_at(table);
        let mut cursor = Cursor {
            postings: self,
            table,
            bytes,
            count: list.documents as usize,
            blocks,
            next: 0,
            documents: [0; BLOCK],
            frequencies: [0; BLOCK],
            index: 0,
            length: 0,
        };
        cursor.load(0)?;
        Ok(cursor)
    }

    pub(super) fn each(&self, list: List, mut visit: impl FnMut(u32, u32)) -> Result<(), SearchError> {
        let mut cursor = self.cursor(list)?;
        while cursor.length > 0 {
            let block = cursor.documents.iter().zip(&cursor.frequencies).take(cursor.length);
            block.for_each(|(&document, &frequency)| visit(document, frequency));
            cursor.load(cursor.next)?;
        }
        Ok(())
    }

    fn damaged(&self) -> SearchError {
        SearchError::Damaged {
            path: self.path.clone(),
            reason: "the postings of a term are broken".to_owned(),
        }
    }
}

/// Iterates over a term's documents, ascending.
pub(super) struct Cursor<'a> {
    postings: &'a Postings,
    table: &'a [u8],
    bytes: &'a [u8],
    count: usize,
    blocks: usize,
    /// Index of the block after the decoded one.
    next: usize,
    documents: [u32; BLOCK],
    frequencies: [u32; BLOCK],
    index: usize,
    length: usize,
}

impl Cursor<'_> {
    /// Returns the current document, or [`END`].
    #[inline]
    pub(super) fn document(&self) -> u32 {
        if self.index < self.length { self.documents[self.index] } else { END }
    }

    #[inline]
    pub(super) fn frequency(&self) -> u32 {
        self.frequencies[self.index.min(BLOCK - 1)]
    }

    #[inline]
    pub(super) fn advance(&mut self) -> Result<(), SearchError> {
        self.index += 1;
        if self.index < self.length { Ok(()) } else { self.load(self.next) }
    }

    /// Advances to the first document whose index is at least `target`.
    pub(super) fn seek(&mut self, target: u32) -> Result<(), SearchError> {
        if self.length == 0 || self.document() >= target {
            return Ok(());
        }
        if self.documents[self.length - 1] < target {
            let mut block = self.next;
            while block < self.blocks && self.last(block) < target {
                block += 1;
            }
            self.load(block)?;
        }
        while self.document() < target {
            self.index += 1;
        }
        Ok(())
    }

    fn last(&self, block: usize) -> u32 {
        short(self.table, block * 8)
    }

    fn range(&self, block: usize) -> Range<usize> {
        if self.table.is_empty() {
            return 0..self.bytes.len();
        }
        let end = |block: usize| short(self.table, block * 8 + 4) as usize;
        block.checked_sub(1).map_or(0, end)..end(block)
    }

    fn load(&mut self, block: usize) -> Result<(), SearchError> {
        (self.index, self.length, self.next) = (0, 0, block + 1);
        if block >= self.blocks {
            return Ok(());
        }
        let count = (self.count - block * BLOCK).min(BLOCK);
        let mut bytes = self.bytes.get(self.range(block)).ok_or_else(|| self.postings.damaged())?;
        let mut document = block.checked_sub(1).map_or(0, |before| u64::from(self.last(before)));
        for index in 0..count {
            let Some(code) = read_varint(&mut bytes) else { return Err(self.postings.damaged()) };
            document = document.saturating_add(code >> 1);
            let frequency = if code & 1 == 1 { Some(1) } else { read_varint(&mut bytes) };
            let Some(frequency) = frequency.filter(|_| document < self.postings.documents as u64) else {
                return Err(self.postings.damaged());
            };
            self.documents[index] = document as u32;
            self.frequencies[index] = frequency as u32;
        }
        self.length = count;
        Ok(())
    }
}

/// Reads a variable-length integer, lowest seven bits first.
#[inline]
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let (mut value, mut shift) = (u64::from(first & 0x7f), 7);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
        if shift > 56 {
            return None;
        }
    }
}

pub(crate) fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

pub(super) fn write_posting(bytes: &mut Vec<u8>, distance: u32, frequency: u32) {
    write_varint(bytes, u64::from(distance) << 1 | u64::from(frequency == 1));
    if frequency != 1 {
        write_varint(bytes, u64::from(frequency));
    }
}
