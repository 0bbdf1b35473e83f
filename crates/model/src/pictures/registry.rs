//! Images in sequences, and token positions (M-RoPE).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Image, Prepared, VisionConfig};
use crate::ModelError;

/// First token id of images, above every vocabulary.
pub const FIRST_PICTURE_TOKEN: u32 = 1 << 31;

/// Maximum bytes of images in memory. Beyond this limit, the least recently used images are
/// dropped, except those in use.
const MOST_BYTES: usize = 1 << 30;

/// Token ids of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureTokens {
    /// First id; the others follow consecutively.
    pub first: u32,
    /// Tokens per column and per row; their product is the image's number of tokens.
    pub grid: [usize; 2],
}

impl PictureTokens {
    /// Returns the ids, in sequence order.
    pub fn ids(&self) -> Range<u32> {
        self.first..self.first + (self.grid[0] * self.grid[1]) as u32
    }
}

/// Handle that keeps an image in memory.
#[derive(Clone, Debug)]
pub struct HeldPicture {
    prepared: Arc<Prepared>,
}

impl HeldPicture {
    /// Returns the resized image, which an image processor with the same settings does not resize
    /// again.
    pub fn resized(&self, config: &VisionConfig) -> Image {
        let [height, width] = self.prepared.grid.map(|side| side * config.factor());
        Image { width, height, rgb: self.prepared.levels.clone() }
    }
}

/// Images that sequences refer to by token ids; clones share them.
///
/// Identical images in memory have the same ids. Ids are valid only in this process and for this
/// model, and must not be written to files.
#[derive(Clone, Default)]
pub struct Pictures(Arc<Mutex<Table>>);

/// All image tables compare equal, so that configs of equal shapes are equal.
impl PartialEq for Pictures {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Pictures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} pictures", self.lock().known.len())
    }
}

#[derive(Default)]
struct Table {
    assigned: u32,
    by_content: HashMap<Arc<Prepared>, u32>,
    known: BTreeMap<u32, Entry>,
    names: HashMap<String, u32>,
    bytes: usize,
    /// Counts uses, to find the least recently used image.
    clock: u64,
}

struct Entry {
    prepared: Arc<Prepared>,
    names: Vec<String>,
    used: u64,
}

impl Pictures {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panicking thread leaves no partial entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resizes an image as the model's image processor does, adds it and returns its tokens.
    ///
    /// # Errors
    /// Returns [`ModelError::Setting`] if the image has no pixels or an aspect ratio above 200, or
    /// if all ids are used.
    pub fn add(&self, image: &Image, config: &VisionConfig) -> Result<PictureTokens, ModelError> {
        Ok(self.add_held(image, config)?.0)
    }

    /// Adds an image and keeps it in memory.
    ///
    /// # Errors
    /// Fails like [`Pictures::add`].
    pub fn add_held(
        &self,
        image: &Image,
        config: &VisionConfig,
    ) -> Result<(PictureTokens, HeldPicture), ModelError> {
        let fail = |reason: String| ModelError::Setting { key: "picture".into(), reason };
        let prepared = Arc::new(Prepared::new(image, config).map_err(fail)?);
        let (grid, tokens) = (prepared.grid, prepared.tokens());
        let mut table = self.lock();
        table.clock += 1;
        let used = table.clock;
        if let Some(&first) = table.by_content.get(&prepared)
            && let Some(entry) = table.known.get_mut(&first)
        {
            entry.used = used;
            let held = HeldPicture { prepared: Arc::clone(&entry.prepared) };
            return Ok((PictureTokens { first, grid }, held));
        }
        let Some(assigned) = u32::try_from(tokens)
            .ok()
            .and_then(|count| table.assigned.checked_add(count))
            .filter(|&assigned| assigned <= u32::MAX - FIRST_PICTURE_TOKEN)
        else {
            return Err(fail("all token ids for pictures are used up; restart the program".into()));
        };
        let first = FIRST_PICTURE_TOKEN + table.assigned;
        table.assigned = assigned;
        table.bytes += prepared.levels.len();
        table.by_content.insert(Arc::clone(&prepared), first);
        let held = HeldPicture { prepared: Arc::clone(&prepared) };
        table.known.insert(first, Entry { prepared, names: Vec::new(), used });
        table.drop_oldest(first, MOST_BYTES);
        Ok((PictureTokens { first, grid }, held))
    }

    /// Gives the image that starts with this token a name, for example a hash of its file.
    pub fn name(&self, first: u32, name: &str) {
        let mut table = self.lock();
        if let Some(entry) = table.known.get_mut(&first) {
            entry.names.push(name.to_owned());
            table.names.insert(name.to_owned(), first);
        }
    }

    /// Finds an image by name and keeps it in memory.
    pub fn named(&self, name: &str) -> Option<(PictureTokens, HeldPicture)> {
        let first = *self.lock().names.get(name)?;
        let prepared = self.get(first)?;
        Some((PictureTokens { first, grid: prepared.grid }, HeldPicture { prepared }))
    }

    pub(crate) fn of_token(&self, token: u32) -> Option<PictureTokens> {
        if token < FIRST_PICTURE_TOKEN {
            return None;
        }
        let table = self.lock();
        let (&first, entry) = table.known.range(..=token).next_back()?;
        let found = PictureTokens { first, grid: entry.prepared.grid };
        found.ids().contains(&token).then_some(found)
    }

