//! Collects each term's postings.
//!
//! At the memory limit, the postings of all terms are written to a temporary file (a run), ordered
//! by term. Later runs contain later documents, so merging concatenates a term's postings.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};

use turnwise_files::PathError;

use super::SearchError;
use super::postings::{BLOCK, ENTRY, FOOTER, HEAD, TAIL, read_varint, write_posting, write_varint};

/// Approximate memory in bytes that a term takes in addition to its text and postings.
const TERM: usize = 96;

/// A term's postings. Each posting is `2 d + 1` if the term occurs once in the document, and
/// otherwise `2 d` followed by the count; `d` is the distance from the previous document.
#[derive(Default)]
struct Growing {
    bytes: Vec<u8>,
    last: u32,
    documents: u32,
}

enum Run {
    Memory(std::vec::IntoIter<(Box<str>, Growing)>),
    File(BufReader<File>),
}

pub(super) struct Inverter {
    terms: HashMap<Box<str>, u32>,
    lists: Vec<Growing>,
    used: usize,
    memory: usize,
    /// Folder for runs; `None` for memory only.
    folder: Option<PathBuf>,
    runs: Vec<File>,
    norms: Vec<u8>,
    names: String,
    ends: Vec<usize>,
    scratch: Vec<u32>,
}

impl Inverter {
    pub(super) fn new(folder: Option<&Path>, memory: usize) -> Self {
        Self {
            terms: HashMap::new(),
            lists: Vec::new(),
            used: 0,
            memory,
            folder: folder.map(Path::to_owned),
            runs: Vec::new(),
            norms: Vec::new(),
            names: String::new(),
            ends: Vec::new(),
            scratch: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Adds a document; terms may repeat and be in any order.
    pub(super) fn add<'a>(
        &mut self,
        name: &str,
        norm: u8,
        terms: impl Iterator<Item = &'a str>,
    ) -> Result<(), SearchError> {
        let document = u32::try_from(self.norms.len()).map_err(|_| SearchError::TooMany)?;
        self.norms.push(norm);
        self.names.push_str(name);
        self.ends.push(self.names.len());
        self.scratch.clear();
        for term in terms {
            let known = self.terms.get(term).copied();
            let number = known.unwrap_or_else(|| {
                let number = self.lists.len() as u32;
                self.terms.insert(term.into(), number);
                self.lists.push(Growing::default());
                self.used += TERM + term.len();
                number
            });
            self.scratch.push(number);
        }
        self.scratch.sort_unstable();
        for same in self.scratch.chunk_by(|left, right| left == right) {
            let list = &mut self.lists[same[0] as usize];
            let before = list.bytes.len();
            write_posting(&mut list.bytes, document - list.last, same.len() as u32);
            self.used += list.bytes.len() - before;
            list.last = document;
            list.documents += 1;
        }
        // A growing list may have reserved twice its bytes.
        if self.used > self.memory / 2
            && let Some(folder) = self.folder.clone()
        {
            let run = self.spill(&folder).map_err(|source| PathError::new(&folder, source))?;
            self.runs.push(run);
        }
        Ok(())
    }

    fn sorted(&mut self) -> Vec<(Box<str>, Growing)> {
        let mut lists = std::mem::take(&mut self.lists);
        let terms = std::mem::take(&mut self.terms);
        let mut sorted: Vec<_> = terms
            .into_iter()
            .map(|(term, number)| (term, std::mem::take(&mut lists[number as usize])))
            .collect();
        sorted.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        self.used = 0;
        sorted
    }

    fn spill(&mut self, folder: &Path) -> io::Result<File> {
        let mut out = BufWriter::new(tempfile::tempfile_in(folder)?);
        let mut head = Vec::new();
        for (term, list) in self.sorted() {
            head.clear();
            for number in [term.len(), list.documents as usize, list.bytes.len()] {
                write_varint(&mut head, number as u64);
            }
            out.write_all(&head)?;
            out.write_all(term.as_bytes())?;
            out.write_all(&list.bytes)?;
        }
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }

    pub(super) fn finish(mut self, out: &mut impl Write) -> io::Result<()> {
        let last = Run::Memory(self.sorted().into_iter());
        let runs = self.runs.drain(..).map(|file| Run::File(BufReader::new(file)));
        let mut runs: Vec<Run> = runs.chain([last]).collect();
        let mut heads: Vec<Option<(Box<str>, Growing)>> =
            runs.iter_mut().map(Run::next).collect::<io::Result<_>>()?;

        let mut out = Counted { out, written: 0 };
        out.write_all(HEAD)?;
        let (mut texts, mut entries) = (Vec::new(), Vec::new());
        let mut block = Blocks::default();
        while let Some(term) = heads.iter().flatten().map(|(term, _)| term).min().cloned() {
            block.clear();
            for (head, run) in heads.iter_mut().zip(&mut runs) {
                if let Some((_, list)) = head.take_if(|(other, _)| *other == term) {
                    block.append(&list)?;
                    *head = run.next()?;
                }
            }
            texts.extend_from_slice(term.as_bytes());
            let end = u32::try_from(texts.len()).map_err(|_| io::Error::other("too many terms"))?;
            entries.extend(out.written.to_le_bytes());
            entries.extend(end.to_le_bytes());
            entries.extend(block.count.to_le_bytes());
            block.write(&mut out)?;
        }

        let (ranks, ends, names) = self.names()?;
        let counts = [entries.len() / ENTRY, self.norms.len(), ends.len() / 4];
        let mut footer = Vec::with_capacity(FOOTER);
        for part in [&texts, &entries, &self.norms, &ranks, &ends, &names] {
            footer.push(out.written);
            out.write_all(part)?;
        }
        footer.extend(counts.map(|count| count as u64));
        for number in footer {
            out.write_all(&number.to_le_bytes())?;
        }
        out.write_all(TAIL)
    }

    fn names(&self) -> io::Result<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let name = |document: u32| {
            let document = document as usize;
            let start = document.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.names[start..self.ends[document]]
        };
        let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
        order.sort_by_key(|&document| name(document));
        let mut ranks = vec![0; order.len() * 4];
        let (mut ends, mut names) = (Vec::new(), Vec::new());
        for (rank, same) in order.chunk_by(|&left, &right| name(left) == name(right)).enumerate() {
            names.extend_from_slice(name(same[0]).as_bytes());
            let end = u32::try_from(names.len()).map_err(|_| io::Error::other("identifiers too long"))?;
            ends.extend(end.to_le_bytes());
            for &document in same {
                ranks[document as usize * 4..][..4].copy_from_slice(&(rank as u32).to_le_bytes());
            }
        }
        Ok((ranks, ends, names))
    }
}

