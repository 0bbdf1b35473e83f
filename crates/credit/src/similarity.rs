//! A fast, bit-exact version of Python difflib's `SequenceMatcher(None, text, other).ratio()`.
//!
//! Ratcliff-Obershelp finds the longest matching block (ties: first in `text`, then in `other`) and
//! repeats the search on both sides of this block. The ratio is twice the number of matched
//! characters divided by the length of both texts. With `autojunk` and at least 200 characters in
//! `other`, a character that makes up more than 1 % of `other` can extend a match but not start
//! one.
//!
//! Three things make this version fast: matches start from equal 8-grams, else 4-grams, else
//! characters; each text is indexed only once; and a comparison stops as soon as an upper bound of
//! the ratio is below the threshold.

use crate::hashing::FastMap;

/// Indexed n-gram lengths, in order of use.
const GRAMS: [usize; 3] = [8, 4, 1];

/// Id of a text in a [`Similarity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(u32);

impl TextId {
    /// Returns the text's index, in the order of interning.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Compares interned texts.
#[derive(Debug, Default)]
pub struct Similarity {
    autojunk: bool,
    ids: FastMap<String, TextId>,
    texts: Vec<Text>,
    indices: Vec<Index>,
    scratch: Scratch,
}

#[derive(Debug)]
struct Text {
    /// Hash of the n-gram ending at each position, per n in [`GRAMS`] (for n = 1, the symbol).
    /// Texts whose hashes match are then compared symbol by symbol.
    keys: [Vec<u32>; 3],
    counts: Vec<(u32, u32)>,
    sketches: Sketches,
}

impl Text {
    fn symbols(&self) -> &[u32] {
        &self.keys[2]
    }
}

#[derive(Debug, Default)]
struct Index {
    parts: [Option<Positions>; 3],
}

impl Similarity {
    /// Creates an empty set of texts; `autojunk` turns on difflib's heuristic of that name.
    pub fn new(autojunk: bool) -> Self {
        Self { autojunk, ..Self::default() }
    }

    /// Returns the text's id; equal texts share it.
    pub fn intern(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = TextId(self.texts.len() as u32);
        let symbols: Vec<u32> = text.chars().map(u32::from).collect();
        let [long, short, _] = GRAMS;
        let mix = |a: u32, b: u32| (a.rotate_left(15) ^ b).wrapping_mul(0x9E37_79B1);
        let behind = |at: usize, by: usize| at.saturating_sub(by);
        let pairs: Vec<u32> = (0..symbols.len()).map(|at| mix(symbols[behind(at, 1)], symbols[at])).collect();
        let grams: Vec<u32> =
            (0..symbols.len()).map(|at| mix(pairs[behind(at, short / 2)], pairs[at])).collect();
        let long_grams: Vec<u32> =
            (0..symbols.len()).map(|at| mix(grams[behind(at, long / 2)], grams[at])).collect();
        let counts = counts(&symbols);
        let sketches = Sketches::new(&symbols);
        self.texts.push(Text { keys: [long_grams, grams, symbols], counts, sketches });
        self.indices.push(Index::default());
        self.ids.insert(text.to_owned(), id);
        id
    }

    /// Returns `SequenceMatcher(None, text, other, autojunk).ratio()`; swapping the two texts can
    /// change the ratio.
    pub fn ratio(&mut self, text: TextId, other: TextId) -> f64 {
        self.ratio_where(text, other, |_| true).unwrap_or(0.0)
    }

    /// Returns the ratio if it is at least `bar`.
    pub fn ratio_at_least(&mut self, text: TextId, other: TextId, bar: f64) -> Option<f64> {
        self.ratio_where(text, other, |ratio| ratio >= bar)
    }

    /// Returns the ratio if it is above `bar`.
    pub fn ratio_above(&mut self, text: TextId, other: TextId, bar: f64) -> Option<f64> {
        self.ratio_where(text, other, |ratio| ratio > bar)
    }