    pub(crate) fn get(&self, first: u32) -> Option<Arc<Prepared>> {
        let mut table = self.lock();
        table.clock += 1;
        let used = table.clock;
        let entry = table.known.get_mut(&first)?;
        entry.used = used;
        Some(Arc::clone(&entry.prepared))
    }

    /// Returns a sequence's images with their token ranges, and keeps them in memory.
    ///
    /// # Errors
    /// Fails, with the token's position, if an image was dropped or some of its tokens are missing.
    pub fn shown(&self, tokens: &[u32]) -> Result<Vec<(Range<usize>, HeldPicture)>, String> {
        let mut held = Vec::new();
        let mut position = 0;
        while position < tokens.len() {
            let token = tokens[position];
            if token < FIRST_PICTURE_TOKEN {
                position += 1;
                continue;
            }
            let found =
                self.of_token(token).and_then(|picture| Some((picture.ids(), self.get(picture.first)?)));
            let Some((ids, picture)) = found else {
                return Err(format!("the picture at token {position} is not in memory; add it again"));
            };
            let end = position + ids.len();
            if tokens.get(position..end).is_none_or(|run| !run.iter().copied().eq(ids)) {
                return Err(format!(
                    "the picture at token {position} is cut: all of its tokens must be there"
                ));
            }
            held.push((position..end, HeldPicture { prepared: picture }));
            position = end;
        }
        Ok(held)
    }

    /// Returns a sequence's images, which stay in memory while these references exist.
    ///
    /// # Errors
    /// Fails like [`Pictures::shown`].
    pub(crate) fn hold(&self, tokens: &[u32]) -> Result<Vec<Arc<Prepared>>, String> {
        Ok(self.shown(tokens)?.into_iter().map(|(_, picture)| picture.prepared).collect())
    }

    /// Returns a prompt's M-RoPE positions; empty without images.
    pub(crate) fn places(&self, tokens: &[u32]) -> Vec<[u32; 3]> {
        if tokens.iter().all(|&token| token < FIRST_PICTURE_TOKEN) {
            return Vec::new();
        }
        let mut before = None;
        let place = |&token: &u32| {
            let place = self.place_after(before, token);
            before = Some((token, place));
            place
        };
        tokens.iter().map(place).collect()
    }

    /// Returns a token's time, row and column, given the preceding token with its own.
    ///
    /// In text, time, row and column advance by one. In an image, time is constant, and row and
    /// column follow the merged patch. After an image, time, row and column continue at the image's
    /// time plus the number of tokens on its longer side.
    pub(crate) fn place_after(&self, before: Option<(u32, [u32; 3])>, token: u32) -> [u32; 3] {
        let start = match before {
            None => 0,
            Some((last, place)) => match self.of_token(last) {
                Some(picture) if token > last && picture.ids().contains(&token) => place[0],
                Some(picture) => place[0] + picture.grid[0].max(picture.grid[1]) as u32,
                None => place[0] + 1,
            },
        };
        match self.of_token(token) {
            Some(PictureTokens { first, grid }) => {
                let (index, columns) = (token - first, grid[1] as u32);
                [start, start + index / columns, start + index % columns]
            }
            None => [start; 3],
        }
    }
}

impl Table {
    /// Drops the least recently used images beyond `most` bytes, except `but` and those in use. An
    /// image in use has more references than the table's two.
    fn drop_oldest(&mut self, but: u32, most: usize) {
        while self.bytes > most {
            let unused = |entry: &Entry| Arc::strong_count(&entry.prepared) == 2;
            let others = self.known.iter().filter(|(first, entry)| **first != but && unused(entry));
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(&first, _)| first) else {
                return;
            };
            if let Some(Entry { prepared, names, .. }) = self.known.remove(&oldest) {
                self.bytes -= prepared.levels.len();
                for name in &names {
                    self.names.remove(name);
                }
                self.by_content.remove(&prepared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::vision::tests::{add, config, vision};

    #[test]
    fn the_least_recently_used_pictures_are_dropped_unless_they_are_in_use() {
        let config = config();
        let pictures = &vision(&config).pictures;
        let [a, b, c, d] = [8, 16, 24, 32].map(|width| add(&config, 8, width));
        let held = pictures.hold(&a.ids().collect::<Vec<_>>()).unwrap();
        pictures.name(b.first, "b");
        pictures.name(c.first, "c");
        assert_eq!(pictures.named("c").unwrap().0, c);
        let left = || [a, b, c, d].map(|picture| pictures.get(picture.first).is_some());
        let all = pictures.lock().bytes;
        pictures.lock().drop_oldest(d.first, all - 1);
        assert_eq!(left(), [true, false, true, true]);
        assert!(pictures.named("b").is_none() && pictures.named("c").is_some());
        pictures.lock().drop_oldest(d.first, 0);
        assert_eq!(left(), [true, false, false, true]);
        assert!(pictures.hold(&[b.first]).unwrap_err().contains("not in memory"));
        drop(held);
        pictures.lock().drop_oldest(d.first, 0);
        assert_eq!(left(), [false, false, false, true]);
        assert_ne!(add(&config, 8, 8), a);
    }
}