impl Run {
    fn next(&mut self) -> io::Result<Option<(Box<str>, Growing)>> {
        let file = match self {
            Self::Memory(lists) => return Ok(lists.next()),
            Self::File(file) => file,
        };
        let Some(length) = read_number(file)? else { return Ok(None) };
        let mut number = || read_number(file)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof));
        let (documents, size) = (number()? as u32, number()? as usize);
        let mut term = vec![0; length as usize];
        file.read_exact(&mut term)?;
        let mut bytes = vec![0; size];
        file.read_exact(&mut bytes)?;
        let term = String::from_utf8(term).map_err(io::Error::other)?;
        Ok(Some((term.into(), Growing { bytes, last: 0, documents })))
    }
}

fn read_number(file: &mut impl Read) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        if file.read(&mut byte)? == 0 {
            return if bytes.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        bytes.push(byte[0]);
        if byte[0] < 0x80 {
            return Ok(read_varint(&mut bytes.as_slice()));
        }
    }
}

#[derive(Default)]
struct Blocks {
    table: Vec<u8>,
    bytes: Vec<u8>,
    count: u32,
    last: u32,
}

impl Blocks {
    fn clear(&mut self) {
        self.table.clear();
        self.bytes.clear();
        (self.count, self.last) = (0, 0);
    }

    fn append(&mut self, list: &Growing) -> io::Result<()> {
        let broken = || io::Error::other("a list of postings is broken");
        let (mut bytes, mut document) = (list.bytes.as_slice(), 0);
        for _ in 0..list.documents {
            let code = read_varint(&mut bytes).ok_or_else(broken)?;
            document += (code >> 1) as u32;
            let once = code & 1 == 1;
            let frequency = if once { 1 } else { read_varint(&mut bytes).ok_or_else(broken)? };
            write_posting(&mut self.bytes, document - self.last, frequency as u32);
            self.last = document;
            self.count += 1;
            if (self.count as usize).is_multiple_of(BLOCK) {
                self.close()?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let end =
            u32::try_from(self.bytes.len()).map_err(|_| io::Error::other("a term's list is too long"))?;
        self.table.extend(self.last.to_le_bytes());
        self.table.extend(end.to_le_bytes());
        Ok(())
    }

    fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.count as usize > BLOCK {
            if !(self.count as usize).is_multiple_of(BLOCK) {
                self.close()?;
            }
            out.write_all(&self.table)?;
        }
        out.write_all(&self.bytes)
    }
}

struct Counted<W> {
    out: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
