use super::aligned::Aligned;
use crate::ops::attention::Heads;

pub(super) const PAGE: usize = 16;

/// Keys and values of 16 positions in all layers. Each `[layer, head]` has keys
/// `[width, 16 positions]`, so that 16 scores need no horizontal sum, and values
/// `[16 positions, value_width]`.
#[derive(Debug)]
struct Page {
    data: Aligned<f32>,
    users: usize,
}

/// Paged key-value cache of all sequences.
///
/// Pages are allocated on demand and reused once no sequence uses them. Sequences share only full
/// pages, which are copied before a write.
#[derive(Debug)]
pub(crate) struct Cache {
    heads: Heads,
    layers: usize,
    pages: Vec<Page>,
    free: Vec<usize>,
    /// Each sequence's page table, in position order.
    tables: Vec<Vec<usize>>,
}

impl Cache {
    pub(super) fn new(heads: Heads, layers: usize, sequences: usize) -> Self {
        Self { heads, layers, pages: Vec::new(), free: Vec::new(), tables: vec![Vec::new(); sequences] }
    }

    pub(super) fn value_width(&self) -> usize {
        value_width(self.heads)
    }

    pub(crate) fn numbers(heads: Heads, positions: usize) -> usize {
        positions.div_ceil(PAGE) * heads.keys * part_len(heads)
    }

    pub(super) fn heads(&self) -> Heads {
        self.heads
    }

    pub(super) fn table(&self, sequence: usize) -> &[usize] {
        &self.tables[sequence]
    }

    pub(super) fn part(&self, page: usize, layer: usize, head: usize) -> (&[f32], &[f32]) {
        let len = part_len(self.heads);
        let start = (layer * self.heads.keys + head) * len;
        self.pages[page].data.get()[start..start + len].split_at(self.heads.width * PAGE)
    }

    pub(super) fn keep(&mut self, sequence: usize, positions: usize) {
        let whole = positions.div_ceil(PAGE).min(self.tables[sequence].len());
        for page in self.tables[sequence].split_off(whole) {
            self.release(page);
        }
    }

    /// Shares another sequence's first `positions` positions; both sequences must have the same
    /// tokens there.
    pub(super) fn take_over(&mut self, from: usize, to: usize, positions: usize) {
        let mut pages = self.tables[from][..positions / PAGE].to_vec();
        for &page in &pages {
            self.pages[page].users += 1;
        }
        if !positions.is_multiple_of(PAGE) {
            pages.push(self.copied(self.tables[from][positions / PAGE]));
        }
        self.keep(to, 0);
        self.tables[to] = pages;
    }

    /// Makes the page of a position writable, copying it if it is shared.
    pub(super) fn claim(&mut self, sequence: usize, position: usize) {
        let index = position / PAGE;
        while self.tables[sequence].len() <= index {
            let page = self.unused();
            self.tables[sequence].push(page);
        }
        let page = self.tables[sequence][index];
        if self.pages[page].users > 1 {
            self.tables[sequence][index] = self.copied(page);
            self.release(page);
        }
    }

    pub(super) fn write(
        &mut self,
        sequence: usize,
        layer: usize,
        position: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let Heads { keys, width, .. } = self.heads;
        let (part, value_width, place) = (part_len(self.heads), self.value_width(), position % PAGE);
        let page = &mut self.pages[self.tables[sequence][position / PAGE]];
        let parts = page.data.get_mut()[layer * keys * part..].chunks_exact_mut(part);
        for ((to, key), value) in parts.zip(key.chunks_exact(width)).zip(value.chunks_exact(width)) {
            let (keys, values) = to.split_at_mut(width * PAGE);
            for (to, &key) in keys[place..].iter_mut().step_by(PAGE).zip(key) {
                *to = key;
            }
            values[place * value_width..][..width].copy_from_slice(value);
        }
    }

    fn unused(&mut self) -> usize {
        if let Some(page) = self.free.pop() {
            self.pages[page].users = 1;
            return page;
        }
        let len = self.layers * self.heads.keys * part_len(self.heads);
        self.pages.push(Page { data: Aligned::zeros(len), users: 1 });
        self.pages.len() - 1
    }

    fn copied(&mut self, page: usize) -> usize {
        let copy = self.unused();
        if let Ok([from, to]) = self.pages.get_disjoint_mut([page, copy]) {
            to.data.get_mut().copy_from_slice(from.data.get());
        }
        copy
    }

    fn release(&mut self, page: usize) {
        self.pages[page].users -= 1;
        if self.pages[page].users == 0 {
            self.free.push(page);
        }
    }
}

fn value_width(heads: Heads) -> usize {
    heads.width.next_multiple_of(PAGE)
}

fn part_len(heads: Heads) -> usize {
    PAGE * (heads.width + value_width(heads))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { queries: 2, keys: 1, width: 2 };

    fn key(cache: &Cache, sequence: usize, position: usize) -> f32 {
        cache.part(cache.table(sequence)[position / PAGE], 1, 0).0[position % PAGE]
    }

    fn write(cache: &mut Cache, sequence: usize, positions: std::ops::Range<usize>, mark: f32) {
        for position in positions {
            cache.claim(sequence, position);
            for layer in 0..2 {
                let value = mark + position as f32;
                cache.write(sequence, layer, position, &[value, 0.0], &[value, 0.0]);
            }
        }
    }

    #[test]
    fn shared_pages_are_copied_before_they_are_written_to() {
        let mut cache = Cache::new(HEADS, 2, 3);
        write(&mut cache, 0, 0..40, 0.0);
        cache.take_over(0, 1, 35);
        cache.take_over(1, 2, 20);
        assert_eq!(cache.table(1)[..2], cache.table(0)[..2]);
        assert_ne!(cache.table(1)[2], cache.table(0)[2], "a page that is not whole is copied");
        assert_eq!(cache.pages.len(), 5);
        write(&mut cache, 1, 35..40, 100.0);
        cache.keep(2, 10);
        write(&mut cache, 2, 10..20, 200.0);
        for position in 0..40 {
            let own = position as f32;
            assert_eq!(key(&cache, 0, position), own);
            assert_eq!(key(&cache, 1, position), if position < 35 { own } else { 100.0 + own });
            if position < 20 {
                assert_eq!(key(&cache, 2, position), if position < 10 { own } else { 200.0 + own });
            }
        }
    }

    #[test]
    fn pages_that_nobody_has_are_used_again() {
        let mut cache = Cache::new(HEADS, 2, 2);
        write(&mut cache, 0, 0..64, 0.0);
        cache.take_over(0, 1, 32);
        cache.keep(0, 0);
        assert_eq!((cache.pages.len(), cache.free.len()), (4, 2));
        write(&mut cache, 0, 0..48, 100.0);
        assert_eq!((cache.pages.len(), cache.free.len()), (5, 0));
        assert_eq!([key(&cache, 1, 31), key(&cache, 0, 31)], [31.0, 131.0]);
        cache.keep(0, 0);
        cache.keep(1, 0);
        assert_eq!(cache.free.len(), 5);
        assert!(cache.pages.iter().all(|page| page.users == 0));
    }
}