    /// Returns the ratio if it satisfies `wanted`, which must be monotonic.
    fn ratio_where(&mut self, text: TextId, other: TextId, wanted: impl Fn(f64) -> bool) -> Option<f64> {
        let (a, b) = (&self.texts[text.index()], &self.texts[other.index()]);
        let length = a.symbols().len() + b.symbols().len();
        let ratio = |matches: usize| if length == 0 { 1.0 } else { 2.0 * matches as f64 / length as f64 };
        let keep = |ratio: f64| if wanted(ratio) { Some(ratio) } else { None };
        if text == other {
            return keep(1.0);
        }
        if !wanted(ratio(a.symbols().len().min(b.symbols().len()))) || !wanted(ratio(shared(a, b))) {
            return None;
        }
        // The ratio grows with the matches, so the threshold is a number of matches.
        let most = a.symbols().len().min(b.symbols().len());
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = usize::midpoint(low, high);
            if wanted(ratio(middle)) { high = middle } else { low = middle + 1 }
        }
        if !a.sketches.allow(&b.sketches, length, low) {
            return None;
        }
        let index = &mut self.indices[other.index()];
        let matches = self.scratch.matches((a, b), index, self.autojunk, low)?;
        keep(ratio(matches))
    }
}

/// Computes the ratio of two texts; [`Similarity`] is faster for many texts.
pub fn ratio(text: &str, other: &str, autojunk: bool) -> f64 {
    let mut similarity = Similarity::new(autojunk);
    let (text, other) = (similarity.intern(text), similarity.intern(other));
    similarity.ratio(text, other)
}

fn counts(symbols: &[u32]) -> Vec<(u32, u32)> {
    let mut frequent = [0_u32; 256];
    let mut others = Vec::new();
    for &symbol in symbols {
        match frequent.get_mut(symbol as usize) {
            Some(count) => *count += 1,
            None => others.push(symbol),
        }
    }
    others.sort_unstable();
    let frequent = (0..).zip(frequent).filter(|&(_, count)| count > 0);
    frequent.chain(others.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32))).collect()
}

/// Returns the number of shared characters, an upper bound on matches.
fn shared(a: &Text, b: &Text) -> usize {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(&(x, n)), Some(&(y, m))) = (a.counts.get(i), b.counts.get(j)) {
        if x == y {
            sum += n.min(m);
        }
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    sum as usize
}

const BINS: usize = 4096;

#[derive(Debug)]
struct Sketches {
    /// One table of counts per n-gram length; `None` if a bin overflowed.
    counts: [Option<Box<[u8; BINS]>>; 3],
}

impl Sketches {
    fn new(symbols: &[u32]) -> Self {
        let sketch = |gram: usize| {
            let mut counts = Box::new([0_u8; BINS]);
            for window in symbols.windows(gram) {
                let hash = window
                    .iter()
                    .fold(0_u32, |hash, &symbol| (hash ^ symbol).wrapping_mul(0x9E37_79B1).rotate_left(13));
                let bin = &mut counts[(hash.wrapping_mul(0x85EB_CA6B) >> 20) as usize];
                *bin = bin.checked_add(1)?;
            }
            Some(counts)
        };
        Self { counts: [sketch(2), sketch(3), sketch(4)] }
    }

    /// Returns true if `needed` characters might match, given that both texts together have
    /// `length` characters.
    ///
    /// Unmatched characters separate the matching blocks, so there is at most one more block than
    /// unmatched characters. A block of k characters shares k - n + 1 n-grams; collisions in the
    /// bins can only raise the estimate.
    fn allow(&self, other: &Self, length: usize, needed: usize) -> bool {
        let blocks = length - 2 * needed + 1;
        self.counts.iter().zip(&other.counts).enumerate().all(|(index, pair)| {
            let least = needed.saturating_sub((index + 1) * blocks);
            let (Some(a), Some(b)) = pair else { return true };
            least == 0
                || a.iter().zip(b.iter()).map(|(&a, &b)| u32::from(a.min(b))).sum::<u32>() as usize >= least
        })
    }
}

impl Index {
    fn part(&mut self, level: usize, text: &Text, autojunk: bool) -> &Positions {
        self.parts[level].get_or_insert_with(|| {
            let (gram, keys) = (GRAMS[level], &text.keys[level]);
            let first = gram - 1;
            let Some(before) = popular_before(text, autojunk) else {
                return Positions::new(
                    keys.iter().enumerate().skip(first).map(|(at, &key)| (key, at as u32)),
                );
            };
            // An n-gram counts only without popular symbols.
            let plain = |&at: &usize| before[at + 1] == before[at + 1 - gram];
            Positions::new((first..keys.len()).filter(plain).map(|at| (keys[at], at as u32)))
        })
    }
}

fn popular_before(text: &Text, autojunk: bool) -> Option<Vec<u32>> {
    let length = text.symbols().len();
    if !autojunk || length < 200 {
        return None;
    }
    let most = (length / 100 + 1) as u32;
    let popular: Vec<u32> =
        text.counts.iter().filter(|&&(_, count)| count > most).map(|&(symbol, _)| symbol).collect();
    let mut sum = 0;
    let mut before = Vec::with_capacity(length + 1);
    before.push(0);
    for symbol in text.symbols() {
        sum += u32::from(popular.binary_search(symbol).is_ok());
        before.push(sum);
    }
    Some(before)
}

#[derive(Debug)]
struct Positions {
    /// Open-addressing hash table of (key, start, end); an entry is free if start == end.
    slots: Vec<(u32, u32, u32)>,
    shift: u32,
    positions: Vec<u32>,
}

impl Positions {
    fn new(entries: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let count = entries.clone().count();
        let bits = (count * 2).next_power_of_two().trailing_zeros().max(1);
        let mut table =
            Self { slots: vec![(0, 0, 0); 1 << bits], shift: 64 - bits, positions: vec![0; count] };
        for (key, _) in entries.clone() {
            let slot = table.slot(key);
            let entry = &mut table.slots[slot];
            *entry = (key, 0, entry.2 + 1);
        }
        let mut start = 0;
        let mut filled = vec![0; table.slots.len()];
        for ((_, first, end), filled) in
            table.slots.iter_mut().zip(&mut filled).filter(|(slot, _)| slot.2 > 0)
        {
            let count = *end;
            (*first, *end, *filled) = (start, start + count, start);
            start += count;
        }
        for (key, position) in entries {
            let end: &mut u32 = &mut filled[table.slot(key)];
            table.positions[*end as usize] = position;
            *end += 1;
        }
        table
    }

    fn slot(&self, key: u32) -> usize {
        let mut slot =
            (u64::from(key).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        loop {
            let (found, start, end) = self.slots[slot];
            if found == key || start == end {
                return slot;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    fn range(&self, key: u32) -> (u32, u32) {
        let (found, start, end) = self.slots[self.slot(key)];
        if found == key { (start, end) } else { (0, 0) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    alo: usize,
    ahi: usize,
    blo: usize,
    bhi: usize,
}

impl Block {
    fn most(self) -> usize {
        (self.ahi - self.alo).min(self.bhi - self.blo)
    }
}

#[derive(Debug, Default)]
struct Scratch {
    /// Length of the run ending at each position of `other`; valid if `row` is the previous row.
    length: Vec<u32>,
    row: Vec<u32>,
    current: u32,
    /// Range of matching positions in `other`, per n-gram length and text position; empty until
    /// needed.
    ranges: [Vec<(u32, u32)>; 3],
}

impl Scratch {
    /// Returns the number of matched characters; `None` if it is below `needed`.
    fn matches(
        &mut self,
        (a, b): (&Text, &Text),
        index: &mut Index,
        autojunk: bool,
        needed: usize,
    ) -> Option<usize> {
        if self.row.len() < b.symbols().len() {
            self.row.resize(b.symbols().len(), 0);
            self.length.resize(b.symbols().len(), 0);
        }
        self.ranges.iter_mut().for_each(Vec::clear);
        let whole = Block { alo: 0, ahi: a.symbols().len(), blo: 0, bhi: b.symbols().len() };
        let mut pending = vec![whole];
        let (mut matched, mut possible) = (0, whole.most());
        while let Some(block) = pending.pop() {
            if possible < needed {
                return None;
            }
            possible -= block.most();
            let (i, j, size) = self.longest((a, b), index, autojunk, block);
            if size == 0 {
                continue;
            }
            matched += size;
            possible += size;
            let left = Block { ahi: i, bhi: j, ..block };
            let right = Block { alo: i + size, blo: j + size, ..block };
            for part in [left, right] {
                if part.most() > 0 {
                    possible += part.most();
                    pending.push(part);
                }
            }
        }
        (matched >= needed).then_some(matched)
    }

    /// Finds the block that difflib's `find_longest_match` finds if there is no junk.
    fn longest(
        &mut self,
        (a, b): (&Text, &Text),
        index: &mut Index,
        autojunk: bool,
        block: Block,
    ) -> (usize, usize, usize) {
        let rows = (3 * a.symbols().len() + 4) as u32;
        if self.current > u32::MAX - rows {
            self.row.fill(0);
            self.current = 0;
        }
        let Block { alo, ahi, blo, bhi } = block;
        let mut best = Best { i: alo, j: blo, size: 0, end: usize::MAX };
        for (level, &gram) in GRAMS.iter().enumerate() {
            if block.most() < gram || best.size > 0 {
                continue;
            }
            let part = index.part(level, b, autojunk);
            let mut ranges = std::mem::take(&mut self.ranges[level]);
            if ranges.is_empty() {
                ranges.extend(a.keys[level].iter().map(|&key| part.range(key)));
            }
            self.current += 1;
            for at in alo + gram - 1..ahi {
                self.current += 1;
                let (start, end) = ranges[at];
                let positions = &part.positions[start as usize..end as usize];
                if !positions.is_empty() {
                    self.row(
                        (a.symbols(), b.symbols()),
                        at,
                        positions,
                        (blo + gram - 1, bhi),
                        gram,
                        &mut best,
                    );
                }
            }
            self.ranges[level] = ranges;
        }
        let (a, b) = (a.symbols(), b.symbols());
        // Popular symbols only extend a run, possibly an empty one at the block's start.
        let Best { mut i, mut j, mut size, .. } = best;
        while i > alo && j > blo && a[i - 1] == b[j - 1] {
            (i, j, size) = (i - 1, j - 1, size + 1);
        }
        while i + size < ahi && j + size < bhi && a[i + size] == b[j + size] {
            size += 1;
        }
        (i, j, size)
    }

    /// Extends the previous row's runs from last to first, so that one buffer holds both rows. The
    /// first of equally long runs is kept.
    fn row(
        &mut self,
        (a, b): (&[u32], &[u32]),
        at: usize,
        positions: &[u32],
        (low, high): (usize, usize),
        gram: usize,
        best: &mut Best,
    ) {
        let below = positions.partition_point(|&position| (position as usize) < high);
        for &position in positions[..below].iter().rev() {
            let position = position as usize;
            if position < low {
                break;
            }
            let size = if position > 0 && self.row[position - 1] == self.current - 1 {
                if a[at] != b[position] {
                    continue;
                }
                self.length[position - 1] as usize + 1
            } else {
                if a[at + 1 - gram..=at] != b[position + 1 - gram..=position] {
                    continue;
                }
                gram
            };
            self.row[position] = self.current;
            self.length[position] = size as u32;
            if size > best.size || (size == best.size && best.end == at) {
                *best = Best { i: at + 1 - size, j: position + 1 - size, size, end: at };
            }
        }
    }
}

struct Best {
    i: usize,
    j: usize,
    size: usize,
    end: usize,
}
